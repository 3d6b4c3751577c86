//===- Matmuls.cpp - An einsum as matmuls ---------------------------------===//

#include "runtime/kernels/Matmuls.h"
#include "runtime/kernels/Support.h"

#include <algorithm>

namespace tbc::kernels {

using Labels = std::vector<int64_t>;

static int64_t strideOf(int64_t label, const Labels &labels, const Shape &strides) {
  auto found = std::find(labels.begin(), labels.end(), label);
  return found == labels.end() ? -1 : strides[found - labels.begin()];
}

/// Appends the label to the loops, merged with the last one if it is contiguous with it in all
/// tensors.
static void append(MatmulLoops &loops, const MatmulLoop &loop) {
  if (loop.size == 1)
    return;
  if (!loops.empty()) {
    MatmulLoop &last = loops.back();
    if (last.lhs == loop.size * loop.lhs && last.rhs == loop.size * loop.rhs &&
        last.out == loop.size * loop.out) {
      last = {last.size * loop.size, loop.lhs, loop.rhs, loop.out};
      return;
    }
  }
  loops.push_back(loop);
}

MatmulRoles matmulRoles(const Attrs &attrs, const TensorType &lhsType, const TensorType &rhsType,
                        const TensorType &result) {
  const Labels &lhs = attrs.getInts("lhs_labels"), &rhs = attrs.getInts("rhs_labels");
  const Labels &out = attrs.getInts("out_labels");
  Shape lhsStrides = rowMajorStrides(lhsType.shape);
  Shape rhsStrides = rowMajorStrides(rhsType.shape);
  Shape outStrides = rowMajorStrides(result.shape);
  MatmulRoles roles;
  auto add = [&](int64_t label, int64_t size) {
    int64_t inLhs = strideOf(label, lhs, lhsStrides), inRhs = strideOf(label, rhs, rhsStrides);
    int64_t inOut = strideOf(label, out, outStrides);
    roles.sumsOneOperand |= inOut < 0 && (inLhs < 0 || inRhs < 0) && size != 1;
    MatmulLoops &loops = inOut < 0   ? roles.contracted
                         : inRhs < 0 ? roles.lhsFree
                         : inLhs < 0 ? roles.rhsFree
                                     : roles.batch;
    append(loops, {size, std::max<int64_t>(inLhs, 0), std::max<int64_t>(inRhs, 0),
                   std::max<int64_t>(inOut, 0)});
  };
  for (size_t i = 0; i < lhs.size(); ++i)
    add(lhs[i], lhsType.shape[i]);
  for (size_t i = 0; i < rhs.size(); ++i)
    if (std::find(lhs.begin(), lhs.end(), rhs[i]) == lhs.end())
      add(rhs[i], rhsType.shape[i]);
  return roles;
}

bool isDense(int64_t rows, int64_t rowStride, int64_t columns, int64_t columnStride) {
  return (columnStride == 1 || columns == 1) && (rowStride >= columns || rows == 1);
}

static bool isFeasible(const MatmulPlan &plan) {
  const MatmulLoop &m = plan.m, &n = plan.n, &k = plan.k;
  return (isDense(m.size, m.lhs, k.size, k.lhs) || isDense(k.size, k.lhs, m.size, m.lhs)) &&
         (isDense(k.size, k.rhs, n.size, n.rhs) || isDense(n.size, n.rhs, k.size, k.rhs)) &&
         isDense(m.size, m.out, n.size, n.out);
}

/// Calls fn for every choice of one loop; the others go to its second argument. Without loops, a
/// loop of size 1 is chosen.
template <typename Fn> static void forEachChoice(const MatmulLoops &loops, Fn &&fn) {
  if (loops.empty())
    return fn(MatmulLoop{1, 0, 0, 0}, MatmulLoops());
  for (size_t i = 0; i < loops.size(); ++i) {
    MatmulLoops rest = loops;
    rest.erase(rest.begin() + int64_t(i));
    fn(loops[i], rest);
  }
}

bool choose(const MatmulRoles &roles, bool maySum, MatmulPlan &best) {
  bool isFound = false;
  int64_t most = -1;
  forEachChoice(roles.lhsFree, [&](const MatmulLoop &m, const MatmulLoops &restM) {
    forEachChoice(roles.rhsFree, [&](const MatmulLoop &n, const MatmulLoops &restN) {
      forEachChoice(roles.contracted, [&](const MatmulLoop &k, const MatmulLoops &restK) {
        MatmulPlan plan;
        plan.m = m, plan.n = n, plan.k = k;
        plan.around = roles.batch;
        plan.around.insert(plan.around.end(), restM.begin(), restM.end());
        plan.around.insert(plan.around.end(), restN.begin(), restN.end());
        plan.summed = restK;
        int64_t size = m.size * n.size * k.size;
        if (size <= most || (!restK.empty() && !maySum) || !isFeasible(plan))
          return;
        best = plan;
        most = size;
        isFound = true;
      });
    });
  });
  return isFound;
}

MatmulRoles swapped(MatmulRoles roles) {
  std::swap(roles.lhsFree, roles.rhsFree);
  for (MatmulLoops *loops : {&roles.batch, &roles.contracted, &roles.lhsFree, &roles.rhsFree})
    for (MatmulLoop &loop : *loops)
      std::swap(loop.lhs, loop.rhs);
  return roles;
}

} // namespace tbc::kernels
