//===- cuda_faults_test.cpp - Random faults of ranks with GPUs ---------------===//
//
// Each case draws a program, its settings and a fault from its number. The run must end within its
// time-out. If it fails, the first report names the culprit, and every living rank ends with a
// documented code. TBC_FAULTS is the number of cases (default 50). TBC_FAULT selects one case by
// its number.
//
//===----------------------------------------------------------------------===//

#include "tests/codegen/FakeGpuRanks.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <random>

namespace tbc::test {
namespace {

using kernels::Tensor;
using program::MlpOptions;
using program::Program;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

enum class Fault {
  None,
  Late,    // for less than the time-out
  Stopped, // as by SIGSTOP: its threads do not answer
  Killed,  // NCCL notices it
  Busy,    // alive, but busy with other work
  KernelHangs,
  KernelFails, // with one rank only, as the fake loses all devices at once
  MemoryShort,
  Disordered, // calls a collective of all ranks that the others do not call
};
constexpr int numFaults = 9;

const char *nameOf(Fault fault) {
  constexpr const char *names[] = {"none",         "late",         "stopped",
                                   "killed",       "busy",         "kernel hangs",
                                   "kernel fails", "memory short", "out of order"};
  return names[int(fault)];
}

/// The store of a rank, which stops or dies with the rank.
class MortalStore : public comm::Store {
public:
  explicit MortalStore(comm::Store &store) : store(store) {}
  void die() { isDead = true; }
  Result<std::string> claim(const std::string &key, const std::string &value) override {
    return isDead ? Result<std::string>(dead()) : store.claim(key, value);
  }
  Result<std::string> get(const std::string &key, std::chrono::milliseconds timeout) override {
    return isDead ? Result<std::string>(dead()) : store.get(key, timeout);
  }
  void abort(const Error &error) override {
    if (!isDead)
      store.abort(error);
  }
  std::optional<Error> givenUp() override { return isDead ? std::nullopt : store.givenUp(); }

private:
  static Error dead() { return {ErrorCode::RankFailed, "this rank is dead"}; }
  comm::Store &store;
  std::atomic<bool> isDead = false;
};

struct Case {
  MlpOptions program;
  Fault fault = Fault::None;
  cuda::GraphUse graphs = cuda::GraphUse::Off;
  int64_t rank = 0;
  int step = 1; // the fault comes before it; the first has another time-out
  std::string text;
};

Case caseOf(uint64_t number, const MlpOptions &mlp) {
  std::mt19937_64 random(number);
  auto draw = [&](int count) { return int(random() % uint64_t(count)); };
  Case c;
  c.fault = Fault(number % numFaults); // all faults equally often
  c.program = mlp;
  int mesh = draw(4);
  if (c.fault == Fault::KernelFails)
    mesh = 4;
  if (c.fault == Fault::Disordered)
    mesh = 3; // groups smaller than all ranks
  if (mesh == 0)
    c.program.dp = 2;
  if (mesh == 1)
    c.program.dp = 3, c.program.zero = 3, c.program.samples = 9, c.program.width = 5;
  if (mesh == 2)
    c.program.pp = 2;
  if (mesh == 3)
    c.program.dp = 2, c.program.tp = 2, c.program.numLayers = 4;
  c.graphs = draw(2) ? cuda::GraphUse::Auto : cuda::GraphUse::Off;
  int64_t numRanks = c.program.dp * c.program.tp * c.program.pp;
  c.rank = draw(int(numRanks));
  c.step = 1 + draw(3);
  c.text = "case " + std::to_string(number) + ": " + nameOf(c.fault) + ", rank " +
           std::to_string(c.rank) + " before step " + std::to_string(c.step) + ", dp " +
           std::to_string(c.program.dp) + " tp " + std::to_string(c.program.tp) + " pp " +
           std::to_string(c.program.pp) + (c.graphs == cuda::GraphUse::Off ? "" : ", graphs");
  return c;
}

comm::Group allOf(const comm::Communicator &communicator) {
  comm::Group all(static_cast<size_t>(communicator.numRanks()));
  std::iota(all.begin(), all.end(), int64_t(0));
  return all;
}

class CudaFaults : public FakeGpuRanks {
protected:
  static constexpr int numSteps = 5;

