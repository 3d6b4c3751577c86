//===- RankMemory.cpp - The slots and values of a rank ---------------------===//

#include "runtime/exec/RankMemory.h"
#include "runtime/abi/Region.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <sys/mman.h>

namespace tbc::runtime {

using kernels::Arith;
using kernels::Residue;
using kernels::Tensor;
using kernels::TensorType;

//===----------------------------------------------------------------------===//
// Arena
//===----------------------------------------------------------------------===//

void HostArena::Unmap::operator()(unsigned char *memory) const { munmap(memory, bytes); }

/// Returns whether an element has 8 bytes for every dtype.
static bool isWide(Arith arith) { return arith == Arith::F64 || arith == Arith::Residue61; }

HostArena::HostArena(int64_t bytes, Arith arith)
    : arith(arith), scale(isWide(arith) ? int64_t(sizeof(Residue)) : 1) {
  // Untouched pages take no memory.
  size_t size = size_t(std::max<int64_t>(bytes, 1)) * size_t(scale);
  void *pages = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED)
    throw std::bad_alloc();
  memory = std::unique_ptr<unsigned char, Unmap>(static_cast<unsigned char *>(pages), {size});
}

/// Writes every 8-byte element `copies` times.
template <typename T>
static void spread(const std::vector<T> &elements, int64_t copies, unsigned char *to) {
  static_assert(sizeof(T) == sizeof(Residue), "an element has 8 bytes");
  for (const T &element : elements)
    for (int64_t copy = 0; copy < copies; ++copy, to += sizeof(T))
      std::memcpy(to, &element, sizeof(T));
}

template <typename T>
static std::vector<T> gather(const unsigned char *from, int64_t count, int64_t copies) {
  std::vector<T> elements(static_cast<size_t>(count));
  for (T &element : elements) {
    std::memcpy(&element, from, sizeof(T));
    for (int64_t copy = 1; copy < copies; ++copy)
      kernels::require(std::memcmp(from, from + copy * int64_t(sizeof(T)), sizeof(T)) == 0,
                       "something was stored over a part of it: the memory plan is wrong");
    from += copies * int64_t(sizeof(T));
  }
  return elements;
}

void HostArena::store(int64_t offset, const Tensor &tensor) {
  unsigned char *to = at(offset);
  int64_t width = kernels::byteWidth(tensor.dtype());
  if (!isWide(arith)) {
    std::vector<unsigned char> bytes = tensor.toBytes();
    std::copy(bytes.begin(), bytes.end(), to);
  } else if (tensor.holds<int64_t>()) {
    spread(tensor.data<int64_t>(), width, to);
  } else if (tensor.holds<double>()) {
    spread(tensor.data<double>(), width, to);
  } else {
    spread(tensor.data<Residue>(), width, to);
  }
}

Tensor HostArena::load(int64_t offset, const TensorType &type) const {
  const unsigned char *from = at(offset);
  int64_t count = kernels::numElements(type.shape), width = kernels::byteWidth(type.dtype);
  if (arith == Arith::Native)
    return Tensor::fromBytes(type, arith, from);
  if (arith == Arith::Residue251)
    return Tensor::residuesFromBytes(type, from);
  if (!kernels::isFloat(type.dtype))
    return Tensor(type, gather<int64_t>(from, count, width));
  if (arith == Arith::F64)
    return Tensor(type, gather<double>(from, count, width));
  return Tensor(type, gather<Residue>(from, count, width));
}

void HostArena::zero(int64_t offset, const TensorType &type) {
  // In every arithmetic, zero is a sequence of zero bytes.
  std::memset(at(offset), 0, size_t(program::sizeBytes(type) * scale));
}

//===----------------------------------------------------------------------===//
// Slots
//===----------------------------------------------------------------------===//

RankMemory::RankMemory(const program::Stage &stage, Arith arith)
    : stage(&stage), arith(arith), slots(stage.slots.size()), values(stage.values.size()) {
  if (stage.memory.isEmpty())
    return;
  auto own = std::make_unique<HostArena>(stage.memory.arenaBytes, arith);
  host = own.get();
  arena = std::move(own);
  auto aside = std::make_unique<HostArena>(stage.memory.hostArenaBytes, arith);
  offloadedHost = aside.get();
  offloaded = std::move(aside);
  placeInside();
}

