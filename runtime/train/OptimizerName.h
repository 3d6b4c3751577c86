//===- OptimizerName.h - The optimizer of a Program ------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_TRAIN_OPTIMIZERNAME_H
#define TBC_RUNTIME_TRAIN_OPTIMIZERNAME_H

#include "runtime/abi/Program.h"

#include <string>

namespace tbc::train {

/// Returns the name of the optimizer by whose rule the states of a Program change; empty for a
/// Program without an optimizer. Optimizers with the same name have the same states with the same
/// meaning. Example: "adam" for Adam and AdamW, whose weight decay is not in the states;
/// "sgd-momentum" for SGD with momentum, whose buffer has the name of Adam's first moment, and is
/// 10 times as large at a decay of 0.9.
std::string optimizerName(const program::Program &program);

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_OPTIMIZERNAME_H