  /// Runs the fault of the rank in its step. If the rank has no fault it returns no value, and
  /// training continues.
  std::optional<Status> happen(const Case &c, int64_t rank, comm::Communicator &communicator,
                               Gpus &gpus, const std::atomic<int> &numLeft) {
    auto wait = [&](int left) {
      while (numLeft > left)
        std::this_thread::sleep_for(1ms);
    };
    switch (c.fault) {
    case Fault::None:
      break;
    case Fault::Late:
      std::this_thread::sleep_for(300ms);
      break;
    case Fault::Stopped:
    case Fault::Killed:
      stores.at(rank)->die();
      if (c.fault == Fault::Killed)
        gpus.nccl.failAll(cuda::NcclCode::RemoteError);
      wait(1);
      return Status(Error{ErrorCode::RankFailed, "dead"});
    case Fault::Busy:
      wait(1);
      return Status(Error{ErrorCode::RankFailed, "it did something else"});
    case Fault::KernelHangs:
      gpus.driver.hangKernel(kernel, int(rank));
      break;
    case Fault::KernelFails:
      gpus.driver.failKernel(kernel, cuda::DriverCode::LaunchFailed);
      break;
    case Fault::MemoryShort:
      gpus.driver.failCall("cuMemAlloc_v2", cuda::DriverCode::OutOfMemory);
      break;
    case Fault::Disordered: {
      auto met = communicator.barrier(allOf(communicator), "a barrier out of order")->wait();
      if (!met)
        return Status(met.error());
      break;
    }
    }
    return std::nullopt;
  }

  void run(const Case &c) {
    SCOPED_TRACE(c.text);
    Program program = programOf(c.program);
    auto gpus = gpusFor(program);
    kernel = kernelOf(program, c.rank);
    stores.clear();
    reports.clear();
    Setting setting;
    setting.graphs = c.graphs;
    setting.timeout = 2s;
    std::atomic<int> numLeft = int(program.mesh.numRanks());
    setting.wrap = [&](int64_t rank, comm::Store &store) -> comm::Store & {
      std::lock_guard<std::mutex> lock(reportMutex);
      stores[rank] = std::make_unique<MortalStore>(store);
      return *stores[rank];
    };
    setting.ended = [&] { --numLeft; };
    setting.body = [&](int64_t rank, comm::Communicator &communicator,
                       const runtime::MachineMaker &maker) -> Result<std::vector<Tensor>> {
      auto executor = executorOf(program, c.program, rank, maker);
      if (!executor)
        return executor.error();
      Status status;
      for (int step = 0; status && step < numSteps; ++step) {
        if (rank == c.rank && step == c.step)
          if (std::optional<Status> end = happen(c, rank, communicator, *gpus, numLeft))
            return end->error();
        status = executor->runStep(communicator, stepInputs(c.program, step));
      }
      // Ranks meet at the end, as in a run. A first stage would not wait for its device otherwise.
      if (status) {
        auto met = communicator.barrier(allOf(communicator), "the end of the run")->wait();
        status = met ? Status::ok() : Status(met.error());
      }
      return lossOf(*executor, status);
    };
    auto begin = std::chrono::steady_clock::now();
    Outcome outcome = onGpus(program, c.program, setting);
    // The limit covers the time-out, the wait for answers and a busy machine.
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 60s);
    expectEnd(c, outcome);
  }

  /// Returns the first kernel of a rank's backward block.
  static std::string kernelOf(const Program &program, int64_t rank) {
    int stage = program.stageOf(program.mesh.coordinates(rank));
    program::BlockId block = program.stages[size_t(stage)].blocks()[1];
    const std::vector<program::Region> &regions =
        program.stages[size_t(stage)].block(block).regions;
    return regions.at(0).symbol;
  }

