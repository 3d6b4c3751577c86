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

/// Returns the name of the optimizer of a Program; empty if it has no optimizer. Two optimizers
/// have one name if their states mean the same. Examples: "adam" for Adam and AdamW, because weight
/// decay is not in the states; "sgd-momentum" for SGD with momentum. Its buffer is called as Adam's
/// first moment is, and at a decay of 0.9 it is 10 times as large.
std::string optimizerName(const program::Program &program);

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_OPTIMIZERNAME_H
