//===- comm_bench.cpp - Bandwidth of collectives between local ranks ------===//
//
// Run: ninja -C build comm-bench && build/bin/comm-bench [RANKS [MIB [HOSTS]]]
//
// RANKS processes (default 2) call all_reduce, reduce_scatter and all_gather of f32 up to MIB
// (default 64), in turns through shared memory and through sockets. Prints per size and transport:
// the shortest time of a call, GB/s of the full buffer, and processor seconds of rank 0 per GB. The
// full buffer is the operand of all_reduce and reduce_scatter, and the result of all_gather.
//
// With HOSTS, the ranks pretend to be on that many hosts. all_reduce then runs hierarchically and
// flat, in turns. Also prints the bytes sent between hosts by all ranks, in total and per byte of
// the buffer.
//
//===----------------------------------------------------------------------===//

#include "runtime/comm/Call.h"
#include "runtime/comm/Gloo.h"
#include "runtime/launch/LocalJob.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>

using namespace tbc;

namespace {

using Clock = std::chrono::steady_clock;
using Kind = comm::CallKind;

double processorSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

struct Memory {
  explicit Memory(int64_t elements) : values(size_t(elements), 1.0F) {}
  comm::Runs part(int64_t first, int64_t count) {
    return {{reinterpret_cast<unsigned char *>(values.data() + first), count * 4}};
  }
  std::vector<float> values;
};

Status call(comm::Communicator &communicator, const comm::Group &group, Kind kind, Memory &buffer,
            Memory &share) {
  const comm::ElementType type{kernels::DType::F32};
  int64_t n = int64_t(group.size()), count = int64_t(buffer.values.size());
  comm::Runs all = buffer.part(0, count), mine = share.part(0, count / n);
  std::vector<comm::Runs> parts;
  for (int64_t i = 0; i < n; ++i)
    parts.push_back(buffer.part(i * (count / n), count / n));
  if (kind == Kind::AllReduce)
    return communicator.allReduceRuns(group, comm::ReduceKind::Sum, type, all, all, "bench");
  if (kind == Kind::ReduceScatter)
    return communicator.reduceScatterRuns(group, type, parts, mine, "bench");
  return communicator.allGatherRuns(group, type, mine, parts, "bench");
}

struct Setting {
  int64_t numRanks = 2, mebibytes = 64, numHosts = 1;
  bool sharesMemory = true, reducesByHost = true; // in turns
  std::string name() const {
    return numHosts > 1 ? (reducesByHost ? "by host" : "straight")
                        : (sharesMemory ? "memory" : "sockets");
  }
};

/// Returns the bytes that all ranks have sent to other hosts so far.
int64_t bytesAcross(comm::Communicator &communicator, const comm::Group &group) {
  const kernels::TensorType one{kernels::DType::I64, {1}};
  auto sum =
      communicator
          .allReduce(group, comm::ReduceKind::Sum,
                     kernels::Tensor::fromInts(one, {communicator.sent()->acrossHosts}), "bench")
          ->wait();
  return sum ? sum->data<int64_t>()[0] : -1;
}

int measure(const launch::LocalRank &start, const Setting &setting) {
  int64_t numRanks = setting.numRanks, mebibytes = setting.mebibytes;
  auto job = start.openStore();
  if (!job)
    return 1;
  comm::GlooOptions options;
  options.token = start.token;
  options.sharesMemory = setting.sharesMemory;
  options.byHost = setting.reducesByHost ? comm::ByHost::Always : comm::ByHost::Never;
  if (setting.numHosts > 1)
    options.hostKey = "host " + std::to_string(start.rank * setting.numHosts / numRanks);
  auto communicator = comm::connectGloo(start.rank, numRanks, *job->store, options);
  if (!communicator) {
    std::fprintf(stderr, "comm-bench: %s\n", communicator.error().message.c_str());
    return 1;
  }
  comm::Group group;
  for (int64_t rank = 0; rank < numRanks; ++rank)
    group.push_back(rank);
  for (Kind kind : {Kind::AllReduce, Kind::ReduceScatter, Kind::AllGather})
    for (int64_t bytes = 1 << 10; bytes <= mebibytes << 20; bytes *= 8) {
      Memory buffer(bytes / 4), share(bytes / 4 / numRanks);
      double best = 1e30, processor = 1e30;
      int64_t across = bytesAcross(**communicator, group);
      if (!call(**communicator, group, kind, buffer, share))
        return 1;
      // Subtracts the traffic of counting itself.
      int64_t after = bytesAcross(**communicator, group);
      across = 2 * after - across - bytesAcross(**communicator, group);
      for (int64_t run = 0; run < std::clamp<int64_t>((1 << 28) / bytes, 3, 200); ++run) {
        if (!(*communicator)->barrier(group, "bench")->wait())
          return 1;
        auto begin = Clock::now();
        double before = processorSeconds();
        if (Status status = call(**communicator, group, kind, buffer, share); !status) {
          std::fprintf(stderr, "comm-bench: %s\n", status.error().message.c_str());
          return 1;
        }
        best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
        processor = std::min(processor, processorSeconds() - before);
      }
      if (start.rank == 0)
        std::printf(
            "%-8s %-15s %10lld bytes %9.1f us %7.2f GB/s %7.3f processor s/GB%s\n",
            setting.name().c_str(), describe(comm::Call(kind)).c_str(),
            static_cast<long long>(bytes), best * 1e6, double(bytes) / best / 1e9,
            processor / (double(bytes) / 1e9),
            setting.numHosts > 1
                ? (", " + std::to_string(double(across) / double(bytes)) + " across").c_str()
                : "");
    }
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  Setting setting;
  setting.numRanks = argc > 1 ? std::atoll(argv[1]) : 2;
  setting.mebibytes = argc > 2 ? std::atoll(argv[2]) : 64;
  setting.numHosts = argc > 3 ? std::atoll(argv[3]) : 1;
  for (int round = 0; round < 2; ++round)
    for (bool isFirst : {true, false}) {
      (setting.numHosts > 1 ? setting.reducesByHost : setting.sharesMemory) = isFirst;
      std::fflush(stdout);
      auto code = launch::launchLocalJob(setting.numRanks, std::chrono::seconds(60),
                                         [&](const launch::LocalRank &start) {
                                           int result = measure(start, setting);
                                           std::fflush(stdout);
                                           return result;
                                         });
      if (!code || *code != 0)
        return 1;
    }
  return 0;
}
