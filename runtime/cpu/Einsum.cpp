//===- Einsum.cpp - Einsum as matmuls -------------------------------------===//
//
// runtime/kernels/Matmuls.h makes the plan of the matmuls. Tensors are copied into the order of
// the matmul only if no choice gives the matrices a unit stride.
//
//===----------------------------------------------------------------------===//

#include "runtime/cpu/Families.h"
#include "runtime/cpu/Matmul.h"
#include "runtime/cpu/StridedCopy.h"
#include "runtime/kernels/Matmuls.h"
#include "runtime/kernels/Support.h"

#include <algorithm>
#include <cstring>

namespace tbc::cpu {

using kernels::Attrs;
using kernels::DType;
using kernels::Shape;
using kernels::TensorType;

namespace {

using kernels::isDense;
using Loop = kernels::MatmulLoop;
using Loops = kernels::MatmulLoops;
using Plan = kernels::MatmulPlan;
using Roles = kernels::MatmulRoles;

/// Largest tile of a matmul, the unit of work of a thread. Smaller tiles balance the work better;
/// larger ones pack each operand fewer times. The size does not depend on the number of threads, so
/// results do not either.
///
/// oneDNN's AVX2 GEMM reads its operands in place, at half the speed, if 1/rows + 1/columns >=
/// 0.0038 (nocopy_checker_avx2 in src/cpu/x64/gemm/gemm_driver.cpp). Example: 512 x 512 does, 512 x
/// 1024 does not.
constexpr int64_t tileRows = 512, tileColumns = 1024;

struct Tiles {
  int64_t count, size;
};

/// Returns tiles of nearly equal size, in whole vectors.
Tiles tilesOf(int64_t size, int64_t most) {
  int64_t count = (size + most - 1) / most;
  int64_t each = (size + count - 1) / count;
  each = std::min(size, (each + 63) / 64 * 64);
  return {(size + each - 1) / each, each};
}

/// Executes a plan.
class Products {
public:
  Products(const Plan &plan, DType input, DType result)
      : plan(plan), width(byteWidth(input)), resultWidth(byteWidth(result)),
        rows(tilesOf(plan.m.size, tileRows)), columns(tilesOf(plan.n.size, tileColumns)) {
    for (bool lastRow : {false, true})
      for (bool lastColumn : {false, true})
        for (bool adds : {false, true})
          products[lastRow][lastColumn][adds] = product(lastRow, lastColumn, adds, input, result);
  }

  bool isComplete() const {
    bool complete = true;
    for (const auto &byRow : products)
      for (const auto &byColumn : byRow)
        complete &= byColumn[0] && (plan.summed.empty() || byColumn[1]);
    return complete;
  }

  void run(Threads &threads, const char *lhs, const char *rhs, char *out) const {
    int64_t tiles = rows.count * columns.count, around = 1;
    for (const Loop &loop : plan.around)
      around *= loop.size;
    // Several small matmuls form a piece.
    int64_t flopsPerTile = 2 * rows.size * columns.size * plan.k.size;
    int64_t grain = std::max<int64_t>(1, minFlops / std::max<int64_t>(1, flopsPerTile));
    threads.runRanges(around * tiles, grain, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece)
        runTile(piece / tiles, piece % tiles, lhs, rhs, out);
    });
  }

private:
  static constexpr int64_t minFlops = 4 << 20;

  std::shared_ptr<const Matmul> product(bool lastRow, bool lastColumn, bool adds, DType input,
                                        DType result) const {
    if (adds && plan.summed.empty())
      return nullptr;
    MatmulShape shape;
    shape.m = lastRow ? plan.m.size - (rows.count - 1) * rows.size : rows.size;
    shape.n = lastColumn ? plan.n.size - (columns.count - 1) * columns.size : columns.size;
    shape.k = plan.k.size;
    // The orientation depends on the whole matrix, so all tiles are alike.
    shape.transposedA = !isDense(plan.m.size, plan.m.lhs, plan.k.size, plan.k.lhs);
    shape.transposedB = !isDense(plan.k.size, plan.k.rhs, plan.n.size, plan.n.rhs);
    auto stride = [](int64_t stride, int64_t columns) { return std::max(stride, columns); };
    shape.strideA = shape.transposedA ? stride(plan.k.lhs, shape.m) : stride(plan.m.lhs, shape.k);
    shape.strideB = shape.transposedB ? stride(plan.n.rhs, shape.k) : stride(plan.k.rhs, shape.n);
    shape.strideC = stride(plan.m.out, shape.n);
    shape.accumulates = adds;
    shape.input = input;
    shape.result = result;
    return Matmul::find(shape);
  }

