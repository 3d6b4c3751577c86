//===- signals_test.cpp - Signals beside kernels ---------------------------===//

#include "runtime/cpu/NativeKernel.h"
#include "runtime/launch/Launcher.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace tbc;
using kernels::DType;

namespace {

/// Returns 0 if matmuls give the same numbers before and beside signals.
int multiply(int numProducts) {
  launch::listenForStop();
  constexpr int64_t size = 256, k = 512;
  std::vector<float> a(k * size), b(k * size), first(size * size), next(size * size);
  for (size_t i = 0; i < a.size(); ++i)
    a[i] = float(i % 7), b[i] = float(i % 5);
  using Ints = std::vector<int64_t>;
  const kernels::Attrs attrs = {
      {"lhs_labels", Ints{0, 2}}, {"rhs_labels", Ints{2, 1}}, {"out_labels", Ints{0, 1}}};
  const kernels::TensorType lhs{DType::F32, {size, k}}, rhs{DType::F32, {k, size}},
      result{DType::F32, {size, size}};
  cpu::NativeKernel kernel = cpu::findNativeKernel("einsum", attrs, {lhs, rhs}, {result});
  if (!kernel)
    return 2;
  cpu::Threads threads(1);
  cpu::Buffers buffers;
  auto bytesOf = [](std::vector<float> &v) { return reinterpret_cast<unsigned char *>(v.data()); };
  buffers.operands = {bytesOf(a), bytesOf(b)};
  buffers.results = {bytesOf(first)};
  kernel(threads, buffers);
  kill(getppid(), SIGUSR1); // from now on signals may come
  buffers.results = {bytesOf(next)};
  for (int i = 0; i < numProducts || !launch::stopRequested(); ++i) {
    std::vector<float> neighbour(1000 + size_t(i) % 1000, 1.0f); // small blocks around the scratch
    kernel(threads, buffers);
    if (next != first || neighbour.back() != 1.0f)
      return 3;
  }
  return 0;
}

// The handler of a signal would write below the stack pointer, which a matmul of oneDNN for AVX2
// sets to its scratch memory.
TEST(Signals, DoNotDisturbMatmuls) {
  sigset_t ready;
  sigemptyset(&ready);
  sigaddset(&ready, SIGUSR1);
  sigaddset(&ready, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &ready, nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0)
    _exit(multiply(300));
  int signal = 0, status = 0;
  ASSERT_EQ(sigwait(&ready, &signal), 0);
  pid_t ended = 0;
  while ((ended = waitpid(child, &status, WNOHANG)) == 0) {
    kill(child, SIGUSR2);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  pthread_sigmask(SIG_UNBLOCK, &ready, nullptr);
  EXPECT_EQ(ended, child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

} // namespace
