//===- Fp8.cpp - Matmuls whose operands are rounded to 8 bits -------------===//

#include "planner/reshard/Fp8.h"
#include "runtime/memory/Fp8Workspace.h"

#include <functional>
#include <limits>
#include <numeric>

namespace fp8 = tbc::program::fp8;

namespace tbc::reshard {

/// Returns the elements of operand `operand` of op `op` on a rank.
static int64_t localElements(const std::vector<std::vector<int64_t>> &shapes, size_t operand) {
  return std::accumulate(shapes[operand].begin(), shapes[operand].end(), int64_t(1),
                         std::multiplies<>());
}

int64_t fp8OperandBytes(const Graph &graph, int op, const OpStrategy &strategy) {
  const std::vector<std::vector<int64_t>> shapes = localOperandShapes(graph, op, strategy);
  return fp8::workspaceBytes(localElements(shapes, 0), localElements(shapes, 1));
}

/// Returns the greatest common divisor of the rows, columns and depth of a matmul on a rank.
static int64_t commonDivisor(const GraphOp &op, const OpStrategy &strategy) {
  int64_t rows = 1, columns = 1, depth = 1;
  for (size_t l = 0; l < op.loops.size(); ++l) {
    const Loop &loop = op.loops[l];
    int64_t size = loop.size;
    if (auto axes = strategy.loopAxes.find(int(l)); axes != strategy.loopAxes.end())
      size /= groupSize(axes->second);
    bool inA = false, inB = false;
    for (const TensorDim &place : loop.operandDims)
      (place.tensor == 0 ? inA : inB) = true;
    const bool isMade = !loop.resultDims.empty();
    if (inA && inB && !isMade)
      depth *= size;
    else if (isMade && inA != inB)
      (inA ? rows : columns) *= size;
  }
  return std::gcd(std::gcd(rows, columns), depth);
}

/// Whether the operands of op `index` are small enough for the executor.
static bool fitsInFp8(const Graph &graph, int index, const OpStrategy &strategy) {
  const int64_t most = graph.ops[size_t(index)].fp8.mostBytes;
  return most == 0 || fp8OperandBytes(graph, index, strategy) <= most;
}

bool isInFp8(const Graph &graph, int index, const OpStrategy &strategy) {
  const GraphOp &op = graph.ops[size_t(index)];
  if (!op.fp8.isRounded)
    return false;
  if (op.kernelClass != KernelClass::Matmul) // groups of data's sizes
    return true;
  return commonDivisor(op, strategy) % fp8::step == 0 && fitsInFp8(graph, index, strategy);
}

int64_t ranksInFp8(const Graph &graph, int index) {
  const GraphOp &op = graph.ops[size_t(index)];
  if (!isInFp8(graph, index, OpStrategy()))
    return 0;
  return op.kernelClass == KernelClass::Matmul ? commonDivisor(op, OpStrategy()) / fp8::step
                                               : std::numeric_limits<int64_t>::max();
}

} // namespace tbc::reshard
