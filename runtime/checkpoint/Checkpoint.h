//===- Checkpoint.h - A training run on the disk ---------------------------===//
//
// Part of tbc. Plain C++. A checkpoint is a folder, for example step-00000012, with
//
//   rank-00003.safetensors   one file per rank: its pieces of parameters, states and optimizer
//                            states, except copies of a lower rank's; and its residuals of
//                            compressed gradients
//   index.json               how the pieces fit together: mesh, and type and piece of each tensor,
//                            as in a Program; bytes and SHA-256 of every file; position of the run
//
// It is written beside its name and renamed when all of it is on the disk, so a named checkpoint is
// complete. A run writes under a lock and removes only its own checkpoints (Folder.h). Any Program
// with the same tensors can load it: elements are found by their index in the whole tensor.
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

/// The position of a run, besides its tensors. Random numbers follow from it: they are keyed by
/// seed, step and element.
struct Progress {
  int64_t step = 0; // the last finished one
  int64_t globalBatch = 0;
  /// Steps, epochs and samples of endless data before globalBatch became this size (see
  /// data::BatchOrigin). Example: 0, 0, 0 if it never changed.
  int64_t stepsBefore = 0, epochsBefore = 0, samplesBefore = 0;
  uint64_t dataSeed = 0;
  bool isShuffled = true;
  /// With compressed gradients: the program and compression to which the files' residuals belong
  /// (Executor::gradientResiduals). Empty: no residuals.
  std::string residualsOf = {};
  /// The run that began without a checkpoint (newRunId), shared by all runs that resumed it; and
  /// the model (train::Manifest::model). Empty: unknown.
  std::string run = {}, model = {};
  /// The optimizer that the states belong to (train::optimizerName). Empty: unknown.
  std::string optimizer = {};
};

/// Writes a checkpoint of `progress.step` into `folder`, replaces one of the same step, and then
/// removes all but the `keep` latest of this run (0: keeps all). All ranks call it. Earlier
/// checkpoints survive an error. Errors, equal on all ranks:
///
/// - Other: a rank could not write, with its reason; or the disk is too small, with both numbers;
/// - NotFinite: a tensor to be written holds a NaN or an infinity.
Status save(const std::string &folder, const program::Program &program,
            const runtime::Executor &executor, kernels::Arith arith, const Progress &progress,
            int64_t keep, comm::Communicator &communicator);

/// A checkpoint written while the run continues. It appears under its name when it is finished, as
/// with `save`; until then, no named checkpoint changes.
class PendingSave {
public:
  /// Copies the tensors of this rank; a thread then writes the copy. All ranks call it.
  /// Errors: those of `save`. `mayBeInfinite`: names of tensors that may hold infinities and
  /// NaNs.
  static Result<PendingSave> begin(const std::string &folder, const program::Program &program,
                                   const runtime::Executor &executor, kernels::Arith arith,
                                   const Progress &progress, comm::Communicator &communicator,
                                   const std::set<std::string> &mayBeInfinite = {});
  PendingSave(PendingSave &&) noexcept;
  PendingSave &operator=(PendingSave &&) noexcept;
  ~PendingSave();

  /// Returns whether this rank's thread has finished, so that `finish` need not wait for it.
  bool isWritten() const;
  /// Waits for the threads of all ranks, gives the checkpoint its name and removes old ones, as
  /// `save` does. All ranks call it, once. Errors: those of `save`.
  Status finish(int64_t keep);

private:
  class Writer;
  explicit PendingSave(std::unique_ptr<Writer> writer);
  std::unique_ptr<Writer> writer;
};

/// Returns the path of the latest checkpoint in `folder`, or nullopt.
std::optional<std::string> latest(const std::string &folder);

/// Returns the bytes of a checkpoint over all ranks, without headers.
int64_t sizeOf(const program::Program &program, kernels::Arith arith);

/// Returns the names of this rank's parameters and states with an element that is not finite.
/// Example: an attention mask of -inf.
std::set<std::string> infiniteTensors(const program::Program &program,
                                      const runtime::Executor &executor);

/// A tensor in the index.
struct StoredTensor {
  std::string name;
  program::Role role = program::Role::Parameter;
  kernels::TensorType type;
  program::Piece piece;
  std::vector<int64_t> writers; // ranks whose files have a piece
};

/// A checkpoint opened for reading. Errors of all its functions: CheckpointUnreadable, with the
/// file and, if known, the damaged tensors.
class Checkpoint {
public:
  static Result<Checkpoint> open(const std::string &path);

  const Progress &progress() const { return where; }
  kernels::Arith arith() const { return heldIn; }
  const std::vector<StoredTensor> &tensors() const { return stored; }

  /// Returns the elements at `indices` (-1: padding, 0) of the tensor `name`, as a tensor of type
  /// `local`. Files are checked against their hash when first read.
  Result<kernels::Tensor> piece(const std::string &name, const kernels::TensorType &whole,
                                const std::vector<int64_t> &indices,
                                const kernels::TensorType &local);

  /// Returns the residual of `rank` at this place, `count` elements.
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

/// Sets all tensors that `executor` keeps between steps. Errors: also Usage, if the checkpoint is
/// of another model, optimizer or arithmetic.
Status load(Checkpoint &checkpoint, const program::Program &program, runtime::Executor &executor,
            kernels::Arith arith);

/// Sets the residuals of compressed gradients in `executor`; the checkpoint must have residuals of
/// its program and compression (Progress::residualsOf). Errors: those of Checkpoint.
Status loadResiduals(Checkpoint &checkpoint, runtime::Executor &executor);

/// Writes the whole parameters and states of a checkpoint to one file, and optimizer states with
/// `withOptimizer`. Errors: as above; Other if it cannot be written.
Status consolidate(const std::string &path, const std::string &output, bool withOptimizer);

} // namespace tbc::checkpoint

#endif // TBC_RUNTIME_CHECKPOINT_CHECKPOINT_H
