//===- Assemble.cpp - PTX through NVIDIA's assembler ------------------------===//

#include "tests/codegen/cuda/Assemble.h"

#include "codegen/cuda/EmitCudaKernel.h"

#include <cstdio>
#include <fstream>
#include <gtest/gtest.h>
#include <regex>
#include <unistd.h>

namespace tbc {

void assemblePtx([[maybe_unused]] const std::string &ptx, [[maybe_unused]] int architecture,
                 [[maybe_unused]] int mostSpilledBytes) {
#ifdef TBC_PTXAS
  std::string path = testing::TempDir() + "tbc-" + std::to_string(getpid()) + ".ptx";
  std::ofstream(path) << ptx;
  std::string command = std::string(TBC_PTXAS) + " -v --gpu-name sm_" +
                        std::to_string(architecture) + " -o /dev/null " + path + " 2>&1";
  std::string output;
  FILE *pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  char line[512];
  while (fgets(line, sizeof line, pipe))
    output += line;
  EXPECT_EQ(pclose(pipe), 0) << output.substr(0, 4000);
  unlink(path.c_str());
  constexpr int registersPerBlock = 65536;
  std::regex used("Used ([0-9]+) registers"), spilled("([0-9]+) bytes spill stores");
  int numKernels = 0;
  for (std::sregex_iterator match(output.begin(), output.end(), used), end; match != end; ++match) {
    EXPECT_LE(std::stoi((*match)[1]) * cuda::threadsPerBlock, registersPerBlock);
    ++numKernels;
  }
  for (std::sregex_iterator match(output.begin(), output.end(), spilled), end; match != end;
       ++match)
    EXPECT_LE(std::stoi((*match)[1]), mostSpilledBytes) << "registers are spilled";
  std::regex entry("\\.entry ");
  EXPECT_EQ(numKernels, std::distance(std::sregex_iterator(ptx.begin(), ptx.end(), entry),
                                      std::sregex_iterator()));
  // Static shared memory, beyond which a launch would have to ask. Two blocks then fit on any
  // multiprocessor from sm_80 on (100 KiB and more).
  constexpr int sharedPerBlock = 49152;
  std::regex shared("([0-9]+) bytes smem");
  for (std::sregex_iterator match(output.begin(), output.end(), shared), end; match != end; ++match)
    EXPECT_LE(std::stoi((*match)[1]), sharedPerBlock);
#else
  GTEST_SKIP() << "there is no ptxas (of the CUDA toolkit) to assemble with";
#endif
}

} // namespace tbc
