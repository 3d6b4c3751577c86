//===- MemoryCollectives.h - A Program's communication on memory ------------===//
//
// Part of tbc. Plain C++. Collectives.h for operands and results that lie in memory, each element
// in the width of its dtype. No packing is needed, because a Communicator takes stretches of
// memory.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_EXEC_MEMORYCOLLECTIVES_H
#define TBC_RUNTIME_EXEC_MEMORYCOLLECTIVES_H

#include "runtime/exec/Collectives.h"

namespace tbc::runtime {

/// A part of a tensor, in bytes from its beginning.
struct Stretch {
  int64_t offset = 0, bytes = 0;
};
using Stretches = std::vector<Stretch>;

/// The byte ranges of a communication's operands and results that go to and come from each index of
/// its group, by index and tensor. They are computed once. If all indices send or receive the same
/// ranges, there is one entry. The padding of flat cuts is left out.
struct MemoryLayout {
  std::vector<std::vector<Stretches>> inputs, results;
};

/// The memory and type of an operand or result.
struct PlacedTensor {
  unsigned char *data = nullptr;
  kernels::TensorType type;
  int64_t bytes() const { return program::sizeBytes(type); }
};

/// Returns the elements of `full`, `width` bytes each, held by index `index` of n (`shardIndices`).
/// Example: shape [4, 2] of f32 cut along dim 1 for index 1 of 2 gives four stretches of 4 bytes,
/// at 4, 12, 20, 28.
Stretches shardStretches(const kernels::Shape &full, int64_t width, int dim,
                         const std::vector<program::SegmentShape> &segments, int64_t n,
                         int64_t index);

MemoryLayout memoryLayout(const program::Instruction &instruction, const GroupPlace &group,
                          const std::vector<kernels::TensorType> &inputs,
                          const std::vector<kernels::TensorType> &results);

/// Executes a collective, slice, send, recv, or a copy to or from the host. Results may overlap
/// operands, at the cost of a copy unless each result lies exactly over its own operand. `arith` is
/// Native or Residue251; both store elements in the width of their dtype. KernelError: as for the
/// communicator.
Status communicateOnMemory(comm::Communicator &communicator,
                           const program::Instruction &instruction, const GroupPlace &group,
                           const MemoryLayout &layout, kernels::Arith arith,
                           std::vector<PlacedTensor> inputs,
                           const std::vector<PlacedTensor> &results, const std::string &place);

/// The same for f32 tensors that travel as bf16, rounded. `layout` describes the bf16 tensors. It
/// needs temporary memory of their size.
Status communicateNarrowly(comm::Communicator &communicator,
                           const program::Instruction &instruction, const GroupPlace &group,
                           const MemoryLayout &layout, kernels::Arith arith,
                           std::vector<PlacedTensor> inputs,
                           const std::vector<PlacedTensor> &results, const std::string &place);

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_MEMORYCOLLECTIVES_H
