//===- Warp.cpp - Execution of a warp --------------------------------------===//

#include "tests/ptx/Warp.h"

#include <algorithm>
#include <sstream>

namespace tbc::ptx {

Warp::Warp(ThreadBlock &block, int index, uint32_t lanes, unsigned char *file)
    : block(block), index(index), file(file), existing(lanes) {
  stack.push_back({0, -1, lanes});
  if (block.run.launch.measures)
    flight = std::make_unique<Flight>(block.run.kernel.fileBytes);
  for (const Constant &constant : block.run.kernel.constants) {
    uint64_t bits = constant.bits + (constant.isGlobal ? block.run.loaded.globals : 0);
    if (constant.bytes == 0)
      mask(constant.at) = bits ? allLanes : 0;
    for (int lane = 0; lane < warpLanes; ++lane)
      std::memcpy(file + constant.at + lane * constant.bytes, &bits, size_t(constant.bytes));
  }
  const Launch &launch = block.run.launch;
  uint64_t first = uint64_t(index) * warpLanes;
  for (auto [which, at] : block.run.kernel.specials) {
    for (uint32_t lane = 0; lane < warpLanes; ++lane) {
      auto thread = uint32_t(first + lane);
      uint32_t value = 0;
      switch (which) {
      case Special::ThreadX:
        value = thread % launch.threads.x;
        break;
      case Special::ThreadY:
        value = thread / launch.threads.x % launch.threads.y;
        break;
      case Special::ThreadZ:
        value = thread / launch.threads.x / launch.threads.y;
        break;
      case Special::ThreadsX:
        value = launch.threads.x;
        break;
      case Special::ThreadsY:
        value = launch.threads.y;
        break;
      case Special::ThreadsZ:
        value = launch.threads.z;
        break;
      case Special::BlockX:
        value = block.position.x;
        break;
      case Special::BlockY:
        value = block.position.y;
        break;
      case Special::BlockZ:
        value = block.position.z;
        break;
      case Special::BlocksX:
        value = launch.blocks.x;
        break;
      case Special::BlocksY:
        value = launch.blocks.y;
        break;
      case Special::BlocksZ:
        value = launch.blocks.z;
        break;
      case Special::Lane:
        value = lane;
        break;
      case Special::WarpIndex:
        value = uint32_t(index);
        break;
      case Special::Warps:
        value = uint32_t((launch.threads.count() + warpLanes - 1) / warpLanes);
        break;
      case Special::LanesEqual:
        value = 1U << lane;
        break;
      case Special::LanesBelow:
        value = (1U << lane) - 1;
        break;
      case Special::LanesUpTo:
        value = (2U << lane) - 1;
        break;
      case Special::LanesAbove:
        value = ~((2U << lane) - 1);
        break;
      case Special::LanesFrom:
        value = ~((1U << lane) - 1);
        break;
      case Special::DynamicSharedBytes:
        value = launch.dynamicSharedBytes;
        break;
      case Special::Clock:
      case Special::Clock64:
        break; // the emulator has no clock
      }
      if (which == Special::Clock64)
        this->at<uint64_t>(at)[lane] = value;
      else
        this->at<uint32_t>(at)[lane] = value;
    }
  }
}

void Warp::fail(const Instruction &i, const std::string &why, int lane) const {
  const Run &run = block.run;
  std::ostringstream text;
  text << "kernel " << run.kernel.name << ", line " << i.line << " `"
       << run.loaded.module.line(i.line) << "`, block (" << block.position.x << ", "
       << block.position.y << ", " << block.position.z << "), ";
  if (lane < 0) {
    text << "warp " << index;
  } else {
    uint64_t thread = uint64_t(index) * warpLanes + uint64_t(lane);
    const Dims &threads = run.launch.threads;
    text << "thread (" << thread % threads.x << ", " << thread / threads.x % threads.y << ", "
         << thread / threads.x / threads.y << ")";
  }
  text << ": " << why;
  throw Fault(text.str());
}

void Warp::needLanes(const Instruction &i, uint32_t members) const {
  uint32_t missing = members & existing & ~lanes;
  if (!missing)
    return;
  std::ostringstream text;
  text << "lanes " << std::hex << "0x" << missing << " of the members 0x" << members
       << " do not come here together with lanes 0x" << lanes;
  fail(i, text.str());
}

/// Removes ended lanes from the stack.
void Warp::leave(uint32_t gone) {
  existing &= ~gone;
  for (Entry &entry : stack)
    entry.lanes &= ~gone;
}

/// The lanes `taken` of the top entry jump; its other lanes continue.
void Warp::branch(const Instruction &i, uint32_t taken) {
  Entry &top = stack.back();
  uint32_t others = top.lanes & ~taken;
  if (!taken || !others) {
    top.pc = taken ? i.target : top.pc + 1;
    return;
  }
  int go = i.target, stay = top.pc + 1, meeting = i.reconvergence;
  if (meeting >= 0 && meeting == top.reconvergence && (go == meeting || stay == meeting)) {
    // Lanes at the meeting point wait in the entry below, as in a loop with lanes leaving one by
    // one.
    top.lanes = go == meeting ? others : taken;
    top.pc = go == meeting ? stay : go;
    return;
  }
  top.pc = meeting;
  if (meeting < 0)
    stack.pop_back();
  for (auto [pc, part] : {std::pair(stay, others), std::pair(go, taken)})
    if (pc != meeting)
      stack.push_back({pc, meeting, part});
}

bool Warp::run() {
  const std::vector<Instruction> &code = block.run.kernel.code;
  Counts &counts = block.run.counts;
  barrier = -1;
  while (!stack.empty()) {
    if (!stack.back().lanes || stack.back().pc == stack.back().reconvergence) {
      stack.pop_back();
      continue;
    }
    for (bool isStraight = true; isStraight;) {
      Entry &top = stack.back();
      if (size_t(top.pc) >= code.size())
        throw Fault("kernel " + block.run.kernel.name + " goes on behind its last instruction");
      const Instruction &i = code[size_t(top.pc)];
      lanes = top.lanes;
      if (i.guard >= 0)
        lanes &= i.isGuardNegated ? ~mask(i.guard) : mask(i.guard);
      ++counts.warpInstructions;
      counts.laneInstructions += uint64_t(__builtin_popcount(lanes));
      if (++numExecuted > block.run.launch.instructionLimit)
        fail(i, "the warp does not end: it has executed " + std::to_string(numExecuted - 1) +
                    " instructions");
      if (counts.warpInstructions > block.run.launch.instructionBudget) {
        counts.longestWarp = std::max(counts.longestWarp, numExecuted);
        throw BudgetSpent();
      }
      if (flight)
        flight->step(i);
      switch (i.control) {
      case Control::None:
        if (lanes)
          i.action(*this, i);
        ++top.pc;
        isStraight = top.pc != top.reconvergence;
        break;
      case Control::Branch: {
        size_t depth = stack.size();
        branch(i, lanes);
        isStraight = stack.size() == depth && stack.back().pc != stack.back().reconvergence;
        break;
      }
      case Control::Exit:
        ++top.pc;
        leave(lanes);
        isStraight = top.lanes != 0;
        break;
      case Control::Barrier:
        ++top.pc;
        if (!lanes)
          break;
        needLanes(i, allLanes);
        i.action(*this, i);
        if (barrier >= 0)
          return true;
        break;
      }
    }
  }
  hasEnded = true;
  counts.longestWarp = std::max(counts.longestWarp, numExecuted);
  if (flight)
    flight->addTo(counts);
  return false;
}

} // namespace tbc::ptx
