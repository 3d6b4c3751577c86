//===- Libraries.h - Function tables of the emulated libraries -------------===//

#ifndef TBC_TESTS_EMULATED_LIBRARIES_H
#define TBC_TESTS_EMULATED_LIBRARIES_H

#include "runtime/cuda/CublasLt.h"
#include "runtime/cuda/Cudnn.h"
#include "runtime/cuda/Nccl.h"
#include "tests/emulated/Emulator.h"

#include <cstdlib>

namespace tbc::emulated {

/// Returns whether TBC_EMULATED_REFUSAL is set: cuBLASLt and cuDNN then refuse to start.
inline bool librariesRefuse() { return std::getenv("TBC_EMULATED_REFUSAL") != nullptr; }

const cuda::CublasLt &cublasTable();
const cuda::Cudnn &cudnnTable();
/// NCCL between processes of one machine, through files in memory.
const cuda::Nccl &ncclTable();

} // namespace tbc::emulated

#endif // TBC_TESTS_EMULATED_LIBRARIES_H
