//===- Checkpoint.h - A training run on the disk ---------------------------===//
//
// Part of tbc. Plain C++. A checkpoint is a folder step-00000012 with
//   rank-00003.safetensors   the pieces of parameters, states and optimizer states that no lower
//                            rank holds as well; one file per rank, by the tensors' names; and
//                            what the rank keeps back where gradients are compressed
//   index.json               what they are pieces of: mesh, and per tensor type and piece, as in a
//                            Program; bytes and SHA-256 of every file; where the run was
// It is written beside and renamed when all of it is on the disk, so that what has the name is
// whole. A run writes under a lock and removes checkpoints of its own alone (Folder.h). Any Program
// of the same tensors can be loaded from it: elements are found by their index in the whole tensor.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CHECKPOINT_CHECKPOINT_H
#define TBC_RUNTIME_CHECKPOINT_CHECKPOINT_H

#include "runtime/checkpoint/Folder.h"
#include "runtime/checkpoint/Safetensors.h"
#include "runtime/comm/Communicator.h"
#include "runtime/exec/Executor.h"

#include <memory>
#include <optional>
#include <set>

namespace tbc::checkpoint {

/// Where a run is, besides its tensors. Random numbers need no more: they are keyed by seed, step
/// and element.
struct Progress {
  int64_t step = 0; // the last one that is done
  int64_t globalBatch = 0;
  /// After how many steps, epochs and samples of data without end it became that (see
  /// data::BatchOrigin).
  int64_t stepsBefore = 0, epochsBefore = 0, samplesBefore = 0;
  uint64_t dataSeed = 0;
  bool isShuffled = true;
  /// Where gradients are compressed, of which program and how: whose residuals the files hold
  /// (Executor::gradientResiduals). Empty: there are none.
  std::string residualsOf = {};
  /// Whose checkpoint it is: the run that began without one (newRunId), which those that resumed it
  /// are parts of; and of which model (train::Manifest::model). Empty: not known.
  std::string run = {}, model = {};
};

/// Writes a checkpoint of `progress.step` into `folder`, in the place of one of that step if there
/// is one, and then removes all but the `keep` latest of this run (0: none is removed). All ranks
/// call it. Errors, on all ranks alike: Other, where a rank could not write, with its reason, or
/// the disk has too little room, with both numbers; notFiniteCode, where a tensor that is to be
/// written holds a NaN or an infinity. Earlier checkpoints stay as they were.
Status save(const std::string &folder, const program::Program &program,
            const runtime::Executor &executor, kernels::Arith arith, const Progress &progress,
            int64_t keep, comm::Communicator &communicator);

/// A checkpoint that is written while the run goes on. It appears under its name when it is
/// finished, as with `save`; before, nothing that has a name changes.
class PendingSave {
public:
  /// Copies what this rank is to write, which a thread then writes. All ranks call it. Errors: as
  /// of `save`.
  /// Of tensors that may hold infinities and NaNs `mayBeInfinite` has the names.
  static Result<PendingSave> begin(const std::string &folder, const program::Program &program,
                                   const runtime::Executor &executor, kernels::Arith arith,
                                   const Progress &progress, comm::Communicator &communicator,
                                   const std::set<std::string> &mayBeInfinite = {});
  PendingSave(PendingSave &&) noexcept;
  PendingSave &operator=(PendingSave &&) noexcept;
  ~PendingSave();

  /// Whether `finish` need not wait for this rank's thread.
  bool isWritten() const;
  /// Waits for the threads of all ranks, gives the checkpoint its name and removes old ones, as
  /// `save` does. All ranks call it, once. Errors: those of `save`.
  Status finish(int64_t keep);

private:
  class Writer;
  explicit PendingSave(std::unique_ptr<Writer> writer);
  std::unique_ptr<Writer> writer;
};

/// The path of the latest checkpoint in `folder`, or nothing.
std::optional<std::string> latest(const std::string &folder);

/// The bytes that a checkpoint takes, of all ranks together and nearly: without its headers.
int64_t sizeOf(const program::Program &program, kernels::Arith arith);

/// The tensors of parameters and states that this rank holds and that have an element which is no
/// number, by name: attention masks of -inf, say.
std::set<std::string> infiniteTensors(const program::Program &program,
                                      const runtime::Executor &executor);

/// A tensor as the index describes it.
struct StoredTensor {
  std::string name;
  program::Role role = program::Role::Parameter;
  kernels::TensorType type;
  program::Piece piece;
  std::vector<int64_t> writers; // ranks whose files have a piece
};

/// A checkpoint opened for reading. Errors of everything here: CheckpointUnreadable, naming the
/// file and, where that can be known, the tensors that are damaged.
class Checkpoint {
public:
  static Result<Checkpoint> open(const std::string &path);

  const Progress &progress() const { return where; }
  kernels::Arith arith() const { return heldIn; }
  const std::vector<StoredTensor> &tensors() const { return stored; }

  /// The elements at `indices` (-1: padding, 0) of the tensor called `name`, as a tensor of type
  /// `local`. Files are checked against their hash when first read.
  Result<kernels::Tensor> piece(const std::string &name, const kernels::TensorType &whole,
                                const std::vector<int64_t> &indices,
                                const kernels::TensorType &local);

  /// What `rank` kept back at this place, `count` elements.
  Result<std::vector<float>> residual(int64_t rank, const std::string &place, size_t count);

private:
  Checkpoint() = default;
  struct Shard {
    std::string file, sha256;
    int64_t bytes = 0;
    std::shared_ptr<SafetensorsFile> content;
  };
  Result<std::shared_ptr<SafetensorsFile>> shard(int64_t rank);
  Error damaged(const std::string &why) const;

  std::string path;
  Progress where;
  kernels::Arith heldIn = kernels::Arith::Native;
  program::Mesh mesh;
  std::vector<Shard> shards; // by rank
  std::vector<StoredTensor> stored;
};

/// Sets everything that `executor` keeps between steps. Errors: also Usage, where the checkpoint is
/// of another model, optimizer or arithmetic.
Status load(Checkpoint &checkpoint, const program::Program &program, runtime::Executor &executor,
            kernels::Arith arith);

/// Sets what `executor` keeps back of compressed gradients; the checkpoint must have residuals of
/// its program and its way to compress (Progress::residualsOf). Errors: as of Checkpoint.
Status loadResiduals(Checkpoint &checkpoint, runtime::Executor &executor);

/// Writes the parameters and states of a checkpoint, whole, to one file; optimizer states too where
/// asked for. Errors: as above; Other where it cannot be written.
Status consolidate(const std::string &path, const std::string &output, bool withOptimizer);

} // namespace tbc::checkpoint

#endif // TBC_RUNTIME_CHECKPOINT_CHECKPOINT_H
