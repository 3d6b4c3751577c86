//===- Libraries.h - The tables behind the libraries beside the driver -----===//

#ifndef TBC_TESTS_EMULATED_LIBRARIES_H
#define TBC_TESTS_EMULATED_LIBRARIES_H

#include "runtime/cuda/CublasLt.h"
#include "runtime/cuda/Cudnn.h"
#include "runtime/cuda/Nccl.h"
#include "tests/emulated/Emulator.h"

#include <cstdlib>

namespace tbc::emulated {

/// Whether TBC_EMULATED_REFUSAL has cuBLASLt and cuDNN not start.
inline bool librariesRefuse() { return std::getenv("TBC_EMULATED_REFUSAL") != nullptr; }

const cuda::CublasLt &cublasTable();
const cuda::Cudnn &cudnnTable();
/// Between processes of one machine, by files in memory.
const cuda::Nccl &ncclTable();

} // namespace tbc::emulated

#endif // TBC_TESTS_EMULATED_LIBRARIES_H
