//===- checkpoint_test.cpp - Checkpoints of a training run -----------------===//

#include "runtime/abi/Sha256.h"
#include "runtime/checkpoint/CheckpointIndex.h"
#include "runtime/comm/SimulatedWorld.h"
#include "tests/runtime/support/MlpProgram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <regex>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace tbc::checkpoint {
namespace {

namespace fs = std::filesystem;
using kernels::Arith;
using kernels::DType;
using kernels::Tensor;
using program::MlpOptions;
using testing::HasSubstr;

/// Returns small numbers that depend only on the name and the element.
std::vector<double> valuesOf(const std::string &name, int64_t count) {
  uint64_t state = 17;
  for (char c : name)
    state = state * 31 + uint64_t(c);
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    values.push_back((double(state >> 40 & 255) - 127.5) / 256);
  }
  return values;
}

Tensor tensorOf(const std::string &name, kernels::Shape shape, Arith arith) {
  int64_t count = kernels::numElements(shape);
  return Tensor::fromDoubles({DType::F32, std::move(shape)}, arith, valuesOf(name, count));
}

/// All ranks of a program, as threads. Every call runs on all ranks.
class Job {
public:
  Job(const MlpOptions &options, Arith arith)
      : options(options), arith(arith), program(program::mlpProgram(options)) {
    for (int64_t rank = 0; rank < program.mesh.numRanks(); ++rank)
      executors.push_back(std::move(*runtime::Executor::create(program, rank, arith)));
  }

  Status onAll(const std::function<Status(runtime::Executor &, comm::Communicator &)> &body) {
    comm::SimulatedWorld world(int64_t(executors.size()));
    std::vector<Status> results(executors.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < executors.size(); ++rank)
      threads.emplace_back([&, rank] {
        results[rank] = body(executors[rank], world.communicator(int64_t(rank)));
        world.finish(int64_t(rank));
      });
    for (std::thread &thread : threads)
      thread.join();
    for (const Status &status : results)
      if (!status)
        return status;
    return Status::ok();
  }
  Status init() {
    return onAll([&](runtime::Executor &executor, comm::Communicator &) {
      return executor.load([&](const std::string &name) {
        return tensorOf(name, {options.width, options.width}, arith);
      });
    });
  }
  Status step(int64_t number) {
    runtime::StepInputs inputs;
    inputs.learningRate = 0.0625;
    for (int64_t m = 0; m < options.microBatches; ++m) {
      auto &batch = inputs.microBatches.emplace_back();
      for (const char *name : {"x", "t"}) {
        std::string key = std::string(name) + std::to_string(number) + "." + std::to_string(m);
        batch[name] = tensorOf(key, {options.samples, options.width}, arith);
      }
    }
    return onAll([&](runtime::Executor &executor, comm::Communicator &communicator) {
      return executor.runStep(communicator, inputs);
    });
  }
  Status save(const std::string &folder, int64_t step, int64_t keep = 0,
              const std::string &run = "") {
    Progress progress;
    progress.run = run;
    progress.step = step;
    progress.globalBatch = options.samples * options.microBatches;
    return onAll([&](runtime::Executor &executor, comm::Communicator &communicator) {
      return checkpoint::save(folder, program, executor, arith, progress, keep, communicator);
    });
  }
  Status load(const std::string &path) {
    return onAll([&](runtime::Executor &executor, comm::Communicator &) -> Status {
      auto checkpoint = Checkpoint::open(path);
      if (!checkpoint)
        return checkpoint.error();
      return checkpoint::load(*checkpoint, program, executor, arith);
    });
  }
  /// Returns every element kept by some rank, by tensor and index.
  std::map<std::string, std::map<int64_t, std::vector<double>>> state() const {
    std::map<std::string, std::map<int64_t, std::vector<double>>> all;
    for (const runtime::Executor &executor : executors)
      for (size_t t = 0; t < program.tensors.size(); ++t) {
        const program::GlobalTensor &tensor = program.tensors[t];
        Tensor held = executor.held(int(t));
        if (!held || tensor.role == program::Role::Gradient)
          continue;
        std::vector<int64_t> indices = program::ownedIndices(
            program.mesh, tensor.piece, program.mesh.coordinates(executor.rank()));
        std::vector<double> values = held.toDoubles();
        for (size_t i = 0; i < indices.size(); ++i)
          if (indices[i] >= 0)
            all[tensor.name][indices[i]] = {values[i]};
      }
    return all;
  }

  MlpOptions options;
  Arith arith;
  program::Program program;
  std::vector<runtime::Executor> executors;
};

