//===- Save.cpp - Writing a checkpoint -------------------------------------===//

#include "runtime/abi/Sha256.h"
#include "runtime/checkpoint/CheckpointIndex.h"
#include "runtime/checkpoint/DurableFile.h"
#include "runtime/comm/SharedStatus.h"
#include "runtime/comm/Wire.h"
#include "runtime/kernels/Finite.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <numeric>
#include <thread>

namespace tbc::checkpoint {

namespace fs = std::filesystem;
using kernels::Tensor;
using program::Role;

static bool isKept(Role role) {
  return role == Role::Parameter || role == Role::State || role == Role::OptimizerState;
}

static bool holds(const program::Program &program, int64_t rank, int tensor) {
  int stage = program.stageOf(program.mesh.coordinates(rank));
  for (const program::Slot &slot : program.stages[stage].slots)
    if (slot.tensor == tensor && isKept(slot.role))
      return true;
  return false;
}

/// Returns the ranks that write a piece of `tensor`: the lowest of all ranks with the same piece.
static std::vector<int64_t> writersOf(const program::Program &program, int tensor) {
  std::vector<int64_t> writers;
  std::vector<std::vector<int64_t>> places;
  for (int64_t rank = 0; rank < program.mesh.numRanks(); ++rank) {
    if (!holds(program, rank, tensor))
      continue;
    std::vector<int64_t> place = placeIn(program.mesh, program.tensors[tensor].piece, rank);
    if (std::find(places.begin(), places.end(), place) != places.end())
      continue;
    places.push_back(place);
    writers.push_back(rank);
  }
  return writers;
}

/// Returns the contents of a checkpoint of the program.
static std::vector<StoredTensor> storedTensors(const program::Program &program) {
  std::vector<StoredTensor> list;
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    const program::GlobalTensor &tensor = program.tensors[t];
    if (isKept(tensor.role))
      list.push_back(
          {tensor.name, tensor.role, tensor.type, tensor.piece, writersOf(program, int(t))});
  }
  return list;
}

int64_t sizeOf(const program::Program &program, kernels::Arith arith) {
  int64_t bytes = 0;
  for (const program::GlobalTensor &tensor : program.tensors)
    if (isKept(tensor.role))
      bytes += kernels::numElements(tensor.type.shape) * comm::wireWidth(tensor.type.dtype, arith);
  return bytes;
}

std::set<std::string> infiniteTensors(const program::Program &program,
                                      const runtime::Executor &executor) {
  std::set<std::string> names;
  for (size_t t = 0; t < program.tensors.size(); ++t)
    if (isKept(program.tensors[t].role) && holds(program, executor.rank(), int(t)) &&
        !kernels::isFinite(executor.held(int(t))))
      names.insert(program.tensors[t].name);
  return names;
}

/// One rank's part in writing a checkpoint.
class PendingSave::Writer {
public:
  Writer(const std::string &folder, const program::Program &program, kernels::Arith arith,
         const Progress &progress, comm::Communicator &communicator)
      : folder(folder), program(program), progress(progress), communicator(communicator),
        rank(communicator.rank()) {
    index.progress = progress;
    index.arith = arith;
    index.mesh = program.mesh;
    index.tensors = storedTensors(program);
    everyone.resize(size_t(communicator.numRanks()));
    std::iota(everyone.begin(), everyone.end(), int64_t(0));
    finished = (fs::path(folder) / nameOf(progress.step)).string();
    temporary = finished + ".tmp";
  }

  ~Writer() {
    if (thread.joinable())
      thread.join();
  }

  /// Creates the folder, copies this rank's tensors, and begins to write them.
  Status begin(const runtime::Executor &executor, const std::set<std::string> &mayBeInfinite) {
    copyTensors(executor);
    Status begun = checkFinite(mayBeInfinite);
    if (begun && rank == 0)
      begun = makeFolder();
    if (Status all = agree(begun, "begin"); !all) {
      giveUp();
      return all;
    }
    thread = std::thread([this] {
      reach("shard-begun", long(rank));
      written = writeShard();
      reach("shard-written", long(rank));
      isDone = true;
    });
    return Status::ok();
  }

  bool isWritten() const { return isDone; }

  Status finish(int64_t keep) {
    thread.join();
    if (Status all = agree(written, "write"); !all) {
      giveUp();
      return all;
    }
    if (Status gathered = gatherShards(); !gathered)
      return gathered;
    Status done = rank == 0 ? writeIndexAndRename(keep) : Status::ok();
    if (Status all = agree(done, "finish"); !all) {
      giveUp();
      return all;
    }
    return Status::ok();
  }

private:
  Status makeFolder() {
    std::error_code error;
    fs::create_directories(folder, error);
    if (!error)
      if (Status enough = checkSpace(folder, sizeOf(program, index.arith), "it"); !enough)
        return enough;
    if (!error)
      fs::remove_all(temporary, error); // left by a killed run
    if (!error)
      fs::create_directory(temporary, error);
    if (error)
      return Error{ErrorCode::Other, "cannot create " + temporary + ": " + error.message()};
    return Status::ok();
  }