  void expectEnd(const Case &c, const Outcome &outcome) {
    // A dead rank reports nothing.
    if (c.fault == Fault::Stopped || c.fault == Fault::Killed)
      reports.erase(std::remove_if(reports.begin(), reports.end(),
                                   [&](const Report &one) { return one.rank == c.rank; }),
                    reports.end());
    bool mayPass = c.fault == Fault::None || c.fault == Fault::Late ||
                   c.fault == Fault::MemoryShort; // the last passes if it does not allocate
    if (c.fault == Fault::None || c.fault == Fault::Late || (mayPass && reports.empty())) {
      for (const auto &rank : outcome)
        ASSERT_TRUE(rank) << rank.error().message;
      return;
    }
    bool isHang = c.fault == Fault::Stopped || c.fault == Fault::Busy ||
                  c.fault == Fault::KernelHangs || c.fault == Fault::Disordered;
    ErrorCode code = isHang ? ErrorCode::HangDetected : ErrorCode::RankFailed;
    // Before step 1 the other ranks agree on recording a graph. The barrier pairs with that call,
    // and the ranks see at once that it is another.
    bool isSeen = c.fault == Fault::Disordered && !reports.empty() &&
                  reports[0].error.code == ErrorCode::RankFailed;
    if (isSeen) {
      EXPECT_TRUE(c.step == 1 && c.graphs != cuda::GraphUse::Off);
      code = ErrorCode::RankFailed;
    }
    for (size_t rank = 0; rank < outcome.size(); ++rank) {
      ASSERT_FALSE(outcome[rank]) << "rank " << rank << " ends as if nothing was";
      if (int64_t(rank) != c.rank || c.fault == Fault::KernelHangs) {
        EXPECT_EQ(outcome[rank].error().code, code) << outcome[rank].error().message;
      }
    }
    ASSERT_FALSE(reports.empty());
    const std::string &first = reports[0].error.message;
    std::string culprit = "rank " + std::to_string(c.rank);
    std::string device = "GPU " + std::to_string(c.rank) + " (";
    switch (c.fault) {
    case Fault::Stopped:
      EXPECT_THAT(first, HasSubstr("no answer from " + culprit));
      EXPECT_THAT(first, HasSubstr("no sign of life"));
      break;
    case Fault::Killed:
      EXPECT_THAT(first, HasSubstr(culprit + " gives no sign of life"));
      break;
    case Fault::Busy:
      EXPECT_THAT(first, HasSubstr("no answer from " + culprit));
      EXPECT_THAT(first, HasSubstr("it is alive"));
      break;
    case Fault::KernelHangs:
      if (reports[0].rank == c.rank)
        EXPECT_THAT(first, ::testing::AllOf(HasSubstr(device), HasSubstr("waited 2000 ms for")));
      else // found by this rank, or heard from the culprit
        EXPECT_THAT(first,
                    ::testing::AnyOf(HasSubstr("no answer from " + culprit), HasSubstr(device)));
      break;
    case Fault::KernelFails:
      EXPECT_THAT(first,
                  ::testing::AllOf(HasSubstr(device), HasSubstr("CUDA_ERROR_LAUNCH_FAILED")));
      break;
    case Fault::MemoryShort:
      EXPECT_THAT(first, HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
      break;
    case Fault::Disordered:
      // A rank that sees the mismatch itself names the other's call.
      if (!isSeen || reports[0].rank != c.rank)
        EXPECT_THAT(first, HasSubstr(culprit));
      EXPECT_THAT(first, HasSubstr("a barrier out of order"));
      break;
    case Fault::None:
    case Fault::Late:
      break;
    }
  }

  std::string kernel;
  std::map<int64_t, std::unique_ptr<MortalStore>> stores;
};

TEST_F(CudaFaults, EachEndsInTimeAndIsNamed) {
  const char *one = std::getenv("TBC_FAULT");
  const char *many = std::getenv("TBC_FAULTS");
  uint64_t first = one ? std::strtoull(one, nullptr, 10) : 0;
  uint64_t count = one ? 1 : many ? std::strtoull(many, nullptr, 10) : 20;
  ASSERT_GT(count, 0u);
  for (uint64_t number = first; number < first + count; ++number)
    run(caseOf(number, mlp()));
}

} // namespace
} // namespace tbc::test
