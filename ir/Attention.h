//===- Attention.h - The ops of Attention.td ------------------------------===//

#ifndef TBC_IR_ATTENTION_H
#define TBC_IR_ATTENTION_H

#include "ir/Tbc.h"
// For those who emit attention: biasLayouts, HeadLayout, and PackedAttention.
#include "runtime/kernels/AttentionScore.h"
#include "runtime/kernels/HeadLayout.h"
#include "runtime/kernels/PackedAttention.h"

namespace tbc {
class AttentionOp;
class AttentionGradOp;
class AttentionBiasGradOp;
class PackedAttentionOp;
class PackedAttentionGradOp;
/// Returns the launches and FLOPs of the tiled kernels; those of a plain one where types or widths
/// are others.
OwnKernel ownAttention(AttentionOp op);
OwnKernel ownAttention(AttentionGradOp op);
OwnKernel ownAttention(AttentionBiasGradOp op);
OwnKernel ownAttention(PackedAttentionOp op);
OwnKernel ownAttention(PackedAttentionGradOp op);
/// Returns the memory of a gradient's tiled kernel on GPUs (ir/TiledAttention.h); unset for what it
/// does not take.
WorkspaceFn attentionGradWorkspace(AttentionGradOp op);
WorkspaceFn attentionGradWorkspace(AttentionBiasGradOp op);
WorkspaceFn attentionGradWorkspace(PackedAttentionGradOp op);
/// Returns what an attention with these letters in `token_major`, or its gradient, does with
/// columns: it may take q, k and v [b, s, h * d] as columns of one tensor.
ColumnUse columnsOfAttention(llvm::StringRef tokenMajor, bool isGradient);
} // namespace tbc

#define GET_OP_CLASSES
#include "ir/Attention.h.inc"

#endif // TBC_IR_ATTENTION_H