  void copyTensors(const runtime::Executor &executor) {
    for (const StoredTensor &tensor : index.tensors) {
      const std::vector<int64_t> &writers = tensor.writers;
      if (std::find(writers.begin(), writers.end(), rank) == writers.end())
        continue;
      tensors.push_back(executor.held(program.tensorIndex(tensor.name)));
      entries.push_back(
          {tensor.name, storedType(tensor.type.dtype, index.arith), tensors.back().shape(), 0, 0});
    }
    for (const auto &[place, count] : executor.gradientResiduals()) {
      kernels::TensorType type{kernels::DType::F32, {int64_t(count)}};
      std::vector<float> residual = executor.gradientResidual(place);
      tensors.push_back(Tensor::fromBytes(
          type, kernels::Arith::Native, reinterpret_cast<const unsigned char *>(residual.data())));
      entries.push_back(
          {residualName(place), storedType(type.dtype, index.arith), type.shape, 0, 0});
    }
  }

  /// Refuses values that are not finite. A run resumed from them would never have a finite loss
  /// again.
  Status checkFinite(const std::set<std::string> &mayBeInfinite) const {
    for (size_t i = 0; i < tensors.size(); ++i)
      if (!kernels::isFinite(tensors[i]) && !mayBeInfinite.count(entries[i].name))
        return Error{ErrorCode::NotFinite,
                     "\"" + entries[i].name + "\" holds a NaN or an infinity; it is not written"};
    return Status::ok();
  }

  Status writeShard() {
    std::string path = temporary + "/" + shardName(rank);
    Status status = writeSafetensors(
        path, entries, {{"step", std::to_string(progress.step)}, {"rank", std::to_string(rank)}},
        [&](size_t i) -> Result<std::vector<unsigned char>> { return comm::encode(tensors[i]); },
        Sums::PerTensor);
    tensors.clear();
    if (!status)
      return status;
    auto file = data::MappedFile::open(path, ErrorCode::Other);
    if (!file)
      return file.error();
    own = {shardName(rank), sha256Hex(file->text()), int64_t(file->size())};
    return Status::ok();
  }

  /// Gathers every rank's bytes and hash for the index.
  Status gatherShards() {
    std::vector<int64_t> words = {own.bytes};
    for (char c : own.sha256)
      words.push_back(c);
    int64_t size = int64_t(words.size());
    auto all = communicator
                   .allGather(everyone, Tensor::fromInts({kernels::DType::I64, {size}}, words),
                              "writing a checkpoint")
                   ->wait();
    if (!all)
      return all.error();
    const std::vector<int64_t> &gathered = all->data<int64_t>();
    for (int64_t r : everyone) {
      auto first = gathered.begin() + r * size;
      index.shards.push_back({shardName(r), std::string(first + 1, first + size), *first});
    }
    return Status::ok();
  }

  Status writeIndexAndRename(int64_t keep) {
    if (Status status = writeDurably(temporary + "/" + indexFile, writeIndex(index)); !status)
      return status;
    reach("index-written", long(rank));
    if (Status status = syncFolder(temporary); !status)
      return status;
    if (Status status = replaceFolder(temporary, finished); !status)
      return status;
    reach("renamed", long(rank));
    if (Status status = syncFolder(folder); !status)
      return status;
    if (Status status = prune(folder, progress.run, keep); !status)
      return status;
    reach("pruned", long(rank));
    return Status::ok();
  }

  void giveUp() const {
    std::error_code ignored; // the error that led here is the one to report
    if (rank == 0)
      fs::remove_all(temporary, ignored);
  }

  /// Makes all ranks succeed, or all fail with the reason of the first failed one.
  Status agree(const Status &mine, const std::string &what) {
    Status all = comm::shareStatus(communicator, mine, "writing a checkpoint, to " + what);
    if (all)
      return all;
    return Error{all.error().code, "checkpoint of step " + std::to_string(progress.step) + ": " +
                                       all.error().message};
  }

  const std::string folder;
  const program::Program &program;
  const Progress progress;
  comm::Communicator &communicator;
  const int64_t rank;
  comm::Group everyone;
  Index index;
  ShardInfo own;
  std::string finished, temporary;
  std::vector<Entry> entries;
  std::vector<Tensor> tensors;
  std::thread thread;
  Status written; // by the thread
  std::atomic<bool> isDone{false};
};

PendingSave::PendingSave(std::unique_ptr<Writer> writer) : writer(std::move(writer)) {}
PendingSave::PendingSave(PendingSave &&) noexcept = default;
PendingSave &PendingSave::operator=(PendingSave &&) noexcept = default;
PendingSave::~PendingSave() = default;

Result<PendingSave> PendingSave::begin(const std::string &folder, const program::Program &program,
                                       const runtime::Executor &executor, kernels::Arith arith,
                                       const Progress &progress, comm::Communicator &communicator,
                                       const std::set<std::string> &mayBeInfinite) {
  auto writer = std::make_unique<Writer>(folder, program, arith, progress, communicator);
  if (Status begun = writer->begin(executor, mayBeInfinite); !begun)
    return begun.error();
  return PendingSave(std::move(writer));
}

bool PendingSave::isWritten() const { return writer->isWritten(); }

Status PendingSave::finish(int64_t keep) { return writer->finish(keep); }

Status save(const std::string &folder, const program::Program &program,
            const runtime::Executor &executor, kernels::Arith arith, const Progress &progress,
            int64_t keep, comm::Communicator &communicator) {
  auto begun = PendingSave::begin(folder, program, executor, arith, progress, communicator);
  return begun ? begun->finish(keep) : Status(begun.error());
}

} // namespace tbc::checkpoint
