//===- Access.cpp - Memory accesses of warps, and their checks --------------===//

#include "tests/ptx/Warp.h"

#include <algorithm>
#include <sstream>

namespace tbc::ptx {

void Warp::addresses(const Instruction &i, int base, uint64_t *out) {
  if (base < 0) {
    std::fill_n(out, warpLanes, uint64_t(i.offset));
    return;
  }
  // Shared and local addresses may have 32 bits; then bit 0 of the variant is set.
  if (i.variant & 1) {
    const auto *from = at<uint32_t>(base);
    for (int lane = 0; lane < warpLanes; ++lane)
      out[lane] = uint64_t(from[lane]) + uint64_t(i.offset);
    return;
  }
  const auto *from = at<uint64_t>(base);
  for (int lane = 0; lane < warpLanes; ++lane)
    out[lane] = from[lane] + uint64_t(i.offset);
}

void Warp::failAccess(const Instruction &i, AccessKind kind, uint64_t address, int bytes, int lane,
                      const std::string &why) const {
  std::ostringstream text;
  text << (kind == AccessKind::Read    ? "reads "
           : kind == AccessKind::Write ? "writes "
                                       : "does an atomic operation on ")
       << bytes << " bytes at 0x" << std::hex << address << ", " << why;
  fail(i, text.str(), lane);
}

void Warp::access(const Instruction &i, AccessKind kind, const uint64_t *addresses, int bytes,
                  unsigned char **pointers) {
  uint64_t mistakes = 0;
  uint32_t windows = 0;
  for (int lane = 0; lane < warpLanes; ++lane)
    if (lanes >> lane & 1) {
      mistakes |= addresses[lane] & uint64_t(bytes - 1);
      windows |= 1U << ((addresses[lane] >> 56) == (sharedWindow >> 56)  ? 1
                        : (addresses[lane] >> 56) == (localWindow >> 56) ? 2
                        : (addresses[lane] >> 56) == (constWindow >> 56) ? 3
                                                                         : 0);
    }
  if (mistakes)
    for (int lane = 0; lane < warpLanes; ++lane)
      if ((lanes >> lane & 1) && addresses[lane] % uint64_t(bytes) != 0)
        failAccess(i, kind, addresses[lane], bytes, lane, "which is no multiple of that");
  if (i.space == Space::Shared)
    return smallAccess(i, kind, block.shared, true, addresses, 0, bytes, pointers);
  if (i.space == Space::Local)
    return smallAccess(i, kind, local, false, addresses, 0, bytes, pointers);
  bool isGeneric = i.space == Space::Generic;
  if (i.space == Space::Global || (isGeneric && windows == 1))
    return globalAccess(i, kind, addresses, bytes, pointers);
  if (isGeneric && windows == 2)
    return smallAccess(i, kind, block.shared, true, addresses, sharedWindow, bytes, pointers);
  if (isGeneric && windows == 4)
    return smallAccess(i, kind, local, false, addresses, localWindow, bytes, pointers);
  if (i.space != Space::Const && windows != 8)
    fail(i, "lanes access different kinds of memory by one instruction, which the executor does "
            "not know");
  const Block &constants = block.run.loaded.constants;
  uint64_t window = isGeneric ? constWindow : 0;
  for (int lane = 0; lane < warpLanes; ++lane) {
    if (!(lanes >> lane & 1))
      continue;
    uint64_t offset = addresses[lane] - window;
    if (kind != AccessKind::Read)
      failAccess(i, kind, addresses[lane], bytes, lane, "which is constant memory");
    if (offset + uint64_t(bytes) > constants.size())
      failAccess(i, kind, addresses[lane], bytes, lane, "outside of constant memory");
    pointers[lane] = constants.bytes.data() + offset;
  }
}

void Warp::synchronize(const Instruction &i, const uint64_t *addresses, bool isOrdered) {
  if (!block.run.touches || i.space == Space::Shared || !(isOrdered || hasFenced))
    return;
  for (int lane = 0; lane < warpLanes; ++lane)
    if (lanes >> lane & 1) {
      std::set<uint32_t> &blocks = block.run.released[addresses[lane]];
      block.run.acquired.insert(blocks.begin(), blocks.end());
      // With every block this one has acquired from.
      blocks.insert(block.run.acquired.begin(), block.run.acquired.end());
      blocks.insert(block.index);
    }
}

//===----------------------------------------------------------------------===//
// Shared and local memory
//===----------------------------------------------------------------------===//

void Warp::smallAccess(const Instruction &i, AccessKind kind, SmallMemory &memory, bool isShared,
                       const uint64_t *addresses, uint64_t window, int bytes,
                       unsigned char **pointers) {
  auto fixedBytes = uint64_t(isShared ? block.run.kernel.sharedBytes : block.run.kernel.localBytes);
  constexpr uint32_t warpBits = 8, atomicWarp = 0xff;
  uint32_t mark =
      block.phase << warpBits | (kind == AccessKind::Atomic ? atomicWarp : uint32_t(index) + 1);
  for (int lane = 0; lane < warpLanes; ++lane) {
    if (!(lanes >> lane & 1))
      continue;
    uint64_t begin = addresses[lane] - window, end = begin + uint64_t(bytes);
    bool isDynamic = isShared && begin >= dynamicSharedBegin;
    uint64_t size = fixedBytes;
    if (isDynamic) {
      begin -= dynamicSharedBegin, end -= dynamicSharedBegin;
      size = block.run.launch.dynamicSharedBytes;
    }
    if (begin >= size || end > size)
      failAccess(i, kind, addresses[lane], bytes, lane,
                 std::string("outside of the ") + std::to_string(size) + " bytes of " +
                     (isDynamic  ? "dynamic shared memory"
                      : isShared ? "shared memory"
                                 : "local memory"));
    uint64_t at = isDynamic  ? fixedBytes + begin
                  : isShared ? begin
                             : begin + uint64_t(lane) * fixedBytes;
    pointers[lane] = memory.bytes.data() + at;
    for (uint64_t byte = at; byte < at + uint64_t(bytes); ++byte) {
      if (kind != AccessKind::Write && !memory.written[byte])
        failAccess(i, kind, addresses[lane], bytes, lane, "which nobody wrote");
      if (kind != AccessKind::Read)
        memory.written[byte] = 1;
      if (!isShared)
        continue;
      auto conflicts = [&](uint32_t other) {
        return other >> warpBits == block.phase && other != mark;
      };
      constexpr uint32_t severalWarps = 0xfe;
      uint32_t &writer = memory.writers[byte], &reader = memory.readers[byte];
      bool isRace = conflicts(writer) || (kind != AccessKind::Read && conflicts(reader));
      if (isRace)
        failAccess(
            i, kind, addresses[lane], bytes, lane,
            "which warp " +
                std::to_string((conflicts(writer) ? writer : reader) % (1U << warpBits) - 1) +
                (conflicts(writer) ? " writes" : " reads") + ", and no barrier is between");
      if (kind != AccessKind::Read)
        writer = mark;
      else
        reader = reader >> warpBits != block.phase || reader == mark
                     ? mark
                     : block.phase << warpBits | severalWarps;
    }
  }
}

//===----------------------------------------------------------------------===//
// Global memory
//===----------------------------------------------------------------------===//

static constexpr uint64_t sectorBytes = 32;

void Warp::globalAccess(const Instruction &i, AccessKind kind, const uint64_t *addresses, int bytes,
                        unsigned char **pointers) {
  Run &run = block.run;
  uint64_t low = UINT64_MAX, high = 0;
  int count = 0;
  bool isContiguous = true;
  uint64_t expected = 0;
  for (int lane = 0; lane < warpLanes; ++lane) {
    if (!(lanes >> lane & 1))
      continue;
    uint64_t address = addresses[lane];
    isContiguous &= count == 0 || address == expected;
    expected = address + uint64_t(bytes);
    low = std::min(low, address), high = std::max(high, address);
    ++count;
  }
  (kind == AccessKind::Read ? run.counts.loads : run.counts.stores) += 1;
  (kind == AccessKind::Read ? run.counts.loadedBytes : run.counts.storedBytes) +=
      uint64_t(count) * uint64_t(bytes);
  auto within = [&](const Block *found, uint64_t begin, uint64_t end) {
    return found && begin >= found->begin && begin < found->end() && end <= found->end() &&
           begin < end;
  };
  Block *found = run.lastBlock;
  if (!within(found, low, high + uint64_t(bytes)))
    found = run.memory.find(low);
  if (within(found, low, high + uint64_t(bytes))) {
    run.lastBlock = found;
    unsigned char *data = found->bytes.data();
    for (int lane = 0; lane < warpLanes; ++lane)
      pointers[lane] = (lanes >> lane & 1) ? data + (addresses[lane] - found->begin) : nullptr;
    bool isUniform = low == high && kind == AccessKind::Read;
    if (isContiguous || isUniform) {
      int first = __builtin_ctz(lanes);
      run.counts.sectors += (high + uint64_t(bytes) - 1) / sectorBytes - low / sectorBytes + 1;
      measure(kind, isUniform ? uint64_t(bytes) : uint64_t(count) * uint64_t(bytes));
      checkGlobal(i, kind, *found, low, high + uint64_t(bytes) - low, first, bytes);
      return;
    }
  }
  uint64_t sectors[warpLanes], places[warpLanes];
  int numSectors = 0;
  for (int lane = 0; lane < warpLanes; ++lane) {
    if (!(lanes >> lane & 1))
      continue;
    uint64_t address = addresses[lane];
    if (!within(found, address, address + uint64_t(bytes)))
      found = run.memory.find(address);
    if (!within(found, address, address + uint64_t(bytes)))
      failAccess(i, kind, address, bytes, lane,
                 "outside of memory: " + run.memory.nearest(address));
    run.lastBlock = found;
    pointers[lane] = found->bytes.data() + (address - found->begin);
    checkGlobal(i, kind, *found, address, uint64_t(bytes), lane, bytes);
    places[numSectors] = address;
    sectors[numSectors++] = address / sectorBytes;
  }
  auto numDistinct = [&](uint64_t *values) {
    std::sort(values, values + numSectors);
    return uint64_t(std::unique(values, values + numSectors) - values);
  };
  run.counts.sectors += numDistinct(sectors);
  if (flight)
    measure(kind, numDistinct(places) * uint64_t(bytes));
}

void Warp::measure(AccessKind kind, uint64_t distinctBytes) {
  if (!flight)
    return;
  uint64_t fewest = (distinctBytes + sectorBytes - 1) / sectorBytes;
  block.run.counts.fewestSectors += fewest;
  if (kind == AccessKind::Read)
    flight->load(fewest * sectorBytes);
}

/// Checks bytes accessed by one lane, or by consecutive lanes from `lane` on.
void Warp::checkGlobal(const Instruction &i, AccessKind kind, Block &found, uint64_t address,
                       uint64_t bytes, int lane, int bytesOfLane) {
  if (block.run.launch.checksInitialization)
    checkInitialization(i, kind, found, address, bytes, lane, bytesOfLane);
  if (block.run.touches)
    checkRace(i, kind, address, bytes, lane, bytesOfLane);
}

void Warp::checkInitialization(const Instruction &i, AccessKind kind, Block &found,
                               uint64_t address, uint64_t bytes, int lane, int bytesOfLane) {
  unsigned char *written = found.written.data() + (address - found.begin);
  auto laneOf = [&](uint64_t byte) {
    for (uint64_t skip = byte / uint64_t(bytesOfLane); skip > 0; --skip)
      do
        ++lane;
      while (!(lanes >> lane & 1));
    return lane;
  };
  if (kind != AccessKind::Write)
    if (const void *missing = std::memchr(written, 0, bytes)) {
      auto byte = uint64_t(static_cast<const unsigned char *>(missing) - written);
      uint64_t begin = byte / uint64_t(bytesOfLane) * uint64_t(bytesOfLane);
      failAccess(i, kind, address + begin, bytesOfLane, laneOf(byte), "which nobody wrote");
    }
  if (kind != AccessKind::Read)
    std::memset(written, 1, bytes);
}

void Warp::checkRace(const Instruction &i, AccessKind kind, uint64_t address, uint64_t bytes,
                     int lane, int bytesOfLane) {
  Run &run = block.run;
  const uint32_t self = kind == AccessKind::Atomic ? Touches::atomics : block.index + 1;
  auto isOrdered = [&](uint32_t other) {
    return other == 0 || other == self || other == block.index + 1 ||
           (other < Touches::atomics && run.acquired.count(other - 1)) ||
           (other >= Touches::atomics && !run.acquired.empty());
  };
  auto fail = [&](uint64_t at, uint32_t other, const char *does) {
    uint64_t begin = address + (at - address) / uint64_t(bytesOfLane) * uint64_t(bytesOfLane);
    std::string who = other == Touches::several   ? "several other blocks"
                      : other == Touches::atomics ? "an atomic operation of another block"
                                                  : "block " + std::to_string(other - 1);
    failAccess(i, kind, begin, bytesOfLane, lane,
               "which " + who + " " + does + " in the same launch: a race");
  };
  for (uint64_t at = address; at < address + bytes;) {
    Touches::Page &page = run.touches->page(at);
    uint64_t first = at % Touches::pageBytes;
    uint64_t count = std::min(address + bytes - at, Touches::pageBytes - first);
    uint32_t *writers = page.writers + first, *readers = page.readers + first;
    uint32_t others = 0;
    if (kind == AccessKind::Read) {
      for (uint64_t k = 0; k < count; ++k) {
        others |= writers[k] ? writers[k] ^ self : 0;
        readers[k] = readers[k] == 0 || readers[k] == self ? self : uint32_t(Touches::several);
      }
      if (others)
        for (uint64_t k = 0; k < count; ++k)
          if (!isOrdered(writers[k]))
            fail(at + k, writers[k], "writes");
    } else {
      for (uint64_t k = 0; k < count; ++k)
        others |= (writers[k] ? writers[k] ^ self : 0) | (readers[k] ? readers[k] ^ self : 0);
      if (others)
        for (uint64_t k = 0; k < count; ++k) {
          if (!isOrdered(writers[k]))
            fail(at + k, writers[k], "writes");
          if (!isOrdered(readers[k]))
            fail(at + k, readers[k], "reads");
        }
      for (uint64_t k = 0; k < count; ++k)
        writers[k] = self;
    }
    at += count;
  }
}

} // namespace tbc::ptx
