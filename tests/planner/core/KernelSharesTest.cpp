//===- KernelSharesTest.cpp - The shares of ops in a Program's kernels --------===//

#include "planner/cost/KernelShares.h"
#include "planner/reshard/Rebatch.h"
#include "tests/planner/core/StepBuilder.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <vector>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;

static Cluster h100() { return *loadCluster("h100-sxm"); }

/// Builds graphs of ops over dims of 64 f32.
struct Maker {
  int value(const std::vector<reshard::FactorId> &factors, int producer = -1) {
    reshard::GraphValue v;
    v.layout.elementBytes = 4;
    for (reshard::FactorId factor : factors)
      v.layout.dims.push_back({{{{{factor, 64}}}}});
    v.producer = producer;
    graph.values.push_back(v);
    return int(graph.values.size()) - 1;
  }

  int op(KernelClass kernelClass, bool isLoopNest, const std::vector<int> &operands,
         const std::vector<reshard::FactorId> &factors, bool additive = false) {
    reshard::GraphOp o;
    o.kernelClass = kernelClass, o.isLoopNest = isLoopNest, o.additive = additive;
    o.operands = operands;
    for (int operand : operands)
      graph.values[operand].users.push_back(int(graph.ops.size()));
    o.results = {value(factors, int(graph.ops.size()))};
    for (size_t dim = 0; dim < factors.size(); ++dim) {
      reshard::Loop loop{factors[dim], 64};
      loop.resultDims = {{0, int(dim)}};
      for (size_t k = 0; k < operands.size(); ++k)
        for (size_t at = 0; at < graph.values[operands[k]].layout.dims.size(); ++at)
          if (graph.values[operands[k]].layout.dims[at].segments[0].factors[0].id == factors[dim])
            loop.operandDims.push_back({int(k), int(at)});
      o.loops.push_back(loop);
    }
    graph.ops.push_back(o);
    return o.results[0];
  }
  int matmul(int x, int y, const std::vector<reshard::FactorId> &factors) {
    return op(KernelClass::Matmul, false, {x, y}, factors);
  }
  int add(int x, int y, const std::vector<reshard::FactorId> &factors) {
    int sum = op(KernelClass::Elementwise, true, {x, y}, factors, true);
    graph.ops.back().function = reshard::ElementFunction::Sum;
    return sum;
  }
  int gelu(int x, const std::vector<reshard::FactorId> &factors) {
    int y = op(KernelClass::Elementwise, true, {x}, factors);
    graph.ops.back().function = reshard::ElementFunction::Gelu;
    return y;
  }
  int broadcast(int x, const std::vector<reshard::FactorId> &factors) {
    return op(KernelClass::None, true, {x}, factors, true);
  }

  /// Returns the launches of all ops on an H100.
  double launches() const {
    Cluster gpus = h100();
    gpus.hasKernelWorkspace = true;
    const std::vector<KernelShare> shares = kernelShares(gpus, graph);
    double sum = 0;
    for (size_t op = 0; op < graph.ops.size(); ++op)
      sum += opLaunches(graph, int(op), {}, shares[op]);
    return sum;
  }

  reshard::Graph graph;
};

// cuBLASLt adds one bias along the rows and one matrix, to one matmul.
TEST(KernelShares, EpiloguesAreThoseOfTheLibrary) {
  constexpr reshard::FactorId a = 0, b = 1, c = 2;
  struct Case {
    const char *name;
    double launches;
    std::function<int(Maker &, int product)> terms;
  };
  auto matrix = [](Maker &m, int x) { return m.add(x, m.value({a, c}), {a, c}); };
  auto bias = [](Maker &m, int x, reshard::FactorId factor) {
    return m.add(x, m.broadcast(m.value({factor}), {a, c}), {a, c});
  };
  const std::vector<Case> cases = {
      {"a matrix", 1, matrix},
      {"a bias", 1, [&](Maker &m, int x) { return bias(m, x, c); }},
      {"a bias and a matrix", 1, [&](Maker &m, int x) { return matrix(m, bias(m, x, c)); }},
      {"two matrices", 2, [&](Maker &m, int x) { return matrix(m, matrix(m, x)); }},
      {"two biases", 2, [&](Maker &m, int x) { return bias(m, bias(m, x, c), c); }},
      {"the product twice", 2, [&](Maker &m, int x) { return m.add(x, x, {a, c}); }},
      {"a difference", 2,
       [](Maker &m, int x) {
         return m.op(KernelClass::Elementwise, true, {x, m.value({a, c})}, {a, c}, true);
       }},
      {"gelu", 1, [](Maker &m, int x) { return m.gelu(x, {a, c}); }},
      {"gelu of a bias and a matrix", 1,
       [&](Maker &m, int x) { return m.gelu(matrix(m, bias(m, x, c)), {a, c}); }},
      {"gelu and a matrix", 2, [&](Maker &m, int x) { return matrix(m, m.gelu(x, {a, c})); }},
      {"gelu of another form", 2,
       [](Maker &m, int x) { return m.op(KernelClass::Elementwise, true, {x}, {a, c}); }},
      {"a number", 2,
       [](Maker &m, int x) { return m.add(x, m.broadcast(m.value({}), {a, c}), {a, c}); }}};
  for (const Case &one : cases) {
    Maker m;
    int product = m.matmul(m.value({a, b}), m.value({b, c}), {a, c});
    m.graph.loss = one.terms(m, product);
    EXPECT_EQ(m.launches(), one.launches) << one.name;
  }
  Maker batch;
  int product = batch.matmul(batch.value({a, b}), batch.value({a, b, c}), {a, c});
  batch.graph.loss = matrix(batch, product);
  EXPECT_EQ(batch.launches(), 2);
}