MlpOptions plan(int pp, int64_t dp, int64_t tp, int zero) {
  MlpOptions options;
  options.numLayers = 4;
  options.pp = pp;
  options.dp = dp;
  options.tp = tp;
  options.zero = zero;
  options.microBatches = 2;
  return options;
}

class Checkpoints : public testing::Test {
protected:
  void SetUp() override {
    folder = (fs::temp_directory_path() / "tbc-ckpt-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
  }
  void TearDown() override { fs::remove_all(folder); }
  std::string folder;
};

TEST_F(Checkpoints, ARunGoesOnAsIfItHadNotStopped) {
  for (Arith arith : {Arith::Native, Arith::F64, Arith::Residue61}) {
    Job whole(plan(2, 2, 1, 1), arith), first(plan(2, 2, 1, 1), arith),
        second(plan(2, 2, 1, 1), arith);
    ASSERT_TRUE(whole.init() && first.init());
    for (int64_t step : {1, 2, 3, 4})
      ASSERT_TRUE(bool(whole.step(step)));
    ASSERT_TRUE(first.step(1) && first.step(2));
    Status saved = first.save(folder + "/a", 2);
    ASSERT_TRUE(bool(saved)) << saved.error().message;
    Status loaded = second.load(*latest(folder + "/a"));
    ASSERT_TRUE(bool(loaded)) << loaded.error().message;
    EXPECT_EQ(second.state(), first.state());
    ASSERT_TRUE(second.step(3) && second.step(4));
    EXPECT_EQ(second.state(), whole.state());
    fs::remove_all(folder + "/a");
  }
}

TEST_F(Checkpoints, AnotherPlanFindsItsElements) {
  const MlpOptions plans[] = {plan(1, 1, 1, 0), plan(1, 4, 1, 3), plan(2, 2, 1, 1),
                              plan(1, 2, 2, 0), plan(4, 1, 1, 0), plan(2, 1, 3, 0)};
  for (const MlpOptions &from : plans) {
    Job writer(from, Arith::Residue61);
    ASSERT_TRUE(writer.init() && writer.step(1));
    ASSERT_TRUE(bool(writer.save(folder + "/a", 1)));
    for (const MlpOptions &to : plans) {
      Job reader(to, Arith::Residue61);
      Status loaded = reader.load(*latest(folder + "/a"));
      ASSERT_TRUE(bool(loaded)) << loaded.error().message;
      EXPECT_EQ(reader.state(), writer.state());
    }
    fs::remove_all(folder + "/a");
  }
}

TEST_F(Checkpoints, EveryElementIsWrittenOnce) {
  Job job(plan(2, 2, 1, 0), Arith::Native); // replicas over dp
  ASSERT_TRUE(job.init() && job.save(folder, 1));
  int64_t bytes = 0;
  for (int rank = 0; rank < 4; ++rank) {
    auto file = readSafetensors(folder + "/step-00000001/rank-0000" + std::to_string(rank) +
                                ".safetensors");
    ASSERT_TRUE(bool(file));
    for (const auto &[name, entry] : file->entries)
      bytes += entry.bytes;
  }
  int64_t expected = 0;
  for (const program::GlobalTensor &tensor : job.program.tensors)
    if (tensor.role == program::Role::Parameter || tensor.role == program::Role::OptimizerState)
      expected += program::sizeBytes(tensor.type);
  EXPECT_EQ(bytes, expected);
}

TEST_F(Checkpoints, OldOnesGo) {
  Job job(plan(1, 2, 1, 0), Arith::Native);
  ASSERT_TRUE(bool(job.init()));
  for (int64_t step : {5, 10, 15, 200})
    ASSERT_TRUE(bool(job.save(folder, step, 2)));
  std::vector<std::string> names;
  for (const auto &entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename());
  EXPECT_THAT(names, testing::UnorderedElementsAre("step-00000015", "step-00000200"));
  EXPECT_THAT(*latest(folder), HasSubstr("step-00000200"));
  EXPECT_FALSE(latest(folder + "/none"));
}

TEST_F(Checkpoints, OnlyThoseOfTheRunGo) {
  Job job(plan(1, 2, 1, 0), Arith::Native);
  ASSERT_TRUE(bool(job.init()));
  for (int64_t step : {5, 6})
    ASSERT_TRUE(bool(job.save(folder, step, 2, "first")));
  for (int64_t step : {1, 2, 3})
    ASSERT_TRUE(bool(job.save(folder, step, 1, "second")));
  EXPECT_THAT(stepsIn(folder), testing::ElementsAre(6, 5, 3));
  EXPECT_EQ(Checkpoint::open(folder + "/step-00000003")->progress().run, "second");
}

TEST_F(Checkpoints, OneOfTheSameStepIsReplaced) {
  Job job(plan(1, 2, 1, 0), Arith::Native), other(plan(1, 2, 1, 0), Arith::Native);
  ASSERT_TRUE(job.init() && job.save(folder, 1) && job.step(1) && job.save(folder, 1));
  ASSERT_TRUE(bool(other.load(*latest(folder))));
  EXPECT_EQ(other.state(), job.state());
  std::vector<std::string> names;
  for (const auto &entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename());
  EXPECT_THAT(names, testing::ElementsAre("step-00000001"));
}

TEST_F(Checkpoints, AReplacementThatWasCutShortIsPutBack) {
  Job job(plan(1, 1, 1, 0), Arith::Native);
  ASSERT_TRUE(job.init() && job.save(folder, 1));
  fs::rename(folder + "/step-00000001", folder + "/step-00000001.old");
  EXPECT_FALSE(latest(folder));
  ASSERT_TRUE(bool(FolderLock::take(folder)));
  EXPECT_TRUE(bool(job.load(*latest(folder))));
}

TEST_F(Checkpoints, TwoRunsExcludeEachOther) {
  std::string saved = folder + "/new/saved";
  {
    auto first = FolderLock::take(saved);
    ASSERT_TRUE(bool(first)) << first.error().message;
    auto second = FolderLock::take(saved);
    ASSERT_FALSE(bool(second));
    EXPECT_EQ(second.error().code, ErrorCode::Usage);
    EXPECT_THAT(second.error().message, HasSubstr("process " + std::to_string(getpid())));
  }
  EXPECT_TRUE(fs::is_empty(saved));
  // The lock of a dead process does not block others.
  pid_t child = fork();
  if (child == 0) {
    auto held = FolderLock::take(saved);
    while (true)
      pause();
  }
  while (!fs::exists(saved + "/.lock") || fs::file_size(saved + "/.lock") == 0)
    usleep(1000);
  EXPECT_FALSE(bool(FolderLock::take(saved)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(bool(FolderLock::take(saved)));
}

TEST_F(Checkpoints, TooLittleRoomIsToldWithBothNumbers) {
  EXPECT_TRUE(bool(checkSpace(folder, 1000, "a checkpoint")));
  Status full = checkSpace(folder, int64_t(1) << 62, "a checkpoint");
  ASSERT_FALSE(bool(full));
  EXPECT_EQ(full.error().code, ErrorCode::Other);
  EXPECT_THAT(full.error().message, HasSubstr("a checkpoint takes 4.0 EiB, and " + folder));
  EXPECT_THAT(full.error().message, testing::ContainsRegex(" has [0-9.]+ [A-Za-z]+ left"));
}

TEST_F(Checkpoints, WhatIsNotFiniteIsNotWritten) {
  Job job(plan(1, 2, 1, 0), Arith::Native);
  ASSERT_TRUE(job.init() && job.save(folder, 1));
  auto isParameter = [](const program::GlobalTensor &tensor) {
    return tensor.role == program::Role::Parameter;
  };
  int number =
      int(std::find_if(job.program.tensors.begin(), job.program.tensors.end(), isParameter) -
          job.program.tensors.begin());
  const program::GlobalTensor &tensor = job.program.tensors[size_t(number)];
  for (runtime::Executor &executor : job.executors) {
    Tensor held = executor.held(number);
    std::vector<double> values = held.toDoubles();
    values.back() = NAN;
    ASSERT_TRUE(
        bool(executor.set(number, Tensor::fromDoubles(held.type(), Arith::Native, values))));
  }
  Status failed = job.save(folder, 2);
  ASSERT_FALSE(bool(failed));
  EXPECT_EQ(failed.error().code, ErrorCode::NotFinite);
  EXPECT_THAT(failed.error().message, HasSubstr("\"" + tensor.name + "\" holds a NaN"));
  EXPECT_THAT(stepsIn(folder), testing::ElementsAre(1));
  EXPECT_THAT(infiniteTensors(job.program, job.executors[0]), testing::ElementsAre(tensor.name));
}

TEST_F(Checkpoints, ADamagedTensorIsNamed) {
  Job job(plan(1, 1, 1, 0), Arith::Native);
  ASSERT_TRUE(job.init() && job.save(folder, 1));
  std::string file = folder + "/step-00000001/rank-00000.safetensors";
  std::ifstream in(file, std::ios::binary);
  std::string whole(std::istreambuf_iterator<char>(in), {});
  std::vector<Entry> entries;
  auto content = readSafetensors(file);
  ASSERT_TRUE(bool(content));
  for (const auto &[name, entry] : content->entries)
    entries.push_back(entry);
  std::sort(entries.begin(), entries.end(),
            [](const Entry &a, const Entry &b) { return a.offset < b.offset; });
  for (const Entry &entry : entries) {
    std::string damaged = whole;
    damaged[size_t(entry.offset + entry.bytes - 1)] ^= 1;
    std::ofstream(file, std::ios::binary) << damaged;
    Status loaded = job.load(folder + "/step-00000001");
    ASSERT_FALSE(bool(loaded));
    EXPECT_THAT(loaded.error().message, HasSubstr("in \"" + entry.name + "\""));
    EXPECT_EQ(damagedTensors(file), "\"" + entry.name + "\"");
  }
  // In a truncated file, the tensors behind its end are damaged.
  std::ofstream(file, std::ios::binary) << whole.substr(0, size_t(entries.back().offset));
  EXPECT_EQ(damagedTensors(file), "\"" + entries.back().name + "\"");
  EXPECT_THAT(job.load(folder + "/step-00000001").error().message, HasSubstr(entries.back().name));
}

TEST_F(Checkpoints, UnfinishedOnesAreNotTaken) {
  Job job(plan(1, 2, 1, 0), Arith::Native);
  ASSERT_TRUE(job.init() && job.save(folder, 1));
  fs::create_directory(folder + "/step-00000002.tmp");
  EXPECT_THAT(*latest(folder), HasSubstr("step-00000001"));
  // Leftovers of an earlier save do no harm.
  ASSERT_TRUE(bool(job.save(folder, 2)));
  EXPECT_FALSE(fs::exists(folder + "/step-00000002.tmp"));
}

TEST_F(Checkpoints, DamageIsFoundAndNamed) {
  Job job(plan(1, 2, 1, 3), Arith::Native);
  ASSERT_TRUE(job.init() && job.save(folder, 1));
  std::string path = folder + "/step-00000001";
  for (const char *name : {"index.json", "rank-00000.safetensors", "rank-00001.safetensors"}) {
    std::string file = path + "/" + name;
    std::ifstream in(file, std::ios::binary);
    std::string whole(std::istreambuf_iterator<char>(in), {});
    auto errorWith = [&](const std::string &text) {
      std::ofstream(file, std::ios::binary) << text;
      Status loaded = job.load(path);
      EXPECT_FALSE(bool(loaded));
      return loaded ? Error{} : loaded.error();
    };
    std::string flipped = whole;
    flipped[whole.size() / 2] ^= 4;
    for (const std::string &text : {whole.substr(0, whole.size() - 3), whole.substr(0, 5), flipped,
                                    std::string(), whole + "x"}) {
      Error error = errorWith(text);
      EXPECT_EQ(error.code, ErrorCode::CheckpointUnreadable);
      EXPECT_THAT(error.message, HasSubstr(file));
    }
    fs::remove(file);
    Status missing = job.load(path);
    ASSERT_FALSE(bool(missing));
    EXPECT_EQ(missing.error().code, ErrorCode::CheckpointUnreadable);
    std::ofstream(file, std::ios::binary) << whole;
  }
  EXPECT_TRUE(bool(job.load(path)));
}

TEST_F(Checkpoints, AnIndexMadeByHandIsReadOrRefused) {
  Job job(plan(2, 2, 1, 3), Arith::Native);
  ASSERT_TRUE(job.init() && job.save(folder, 1));
  std::ifstream in(folder + "/step-00000001/index.json", std::ios::binary);
  std::string whole(std::istreambuf_iterator<char>(in), {});
  size_t end = whole.rfind(",\n \"sha256\"");
  ASSERT_TRUE(bool(readIndex(whole)));
  std::mt19937 random(3);
  int numRefused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = whole.substr(0, end);
    for (int k = 0; k <= int(random() % 3); ++k) {
      size_t at = random() % text.size();
      if (random() % 3 == 0)
        text.erase(at, random() % 20);
      else
        text[at] = "0123456789-{}[],:\"etnul"[random() % 23];
    }
    text += ",\n \"sha256\": \"" + sha256Hex(text) + "\"\n}\n";
    auto index = readIndex(text);
    numRefused += !index;
    if (!index)
      continue;
    for (const StoredTensor &tensor : index->tensors)
      EXPECT_EQ(program::whyInvalid(index->mesh, tensor.piece, tensor.type.shape), "");
  }
  EXPECT_GT(numRefused, 1000);
  EXPECT_LT(numRefused, 3000);
}

TEST_F(Checkpoints, AnIndexWhoseSamplesAreTooManyToCountIsRefused) {
  Job job(plan(2, 1, 1, 0), Arith::Native);
  ASSERT_TRUE(job.init() && job.save(folder, 1));
  std::ifstream in(folder + "/step-00000001/index.json", std::ios::binary);
  std::string whole(std::istreambuf_iterator<char>(in), {});
  whole.resize(whole.rfind(",\n \"sha256\""));
  auto with = [&](const std::string &step, const std::string &batch, const std::string &since) {
    std::string text = std::regex_replace(whole, std::regex("\"step\": \\d+"), "\"step\": " + step);
    text = std::regex_replace(text, std::regex("\"global_batch\": \\d+"),
                              "\"global_batch\": " + batch + since);
    return readIndex(text + ",\n \"sha256\": \"" + sha256Hex(text) + "\"\n}\n");
  };
  auto since = [](const std::string &step, const std::string &epoch) {
    return ",\n \"global_batch_since\": {\"step\": " + step + ", \"epoch\": " + epoch +
           ", \"sample\": 9}";
  };
  const std::string large = std::to_string(int64_t(1) << 40);
  EXPECT_TRUE(bool(with("7", "4", since("6", "2"))));
  EXPECT_FALSE(bool(with("7", "4", since("6", "7")))); // an epoch has at least one step
  EXPECT_TRUE(bool(with(large, "4", "")));
  auto many = with(large, large, "");
  ASSERT_FALSE(bool(many));
  EXPECT_THAT(many.error().message, testing::HasSubstr("too many samples"));
}

TEST_F(Checkpoints, AnotherModelIsRefused) {
  Job job(plan(1, 1, 1, 0), Arith::Native);
  ASSERT_TRUE(job.init() && job.save(folder, 1));
  MlpOptions wide = plan(1, 1, 1, 0), deep = wide;
  wide.width = 12;
  deep.numLayers = 6;
  for (const MlpOptions &options : {wide, deep}) {
    Status loaded = Job(options, Arith::Native).load(*latest(folder));
    ASSERT_FALSE(bool(loaded));
    EXPECT_EQ(loaded.error().code, ErrorCode::Usage);
  }
  Status loaded = Job(plan(1, 1, 1, 0), Arith::F64).load(*latest(folder));
  EXPECT_THAT(loaded.error().message, HasSubstr("--arith"));
}

TEST_F(Checkpoints, AFullDiskLosesNothing) {
  Job job(plan(1, 2, 1, 0), Arith::Native);
  ASSERT_TRUE(job.init() && job.save(folder, 1));
  // The parent of the checkpoint is a file.
  fs::create_directories(folder + "/blocked");
  std::ofstream(folder + "/blocked/file") << "x";
  Status failed = job.save(folder + "/blocked/file", 2);
  ASSERT_FALSE(bool(failed));
  EXPECT_EQ(failed.error().code, ErrorCode::Other);
  EXPECT_THAT(failed.error().message, HasSubstr("checkpoint of step 2: cannot create"));
  EXPECT_TRUE(bool(job.load(*latest(folder))));
}

TEST_F(Checkpoints, PiecesAreJoined) {
  Job job(plan(2, 2, 1, 3), Arith::Native);
  ASSERT_TRUE(job.init() && job.step(1) && job.save(folder, 1));
  std::string output = folder + "/all.safetensors";
  Status joined = consolidate(*latest(folder), output, false);
  ASSERT_TRUE(bool(joined)) << joined.error().message;
  auto file = readSafetensors(output);
  ASSERT_TRUE(bool(file));
  EXPECT_EQ(file->entries.size(), 4u);
  auto state = job.state();
  for (const auto &[name, entry] : file->entries) {
    EXPECT_EQ(entry.shape, (kernels::Shape{6, 6}));
    for (int64_t i = 0; i < 36; ++i) {
      float value = 0;
      std::memcpy(&value, file->elements(entry) + 4 * i, 4);
      EXPECT_EQ(value, state.at(name).at(i)[0]);
    }
  }
  ASSERT_TRUE(bool(consolidate(*latest(folder), output, true)));
  EXPECT_EQ(readSafetensors(output)->entries.size(), 8u);
  EXPECT_FALSE(bool(consolidate(folder + "/none", output, false)));
}

} // namespace
} // namespace tbc::checkpoint
