//===- SparseSum.h - Sums of the largest elements of gradients ---------------===//
//
// Part of tbc. Plain C++. Top-k compression with error feedback: Stich, Cordonnier, Jaggi,
// "Sparsified SGD with Memory" (2018); Lin et al., "Deep Gradient Compression" (2018).
//
// A sum of f32 over the n ranks of a group, all_reduce or reduce_scatter, of tensors that are taken
// one by one. What of a tensor goes to one place is a *slice* of m elements: all of it in an
// all_reduce, what a rank keeps in a reduce_scatter. Of every slice each rank has a *residual* of m
// elements, 0 at first, and in every execution
//   1. adds its gradient to the residual, in f32;
//   2. takes the k = ceil(share * m) elements of largest magnitude out of it (takeLargest);
//   3. sends them, an index and a value of 4 bytes each: to all ranks (all_gather), or to the one
//      that keeps the slice (all_to_all);
//   4. adds up what came, element by element in the order of the group, rounded once.
// So what a rank has sent and its residual are together its gradient and its residual before, but
// for the rounding of 1. All ranks of an all_reduce have the same bits.
//
// A tensor goes as if it were not compressed, and has no residual, where it would not save bytes: a
// rank sends m (n - 1) * 8 / n bytes of it in an all_reduce and half as many in a reduce_scatter,
// against 8 k (n - 1) for each slice that it sends. So it does where its indices have more than 31
// bits.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_EXEC_SPARSESUM_H
#define TBC_RUNTIME_EXEC_SPARSESUM_H

#include "runtime/exec/MemoryCollectives.h"

namespace tbc::runtime {

/// How many of `numElements` elements a share of (0, 1] is, at least one of some.
int64_t numLargest(double share, int64_t numElements);

/// Which elements of an all_reduce or reduce_scatter travel, and how they lie in messages.
struct SparseLayout {
  /// What of a tensor goes to one place.
  struct Slice {
    size_t tensor = 0;
    size_t index = 0;       // in the group, of who keeps it; 0 in an all_reduce
    Stretches elements;     // of the tensor, in bytes
    int64_t begin = 0;      // of its residual
    int64_t count = 0;      // of its elements
    int64_t numEntries = 0; // k; of the tensor's largest slice, so that messages have one size
  };

  /// `layout` is that of the instruction's operands and results, of f32.
  SparseLayout(const program::Instruction &instruction, GroupPlace group,
               const MemoryLayout &layout, const std::vector<kernels::TensorType> &inputs,
               double share);

  /// Whether any tensor goes compressed; else there is no use in it.
  bool isSparse() const { return !slices.empty(); }
  /// The bytes that stand for messageBytes of the instruction: of a rank's entries and of the
  /// tensors that go whole.
  int64_t messageBytes() const;
  /// How many a rank sends: one in an all_reduce, else one per index of the group.
  size_t numMessages() const { return isAllReduce ? 1 : group.ranks.size(); }
  /// By whom what this rank has of the sum is kept: Slice::index.
  size_t ownIndex() const { return isAllReduce ? 0 : size_t(group.index); }

  bool isAllReduce = true;
  GroupPlace group;
  std::vector<Slice> slices;  // by index in the group, then by tensor
  std::vector<size_t> wholes; // tensors that are not compressed
  MemoryLayout wholeLayout;   // of these alone
  int64_t wholeBytes = 0;
  /// Of each message, which has per slice of its place numEntries indices, ascending, of which -1
  /// stands for none, and as many values: words of 4 bytes.
  size_t messageWords = 0;
  int64_t residualCount = 0; // elements
};

/// Such a sum in the memory of this process.
class SparseSum {
public:
  /// `instruction` must outlive it.
  SparseSum(const program::Instruction &instruction, SparseLayout layout)
      : instruction(&instruction), layout(std::move(layout)),
        residual(size_t(this->layout.residualCount), 0.0f) {}

  /// Executes it once. Results may lie over operands. Errors: as of communicateOnMemory.
  Status run(comm::Communicator &communicator, const std::vector<PlacedTensor> &inputs,
             const std::vector<PlacedTensor> &results, const std::string &place);

  /// All its residuals, one after the other, as they stand between two executions.
  const std::vector<float> &residuals() const { return residual; }
  /// As many elements.
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
