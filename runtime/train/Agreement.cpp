//===- Agreement.cpp - The exchange of ranks after a step -----------------===//

#include "runtime/train/Agreement.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <numeric>
#include <unistd.h>

namespace tbc::train {

using kernels::Tensor;

static int64_t bitsOf(const Tensor &loss) {
  if (loss.holdsResidues())
    return int64_t(loss.toResidues()[0]);
  double value = loss.toDoubles()[0];
  int64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

static Tensor fromBits(int64_t bits, kernels::Arith arith) {
  kernels::TensorType type{
      arith == kernels::Arith::Native ? kernels::DType::F64 : kernels::DType::F32, {}};
  if (arith == kernels::Arith::Residue61)
    return Tensor(type, std::vector<kernels::Residue>{{uint64_t(bits)}});
  if (arith == kernels::Arith::Residue251)
    return Tensor(type, std::vector<kernels::Residue251>{kernels::Residue251(uint8_t(bits))});
  double value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return Tensor(type, std::vector<double>{value});
}

Result<Verdict> agree(comm::Communicator &communicator, const Verdict &mine, kernels::Arith arith) {
  enum Word {
    Stops,
    IsWritten,
    HasLoss,
    LossBits,
    ResidentBytes,
    Overflows,
    BrokenTensor,
    NumWords
  };
  comm::Group everyone = everyoneOf(communicator);
  std::vector<int64_t> words(NumWords);
  words[Stops] = mine.stops;
  words[IsWritten] = mine.isWritten;
  words[HasLoss] = bool(mine.loss);
  words[LossBits] = mine.loss ? bitsOf(mine.loss) : 0;
  words[ResidentBytes] = mine.residentBytes;
  words[Overflows] = mine.overflows;
  words[BrokenTensor] = mine.brokenTensor;
  auto all = communicator
                 .allGather(everyone, Tensor::fromInts({kernels::DType::I64, {NumWords}}, words),
                            "the end of a step")
                 ->wait();
  if (!all)
    return all.error();
  Verdict verdict;
  int64_t bits = 0, lossRank = -1;
  for (int64_t rank : everyone) {
    const int64_t *theirs = all->data<int64_t>().data() + NumWords * rank;
    verdict.stops |= theirs[Stops] != 0;
    verdict.isWritten &= theirs[IsWritten] != 0;
    verdict.residentBytes = std::max(verdict.residentBytes, theirs[ResidentBytes]);
    verdict.overflows |= theirs[Overflows] != 0;
    verdict.brokenTensor = std::max(verdict.brokenTensor, theirs[BrokenTensor]);
    if (!theirs[HasLoss])
      continue;
    if (lossRank >= 0 && theirs[LossBits] != bits)
      return Error{ErrorCode::VerificationFailed, "ranks " + std::to_string(lossRank) + " and " +
                                                      std::to_string(rank) +
                                                      " disagree on the loss"};
    bits = theirs[LossBits];
    lossRank = rank;
  }
  if (lossRank >= 0)
    verdict.loss = fromBits(bits, arith);
  return verdict;
}

comm::Group everyoneOf(const comm::Communicator &communicator) {
  comm::Group everyone(size_t(communicator.numRanks()));
  std::iota(everyone.begin(), everyone.end(), int64_t(0));
  return everyone;
}

int64_t residentBytes() {
  std::ifstream file("/proc/self/statm"); // in pages: the size, then the resident part
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

} // namespace tbc::train