  void runTile(int64_t index, int64_t tile, const char *lhs, const char *rhs, char *out) const {
    for (size_t d = plan.around.size(); d-- > 0; index /= plan.around[d].size) {
      const Loop &loop = plan.around[d];
      int64_t at = index % loop.size;
      lhs += at * loop.lhs * width, rhs += at * loop.rhs * width;
      out += at * loop.out * resultWidth;
    }
    int64_t row = tile / columns.count, column = tile % columns.count;
    lhs += row * rows.size * plan.m.lhs * width;
    rhs += column * columns.size * plan.n.rhs * width;
    out += (row * rows.size * plan.m.out + column * columns.size * plan.n.out) * resultWidth;
    const auto &product = products[row == rows.count - 1][column == columns.count - 1];
    int64_t terms = 1;
    for (const Loop &loop : plan.summed)
      terms *= loop.size;
    for (int64_t term = 0; term < terms; ++term) {
      const char *a = lhs, *b = rhs;
      int64_t rest = term;
      for (size_t d = plan.summed.size(); d-- > 0; rest /= plan.summed[d].size) {
        a += rest % plan.summed[d].size * plan.summed[d].lhs * width;
        b += rest % plan.summed[d].size * plan.summed[d].rhs * width;
      }
      product[term > 0]->run(a, b, out);
    }
  }

  Plan plan;
  int64_t width, resultWidth;
  Tiles rows, columns;
  std::shared_ptr<const Matmul> products[2][2][2]; // [last row of tiles][last column][adds]
};

/// A dense copy of a tensor in the order of the loops, for plans without unit strides.
struct Staged {
  Shape sizes, from, to; // strides
  int64_t elements = 1;
};

/// The loops in their order, dense; `which` is their stride in the tensor.
Staged stagedOf(std::initializer_list<const Loops *> lists, int64_t Loop::*which) {
  Staged staged;
  for (const Loops *loops : lists)
    for (const Loop &loop : *loops) {
      staged.sizes.push_back(loop.size);
      staged.from.push_back(loop.*which);
      staged.elements *= loop.size;
    }
  staged.to = kernels::rowMajorStrides(staged.sizes);
  return staged;
}

int64_t product(const Loops &loops) {
  int64_t size = 1;
  for (const Loop &loop : loops)
    size *= loop.size;
  return size;
}

/// One matmul per index of all batch labels, on copies of both operands and the result.
NativeKernel copiedEinsum(const Roles &roles, DType input, DType result) {
  Staged lhs = stagedOf({&roles.batch, &roles.lhsFree, &roles.contracted}, &Loop::lhs);
  Staged rhs = stagedOf({&roles.batch, &roles.contracted, &roles.rhsFree}, &Loop::rhs);
  Staged out = stagedOf({&roles.batch, &roles.lhsFree, &roles.rhsFree}, &Loop::out);
  int64_t m = product(roles.lhsFree), n = product(roles.rhsFree), k = product(roles.contracted);
  Plan plan;
  plan.m = {m, k, 0, n};
  plan.n = {n, 0, 1, 1};
  plan.k = {k, 1, n, 0};
  plan.around = {{product(roles.batch), m * k, k * n, m * n}};
  auto products = std::make_shared<Products>(plan, input, result);
  if (!products->isComplete())
    return nullptr;
  int64_t width = byteWidth(input), outWidth = byteWidth(result);
  StridedCopy copyLhs(width, lhs.sizes, lhs.from, lhs.to);
  StridedCopy copyRhs(width, rhs.sizes, rhs.from, rhs.to);
  StridedCopy copyOut(outWidth, out.sizes, out.to, out.from);
  return [=](Threads &threads, const Buffers &buffers) {
    std::vector<char> a(size_t(lhs.elements * width)), b(size_t(rhs.elements * width));
    std::vector<char> c(size_t(out.elements * outWidth));
    copyLhs.run(threads, buffers.operands[0], a.data());
    copyRhs.run(threads, buffers.operands[1], b.data());
    products->run(threads, a.data(), b.data(), c.data());
    copyOut.run(threads, c.data(), buffers.results[0]);
  };
}

} // namespace

NativeKernel makeEinsum(std::string_view op, const Attrs &attrs, const Types &operands,
                        const Types &results) {
  if (op != "einsum")
    return nullptr;
  DType input = operands[0].dtype, result = results[0].dtype;
  bool isF32 = input == DType::F32 && result == DType::F32;
  bool isBF16 = input == DType::BF16 && (result == DType::BF16 || result == DType::F32);
  if (operands[1].dtype != input || (!isF32 && !isBF16))
    return nullptr;
  int64_t outBytes = kernels::numElements(results[0].shape) * byteWidth(result);
  if (outBytes == 0)
    return [](Threads &, const Buffers &) {};
  if (kernels::numElements(operands[0].shape) == 0 || kernels::numElements(operands[1].shape) == 0)
    return [outBytes](Threads &, const Buffers &buffers) {
      std::memset(buffers.results[0], 0, size_t(outBytes));
    };
  Roles roles = kernels::matmulRoles(attrs, operands[0], operands[1], results[0]);
  if (roles.sumsOneOperand)
    return nullptr;
  bool maySum = result == DType::F32;
  for (bool swaps : {false, true}) {
    Plan plan;
    if (!choose(swaps ? swapped(roles) : roles, maySum, plan))
      continue;
    auto products = std::make_shared<Products>(plan, input, result);
    if (!products->isComplete())
      return nullptr;
    return [products, swaps](Threads &threads, const Buffers &buffers) {
      const char *lhs = buffers.operand<char>(swaps ? 1 : 0);
      const char *rhs = buffers.operand<char>(swaps ? 0 : 1);
      products->run(threads, lhs, rhs, buffers.result<char>(0));
    };
  }
  return copiedEinsum(roles, input, result);
}

} // namespace tbc::cpu
