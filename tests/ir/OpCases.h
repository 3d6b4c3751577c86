//===- OpCases.h - One small example of every interesting op ---------------===//
//
// The table of cases for the tests of gradients, decompositions and factor rules.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_IR_OPCASES_H
#define TBC_TESTS_IR_OPCASES_H

#include "runtime/kernels/Tensor.h"
#include "tests/ir/ParsedModule.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tbc {

/// An op on small operands.
struct OpCase {
  std::string mnemonic;
  /// Comma-separated; rank-2 f32 tensors are written "2x3xf32".
  std::string operands;
  std::string results;
  /// Without braces.
  std::string attributes = "";
  /// Operand values lie in +-[0.2, 1.5], or above 0.2 if the op or its derivative needs that, e.g.
  /// for log.
  bool positive = false;
  /// The operands with a gradient; absent: every float operand.
  std::optional<std::vector<unsigned>> differentiated = std::nullopt;
  /// The values of integer operands, if all others would be wrong.
  std::map<unsigned, std::vector<int64_t>> integers = {};
  /// If not 0, one of so many floats is NaN, and the first ones are.
  size_t nanEvery = 0;

  /// Returns a function @f that applies the op to its arguments and returns its results.
  std::string module() const;
};
void PrintTo(const OpCase &opCase, std::ostream *stream);

/// Cases of ops with a gradient, and of composite ops.
const std::vector<OpCase> &differentiableCases();
const std::vector<OpCase> &compositeCases();

/// The one op of @f.
mlir::Operation *theOp(ParsedModule &module);

/// Returns values for the arguments of @f, the same in every arithmetic: floats by OpCase, integers
/// 0 to 2. If the op ignores label -100, the first integer is -100. The case may give other
/// integers.
std::vector<kernels::Tensor> operandsFor(const OpCase &opCase, ParsedModule &module,
                                         kernels::Arith arith);

/// Appends arguments of the given types to @f; returns the new values.
llvm::SmallVector<mlir::Value> addArguments(mlir::func::FuncOp function,
                                            llvm::ArrayRef<mlir::Type> types);

/// Makes @f return `values`.
void setResults(mlir::func::FuncOp function, llvm::ArrayRef<mlir::Value> values);

/// Returns the registered ops with `interface` that have no case in `cases`.
template <typename Interface>
std::vector<std::string> opsWithout(const std::vector<OpCase> &cases, mlir::MLIRContext &context) {
  std::vector<std::string> missing;
  for (mlir::RegisteredOperationName name : context.getRegisteredOperations()) {
    if (name.getDialectNamespace() != "tbc" || !name.hasInterface<Interface>())
      continue;
    bool found = llvm::any_of(
        cases, [&](const OpCase &opCase) { return opCase.mnemonic == name.stripDialect(); });
    if (!found)
      missing.push_back(name.getStringRef().str());
  }
  return missing;
}

} // namespace tbc

#endif // TBC_TESTS_IR_OPCASES_H
