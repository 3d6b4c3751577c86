//===- SparseSum.h - Compressed sums of gradients ----------------------------===//
//
// Part of tbc. Plain C++. Top-k compression with error feedback: Stich, Cordonnier, Jaggi,
// "Sparsified SGD with Memory" (2018); Lin et al., "Deep Gradient Compression" (2018).
//
// Computes an f32 sum over the n ranks of a group (all_reduce or reduce_scatter), tensor by tensor.
// A *slice* is the part of a tensor, m elements, for one destination. In an all_reduce it is the
// whole tensor; in a reduce_scatter it is the part kept by one rank. Each rank has a *residual* of
// m elements per slice, initially 0. Every execution
//
// 1. adds the gradient to the residual, in f32;
// 2. takes the k = ceil(share * m) elements of largest magnitude out of it (takeLargest);
// 3. sends them, each as a 4-byte index and a 4-byte value, to all ranks (all_gather) or to the
//    keeper of the slice (all_to_all);
// 4. adds up the received entries, element by element in group order, rounded once.
//
// So sent elements plus residual equal the gradient plus the previous residual, except for the
// rounding of step 1. All ranks of an all_reduce get the same bits.
//
// A tensor is sent uncompressed, without a residual, if compression would not save bytes.
// Uncompressed, a rank sends 8 m (n - 1) / n bytes of it in an all_reduce and half of this in a
// reduce_scatter. Compressed, it sends 8 k (n - 1) bytes per slice. Tensors whose indices need more
// than 31 bits are also sent uncompressed. Example: m = 1000, n = 4: an all_reduce saves bytes if k
// < 250.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_EXEC_SPARSESUM_H
#define TBC_RUNTIME_EXEC_SPARSESUM_H

#include "runtime/exec/MemoryCollectives.h"

namespace tbc::runtime {

/// Returns how many of `numElements` elements a share in (0, 1] is, at least one if there are any.
/// Example: share 0.01 of 250 elements is 3.
int64_t numLargest(double share, int64_t numElements);

/// The elements of an all_reduce or reduce_scatter that travel, and their layout in messages.
struct SparseLayout {
  /// The part of a tensor that goes to one destination.
  struct Slice {
    size_t tensor = 0;
    size_t index = 0;       // of its keeper in the group; 0 in an all_reduce
    Stretches elements;     // in the tensor, in bytes
    int64_t begin = 0;      // in the residuals, in elements
    int64_t count = 0;      // in elements
    int64_t numEntries = 0; // k of the tensor's largest slice, so that all messages have one size
  };

  /// `layout` is that of the instruction's f32 operands and results.
  SparseLayout(const program::Instruction &instruction, GroupPlace group,
               const MemoryLayout &layout, const std::vector<kernels::TensorType> &inputs,
               double share);

  /// Returns whether any tensor travels compressed; otherwise the layout is useless.
  bool isSparse() const { return !slices.empty(); }
  /// Returns the replacement for messageBytes of the instruction: the bytes of a rank's entries
  /// plus those of the uncompressed tensors.
  int64_t messageBytes() const;
  /// Returns the number of messages that a rank sends: one in an all_reduce, else one per index of
  /// the group.
  size_t numMessages() const { return isAllReduce ? 1 : group.ranks.size(); }
  /// Returns the `Slice::index` of the slices that this rank keeps.
  size_t ownIndex() const { return isAllReduce ? 0 : size_t(group.index); }

  bool isAllReduce = true;
  GroupPlace group;
  std::vector<Slice> slices;  // by index in the group, then by tensor
  std::vector<size_t> wholes; // tensors that are not compressed
  MemoryLayout wholeLayout;   // for `wholes` alone
  int64_t wholeBytes = 0;
  /// The size of a message in words of 4 bytes. Per slice for its destination, a message has
  /// numEntries ascending indices (-1 for an empty entry) and as many values.
  size_t messageWords = 0;
  int64_t residualCount = 0; // elements
};

/// A compressed sum in the memory of this process.
class SparseSum {
public:
  /// `instruction` must outlive it.
  SparseSum(const program::Instruction &instruction, SparseLayout layout)
      : instruction(&instruction), layout(std::move(layout)),
        residual(size_t(this->layout.residualCount), 0.0f) {}

  /// Executes the sum once. Results may overlap operands. Errors: as for communicateOnMemory.
  Status run(comm::Communicator &communicator, const std::vector<PlacedTensor> &inputs,
             const std::vector<PlacedTensor> &results, const std::string &place);

  /// Returns all residuals, slice after slice, as they are between two executions.
  const std::vector<float> &residuals() const { return residual; }
  /// `elements` has as many elements as `residuals`.
  void setResiduals(std::vector<float> elements);

private:
  using Slice = SparseLayout::Slice;
  using Message = std::vector<int32_t>;

  void addGradient(const Slice &slice, const PlacedTensor &input);
  std::vector<Message> takeMessages();
  Status sendWhole(comm::Communicator &communicator, const std::vector<PlacedTensor> &inputs,
                   const std::vector<PlacedTensor> &results, const std::string &place) const;
  Result<std::vector<Message>> exchange(comm::Communicator &communicator,
                                        std::vector<Message> messages,
                                        const std::string &place) const;
  void addUp(const std::vector<Message> &messages, const std::vector<PlacedTensor> &results) const;

  const program::Instruction *instruction;
  SparseLayout layout;
  std::vector<float> residual;
};

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_SPARSESUM_H