// An op has as many launches as its own kernel on a device, by the shapes there.
TEST(KernelShares, CountLaunchesOfLocalShapes) {
  Maker maker;
  maker.graph.loss = maker.op(KernelClass::Gather, false, {maker.value({0, 1})}, {0, 1});
  EXPECT_EQ(maker.launches(), 1);
  reshard::GraphOp &op = maker.graph.ops.back();
  op.own.launches = 2;
  EXPECT_EQ(maker.launches(), 2);
  op.own.launchesOf = [](const std::vector<std::vector<int64_t>> &shapes) {
    return shapes[0][0] / 8;
  };
  EXPECT_EQ(maker.launches(), 64 / 8);
  op.kernelClass = KernelClass::Matmul; // by a library
  EXPECT_EQ(maker.launches(), 1);
}

// x w + bias is one kernel of the library. Two functions of the next product are one kernel. The
// slice is a copy. Positions that attention alone reads need no kernel.
TEST(KernelShares, AddUpToTheKernelsOfAProgram) {
  using namespace tbc::reshard;
  Maker maker;
  Graph &graph = maker.graph;
  auto value = [&](const std::vector<FactorId> &factors, int producer) {
    return maker.value(factors, producer);
  };
  auto op = [&](KernelClass kernelClass, bool isLoopNest, const std::vector<int> &operands,
                const std::vector<FactorId> &factors, bool additive = false) {
    return maker.op(kernelClass, isLoopNest, operands, factors, additive);
  };
  constexpr FactorId a = 0, b = 1, c = 2;
  int x = value({a, b}, -1), w = value({b, c}, -1), bias = value({c}, -1);
  int product = op(KernelClass::Matmul, false, {x, w}, {a, c});
  int wide = op(KernelClass::None, true, {bias}, {a, c}, true);
  int sum = maker.add(product, wide, {a, c});
  int again = op(KernelClass::Matmul, false, {sum, w}, {a, c});
  int once = op(KernelClass::Elementwise, true, {again}, {a, c});
  int twice = op(KernelClass::Elementwise, true, {once, again}, {a, c});
  int slice = op(KernelClass::None, false, {twice}, {a, c}, true);
  int places = op(KernelClass::None, false, {}, {a});
  graph.ops.back().generator = true;
  int attended = op(KernelClass::CausalAttention, false, {slice, places}, {a, c});
  graph.values[size_t(attended)].layout.elementBytes = 2;
  graph.loss = slice;

  const double whole = 64 * 64 * 4, row = 64 * 4;
  std::vector<KernelShare> shares;
  auto bytes = [&](int v) {
    int maker = graph.values[v].producer;
    return localWork(graph, maker, {}, shares[size_t(maker)]).bytes;
  };
  auto launches = [&](int v) {
    int maker = graph.values[v].producer;
    return opLaunches(graph, maker, {}, shares[size_t(maker)]);
  };
  Cluster gpus = h100();
  gpus.hasKernelWorkspace = true;
  shares = kernelShares(gpus, graph);
  EXPECT_EQ(bytes(product), 3 * whole + row); // with the bias, and in place of the product the sum
  EXPECT_EQ(bytes(sum), 0);
  EXPECT_EQ(launches(sum), 0);
  EXPECT_EQ(bytes(again), 3 * whole);
  EXPECT_EQ(bytes(once), whole); // reads the product for both, and stays
  EXPECT_EQ(bytes(twice), whole);
  EXPECT_EQ(launches(once) + launches(twice), 1);
  EXPECT_EQ(bytes(slice), 2 * whole);
  EXPECT_EQ(launches(slice), 1);
  EXPECT_EQ(bytes(wide), 0);
  EXPECT_EQ(launches(wide), 0);
  EXPECT_EQ(bytes(places), 0); // the library knows the positions
  EXPECT_EQ(launches(places), 0);
  graph.values[size_t(attended)].layout.elementBytes = 4; // cuDNN's attention has 16 bits
  shares = kernelShares(gpus, graph);
  EXPECT_EQ(launches(places), 1);

  // CPUs have no libraries.
  gpus.hasKernelWorkspace = false;
  shares = kernelShares(gpus, graph);
  EXPECT_EQ(bytes(product), 3 * whole);
  EXPECT_EQ(bytes(sum), 2 * whole + row);
  EXPECT_EQ(launches(sum), 1);
  EXPECT_EQ(bytes(places), row);
  EXPECT_EQ(launches(places), 1);

  // A framework has views for free, and a kernel per op.
  gpus.executor.name = "megatron";
  shares = kernelShares(gpus, graph);
  EXPECT_EQ(launches(slice), 0);
  EXPECT_EQ(bytes(once), whole); // twice reads it from registers
  EXPECT_EQ(bytes(twice), 2 * whole);

  // Another batch has the same kernels.
  graph.batchFactor = a;
  const Graph few = withBatch(graph, 2), many = withBatch(graph, 8);
  const std::vector<KernelShare> expected = kernelShares(h100(), many);
  shares = ownKernelShares(h100(), many, planUnsplitKernels(few));
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(shares[i].readBytes, expected[i].readBytes) << i;
    EXPECT_EQ(shares[i].writtenBytes, expected[i].writtenBytes) << i;
    EXPECT_EQ(shares[i].isFused, expected[i].isFused) << i;
  }
}

