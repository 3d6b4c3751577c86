//===- FoldFixture.h - Passes that fold ops keep all results --------------===//

#ifndef TBC_TESTS_PASSES_FOLDFIXTURE_H
#define TBC_TESTS_PASSES_FOLDFIXTURE_H

#include "ir/Evaluate.h"
#include "ir/Interpreter.h"
#include "tests/passes/StepFixture.h"

#include "llvm/Support/MemoryBuffer.h"
#include "gtest/gtest.h"

#include <random>

namespace tbc {

using FoldFn = void (*)(mlir::func::FuncOp function);

inline std::vector<kernels::Tensor> randomInputs(mlir::func::FuncOp function, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<kernels::Tensor> inputs;
  for (mlir::Type type : function.getArgumentTypes()) {
    auto shape = mlir::cast<mlir::RankedTensorType>(type).getShape();
    kernels::TensorType kernelType{kernels::DType::F32, {shape.begin(), shape.end()}};
    std::vector<double> values(size_t(kernels::numElements(kernelType.shape)));
    for (double &value : values)
      value = double(random() % 64) / 16 - 2;
    inputs.push_back(kernels::Tensor::fromDoubles(kernelType, kernels::Arith::Residue61, values));
  }
  return inputs;
}

/// Folds, and expects bitwise the same results in residues. Returns how many ops of type `Op` are
/// gone.
template <typename Op> int64_t foldAndCompare(mlir::func::FuncOp function, FoldFn fold) {
  auto count = [&]() -> int64_t { return llvm::range_size(function.getOps<Op>()); };
  std::vector<kernels::Tensor> inputs = randomInputs(function, 7);
  auto before = evaluateFunction(function, inputs, kernels::Arith::Residue61);
  const int64_t old = count();
  fold(function);
  EXPECT_TRUE(mlir::succeeded(mlir::verify(function)));
  auto after = evaluateFunction(function, inputs, kernels::Arith::Residue61);
  if (mlir::failed(before) || mlir::failed(after) || before->size() != after->size()) {
    ADD_FAILURE() << "no results";
    return 0;
  }
  for (auto [a, b] : llvm::zip_equal(*before, *after))
    EXPECT_TRUE(bitwiseEqual(a, b));
  return old - count();
}

/// foldAndCompare() for every function of a lit test of tests/passes, summed.
template <typename Op> int64_t foldExamples(const std::string &file, FoldFn fold) {
  auto text = llvm::MemoryBuffer::getFile(TBC_SOURCE_DIR "/tests/passes/" + file);
  if (!text) {
    ADD_FAILURE() << file << " is not there";
    return 0;
  }
  int64_t folded = 0;
  for (llvm::StringRef part : llvm::split((*text)->getBuffer(), "// -----")) {
    ParsedModule module(part.str());
    EXPECT_TRUE(module) << module.messages;
    if (!module)
      continue;
    for (auto function : module->template getOps<mlir::func::FuncOp>()) {
      SCOPED_TRACE(function.getName().str());
      folded += foldAndCompare<Op>(function, fold);
    }
  }
  return folded;
}

} // namespace tbc

#endif // TBC_TESTS_PASSES_FOLDFIXTURE_H
