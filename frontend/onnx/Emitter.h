//===- Emitter.h - Builds tbc ops from values of the ONNX graph ------------===//

#ifndef TBC_FRONTEND_ONNX_EMITTER_H
#define TBC_FRONTEND_ONNX_EMITTER_H

#include "frontend/onnx/Value.h"
#include "ir/ElementTypes.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"

namespace tbc::frontend {

using Attributes = llvm::SmallVector<mlir::NamedAttribute, 6>;

/// Emits ops at the end of the function under construction, at the location of the current node.
///
/// During import the batch has the size `marker`, a prime that divides no other size. So a dim
/// divisible by `marker` is the batch times the quotient, whatever its arithmetic. Example: with
/// marker 97, a dim of 97 * 12 is 12 * batch.
class Emitter {
public:
  Emitter(mlir::OpBuilder builder, int64_t marker) : builder(builder), marker(marker) {}

  mlir::OpBuilder builder;
  const int64_t marker;
  /// The exported batch size of a file with fixed sizes; 0: the batch is a symbol.
  int64_t exportedBatch = 0;
  /// The message about the first node that numbers the samples of the batch; empty without one. It
  /// is refused unless the model pairs samples.
  std::string tableOverBatch;

  /// In the branch of a condition on the number of the sample: the samples that take it. The values
  /// of others are not used there. Null elsewhere; see PerSample.cpp.
  const std::vector<bool> *taken = nullptr;

  void setNode(const std::string &name);
  mlir::Location location() const { return loc; }
  void setLocation(mlir::Location location) { loc = location; }

  bool dependsOnBatch(int64_t size) const { return size != 0 && size % marker == 0; }

  /// Creates an op of the dialect by mnemonic. Callers check shapes; the final verification of the
  /// module catches the rest.
  mlir::Operation *create(llvm::StringRef mnemonic, llvm::ArrayRef<mlir::Value> operands,
                          llvm::ArrayRef<mlir::Type> types, const Attributes &attributes = {});
  mlir::Value createOne(llvm::StringRef mnemonic, llvm::ArrayRef<mlir::Value> operands,
                        mlir::Type type, const Attributes &attributes = {}) {
    return create(mnemonic, operands, {type}, attributes)->getResult(0);
  }

  /// A tensor type; ImportError unless the sizes are positive and their product fits.
  mlir::RankedTensorType type(DType dtype, llvm::ArrayRef<int64_t> shape);

  /// Returns the core of `value` as a tensor. ImportError for known elements that depend on the
  /// batch.
  mlir::Value core(const Value &value);
  /// Returns `value` as a tensor of exactly the logical dims `dims`, a superset of its core's.
  mlir::Value at(const Value &value, llvm::ArrayRef<unsigned> dims);
  /// Returns `value` as a tensor of all its logical dims.
  mlir::Value full(const Value &value);
  /// Returns the same value without dims of size 1 in its core.
  Value withoutUnitDims(const Value &value);

  mlir::Value broadcast(mlir::Value input, llvm::ArrayRef<int64_t> shape,
                        llvm::ArrayRef<int64_t> dims);
  /// `sizes` in row-major order, grouped by `in` and `out`; see tbc.reshape.
  mlir::Value reshape(mlir::Value input, llvm::ArrayRef<int64_t> sizes, llvm::ArrayRef<int64_t> in,
                      llvm::ArrayRef<int64_t> out);
  mlir::Value constant(DType dtype, const Known &elements);

  mlir::NamedAttribute integer(llvm::StringRef name, int64_t value);
  mlir::NamedAttribute real(llvm::StringRef name, double value);
  mlir::NamedAttribute flag(llvm::StringRef name, bool value);
  mlir::NamedAttribute text(llvm::StringRef name, llvm::StringRef value);
  mlir::NamedAttribute integers(llvm::StringRef name, llvm::ArrayRef<int64_t> values);

private:
  mlir::Value emitKnown(const Value &value);
  mlir::Value sampleCount(const Value &value);
  mlir::Value repeatedForSamples(const Value &value);

  mlir::Location loc = builder.getUnknownLoc();
};

/// Returns the sizes of an IR tensor.
inline llvm::ArrayRef<int64_t> shapeOf(mlir::Value tensor) {
  return llvm::cast<mlir::RankedTensorType>(tensor.getType()).getShape();
}

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_EMITTER_H
