//===- threads_test.cpp - The pool of threads ----------------------------------===//

#include "runtime/cpu/Threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace tbc::cpu;

namespace {

TEST(Threads, EveryPieceIsDoneOnce) {
  for (int count : {1, 2, 5}) {
    Threads threads(count);
    for (int64_t pieces : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> done(size_t(pieces) + 1);
      threads.run(pieces, [&](int64_t piece) { ++done[size_t(piece)]; });
      for (int64_t piece = 0; piece < pieces; ++piece)
        EXPECT_EQ(done[size_t(piece)], 1);
    }
  }
}

TEST(Threads, RangesCoverAll) {
  Threads threads(3);
  std::atomic<int64_t> total{0};
  threads.runRanges(1001, 10, [&](int64_t begin, int64_t end) {
    EXPECT_LE(end - begin, 10);
    for (int64_t i = begin; i < end; ++i)
      total += i;
  });
  EXPECT_EQ(total, 1000 * 1001 / 2);
}

TEST(Threads, WhatAPieceThrowsIsThrown) {
  Threads threads(3);
  auto fails = [](int64_t piece) {
    if (piece == 17)
      throw std::runtime_error("seventeen");
  };
  EXPECT_THROW(threads.run(40, fails), std::runtime_error);
  std::atomic<int> done{0};
  threads.run(40, [&](int64_t) { ++done; }); // the pool still works
  EXPECT_EQ(done, 40);
}

TEST(Threads, APieceMayAskForMore) {
  Threads threads(2);
  std::atomic<int> done{0};
  threads.run(4, [&](int64_t) { threads.run(5, [&](int64_t) { ++done; }); });
  EXPECT_EQ(done, 20);
}

TEST(Threads, NobodySpins) {
  Threads threads(4);
  threads.run(100, [](int64_t) {});
  clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(double(std::clock() - before) / CLOCKS_PER_SEC, 0.1);
}

} // namespace
