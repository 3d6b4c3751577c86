//===- Save.cpp - Writing a checkpoint -------------------------------------===//

#include "runtime/abi/Sha256.h"
#include "runtime/checkpoint/CheckpointIndex.h"
#include "runtime/checkpoint/DurableFile.h"
#include "runtime/comm/Wire.h"

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

/// The ranks that write a piece of `tensor`: of all that hold the same piece the lowest.
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

static std::string nameOf(int64_t step) {
  char text[32];
  std::snprintf(text, sizeof text, "step-%08lld", static_cast<long long>(step));
  return text;
}

/// The steps of the checkpoints in `folder`, in order.
static std::vector<int64_t> stepsIn(const std::string &folder) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (const fs::directory_entry &entry : fs::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    if (name.rfind("step-", 0) != 0 || name.size() < 13 ||
        name.find_first_not_of("0123456789", 5) != std::string::npos)
      continue;
    steps.push_back(std::strtoll(name.c_str() + 5, nullptr, 10));
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<std::string> latest(const std::string &folder) {
  std::vector<int64_t> steps = stepsIn(folder);
  if (steps.empty())
    return std::nullopt;
  return (fs::path(folder) / nameOf(steps.back())).string();
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
    everyone.resize(size_t(communicator.numRanks()));
    std::iota(everyone.begin(), everyone.end(), int64_t(0));
    finished = (fs::path(folder) / nameOf(progress.step)).string();
    temporary = finished + ".tmp";
    for (size_t t = 0; t < program.tensors.size(); ++t) {
      const program::GlobalTensor &tensor = program.tensors[t];
      if (isKept(tensor.role))
        index.tensors.push_back(
            {tensor.name, tensor.role, tensor.type, tensor.piece, writersOf(program, int(t))});
    }
  }

  ~Writer() {
    if (thread.joinable())
      thread.join();
  }

  /// Makes the folder, copies what this rank writes, and begins to write it.
  Status begin(const runtime::Executor &executor) {
    Status begun = rank == 0 ? makeFolder() : Status::ok();
    if (Status all = agree(begun, "begin"); !all)
      return all;
    copyTensors(executor);
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
      fs::remove_all(temporary, error); // of a run that was killed
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

  Status writeShard() {
    std::string path = temporary + "/" + shardName(rank);
    Status status = writeSafetensors(
        path, entries, {{"step", std::to_string(progress.step)}, {"rank", std::to_string(rank)}},
        [&](size_t i) -> Result<std::vector<unsigned char>> {
          std::vector<unsigned char> bytes = comm::encode(tensors[i]);
          tensors[i] = Tensor();
          return bytes;
        });
    if (!status)
      return status;
    auto file = data::MappedFile::open(path, ErrorCode::Other);
    if (!file)
      return file.error();
    own = {shardName(rank), sha256Hex(file->text()), int64_t(file->size())};
    return Status::ok();
  }

  /// Every rank's bytes and hash, for the index.
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
    std::error_code error;
    fs::remove_all(finished, error); // an earlier run's, of which this is the repetition
    if (Status status = renameDurably(temporary, finished); !status)
      return status;
    reach("renamed", long(rank));
    if (Status status = syncFolder(folder); !status)
      return status;
    std::vector<int64_t> steps = stepsIn(folder);
    for (size_t i = 0; keep > 0 && i + size_t(keep) < steps.size(); ++i) {
      // Its name goes first, so that nobody takes a half-removed one for a checkpoint.
      std::string old = (fs::path(folder) / nameOf(steps[i])).string();
      if (Status status = renameDurably(old, old + ".tmp"); !status)
        return status;
      fs::remove_all(old + ".tmp", error);
      if (error)
        return Error{ErrorCode::Other, "cannot remove " + old + ".tmp: " + error.message()};
    }
    reach("pruned", long(rank));
    return Status::ok();
  }

  void giveUp() const {
    std::error_code ignored; // the error that led here is the one to tell
    if (rank == 0)
      fs::remove_all(temporary, ignored);
  }

  /// All ranks succeed or all fail, with the reason of the first that did.
  Status agree(const Status &mine, const std::string &what) {
    constexpr int64_t textBytes = 512;
    std::vector<int64_t> words(textBytes, 0);
    if (!mine) {
      words[0] = 1;
      const std::string &message = mine.error().message;
      for (size_t i = 0; i < message.size() && i + 1 < size_t(textBytes); ++i)
        words[i + 1] = static_cast<unsigned char>(message[i]);
    }
    auto all = communicator
                   .allGather(everyone, Tensor::fromInts({kernels::DType::U8, {textBytes}}, words),
                              "writing a checkpoint, to " + what)
                   ->wait();
    if (!all)
      return all.error();
    const std::vector<int64_t> &gathered = all->data<int64_t>();
    for (int64_t r : everyone) {
      if (!gathered[size_t(r * textBytes)])
        continue;
      std::string message;
      for (int64_t i = 1; i < textBytes && gathered[size_t(r * textBytes + i)]; ++i)
        message += char(gathered[size_t(r * textBytes + i)]);
      return Error{ErrorCode::Other, "checkpoint of step " + std::to_string(progress.step) +
                                         ": rank " + std::to_string(r) + ": " + message};
    }
    return Status::ok();
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
                                       const Progress &progress, comm::Communicator &communicator) {
  auto writer = std::make_unique<Writer>(folder, program, arith, progress, communicator);
  if (Status begun = writer->begin(executor); !begun)
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
