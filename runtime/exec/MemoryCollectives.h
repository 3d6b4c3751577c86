//===- MemoryCollectives.h - A Program's communication on memory ------------===//
//
// Part of tbc. Plain C++. The same as Collectives.h where operands and results lie in memory, each
// element in the width of its dtype: nothing is packed, as a Communicator takes stretches of
// memory.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_EXEC_MEMORYCOLLECTIVES_H
#define TBC_RUNTIME_EXEC_MEMORYCOLLECTIVES_H

#include "runtime/exec/Collectives.h"

namespace tbc::runtime {

/// A part of a tensor, in bytes from its begin.
struct Stretch {
  int64_t offset = 0, bytes = 0;
};
using Stretches = std::vector<Stretch>;

/// What of the operands and results of a communication goes to and comes from each index of its
/// group, by index and tensor; worked out once. What every index gets or gives alike stands there
/// once. Padding of flat cuts is left out.
struct MemoryLayout {
  std::vector<std::vector<Stretches>> inputs, results;
};

/// An operand or result.
struct PlacedTensor {
  unsigned char *data = nullptr;
  kernels::TensorType type;
  int64_t bytes() const { return program::sizeBytes(type); }
};

/// The elements of `full`, `width` bytes each, that group index `index` of n holds (shardIndices).
Stretches shardStretches(const kernels::Shape &full, int64_t width, int dim,
                         const std::vector<program::SegmentShape> &segments, int64_t n,
                         int64_t index);

MemoryLayout memoryLayout(const program::Instruction &instruction, const GroupPlace &group,
                          const std::vector<kernels::TensorType> &inputs,
                          const std::vector<kernels::TensorType> &results);

/// Executes a collective, slice, send, recv or copy to or from the host. Results may lie over
/// operands, which costs a copy unless each lies over its own. `arith`: Native or Residue251, in
/// which elements have the width of their dtype. KernelError: as of the communicator.
Status communicateOnMemory(comm::Communicator &communicator,
                           const program::Instruction &instruction, const GroupPlace &group,
                           const MemoryLayout &layout, kernels::Arith arith,
                           std::vector<PlacedTensor> inputs,
                           const std::vector<PlacedTensor> &results, const std::string &place);

/// The same of tensors of f32 that travel as bf16, rounded to it; `layout` is of tensors of bf16.
/// Takes as much memory as these for as long as it runs.
Status communicateNarrowly(comm::Communicator &communicator,
                           const program::Instruction &instruction, const GroupPlace &group,
                           const MemoryLayout &layout, kernels::Arith arith,
                           std::vector<PlacedTensor> inputs,
                           const std::vector<PlacedTensor> &results, const std::string &place);

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_MEMORYCOLLECTIVES_H
