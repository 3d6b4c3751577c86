//===- Einsum.cpp - Products summed over labels ----------------------------===//
//
// Part of tbc.
//
// Every einsum becomes a batch of matmuls. Labels are batch (in both operands and the result),
// contracted (in both operands only), or of one operand.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Einsum.h"
#include "runtime/kernels/Gemm.h"

#include <map>

using namespace tbc::kernels;

namespace {

using Tensors = std::vector<Tensor>;
using Types = std::vector<TensorType>;
using Labels = std::vector<int64_t>;

bool contains(const Labels &labels, int64_t label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

Labels concatenated(std::initializer_list<Labels> lists) {
  Labels all;
  for (const Labels &list : lists)
    all.insert(all.end(), list.begin(), list.end());
  return all;
}

/// The labels by role, and the size of each.
struct Plan {
  Labels batch, contracted, lhsFree, rhsFree, lhsSummed, rhsSummed;
  std::map<int64_t, int64_t> sizes;

  int64_t count(const Labels &labels) const {
    int64_t product = 1;
    for (int64_t label : labels)
      product *= sizes.at(label);
    return product;
  }
  Shape shape(const Labels &labels) const {
    Shape shape;
    for (int64_t label : labels)
      shape.push_back(sizes.at(label));
    return shape;
  }
};

void recordSizes(Plan &plan, const char *operand, const Labels &labels, const Shape &shape) {
  require(labels.size() == shape.size(),
          [&] { return std::string("einsum needs one label per dim of ") + operand; });
  for (size_t i = 0; i < labels.size(); ++i) {
    require(std::count(labels.begin(), labels.end(), labels[i]) == 1,
            [&] { return std::string("einsum has a repeated label in ") + operand; });
    int64_t size = plan.sizes.emplace(labels[i], shape[i]).first->second;
    require(size == shape[i], [&] {
      return "einsum label " + std::to_string(labels[i]) + " has sizes " + std::to_string(size) +
             " and " + std::to_string(shape[i]);
    });
  }
}

Plan makePlan(const Labels &lhs, const Labels &rhs, const Labels &out, const Shape &lhsShape,
              const Shape &rhsShape, const Shape &outShape) {
  Plan plan;
  recordSizes(plan, "lhs", lhs, lhsShape);
  recordSizes(plan, "rhs", rhs, rhsShape);
  for (int64_t label : out)
    require(plan.sizes.count(label), "einsum has an output label that no operand has");
  recordSizes(plan, "out", out, outShape);
  for (int64_t label : lhs) {
    bool inRhs = contains(rhs, label), inOut = contains(out, label);
    Labels &role =
        inRhs ? (inOut ? plan.batch : plan.contracted) : (inOut ? plan.lhsFree : plan.lhsSummed);
    role.push_back(label);
  }
  for (int64_t label : rhs)
    if (!contains(lhs, label))
      (contains(out, label) ? plan.rhsFree : plan.rhsSummed).push_back(label);
  return plan;
}

/// The elements of `x` (dims labelled `from`) in the order of dims `to`, summed over the labels
/// `summed` that `to` lacks. No copy is made if the order is already the same.
template <typename T> class Arranged {
public:
  Arranged(const Tensor &tensor, const Labels &from, const Labels &to, const Labels &summed) {
    const T *x = tensor.data<T>().data();
    if (from == to) {
      elements = x;
      return;
    }
    Shape strides = rowMajorStrides(tensor.shape());
    auto offsetsOf = [&](const Labels &labels) {
      Shape sizes, steps;
      for (int64_t label : labels) {
        size_t dim = std::find(from.begin(), from.end(), label) - from.begin();
        sizes.push_back(tensor.shape()[dim]);
        steps.push_back(strides[dim]);
      }
      return listOffsets(sizes, steps);
    };
    std::vector<int64_t> inner = offsetsOf(summed);
    for (int64_t base : offsetsOf(to)) {
      if (summed.empty()) {
        copy.push_back(x[base]);
        continue;
      }
      Sum<T> sum;
      for (int64_t offset : inner)
        sum.add(x[base + offset]);
      copy.push_back(sum.result());
    }
    elements = copy.data();
  }
  Arranged(const Arranged &) = delete;

  const T *data() const { return elements; }

private:
  std::vector<T> copy;
  const T *elements;
};

template <typename T>
std::vector<T> evaluate(const Plan &plan, const Tensors &inputs, const Labels &lhs,
                        const Labels &rhs, const Labels &out) {
  int64_t batches = plan.count(plan.batch), m = plan.count(plan.lhsFree);
  int64_t n = plan.count(plan.rhsFree), k = plan.count(plan.contracted);
  Arranged<T> a(inputs[0], lhs, concatenated({plan.batch, plan.lhsFree, plan.contracted}),
                plan.lhsSummed);
  Arranged<T> b(inputs[1], rhs, concatenated({plan.batch, plan.contracted, plan.rhsFree}),
                plan.rhsSummed);
  std::vector<typename Total<T>::Type> totals(batches * m * n, 0);
  for (int64_t batch = 0; batch < batches; ++batch)
    multiplyAdd<T>(m, n, k, a.data() + batch * m * k, b.data() + batch * k * n,
                   totals.data() + batch * m * n);
  std::vector<T> product = finish<T>(totals);

  Labels order = concatenated({plan.batch, plan.lhsFree, plan.rhsFree});
  if (order == out)
    return product;
  Shape strides = rowMajorStrides(plan.shape(order)), outStrides;
  for (int64_t label : out)
    outStrides.push_back(strides[std::find(order.begin(), order.end(), label) - order.begin()]);
  std::vector<T> permuted;
  permuted.reserve(product.size());
  for (int64_t offset : listOffsets(plan.shape(out), outStrides))
    permuted.push_back(product[offset]);
  return permuted;
}

Tensors einsum(const KernelContext &context, const Attrs &attrs, const Tensors &inputs,
               const Types &resultTypes) {
  requireCounts(inputs, 2, resultTypes, 1);
  const Labels &lhs = attrs.getInts("lhs_labels"), &rhs = attrs.getInts("rhs_labels"),
               &out = attrs.getInts("out_labels");
  Plan plan = makePlan(lhs, rhs, out, inputs[0].shape(), inputs[1].shape(), resultTypes[0].shape);
  return dispatch(inputs[0], [&](auto zero) -> Tensors {
    using T = decltype(zero);
    return {makeResult(context, resultTypes[0], evaluate<T>(plan, inputs, lhs, rhs, out))};
  });
}

} // namespace

const KernelTable &tbc::kernels::einsumKernels() {
  static const KernelTable table = {{"einsum", einsum}};
  return table;
}
