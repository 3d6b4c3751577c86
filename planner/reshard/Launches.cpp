//===- Launches.cpp - Neighbouring kernels that share a launch --------------===//

#include "planner/reshard/Launches.h"

#include <algorithm>
#include <set>

namespace tbc::reshard {

int64_t launchTableBytes(int64_t kernels, int64_t tensors) {
  int64_t filled = 1;
  while (filled < kernels)
    filled *= 2;
  return int64_t(sizeof(int32_t)) * (filled + kernels) +
         int64_t(sizeof(int16_t)) * kernels * (tensors + 1);
}

namespace {

/// A launch that takes kernels as long as it can.
class Launch {
public:
  bool take(const LaunchedKernel &kernel) {
    if (!kernel.mayJoin)
      return false;
    auto isAwaited = [&](int message) { return messages.count(message) > 0; };
    if (count > 0 && (!kernel.isBehindPrevious ||
                      !std::all_of(kernel.messages.begin(), kernel.messages.end(), isAwaited)))
      return false;
    std::set<int> all = tensors;
    all.insert(kernel.tensors.begin(), kernel.tensors.end());
    std::set<std::string> allCodes = codes;
    allCodes.insert(kernel.code);
    if (all.size() > size_t(maxLaunchTensors) || allCodes.size() > size_t(maxLaunchCodes))
      return false;
    tensors = std::move(all), codes = std::move(allCodes);
    messages.insert(kernel.messages.begin(), kernel.messages.end());
    largest = std::max(largest, int64_t(kernel.tensors.size()));
    ++count;
    return true;
  }

  int size() const { return count; }
  int64_t tableBytes() const { return launchTableBytes(count, largest); }

private:
  int count = 0;
  int64_t largest = 0; // tensors of a kernel
  std::set<int> tensors, messages;
  std::set<std::string> codes;
};

} // namespace

std::vector<int> joinLaunches(const std::vector<LaunchedKernel> &kernels, int64_t &tableBytes) {
  std::vector<int> launches;
  for (size_t begin = 0; begin < kernels.size(); begin += size_t(launches.back())) {
    Launch launch;
    for (size_t next = begin; next < kernels.size() && launch.take(kernels[next]);)
      ++next;
    const bool fits = launch.size() > 1 && tableBytes + launch.tableBytes() <= maxTableBytes;
    tableBytes += fits ? launch.tableBytes() : 0;
    launches.push_back(fits ? launch.size() : 1);
  }
  return launches;
}

} // namespace tbc::reshard
