//===- MemoryCheck.cpp - Predicted, planned and real memory of ranks --------===//

#include "runtime/train/MemoryCheck.h"
#include "runtime/train/Agreement.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

namespace tbc::train {

using kernels::Tensor;

int64_t peakResidentBytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (long long kibibytes = 0; std::sscanf(line.c_str(), "VmHWM: %lld kB", &kibibytes) == 1)
      return kibibytes * 1024;
  return 0;
}

Result<std::vector<RankMemoryUse>> gatherMemory(comm::Communicator &communicator,
                                                const RankMemoryUse &mine) {
  const std::vector<int64_t> words = {
      mine.stage, mine.predicted.program, mine.predicted.total, mine.planned,
      mine.real,  mine.isOfDevice,        mine.isAsPlanned};
  const int64_t numWords = int64_t(words.size());
  auto all = communicator
                 .allGather(everyoneOf(communicator),
                            Tensor::fromInts({kernels::DType::I64, {numWords}}, words),
                            "the memory of all ranks")
                 ->wait();
  if (!all)
    return all.error();
  const int64_t *word = all->data<int64_t>().data();
  std::vector<RankMemoryUse> ranks;
  for (int64_t rank = 0; rank < communicator.numRanks(); ++rank, word += numWords)
    ranks.push_back({word[0], {word[1], word[2]}, word[3], word[4], word[5] != 0, word[6] != 0});
  return ranks;
}

static std::string cell(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%10.1f MiB", double(bytes) / (1 << 20));
  return text;
}

/// The deviation of `value` from `expected`, as " +1.2 %".
static std::string difference(int64_t value, int64_t expected) {
  char text[32];
  std::snprintf(text, sizeof text, " %+7.1f %%",
                100 * (double(value) / double(std::max<int64_t>(1, expected)) - 1));
  return text;
}

std::string memoryTable(const std::vector<RankMemoryUse> &ranks) {
  if (ranks.empty() || ranks[0].predicted.total == 0)
    return "memory: this program has no prediction of memory; compile it again\n";
  bool isOfDevice = ranks[0].isOfDevice;
  std::string text = "memory        of the program                          in all\n"
                     "rank stage      predicted        planned                 predicted           "
                     "real\n";
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankMemoryUse &use = ranks[rank];
    char names[32];
    std::snprintf(names, sizeof names, "%4zu %5lld", rank, static_cast<long long>(use.stage));
    text += names + (" " + cell(use.predicted.program)) + " " + cell(use.planned) +
            difference(use.planned, use.predicted.program) + " " + cell(use.predicted.total) + " " +
            cell(use.real) + (use.isAsPlanned ? difference(use.real, use.predicted.total) : "") +
            "\n";
  }
  text += "predicted in all: with the device context and margin of the plan's cluster\n";
  if (!ranks[0].isAsPlanned)
    text +=
        "not compared in all: the plan is for other devices than this machine's CPUs; plan with "
        "--cluster cpu-local, or with a file of tbc calibrate\n";
  text += isOfDevice ? "real: what is taken of the rank's GPU, by all processes on it\n"
                     : "real: the most that the process had resident, pages of files included\n";
  return text;
}

} // namespace tbc::train
