//===- Reduction.cpp - Reductions outside of loop nests ---------------------===//
//
// A thread does an element of the result, also for integers.
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/ThreadKernel.h"

using namespace mlir;

namespace tbc::cuda {
namespace {

FailureOr<region::Kernel> reduce(MLIRContext &context, const OpCall &call, Form form, bool isSum) {
  const kernels::TensorType &from = call.operands[0];
  if (kernels::numElements(from.shape) == 0 || from.dtype == kernels::DType::Bool)
    return failure();
  const std::vector<int64_t> &dims = call.attrs.getInts("dims");
  SmallVector<int64_t> reducedSizes;
  for (int64_t dim : dims)
    reducedSizes.push_back(from.shape[size_t(dim)]);
  ThreadKernel k(context, call, kernels::numElements(call.results[0].shape), form);
  SmallVector<Value> kept = k.split(k.thread, call.results[0].shape);
  auto elementAt = [&](Value number) {
    SmallVector<Value> reduced = k.split(number, reducedSizes), at(from.shape.size());
    for (auto [dim, index] : llvm::zip_equal(dims, reduced))
      at[size_t(dim)] = index;
    size_t next = 0;
    for (Value &index : at)
      if (!index)
        index = kept[next++];
    return k.load(0, k.join(at, from.shape));
  };
  int64_t count = 1;
  for (int64_t size : reducedSizes)
    count *= size;
  Value result =
      k.loop(k.integer(1), k.integer(count), {elementAt(k.integer(0))},
             [&](Value number, ArrayRef<Value> old) {
               Value x = elementAt(number);
               return SmallVector<Value>{isSum ? k.e.add(old[0], x) : k.e.larger(old[0], x)};
             })[0];
  k.store(0, k.thread, result);
  return k.finish();
}

FailureOr<region::Kernel> reduceSum(MLIRContext &context, const OpCall &call, Form form) {
  return reduce(context, call, form, /*isSum=*/true);
}
FailureOr<region::Kernel> reduceMax(MLIRContext &context, const OpCall &call, Form form) {
  return reduce(context, call, form, /*isSum=*/false);
}

} // namespace

const OpKernelTable &reductionOpKernels() {
  static const OpKernelTable table = {{"reduce_max", reduceMax}, {"reduce_sum", reduceSum}};
  return table;
}

} // namespace tbc::cuda
