//===- Executor.cpp - Blocks of threads, one after the other ---------------===//

#include "tests/ptx/Executor.h"
#include "tests/ptx/Warp.h"

#include <algorithm>

namespace tbc::ptx {

Counts &Counts::operator+=(const Counts &o) {
  warpInstructions += o.warpInstructions, laneInstructions += o.laneInstructions;
  loads += o.loads, stores += o.stores;
  loadedBytes += o.loadedBytes, storedBytes += o.storedBytes;
  sectors += o.sectors, fewestSectors += o.fewestSectors;
  flightSum += o.flightSum, flightSquares += o.flightSquares;
  matrixFlops += o.matrixFlops;
  longestWarp = std::max(longestWarp, o.longestWarp);
  isCut |= o.isCut;
  return *this;
}

LoadedModule load(Module module, Memory &memory, uint64_t address) {
  LoadedModule loaded;
  loaded.globals = address;
  loaded.constants = Block(constWindow, size_t(module.constBytes));
  if (module.globalBytes)
    memory.add(address, size_t(module.globalBytes));
  for (const Variable &variable : module.variables) {
    if (variable.bytes.empty())
      continue;
    if (variable.space == Space::Global) {
      memory.write(address + uint64_t(variable.offset), variable.bytes.data(),
                   variable.bytes.size());
      continue;
    }
    std::memcpy(loaded.constants.bytes.data() + variable.offset, variable.bytes.data(),
                variable.bytes.size());
    std::memset(loaded.constants.written.data() + variable.offset, 1, variable.bytes.size());
  }
  loaded.module = std::move(module);
  return loaded;
}

void SmallMemory::reset(size_t size, bool isShared) {
  bytes.assign(size, 0xdb);
  written.assign(size, 0);
  if (isShared) {
    writers.assign(size, 0);
    readers.assign(size, 0);
  }
}

/// Releases the warps of complete barriers. Returns whether there was one.
static bool release(ThreadBlock &block) {
  bool isAny = false;
  for (size_t number = 0; number < block.barriers.size(); ++number) {
    Barrier &barrier = block.barriers[number];
    if (barrier.arrived == 0 || barrier.arrived < barrier.expected)
      continue;
    for (Warp &warp : block.warps) {
      if (warp.barrier != int(number))
        continue;
      warp.barrier = -1;
      // A reduction executes its action again to fetch the result.
      constexpr uint8_t firstReduction = 2;
      if (warp.waiting->variant >= firstReduction)
        warp.waiting->action(warp, *warp.waiting);
      warp.waiting = nullptr;
    }
    barrier = {};
    ++block.phase;
    isAny = true;
  }
  return isAny;
}

static void runBlock(ThreadBlock &block, std::vector<std::vector<unsigned char>> &files) {
  const Kernel &kernel = block.run.kernel;
  uint64_t threads = block.run.launch.threads.count();
  auto numWarps = size_t((threads + warpLanes - 1) / warpLanes);
  block.shared.reset(size_t(kernel.sharedBytes) + block.run.launch.dynamicSharedBytes, true);
  auto lanesOf = [&](size_t warp) {
    uint64_t count = std::min<uint64_t>(threads - warp * warpLanes, warpLanes);
    return count == warpLanes ? allLanes : (1U << count) - 1;
  };
  auto begin = [&](size_t index, std::vector<unsigned char> &file) {
    block.warps.emplace_back(block, int(index), lanesOf(index), file.data());
    block.warps.back().local.reset(size_t(kernel.localBytes) * warpLanes, false);
  };
  block.warps.reserve(numWarps);
  if (!kernel.hasBarrier) {
    for (size_t index = 0; index < numWarps; ++index) {
      block.warps.clear();
      begin(index, files[0]);
      block.warps.back().run();
    }
    return;
  }
  while (files.size() < numWarps)
    files.emplace_back(files[0].size());
  for (size_t index = 0; index < numWarps; ++index)
    begin(index, files[index]);
  for (bool isAlive = true; isAlive;) {
    isAlive = false;
    bool hasMoved = false;
    const Warp *stuck = nullptr;
    for (Warp &warp : block.warps) {
      if (warp.hasEnded)
        continue;
      if (warp.barrier < 0) {
        warp.run();
        hasMoved = true;
      }
      isAlive |= !warp.hasEnded;
      if (!warp.hasEnded)
        stuck = &warp;
    }
    if (!release(block) && !hasMoved && stuck) {
      const Barrier &barrier = block.barriers[size_t(stuck->barrier)];
      stuck->fail(*stuck->waiting, "barrier " + std::to_string(stuck->barrier) + " has " +
                                       std::to_string(barrier.arrived) + " of " +
                                       std::to_string(barrier.expected) +
                                       " threads, and no other comes");
    }
  }
}

Counts Executor::run(LoadedModule &loaded, const std::string &name, const Launch &launch) {
  auto found = loaded.module.kernels.find(name);
  if (found == loaded.module.kernels.end())
    throw Fault("no kernel is named " + name);
  const Kernel &kernel = found->second;
  if (launch.threads.count() > uint64_t(kernel.maxThreads))
    throw Fault("kernel " + name + " is launched with " + std::to_string(launch.threads.count()) +
                " threads a block and allows " + std::to_string(kernel.maxThreads));
  if (launch.arguments.size() != kernel.parameters.size())
    throw Fault("kernel " + name + " is launched with " + std::to_string(launch.arguments.size()) +
                " arguments and has " + std::to_string(kernel.parameters.size()));
  lastTouches.clear();
  Run run{loaded, kernel, memory, launch, launch.checksRaces ? &lastTouches : nullptr, {}};
  run.parameters.assign(size_t(kernel.parameterBytes), 0);
  for (size_t p = 0; p < kernel.parameters.size(); ++p) {
    const Parameter &parameter = kernel.parameters[p];
    if (launch.arguments[p].size() != size_t(parameter.bytes))
      throw Fault("kernel " + name + ": argument " + std::to_string(p) + " has " +
                  std::to_string(launch.arguments[p].size()) + " bytes, its parameter " +
                  std::to_string(parameter.bytes));
    std::memcpy(run.parameters.data() + parameter.offset, launch.arguments[p].data(),
                size_t(parameter.bytes));
  }
  std::vector<std::vector<unsigned char>> files(1);
  constexpr size_t alignment = 64;
  files[0].resize(size_t(kernel.fileBytes) + alignment);
  uint64_t end = std::min(launch.endBlock, launch.blocks.count());
  for (uint64_t index = launch.firstBlock; index < end; ++index) {
    ThreadBlock block(run, uint32_t(index));
    block.position = {uint32_t(index % launch.blocks.x),
                      uint32_t(index / launch.blocks.x % launch.blocks.y),
                      uint32_t(index / launch.blocks.x / launch.blocks.y)};
    run.acquired.clear();
    try {
      runBlock(block, files);
    } catch (const BudgetSpent &) {
      run.counts.isCut = true;
      break;
    }
  }
  return run.counts;
}

} // namespace tbc::ptx
