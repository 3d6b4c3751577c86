//===- Experts.h - The ops of Experts.td --------------------------===//

#ifndef TBC_IR_EXPERTS_H
#define TBC_IR_EXPERTS_H

#include "ir/Tbc.h"

namespace tbc {
class RoutedExpertsOp;
class RoutedExpertsGradOp;
/// Returns the memory of a layer of experts on GPUs (ir/ExpertWorkspace.h).
WorkspaceFn expertWorkspace(RoutedExpertsOp op);
WorkspaceFn expertWorkspace(RoutedExpertsGradOp op);
} // namespace tbc

#define GET_OP_CLASSES
#include "ir/Experts.h.inc"

#endif // TBC_IR_EXPERTS_H
