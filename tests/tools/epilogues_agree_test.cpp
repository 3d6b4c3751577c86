//===- epilogues_agree_test.cpp - Epilogues are priced where they run -------===//
//
// The planner prices a kernel in the call of the matmul before it (planner/cost/MatmulEpilogue.h),
// and the runtime finds such kernels in a Program (runtime/cuda/Epilogues.h). Both must choose the
// same, in forward and backward. Programs are compiled for GPUs, not run.
//
//===----------------------------------------------------------------------===//

#include "planner/cost/Cost.h"
#include "planner/devices/Cluster.h"
#include "planner/reshard/Kernels.h"
#include "runtime/abi/Region.h"
#include "runtime/cuda/LibraryRequests.h"
#include "tests/frontend/ModelBuilder.h"
#include "tests/tools/PlanSupport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

using namespace tbc;
using test::ModelBuilder;

namespace {

constexpr int64_t rows = 8, inner = 16, columns = 24, odd = 20;

/// A model y = f(x w), and whether the library executes f with the matmul.
struct Case {
  const char *name;
  bool isEpilogue;
  /// Adds the nodes of f from "p", the product, to "y".
  std::function<void(ModelBuilder &)> terms;
  const char *precision = "f32";
  int64_t width = columns; // of w
};

void PrintTo(const Case &c, std::ostream *out) { *out << c.name; }

std::vector<float> numbers(int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(float(i % 7) / 8 - 0.25f);
  return values;
}

void gelu(ModelBuilder &b, const char *from, const char *to, const char *form = "tanh") {
  ModelBuilder::attr(b.node("Gelu", {from}, {to}), "approximate", std::string(form));
}

void bias(ModelBuilder &b, const char *from, const char *to, int64_t width = columns) {
  const std::string name = std::string("bias_") + to;
  b.floats(name, {width}, numbers(width));
  b.node("Add", {from, name}, {to});
}

/// Adds a matrix for each sample, another input of the model.
void matrix(ModelBuilder &b, const char *from, const char *to) {
  const std::string name = std::string("matrix_") + to;
  b.input(name, {"batch", std::to_string(columns)});
  b.node("Add", {from, name}, {to});
}

const std::vector<Case> &cases() {
  static const std::vector<Case> table = {
      {"bias", true, [](ModelBuilder &b) { bias(b, "p", "y"); }},
      {"matrix", true, [](ModelBuilder &b) { matrix(b, "p", "y"); }},
      {"bias_matrix", true,
       [](ModelBuilder &b) {
         bias(b, "p", "q");
         matrix(b, "q", "y");
       }},
      {"matrix_bias", true,
       [](ModelBuilder &b) {
         matrix(b, "p", "q");
         bias(b, "q", "y");
       }},
      {"matrix_matrix", false,
       [](ModelBuilder &b) {
         matrix(b, "p", "q");
         matrix(b, "q", "y");
       }},
      {"bias_bias", false,
       [](ModelBuilder &b) {
         bias(b, "p", "q");
         bias(b, "q", "y");
       }},
      {"difference", false,
       [](ModelBuilder &b) {
         b.input("r", {"batch", std::to_string(columns)});
         b.node("Sub", {"p", "r"}, {"y"});
       }},
      {"difference_turned", false,
       [](ModelBuilder &b) {
         b.input("r", {"batch", std::to_string(columns)});
         b.node("Sub", {"r", "p"}, {"y"});
       }},
      {"factor", false,
       [](ModelBuilder &b) {
         b.input("r", {"batch", std::to_string(columns)});
         b.node("Mul", {"p", "r"}, {"y"});
       }},
      {"relu", false, [](ModelBuilder &b) { b.node("Relu", {"p"}, {"y"}); }},
      {"bias_relu", false,
       [](ModelBuilder &b) {
         bias(b, "p", "q");
         b.node("Relu", {"q"}, {"y"});
       }},
      // Backward reads the product, so that forward keeps it.
      {"gelu", false, [](ModelBuilder &b) { gelu(b, "p", "y"); }},
      {"gelu_erf", false, [](ModelBuilder &b) { gelu(b, "p", "y", "none"); }},
      {"bias_gelu", true,
       [](ModelBuilder &b) {
         bias(b, "p", "q");
         gelu(b, "q", "y");
       }},
      {"bias_matrix_gelu", true,
       [](ModelBuilder &b) {
         bias(b, "p", "q");
         matrix(b, "q", "r");
         gelu(b, "r", "y");
       }},
      {"bias_gelu_bf16", true,
       [](ModelBuilder &b) {
         bias(b, "p", "q");
         gelu(b, "q", "y");
       },
       "bf16"},
      {"gelu_matrix", false,
       [](ModelBuilder &b) {
         gelu(b, "p", "q");
         matrix(b, "q", "y");
       }},
      {"gelu_of_short_rows", false,
       [](ModelBuilder &b) {
         bias(b, "p", "q", odd);
         gelu(b, "q", "y");
       },
       "f32", odd},
      {"two_readers", false,
       [](ModelBuilder &b) {
         bias(b, "p", "q");
         b.node("Tanh", {"p"}, {"t"});
         b.node("Mul", {"q", "t"}, {"y"});
       }},
      {"two_results", false,
       [](ModelBuilder &b) {
         bias(b, "p", "q");
         b.node("Tanh", {"q"}, {"t"});
         b.node("Mul", {"q", "t"}, {"y"});
       }},
  };
  return table;
}

/// y = f(x w) v, so that the gradient of f is behind a matmul, too.
std::string modelOf(const Case &c) {
  ModelBuilder b(20);
  b.input("x", {"batch", std::to_string(inner)});
  b.floats("w", {inner, c.width}, numbers(inner * c.width));
  b.node("MatMul", {"x", "w"}, {"p"}, "product");
  c.terms(b);
  b.floats("v", {c.width, inner}, numbers(inner * c.width));
  b.node("MatMul", {"y", "v"}, {"z"}, "last");
  b.output("z");
  return b.bytes();
}

/// Returns the matmuls of the unsplit step with a kernel in their call, as priced on an H100.
std::set<std::string> priced(const reshard::Graph &graph) {
  planner::Cluster cluster = *planner::loadCluster("h100-sxm");
  const std::vector<planner::KernelShare> shares = planner::kernelShares(cluster, graph);
  std::set<std::string> matmuls;
  for (const auto &[block, kernels] : reshard::planUnsplitKernels(graph))
    for (size_t k = 1; k < kernels.size(); ++k) {
      const reshard::GraphOp &before = graph.ops[size_t(kernels[k - 1].ops[0])];
      const bool isLaunched =
          std::any_of(kernels[k].ops.begin(), kernels[k].ops.end(), [&](int op) {
            return !graph.ops[size_t(op)].generator && !shares[size_t(op)].isFused;
          });
      if (before.kernelClass == reshard::KernelClass::Matmul && kernels[k].isNest &&
          !kernels[k].joinsPrevious && !isLaunched)
        matmuls.insert(before.id);
    }
  return matmuls;
}

/// Returns the matmuls of a program that the library executes with the region after them.
std::set<std::string> executed(const program::Program &program) {
  std::set<std::string> matmuls;
  for (int stage = 0; stage < program.numStages(); ++stage)
    for (program::BlockId id : program.stages[size_t(stage)].blocks()) {
      const program::Block &block = program.stages[size_t(stage)].block(id);
      for (int left : cuda::libraryUseOf(program, stage, id, 90).leftOut)
        if (block.instructions[size_t(left)].op == "einsum")
          matmuls.insert(block.instructions[size_t(left)].id);
    }
  return matmuls;
}

class Epilogues : public testing::TestWithParam<Case> {};

/// Builds the training step of the model, which `folder` holds.
test::Model stepOf(const Case &c, const test::TemporaryFolder &folder) {
  test::Model model;
  model.context = driver::makeContext();
  driver::StepOptions options;
  options.modelPath = folder.write("model.onnx", modelOf(c));
  options.loss = "mse";
  options.precision = planner::parsePrecision(c.precision);
  auto step = driver::buildTrainingStep(*model.context, options);
  EXPECT_TRUE(step) << step.error().message;
  if (step)
    model.step = std::move(*step);
  return model;
}

TEST_P(Epilogues, ArePricedWhereTheyRun) {
  const Case &c = GetParam();
  test::TemporaryFolder folder;
  test::Model model = stepOf(c, folder);
  ASSERT_TRUE(model.step);
  test::PlanRequest request{"dp=1"};
  request.microBatch = rows, request.globalBatch = rows;
  auto plan = test::makePlan(model, request);
  ASSERT_TRUE(plan) << plan.error().message;
  auto compiled = test::compileForGpus(model, *plan);
  ASSERT_TRUE(compiled) << compiled.error().message;
  const std::set<std::string> matmuls = priced(compiled->planned.graph);
  EXPECT_EQ(matmuls, executed(compiled->program));
  EXPECT_EQ(matmuls.count("product") > 0, c.isEpilogue) << testing::PrintToString(matmuls);
}

/// The value before gelu is kept where a library takes the gradient of gelu, and runs again in the
/// kernel of that gradient otherwise.
TEST(EpiloguesAndRecomputation, WhatALibraryReadsIsKept) {
  for (bool isOfLibrary : {true, false}) {
    const Case c{isOfLibrary ? "tanh" : "erf", isOfLibrary, [&](ModelBuilder &b) {
                   bias(b, "p", "q");
                   gelu(b, "q", "y", isOfLibrary ? "tanh" : "none");
                 }};
    SCOPED_TRACE(c.name);
    test::TemporaryFolder folder;
    test::Model model = stepOf(c, folder);
    ASSERT_TRUE(model.step);
    test::PlanRequest request{"dp=1"};
    request.microBatch = rows, request.globalBatch = rows;
    auto none = test::makePlan(model, request);
    request.recompute = "auto";
    auto open = test::makePlan(model, request);
    ASSERT_TRUE(none && open);
    EXPECT_EQ(open->recomputeOps.empty(), isOfLibrary);
    EXPECT_LE(open->prediction.stepSeconds, none->prediction.stepSeconds);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Epilogues, testing::ValuesIn(cases()),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
