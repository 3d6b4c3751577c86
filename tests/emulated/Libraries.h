//===- Libraries.h - The tables behind the libraries beside the driver -----===//

#ifndef TBC_TESTS_EMULATED_LIBRARIES_H
#define TBC_TESTS_EMULATED_LIBRARIES_H

#include "runtime/cuda/CublasLt.h"
#include "runtime/cuda/Cudnn.h"
#include "runtime/cuda/Nccl.h"
#include "tests/emulated/Emulator.h"

namespace tbc::emulated {

const cuda::CublasLt &cublasTable();
const cuda::Cudnn &cudnnTable();
/// Between processes of one machine, by files in memory.
const cuda::Nccl &ncclTable();

} // namespace tbc::emulated

#endif // TBC_TESTS_EMULATED_LIBRARIES_H
