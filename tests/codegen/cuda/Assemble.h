//===- Assemble.h - PTX through NVIDIA's assembler --------------------------===//

#ifndef TBC_TESTS_CODEGEN_CUDA_ASSEMBLE_H
#define TBC_TESTS_CODEGEN_CUDA_ASSEMBLE_H

#include <string>

namespace tbc {

/// Assembles `ptx` and checks what its kernels take of a multiprocessor: registers suffice, and of
/// those of a thread no more than `mostSpilledBytes` are spilled. Skips the test, saying so, where
/// the build found no ptxas.
void assemblePtx(const std::string &ptx, int architecture, int mostSpilledBytes = 0);

} // namespace tbc

#endif // TBC_TESTS_CODEGEN_CUDA_ASSEMBLE_H
