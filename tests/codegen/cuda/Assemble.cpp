//===- Assemble.cpp - PTX through NVIDIA's assembler ------------------------===//

#include "tests/codegen/cuda/Assemble.h"

#include <cstdio>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <regex>
#include <unistd.h>

namespace tbc {

#ifdef TBC_PTXAS
/// Returns the number behind the first `number` after each `name`, by the word behind the name.
static std::map<std::string, int> numbersBehind(const std::string &text, const std::string &name,
                                                const std::string &number) {
  std::map<std::string, int> found;
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    size_t begin = at + name.size(), end = text.find_first_of("'( ", begin);
    if (size_t place = text.find(number, end); place != std::string::npos)
      found[text.substr(begin, end - begin)] = std::stoi(text.substr(place + number.size(), 10));
  }
  return found;
}
#endif

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
  const auto threads = numbersBehind(ptx, ".entry ", ".maxntid ");
  const auto registers = numbersBehind(output, "entry function '", "Used ");
  for (const auto &[kernel, number] : registers)
    EXPECT_LE(number * threads.at(kernel), registersPerBlock) << kernel;
  std::regex spilled("([0-9]+) bytes spill stores");
  for (std::sregex_iterator match(output.begin(), output.end(), spilled), end; match != end;
       ++match)
    EXPECT_LE(std::stoi((*match)[1]), mostSpilledBytes) << "registers are spilled";
  EXPECT_EQ(registers.size(), threads.size());
  std::regex entry("\\.entry ");
  EXPECT_EQ(
      ptrdiff_t(threads.size()),
      std::distance(std::sregex_iterator(ptx.begin(), ptx.end(), entry), std::sregex_iterator()));
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
