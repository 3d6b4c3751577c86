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

/// One piece of memory that holds the elements of tensors at offsets in bytes. In Native arithmetic
/// every element takes the width of its dtype. In the others, whose elements have 8 bytes whatever
/// the dtype, the arena is 8 times as large, and an element of w bytes fills its 8 w bytes with w
/// copies: whatever is stored over a part of an element shows.
class Arena {
public:
  Arena(int64_t bytes, kernels::Arith arith);
  void store(int64_t offset, const kernels::Tensor &tensor);
  /// KernelError if something was stored over a part of an element.
  kernels::Tensor load(int64_t offset, const kernels::TensorType &type) const;

private:
  kernels::Arith arith;
  int64_t scale;
  struct Free {
    void operator()(void *memory) const;
  };
  std::unique_ptr<unsigned char, Free> memory; // zeros
};

/// The contents of a rank's slots, and the values of the block under way. Where the stage has a
/// memory plan, all of them lie in an arena at their places, and nowhere else: a plan by which two
/// things that are needed at one time share bytes gives wrong numbers. Where it has none, each is a
/// tensor by itself.
///
/// A slot that lives longer than a micro-batch has one instance, for which any micro-batch stands.
class RankMemory {
public:
  RankMemory(const program::Stage &stage, kernels::Arith arith);

  bool holds(int slot, int64_t microBatch = 0) const;
  /// What the slot holds; a tensor without value if it holds nothing.
  kernels::Tensor slot(int slot, int64_t microBatch = 0) const;
  void setSlot(int slot, int64_t microBatch, const kernels::Tensor &value);
  /// Whether it held something.
  bool drop(int slot, int64_t microBatch);
  /// Of all micro-batches.
  void clear(int slot);

  /// Forgets all values; those of the next block belong to `microBatch`.
  void beginBlock(int64_t microBatch);
  /// From now on the value is what the slot holds.
  void bind(program::ValueId value, int slot);
  void define(program::ValueId value, kernels::Tensor tensor);
  void forget(program::ValueId value) { values[value] = Held(); }
  /// A tensor without value if it is not defined, or what it was bound to is gone.
  kernels::Tensor value(program::ValueId value) const;
  /// Whether the value lies in the slot already, as the memory plan has it.
  bool isIn(program::ValueId value, int slot) const;
  /// What was computed in the place of the slot is what the slot holds.
  void settle(int slot);

private:
  struct Held {
    bool exists = false;
    int slot = -1;          // bound to it
    kernels::Tensor tensor; // without an arena
  };

  int64_t instanceOf(int slot, int64_t microBatch) const;
  int64_t offsetOf(program::ValueId value) const;

  const program::Stage *stage;
  std::unique_ptr<Arena> arena;
  /// By slot and instance; with an arena, tensors without value.
  std::vector<std::map<int64_t, kernels::Tensor>> slots;
  std::vector<Held> values;
  int64_t microBatch = 0;
};

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_RANKMEMORY_H
