//===- Assemble.h - PTX through NVIDIA's assembler --------------------------===//

#ifndef TBC_TESTS_CODEGEN_CUDA_ASSEMBLE_H
#define TBC_TESTS_CODEGEN_CUDA_ASSEMBLE_H

#include <string>

namespace tbc {

/// Assembles `ptx` and checks the kernels' use of a multiprocessor: registers and
/// static shared memory suffice, and at most `mostSpilledBytes` per thread are spilled. Skips the
/// test, with a message, if the build found no ptxas.
void assemblePtx(const std::string &ptx, int architecture, int mostSpilledBytes = 0);

} // namespace tbc

#endif // TBC_TESTS_CODEGEN_CUDA_ASSEMBLE_H