/// Places the values of regions one behind the other, and begins again where none is read later. So
/// a region of many independent kernels takes no more than its largest.
void RankMemory::placeInside() {
  constexpr int64_t alignment = 256;
  insideOffsets.assign(stage->values.size(), 0);
  int64_t most = 0;
  for (program::BlockId id : stage->blocks()) {
    const program::Block &block = stage->block(id);
    for (const program::Region &region : block.regions) {
      std::map<program::ValueId, int> lastRead;
      for (int i = region.first; i < region.first + region.count; ++i)
        for (program::ValueId value : block.instructions[size_t(i)].operands)
          lastRead[value] = i;
      int64_t bytes = 0;
      int busy = -1; // the last instruction that reads one of those placed
      for (int i = region.first; i < region.first + region.count; ++i) {
        if (i > busy)
          bytes = 0;
        for (program::ValueId value : block.instructions[size_t(i)].results) {
          if (!isInside(value))
            continue;
          insideOffsets[value] = bytes;
          int64_t size = program::sizeBytes(stage->values[value]);
          bytes += (size + alignment - 1) / alignment * alignment;
          busy = std::max({busy, i, lastRead[value]});
        }
        most = std::max(most, bytes);
      }
    }
  }
  inside = std::make_unique<HostArena>(most, arith);
}

void RankMemory::useHostArena(std::unique_ptr<Arena> other) {
  offloaded = std::move(other);
  offloadedHost = nullptr;
}

void RankMemory::useArena(std::unique_ptr<Arena> other) {
  arena = std::move(other);
  host = nullptr;
}

Arena &RankMemory::arenaOfSlot(int slot) const {
  return stage->slots[slot].location == program::Location::Host ? *offloaded : *arena;
}

Arena &RankMemory::arenaOf(program::ValueId value) const {
  int slot = stage->memory.values[value].slot;
  if (isInside(value))
    return *inside;
  return slot < 0 ? *arena : arenaOfSlot(slot);
}

int64_t RankMemory::instanceOf(int slot, int64_t microBatch) const {
  return program::livesAMicroBatch(stage->slots[slot].role) ? microBatch : 0;
}

bool RankMemory::holds(int slot, int64_t microBatch) const {
  return slots[slot].count(instanceOf(slot, microBatch)) > 0;
}

Tensor RankMemory::slot(int slot, int64_t microBatch) const {
  auto found = slots[slot].find(instanceOf(slot, microBatch));
  if (found == slots[slot].end())
    return Tensor();
  return arena
             ? arenaOfSlot(slot).load(slotOffset(*stage, slot, microBatch), stage->slots[slot].type)
             : found->second;
}

void RankMemory::setSlot(int slot, int64_t microBatch, const Tensor &value) {
  if (arena)
    arenaOfSlot(slot).store(slotOffset(*stage, slot, microBatch), value);
  slots[slot][instanceOf(slot, microBatch)] = arena ? Tensor() : value;
}

void RankMemory::setPart(int slot, int64_t microBatch, int64_t first, const Tensor &values) {
  const TensorType &type = stage->slots[slot].type;
  arenaOfSlot(slot).store(
      slotOffset(*stage, slot, microBatch) + first * kernels::byteWidth(type.dtype), values);
  if (first + values.numElements() == kernels::numElements(type.shape))
    slots[slot][instanceOf(slot, microBatch)] = Tensor();
}

void RankMemory::setZero(int slot) {
  const TensorType &type = stage->slots[slot].type;
  if (!arena)
    return setSlot(slot, 0, Tensor::zeros(type, arith));
  arenaOfSlot(slot).zero(slotOffset(*stage, slot, 0), type);
  slots[slot][0] = Tensor();
}

bool RankMemory::drop(int slot, int64_t microBatch) {
  return slots[slot].erase(instanceOf(slot, microBatch)) > 0;
}

void RankMemory::clear(int slot) { slots[slot].clear(); }

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

void RankMemory::beginBlock(int64_t ofMicroBatch) {
  std::fill(values.begin(), values.end(), Held());
  microBatch = ofMicroBatch;
}

void RankMemory::bind(program::ValueId value, int slot) {
  values[value] = {true, slot, arena ? Tensor() : this->slot(slot, microBatch)};
}

int64_t RankMemory::offsetOf(program::ValueId value) const {
  const program::ValuePlace &place = stage->memory.values[value];
  if (place.isInside())
    return insideOffsets[value];
  return place.slot < 0 ? place.offset : slotOffset(*stage, place.slot, microBatch);
}

void RankMemory::define(program::ValueId value, Tensor tensor) {
  if (arena)
    arenaOf(value).store(offsetOf(value), tensor);
  values[value] = {true, -1, arena ? Tensor() : std::move(tensor)};
}

bool RankMemory::hasValue(program::ValueId value) const {
  const Held &held = values[value];
  if (!held.exists || !arena)
    return bool(held.tensor);
  return held.slot < 0 || holds(held.slot, microBatch);
}

Tensor RankMemory::value(program::ValueId value) const {
  const Held &held = values[value];
  if (!held.exists || !arena)
    return held.tensor;
  if (held.slot >= 0)
    return slot(held.slot, microBatch);
  return arenaOf(value).load(offsetOf(value), stage->values[value]);
}

bool RankMemory::isIn(program::ValueId value, int slot) const {
  return arena && values[value].exists && values[value].slot < 0 &&
         stage->memory.values[value].slot == slot;
}

void RankMemory::settle(int slot) { slots[slot][instanceOf(slot, microBatch)] = Tensor(); }

} // namespace tbc::runtime
