//===- AttentionCost.cpp - Kernels of attention and their costs -------------===//

#include "ir/Attention.h"
#include "ir/AttentionSizes.h"
#include "ir/TiledAttention.h"

using namespace mlir;

namespace tbc {

using namespace attention;

/// cuDNN's graphs have no masks that are data, windows, biases, caps, sinks or dropout, and causal
/// attention of as many queries as keys (runtime/cuda/CudnnOps.cpp; a test compares).
template <typename Op> static KernelClass attentionClass(Op op) {
  const Sizes n(op);
  bool isCausal = op.getCausal() && int64_t(op.getLeft()) < 0;
  bool isOwn = op.getKeyMask() || op.getSegments() || op.getOrdered() || op.getDropsOut() ||
               op.getSink() || !op.getBiases().empty() || !op.getSoftCap().isZero() ||
               int64_t(op.getLeft()) >= 0 || int64_t(op.getRight()) >= 0 ||
               (op.getCausal() && n.s != n.t);
  if (isOwn)
    return isCausal ? KernelClass::CausalTiledAttention : KernelClass::TiledAttention;
  return isCausal ? KernelClass::CausalAttention : KernelClass::Attention;
}
KernelClass AttentionOp::getKernelClass() { return attentionClass(*this); }
KernelClass AttentionGradOp::getKernelClass() { return attentionClass(*this); }
KernelClass AttentionBiasGradOp::getKernelClass() { return attentionClass(*this); }
KernelClass PackedAttentionOp::getKernelClass() { return attentionClass(*this); }
KernelClass PackedAttentionGradOp::getKernelClass() { return attentionClass(*this); }

/// Returns 2 FLOPs for each multiply-add of `qk` matmuls over d and `pv` matmuls over dv.
template <typename Op> static double attentionFlops(Op op, double qk, double pv) {
  const Sizes n(op);
  int64_t keys = n.t, left = int64_t(op.getLeft()), right = int64_t(op.getRight());
  if (left >= 0 && (op.getCausal() || right >= 0))
    keys = std::min(keys, left + 1 + (op.getCausal() ? 0 : right));
  return 2.0 * double(n.b) * double(n.hk * n.g) * double(n.s) * double(keys) *
         (qk * double(n.d) + pv * double(n.dv));
}
double AttentionOp::getFlops() { return attentionFlops(*this, 1, 1); }
double AttentionGradOp::getFlops() { return attentionFlops(*this, 3, 2); }
double AttentionBiasGradOp::getFlops() { return attentionFlops(*this, 1, 1); }
double PackedAttentionOp::getFlops() { return attentionFlops(*this, 1, 1); }
double PackedAttentionGradOp::getFlops() { return attentionFlops(*this, 3, 2); }

template <typename Op> static bool isTiled(Op op) {
  const Sizes n(op);
  constexpr unsigned bitsOfHalf = 16;
  return tensorType(op.getResult()).getElementTypeBitWidth() == bitsOfHalf &&
         hasTiledAttention(n.d, n.dv);
}
static bool isTiledOfBias(AttentionBiasGradOp op) {
  return isTiled(op) && hasTiledBiasGradient(op.getBiases().str(), int64_t(op.getBias()));
}

template <typename Op> static OwnKernel ownForward(Op op) {
  const Sizes n(op);
  if (!isTiled(op))
    return {};
  return {tiledAttentionWork(n.d, n.dv, /*isGradient=*/false), 1, true};
}
template <typename Op> static OwnKernel ownGradient(Op op) {
  const Sizes n(op);
  if (!isTiled(op))
    return {};
  return {tiledAttentionWork(n.d, n.dv, /*isGradient=*/true),
          double(tiledGradientLaunches(n.d, n.dv)), true};
}
OwnKernel ownAttention(AttentionOp op) { return ownForward(op); }
OwnKernel ownAttention(AttentionGradOp op) { return ownGradient(op); }
OwnKernel ownAttention(PackedAttentionOp op) { return ownForward(op); }
OwnKernel ownAttention(PackedAttentionGradOp op) { return ownGradient(op); }
OwnKernel ownAttention(AttentionBiasGradOp op) {
  constexpr double launches = 2; // the rows' numbers and the tiles
  return isTiledOfBias(op) ? OwnKernel{1, launches, true} : OwnKernel{};
}

/// `statistic`: the operand with m, [b, h, s].
template <size_t statistic, typename Op> static WorkspaceFn rowWorkspace(Op op) {
  if (!isTiled(op))
    return nullptr;
  return [](const std::vector<std::vector<int64_t>> &shapes) {
    int64_t rows = 1;
    for (int64_t size : shapes[statistic])
      rows *= size;
    return attentionRowBytes(rows);
  };
}
WorkspaceFn attentionGradWorkspace(AttentionGradOp op) { return rowWorkspace<5>(op); }
WorkspaceFn attentionGradWorkspace(AttentionBiasGradOp op) {
  return isTiledOfBias(op) ? rowWorkspace<5>(op) : WorkspaceFn();
}
WorkspaceFn attentionGradWorkspace(PackedAttentionGradOp op) { return rowWorkspace<3>(op); }

} // namespace tbc
