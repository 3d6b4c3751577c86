//===- RankMemory.h - The slots and values of a rank -----------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_EXEC_RANKMEMORY_H
#define TBC_RUNTIME_EXEC_RANKMEMORY_H

#include "runtime/abi/Program.h"

#include <map>
#include <memory>
#include <vector>

namespace tbc::runtime {

/// A piece of memory that stores tensors at byte offsets.
class Arena {
public:
  virtual ~Arena() = default;
  virtual void store(int64_t offset, const kernels::Tensor &tensor) = 0;
  /// May throw KernelError.
  virtual kernels::Tensor load(int64_t offset, const kernels::TensorType &type) const = 0;
  /// Stores zeros, in the arena's arithmetic.
  virtual void zero(int64_t offset, const kernels::TensorType &type) = 0;
};

/// An arena in the memory of this process. In Native arithmetic and Residue251 an element takes the
/// width of its dtype. In the others an element has 8 bytes for every dtype, and the arena is 8
/// times as large. An element of w bytes then fills its 8 w bytes with w copies, so an overwrite of
/// any part of it is detected. Example: a bf16 element takes 16 bytes and has two copies.
class HostArena : public Arena {
public:
  HostArena(int64_t bytes, kernels::Arith arith);
  void store(int64_t offset, const kernels::Tensor &tensor) override;
  /// KernelError if a part of an element was overwritten.
  kernels::Tensor load(int64_t offset, const kernels::TensorType &type) const override;
  void zero(int64_t offset, const kernels::TensorType &type) override;

  /// Returns the address of the element at this offset of the memory plan.
  unsigned char *at(int64_t offset) const { return memory.get() + offset * scale; }

private:
  kernels::Arith arith;
  int64_t scale;
  struct Unmap {
    size_t bytes;
    void operator()(unsigned char *memory) const;
  };
  std::unique_ptr<unsigned char, Unmap> memory; // zeroed, page-aligned
};

/// The contents of a rank's slots, and the values of the current block. If the stage has a memory
/// plan, all of them lie in an arena at their planned offsets, that of the device or of the host,
/// and nowhere else. So a plan with two live buffers in the same bytes gives wrong numbers. Without
/// a plan each is a separate tensor.
///
/// A slot that lives longer than a micro-batch has one instance, the same for all micro-batches.
class RankMemory {
public:
  RankMemory(const program::Stage &stage, kernels::Arith arith);

  bool holds(int slot, int64_t microBatch = 0) const;
  /// Returns the content of the slot; a tensor without value if it is empty.
  kernels::Tensor slot(int slot, int64_t microBatch = 0) const;
  void setSlot(int slot, int64_t microBatch, const kernels::Tensor &value);
  /// Sets elements `first` and following to those of a flat tensor. Needs an arena, and numbers in
  /// the precision of their types. The last element fills the slot.
  void setPart(int slot, int64_t microBatch, int64_t first, const kernels::Tensor &values);
  /// Zeroes a slot that lives longer than a micro-batch.
  void setZero(int slot);
  /// Empties the slot; returns whether it had a content.
  bool drop(int slot, int64_t microBatch);
  /// Empties the slot for all micro-batches.
  void clear(int slot);

  /// Forgets all values. Values of the next block belong to `microBatch`.
  void beginBlock(int64_t microBatch);
  int64_t microBatchOfBlock() const { return microBatch; }
  /// Binds the value to the content of the slot.
  void bind(program::ValueId value, int slot);
  void define(program::ValueId value, kernels::Tensor tensor);
  void forget(program::ValueId value) { values[value] = Held(); }
  /// Returns whether the value is defined and the slot it is bound to still has its content.
  bool hasValue(program::ValueId value) const;
  /// Returns a tensor without value if !hasValue. KernelError if a part of it was overwritten.
  kernels::Tensor value(program::ValueId value) const;
  /// Returns whether the memory plan already puts the value into the slot.
  bool isIn(program::ValueId value, int slot) const;
  /// Marks the slot as filled, after its content was computed in place.
  void settle(int slot);

  /// Returns whether there is a memory plan, and so an arena.
  bool hasArena() const { return arena != nullptr; }
  /// Returns the offset of a value, or of a slot's instance, in the arena. After writing there,
  /// call `defineInPlace` or `settle`.
  int64_t offsetOf(program::ValueId value) const;
  int64_t offsetOfSlot(int slot) const { return slotOffset(*stage, slot, microBatch); }
  /// Returns whether these places are memory of this process with elements in the width of their
  /// dtype. This holds in Native arithmetic and Residue251, unless a machine has set its own arena.
  /// Then the following functions return their addresses.
  bool hasBytes() const {
    return host && (arith == kernels::Arith::Native || arith == kernels::Arith::Residue251);
  }
  unsigned char *bytesOf(program::ValueId value) const {
    HostArena *at = isInside(value) ? inside.get() : isOffloaded(value) ? offloadedHost : host;
    return at->at(offsetOf(value));
  }
  unsigned char *bytesOfSlot(int slot) const { return host->at(offsetOfSlot(slot)); }

  /// Puts everything on the device into `other`, the machine's own memory, from now on. Call it
  /// before anything is stored, and only with a memory plan.
  void useArena(std::unique_ptr<Arena> other);
  /// The same for everything on the host.
  void useHostArena(std::unique_ptr<Arena> other);
  void defineInPlace(program::ValueId value) { values[value] = {true, -1, kernels::Tensor()}; }

private:
  struct Held {
    bool exists = false;
    int slot = -1;          // the slot it is bound to
    kernels::Tensor tensor; // if there is no arena
  };

  bool isOffloaded(program::ValueId value) const {
    int slot = stage->memory.values[value].slot;
    return slot >= 0 && stage->slots[slot].location == program::Location::Host;
  }
  bool isInside(program::ValueId value) const { return stage->memory.values[value].isInside(); }
  void placeInside();
  int64_t instanceOf(int slot, int64_t microBatch) const;
  Arena &arenaOf(program::ValueId value) const;
  Arena &arenaOfSlot(int slot) const;

  const program::Stage *stage;
  kernels::Arith arith;
  std::unique_ptr<Arena> arena;       // for the device
  HostArena *host = nullptr;          // `arena`, if it is a HostArena
  std::unique_ptr<Arena> offloaded;   // for slots on the host, if there is an arena
  HostArena *offloadedHost = nullptr; // `offloaded`, if it is a HostArena
  /// For values inside of regions whose instructions are executed one by one; compiled kernels do
  /// not touch it. Regions share its bytes.
  std::unique_ptr<HostArena> inside;
  std::vector<int64_t> insideOffsets; // by value
  /// By slot and instance. With an arena, the tensors have no value.
  std::vector<std::map<int64_t, kernels::Tensor>> slots;
  std::vector<Held> values;
  int64_t microBatch = 0;
};

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_RANKMEMORY_H
