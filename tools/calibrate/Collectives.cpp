//===- Collectives.cpp - Measure collectives ---------------------------------===//

#include "tools/calibrate/Calibrate.h"

#include <algorithm>
#include <chrono>
#include <numeric>

namespace tbc::calibrate {

using Clock = std::chrono::steady_clock;
using kernels::Arith;
using kernels::DType;
using kernels::Tensor;

Result<double> meanOf(comm::Communicator &communicator, double mine) {
  comm::Group everyone(size_t(communicator.numRanks()));
  std::iota(everyone.begin(), everyone.end(), int64_t(0));
  Tensor value = Tensor::fromDoubles({DType::F64, {1}}, Arith::Native, {mine});
  auto sum = communicator.allReduce(everyone, comm::ReduceKind::Avg, value, "calibrate")->wait();
  if (!sum)
    return sum.error();
  return sum->toDoubles()[0];
}

/// Returns the shortest of several times of one call, in the group of the first `count` ranks.
/// Ranks outside of it get 0.
static Result<double> secondsOf(comm::Communicator &communicator, bool isReduce, int64_t count,
                                int64_t elements, bool isQuick) {
  if (communicator.rank() >= count)
    return 0.0;
  comm::Group group(static_cast<size_t>(count));
  std::iota(group.begin(), group.end(), int64_t(0));
  // Operates on segments of memory, as a run does.
  const comm::ElementType type{DType::F32, Arith::Native};
  std::vector<float> buffer(static_cast<size_t>(elements));
  auto runs = [&](int64_t first, int64_t number) {
    return comm::Runs{{reinterpret_cast<unsigned char *>(buffer.data() + first),
                       number * int64_t(sizeof(float))}};
  };
  std::vector<comm::Runs> parts;
  for (int64_t i = 0; i < count; ++i)
    parts.push_back(runs(i * (elements / count), elements / count));
  comm::Runs all = runs(0, elements), mine = parts[size_t(communicator.rank())];
  const int numCalls = isQuick ? 3 : elements > 1 << 18 ? 8 : 50;
  double best = 1e30;
  for (int call = 0; call < numCalls; ++call) {
    if (auto met = communicator.barrier(group, "calibrate")->wait(); !met)
      return met.error();
    auto begin = Clock::now();
    Status done = isReduce ? communicator.allReduceRuns(group, comm::ReduceKind::Sum, type, all,
                                                        all, "calibrate")
                           : communicator.allGatherRuns(group, type, mine, parts, "calibrate");
    if (!done)
      return done.error();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

Status measureCollectives(const Options &options, comm::Communicator &communicator,
                          Measurements &measurements) {
  const int64_t largest = options.isQuick ? 1 << 14 : 1 << 21;
  for (int64_t count = 2; count <= communicator.numRanks(); count *= 2)
    for (bool isReduce : {true, false})
      for (int64_t elements = 16; elements <= largest; elements *= 8) {
        Result<double> mine = secondsOf(communicator, isReduce, count, elements, options.isQuick);
        if (!mine)
          return mine.error();
        Result<double> mean = meanOf(communicator, *mine);
        if (!mean)
          return mean.error();
        measurements.collectives.push_back(
            {isReduce ? "all_reduce" : "all_gather", count, double(elements) * sizeof(float),
             *mean * double(communicator.numRanks()) / double(count)});
      }
  return Status::ok();
}

} // namespace tbc::calibrate