// A norm's gradient and the sums over its rows: one launch on GPUs, which keeps dy in registers.
TEST(KernelShares, ColumnSumsJoinTheirRowsOnGpus) {
  using namespace tbc::reshard;
  Graph graph;
  constexpr FactorId rows = 0, columns = 1;
  auto value = [&](const std::vector<FactorId> &factors, int producer) {
    GraphValue v;
    v.layout.elementBytes = 4;
    for (FactorId factor : factors)
      v.layout.dims.push_back({{{{{factor, 64}}}}});
    v.producer = producer;
    graph.values.push_back(v);
    return int(graph.values.size()) - 1;
  };
  auto op = [&](const std::vector<int> &operands, const std::vector<FactorId> &results,
                std::vector<FactorId> reduced) {
    GraphOp o;
    o.kernelClass = KernelClass::Reduction, o.isLoopNest = true;
    o.operands = operands;
    for (int operand : operands)
      graph.values[size_t(operand)].users.push_back(int(graph.ops.size()));
    for (FactorId factor : reduced) {
      Loop loop;
      loop.factor = factor, loop.size = 64, loop.isReduced = true;
      for (size_t k = 0; k < operands.size(); ++k)
        loop.operandDims.push_back({int(k), factor == rows ? 0 : 1});
      o.loops.push_back(loop);
    }
    o.results = {value(results, int(graph.ops.size()))};
    graph.ops.push_back(o);
    return o.results[0];
  };
  int a = value({rows, columns}, -1), x = value({rows, columns}, -1);
  int dy = op({a}, {rows, columns}, {});
  int dx = op({dy, x}, {rows, columns}, {columns});
  int scale = op({dy, x}, {columns}, {rows});
  graph.stateUpdates = {{-1, dx}, {-1, scale}};

  const double whole = 64 * 64 * 4, row = 64 * 4;
  Cluster cluster = h100();
  auto total = [&] {
    LocalWork sum;
    sum.launches = 0;
    std::vector<KernelShare> shares = kernelShares(cluster, graph);
    for (int index = 0; index < 3; ++index) {
      sum.bytes += localWork(graph, index, {}, shares[size_t(index)]).bytes;
      sum.launches += opLaunches(graph, index, {}, shares[size_t(index)]);
    }
    return sum;
  };
  cluster.hasKernelWorkspace = true;
  EXPECT_EQ(total().bytes, 3 * whole + row);
  EXPECT_EQ(total().launches, 1);
  cluster.hasKernelWorkspace = false; // CPUs
  EXPECT_EQ(total().bytes, 6 * whole + row);
  EXPECT_EQ(total().launches, 2);
}

TEST(KernelShares, OwnKernelsHaveTheirWorkAndLaunches) {
  using namespace tbc::reshard;
  Graph graph;
  GraphValue x;
  x.layout.elementBytes = 4;
  x.layout.dims.push_back({{{{{0, 64}}}}});
  graph.values = {x, x};
  graph.values[0].users = {0};
  GraphOp op;
  op.kernelClass = KernelClass::TiledAttention;
  op.operands = {0}, op.results = {1};
  op.flops = 1e12;
  op.own = {1.5, 3};
  graph.values[1].producer = 0;
  graph.ops = {op};
  Cluster cluster = h100();
  cluster.hasKernelWorkspace = true;
  auto workOf = [&] { return localWork(graph, 0, {}, kernelShares(cluster, graph)[0]); };
  EXPECT_EQ(workOf().flops, 1.5e12);
  EXPECT_EQ(workOf().launches, 3);
  double seconds = kernelSeconds(cluster, op.kernelClass, workOf());
  LocalWork one = workOf();
  one.launches = 1;
  EXPECT_NEAR(seconds - kernelSeconds(cluster, op.kernelClass, one), 2 * cluster.launchSeconds,
              1e-12);
  cluster.hasKernelWorkspace = false; // CPUs
  EXPECT_EQ(workOf().flops, 1e12);
  EXPECT_EQ(workOf().launches, 1);
  cluster = h100();
  cluster.executor.name = "megatron";
  EXPECT_EQ(workOf().flops, 1e12);
  // At the rate of attention by a library.
  EXPECT_EQ(kernelSeconds(cluster, KernelClass::TiledAttention, workOf()),
            kernelSeconds(cluster, KernelClass::Attention, workOf()));
}
