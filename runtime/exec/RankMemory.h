//===- RankMemory.h - What a rank holds ------------------------------------===//
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

/// One piece of memory that holds the elements of tensors at offsets in bytes.
class Arena {
public:
  virtual ~Arena() = default;
  virtual void store(int64_t offset, const kernels::Tensor &tensor) = 0;
  /// May throw KernelError.
  virtual kernels::Tensor load(int64_t offset, const kernels::TensorType &type) const = 0;
  /// Zeros, in the arena's arithmetic.
  virtual void zero(int64_t offset, const kernels::TensorType &type) = 0;
};

/// One in the memory of this process. In Native arithmetic and in Residue251 every element takes
/// the width of its dtype. In the others, whose elements have 8 bytes whatever the dtype, the arena
/// is 8 times as large, and an element of w bytes fills its 8 w bytes with w copies: whatever is
/// stored over a part of an element shows.
class HostArena : public Arena {
public:
  HostArena(int64_t bytes, kernels::Arith arith);
  void store(int64_t offset, const kernels::Tensor &tensor) override;
  /// KernelError if something was stored over a part of an element.
  kernels::Tensor load(int64_t offset, const kernels::TensorType &type) const override;
  void zero(int64_t offset, const kernels::TensorType &type) override;

  /// Where the element at this offset of the memory plan lies.
  unsigned char *at(int64_t offset) const { return memory.get() + offset * scale; }

private:
  kernels::Arith arith;
  int64_t scale;
  struct Unmap {
    size_t bytes;
    void operator()(unsigned char *memory) const;
  };
  std::unique_ptr<unsigned char, Unmap> memory; // zeros, from the begin of a page
};

/// The contents of a rank's slots, and the values of the block under way. Where the stage has a
/// memory plan, all of them lie in an arena at their places, that of the device or that of the
/// host, and nowhere else: a plan by which two things that are needed at one time share bytes gives
/// wrong numbers. Where it has none, each is a tensor by itself.
///
/// A slot that lives longer than a micro-batch has one instance, for which any micro-batch stands.
class RankMemory {
public:
  RankMemory(const program::Stage &stage, kernels::Arith arith);

  bool holds(int slot, int64_t microBatch = 0) const;
  /// What the slot holds; a tensor without value if it holds nothing.
  kernels::Tensor slot(int slot, int64_t microBatch = 0) const;
  void setSlot(int slot, int64_t microBatch, const kernels::Tensor &value);
  /// Of a slot that lives longer than a micro-batch.
  void setZero(int slot);
  /// Whether it held something.
  bool drop(int slot, int64_t microBatch);
  /// Of all micro-batches.
  void clear(int slot);

  /// Forgets all values; those of the next block belong to `microBatch`.
  void beginBlock(int64_t microBatch);
  int64_t microBatchOfBlock() const { return microBatch; }
  /// From now on the value is what the slot holds.
  void bind(program::ValueId value, int slot);
  void define(program::ValueId value, kernels::Tensor tensor);
  void forget(program::ValueId value) { values[value] = Held(); }
  /// Whether it is defined, and what it is bound to is still there.
  bool hasValue(program::ValueId value) const;
  /// A tensor without value if !hasValue. KernelError if something was stored over a part of it.
  kernels::Tensor value(program::ValueId value) const;
  /// Whether the value lies in the slot already, as the memory plan has it.
  bool isIn(program::ValueId value, int slot) const;
  /// What was computed in the place of the slot is what the slot holds.
  void settle(int slot);

  /// Whether there is a memory plan, and so an arena.
  bool hasArena() const { return arena != nullptr; }
  /// Where a value or a slot's instance begins in the arena. Who writes there says so by
  /// `defineInPlace` or `settle`.
  int64_t offsetOf(program::ValueId value) const;
  int64_t offsetOfSlot(int slot) const { return slotOffset(*stage, slot, microBatch); }
  /// Whether these places are memory of this process with each element in the width of its dtype:
  /// in Native arithmetic and in Residue251, and unless a machine has brought an arena of its own.
  /// Then they are:
  bool hasBytes() const {
    return host && (arith == kernels::Arith::Native || arith == kernels::Arith::Residue251);
  }
  unsigned char *bytesOf(program::ValueId value) const {
    return (isOffloaded(value) ? offloadedHost : host)->at(offsetOf(value));
  }
  unsigned char *bytesOfSlot(int slot) const { return host->at(offsetOfSlot(slot)); }

  /// From now on everything of the device lies in `other`, whose memory is a machine's own. Before
  /// anything is held, and with a memory plan only.
  void useArena(std::unique_ptr<Arena> other);
  /// The same of what lies on the host.
  void useHostArena(std::unique_ptr<Arena> other);
  void defineInPlace(program::ValueId value) { values[value] = {true, -1, kernels::Tensor()}; }

private:
  struct Held {
    bool exists = false;
    int slot = -1;          // bound to it
    kernels::Tensor tensor; // without an arena
  };

  bool isOffloaded(program::ValueId value) const {
    int slot = stage->memory.values[value].slot;
    return slot >= 0 && stage->slots[slot].location == program::Location::Host;
  }
  int64_t instanceOf(int slot, int64_t microBatch) const;
  Arena &arenaOf(program::ValueId value) const;
  Arena &arenaOfSlot(int slot) const;

  const program::Stage *stage;
  kernels::Arith arith;
  std::unique_ptr<Arena> arena;       // of the device
  HostArena *host = nullptr;          // `arena`, if it is one
  std::unique_ptr<Arena> offloaded;   // of what lies on the host; where there is an arena
  HostArena *offloadedHost = nullptr; // `offloaded`, if it is one
  /// By slot and instance; with an arena, tensors without value.
  std::vector<std::map<int64_t, kernels::Tensor>> slots;
  std::vector<Held> values;
  int64_t microBatch = 0;
};

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_RANKMEMORY_H
