//===- Contraction.cpp - Einsum, thread by thread ---------------------------===//

#include "codegen/cuda/ThreadKernel.h"

#include <algorithm>
#include <functional>

using namespace mlir;

namespace tbc::cuda {
namespace {

using Labels = std::vector<int64_t>;
using LabelSizes = std::map<int64_t, int64_t>;

/// A thread computes one element in f32, in the order of the contracted labels.
FailureOr<region::Kernel> einsum(MLIRContext &context, const OpCall &call, Form form) {
  for (const auto *list : {&call.operands, &call.results})
    for (const kernels::TensorType &type : *list)
      if (!kernels::isFloat(type.dtype))
        return failure();
  const Labels &lhs = call.attrs.getInts("lhs_labels"), &rhs = call.attrs.getInts("rhs_labels");
  const Labels &out = call.attrs.getInts("out_labels");
  LabelSizes sizes;
  for (size_t i = 0; i < lhs.size(); ++i)
    sizes[lhs[i]] = call.operands[0].shape[i];
  for (size_t i = 0; i < rhs.size(); ++i)
    sizes[rhs[i]] = call.operands[1].shape[i];

  ThreadKernel k(context, call, kernels::numElements(call.results[0].shape), form);
  std::map<int64_t, Value> at;
  for (auto [label, index] : llvm::zip_equal(out, k.split(k.thread, call.results[0].shape)))
    at[label] = index;
  Labels contracted;
  for (const Labels *labels : {&lhs, &rhs})
    for (int64_t label : *labels)
      if (!at.count(label) && !llvm::is_contained(contracted, label))
        contracted.push_back(label);
  auto element = [&](int operand, const Labels &labels) {
    SmallVector<Value> indices;
    for (int64_t label : labels)
      indices.push_back(at.at(label));
    return k.load(operand, k.join(indices, call.operands[size_t(operand)].shape));
  };
  std::function<Value(size_t, Value)> sumFrom = [&](size_t level, Value sum) -> Value {
    if (level == contracted.size())
      return k.e.add(sum, k.e.mul(element(0, lhs), element(1, rhs)));
    Value end = k.integer(sizes.at(contracted[level]));
    return k.loop(k.integer(0), end, {sum}, [&](Value index, ArrayRef<Value> inner) {
      at[contracted[level]] = index;
      return SmallVector<Value>{sumFrom(level + 1, inner[0])};
    })[0];
  };
  k.store(0, k.thread, sumFrom(0, k.number(0)));
  return k.finish();
}

} // namespace

const OpKernelTable &contractionOpKernels() {
  static const OpKernelTable table = {{"einsum", einsum}};
  return table;
}

} // namespace tbc::cuda
