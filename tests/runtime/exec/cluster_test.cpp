//===- cluster_test.cpp - Programs on simulated ranks ----------------------===//

#include "runtime/exec/SimulatedCluster.h"
#include "tests/runtime/support/MlpProgram.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tbc::runtime {
namespace {

using kernels::Arith;
using kernels::DType;
using kernels::Residue;
using kernels::Tensor;
using program::InstructionKind;
using program::MlpOptions;
using program::Program;
using ::testing::HasSubstr;

constexpr double learningRate = 0.0625;
constexpr int numSteps = 3;

/// Returns small multiples of 1/8, the same for the same name.
std::vector<double> valuesOf(const std::string &name, int64_t count) {
  uint64_t state = 17;
  for (char c : name)
    state = state * 31 + uint64_t(c);
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    values.push_back((double(state >> 40 & 15) - 7.5) / 8);
  }
  return values;
}

Tensor tensorOf(const std::string &name, kernels::Shape shape, Arith arith) {
  int64_t count = kernels::numElements(shape);
  return Tensor::fromDoubles({DType::F32, std::move(shape)}, arith, valuesOf(name, count));
}

std::string inputKey(const char *input, int step, int64_t microBatch) {
  return std::string(input) + std::to_string(step) + "." + std::to_string(microBatch);
}

StepInputs stepInputs(const MlpOptions &o, int step, Arith arith) {
  StepInputs inputs;
  inputs.learningRate = learningRate;
  for (int64_t m = 0; m < o.microBatches; ++m) {
    auto &batch = inputs.microBatches.emplace_back();
    for (const char *name : {"x", "t"})
      batch[name] = tensorOf(inputKey(name, step, m), {o.samples, o.width}, arith);
  }
  return inputs;
}

/// The result of training: losses, then every parameter, buffer and gradient of the last step.
using Outcome = std::map<std::string, Tensor>;

Outcome train(const MlpOptions &o, Arith arith) {
  Outcome outcome;
  Result<SimulatedCluster> cluster = SimulatedCluster::create(program::mlpProgram(o), {arith});
  if (!cluster) {
    ADD_FAILURE() << cluster.error().message;
    return outcome;
  }
  Status loaded = cluster->load(
      [&](const std::string &name) { return tensorOf(name, {o.width, o.width}, arith); });
  EXPECT_TRUE(loaded);
  for (int step = 1; step <= numSteps; ++step) {
    // Evaluation changes no state, and gives the loss of the next step.
    Result<Tensor> seen = cluster->evaluate(stepInputs(o, step, arith));
    Result<Tensor> loss = cluster->step(stepInputs(o, step, arith));
    EXPECT_TRUE(seen && loss && bitwiseEqual(*seen, *loss));
    if (!loss) {
      ADD_FAILURE() << loss.error().message;
      return outcome;
    }
    outcome["loss" + std::to_string(step)] = *loss;
  }
  for (const program::GlobalTensor &tensor : cluster->program().tensors) {
    if (tensor.role == program::Role::Input)
      continue;
    Result<Tensor> whole = cluster->gather(tensor.name);
    if (!whole)
      ADD_FAILURE() << whole.error().message;
    else
      outcome[tensor.name] = *whole;
  }
  return outcome;
}

//===----------------------------------------------------------------------===//
// Plain arithmetic
//===----------------------------------------------------------------------===//

template <typename T> T number(double value) {
  if constexpr (std::is_same_v<T, Residue>)
    return Residue::fromDouble(value);
  else
    return value;
}
template <typename T> bool isPositive(T x) {
  if constexpr (std::is_same_v<T, Residue>)
    return orderKey(x) > 0;
  else
    return x > 0;
}
template <typename T> using Matrix = std::vector<std::vector<T>>;

template <typename T> Matrix<T> matrixOf(const std::string &name, int64_t rows, int64_t columns) {
  std::vector<double> values = valuesOf(name, rows * columns);
  Matrix<T> matrix(rows, std::vector<T>(columns));
  for (int64_t i = 0; i < rows * columns; ++i)
    matrix[i / columns][i % columns] = number<T>(values[i]);
  return matrix;
}

/// The two-layer perceptron of mlpProgram written out in loops, on the whole batch. Returns the
/// losses.
template <typename T> std::vector<T> plainTraining(const MlpOptions &o, Matrix<T> (&w)[2]) {
  int64_t d = o.width;
  Matrix<T> buf[2] = {Matrix<T>(d, std::vector<T>(d)), Matrix<T>(d, std::vector<T>(d))};
  T share = number<T>(1.0 / double(o.samples * o.microBatches));
  T twoShares = number<T>(2.0 / double(o.samples * o.microBatches));
  std::vector<T> losses;
  for (int step = 1; step <= numSteps; ++step) {
    T loss = number<T>(0);
    Matrix<T> grad[2] = {Matrix<T>(d, std::vector<T>(d)), Matrix<T>(d, std::vector<T>(d))};
    for (int64_t m = 0; m < o.microBatches; ++m) {
      Matrix<T> x = matrixOf<T>(inputKey("x", step, m), o.samples, d);
      Matrix<T> t = matrixOf<T>(inputKey("t", step, m), o.samples, d);
      for (int64_t b = 0; b < o.samples; ++b) {
        std::vector<T> z(d), h(d), diff(d);
        for (int64_t j = 0; j < d; ++j) {
          for (int64_t i = 0; i < d; ++i)
            z[j] = z[j] + x[b][i] * w[0][i][j];
          h[j] = isPositive(z[j]) ? z[j] : number<T>(0);
        }
        for (int64_t k = 0; k < d; ++k) {
          T y = number<T>(0);
          for (int64_t j = 0; j < d; ++j)
            y = y + h[j] * w[1][j][k];
          diff[k] = y - t[b][k];
          loss = loss + diff[k] * diff[k] * share;
        }
        for (int64_t j = 0; j < d; ++j) {
          T dh = number<T>(0);
          for (int64_t k = 0; k < d; ++k) {
            dh = dh + diff[k] * twoShares * w[1][j][k];
            grad[1][j][k] = grad[1][j][k] + h[j] * diff[k] * twoShares;
          }
          for (int64_t i = 0; i < d && isPositive(z[j]); ++i)
            grad[0][i][j] = grad[0][i][j] + x[b][i] * dh;
        }
      }
    }
    for (int l = 0; l < 2; ++l) {
      for (int64_t i = 0; i < d; ++i) {
        for (int64_t j = 0; j < d; ++j) {
          buf[l][i][j] = number<T>(o.momentum) * buf[l][i][j] + grad[l][i][j];
          w[l][i][j] = w[l][i][j] - number<T>(learningRate) * buf[l][i][j];
        }
      }
    }
    losses.push_back(loss);
  }
  return losses;
}

/// Returns programs that all compute the same as {2 layers, given micro-batches}.
std::vector<MlpOptions> twoLayerPrograms() {
  std::vector<MlpOptions> all(7);
  all[1].dp = 2;
  all[2].pp = 2;
  all[3].tp = 2;
  all[4].dp = 4, all[4].zero = 1;
  all[5].dp = 4, all[5].zero = 3;
  all[6].pp = all[6].dp = all[6].tp = 2, all[6].zero = 3, all[6].schedule = "gpipe";
  for (MlpOptions &o : all)
    o.microBatches = 4;
  return all;
}

std::string describe(const MlpOptions &o) {
  return "layers " + std::to_string(o.numLayers) + " pp " + std::to_string(o.pp) + " dp " +
         std::to_string(o.dp) + " tp " + std::to_string(o.tp) + " zero " + std::to_string(o.zero) +
         " micro " + std::to_string(o.microBatches) + " " + o.schedule + (o.isTied ? " tied" : "") +
         (o.hasSkip ? " skip" : "");
}

TEST(Cluster, TrainsAsPlainArithmeticInResidues) {
  for (const MlpOptions &o : twoLayerPrograms()) {
    SCOPED_TRACE(describe(o));
    Outcome outcome = train(o, Arith::Residue61);
    Matrix<Residue> w[2] = {matrixOf<Residue>("W0", o.width, o.width),
                            matrixOf<Residue>("W1", o.width, o.width)};
    std::vector<Residue> losses = plainTraining(o, w);
    for (int step = 1; step <= numSteps; ++step)
      EXPECT_EQ(outcome["loss" + std::to_string(step)].data<Residue>()[0].v, losses[step - 1].v);
    for (int l = 0; l < 2; ++l) {
      const std::vector<Residue> &trained = outcome["W" + std::to_string(l)].data<Residue>();
      for (int64_t i = 0; i < o.width * o.width; ++i)
        ASSERT_EQ(trained[i].v, w[l][i / o.width][i % o.width].v) << "W" << l << ", element " << i;
    }
  }
}

TEST(Cluster, TrainsAsPlainArithmeticInFloats) {
  for (const MlpOptions &o : twoLayerPrograms()) {
    SCOPED_TRACE(describe(o));
    Matrix<double> w[2] = {matrixOf<double>("W0", o.width, o.width),
                           matrixOf<double>("W1", o.width, o.width)};
    std::vector<double> losses = plainTraining(o, w);
    for (Arith arith : {Arith::Native, Arith::F64}) {
      // Allows for a few dozen roundings of values of magnitude 1 to 100.
      double tolerance = arith == Arith::Native ? 1e-4 : 1e-12;
      Outcome outcome = train(o, arith);
      for (int step = 1; step <= numSteps; ++step)
        EXPECT_NEAR(outcome["loss" + std::to_string(step)].toDoubles()[0], losses[step - 1],
                    tolerance * losses[step - 1]);
      std::vector<double> trained = outcome["W1"].toDoubles();
      for (int64_t i = 0; i < o.width * o.width; ++i)
        ASSERT_NEAR(trained[i], w[1][i / o.width][i % o.width], tolerance);
    }
  }
}

TEST(Cluster, EveryPartitionIsTheSerialProgram) {
  for (bool isTied : {false, true}) {
    for (bool hasSkip : {false, true}) {
      MlpOptions serial;
      serial.numLayers = 4;
      serial.microBatches = 3; // not a power of two: 1/24 is rounded, equally on all ranks
      serial.isTied = isTied;
      serial.hasSkip = hasSkip;
      Outcome expected = train(serial, Arith::Residue61);
      for (int pp : {1, 2, 4}) {
        for (int zero : {0, 1, 3}) {
          for (const char *schedule : {"gpipe", "1f1b"}) {
            for (bool reducesLast : {false, true}) {
              MlpOptions o = serial;
              o.pp = pp, o.dp = 2, o.tp = isTied ? 1 : 2, o.zero = zero, o.schedule = schedule;
              o.reducesLast = reducesLast;
              if (reducesLast && (isTied || zero == 3))
                continue;
              SCOPED_TRACE(describe(o));
              Outcome outcome = train(o, Arith::Residue61);
              ASSERT_EQ(outcome.size(), expected.size());
              for (const auto &[name, tensor] : expected)
                EXPECT_TRUE(bitwiseEqual(outcome[name], tensor)) << name;
            }
          }
        }
      }
    }
  }
}

TEST(Cluster, FlatChunksMayBePadded) {
  MlpOptions serial, parallel;
  serial.width = parallel.width = 3; // 9 elements over 2 and 4 ranks
  parallel.dp = 4, parallel.zero = 3;
  Outcome expected = train(serial, Arith::Residue61), outcome = train(parallel, Arith::Residue61);
  for (const auto &[name, tensor] : expected)
    EXPECT_TRUE(bitwiseEqual(outcome[name], tensor)) << name;
}

TEST(Cluster, AccumulatorsMayBeWiderThanWhatTheyGather) {
  MlpOptions o;
  o.microBatches = 4;
  Program narrow = mlpProgram(o);
  // The backward block returns the gradient of W1 rounded to bf16.
  program::Stage &stage = narrow.stages[0];
  program::BlockResult &result = stage.chunks[0].backward.results[0];
  ASSERT_EQ(stage.slots[result.slot].name, "W1.grad");
  program::Instruction cast;
  cast.id = "narrow", cast.op = "cast", cast.operands = {result.value};
  cast.results = {program::ValueId(stage.values.size())};
  stage.values.push_back({DType::BF16, {o.width, o.width}});
  stage.chunks[0].backward.instructions.push_back(cast);
  result.value = cast.results[0];
  for (Arith arith : {Arith::Residue61, Arith::Native}) {
    Result<SimulatedCluster> cluster = SimulatedCluster::create(narrow, {arith});
    ASSERT_TRUE(cluster) << cluster.error().message;
    ASSERT_TRUE(cluster->load(
        [&](const std::string &name) { return tensorOf(name, {o.width, o.width}, arith); }));
    Result<Tensor> loss = cluster->step(stepInputs(o, 1, arith));
    ASSERT_TRUE(loss) << loss.error().message;
    Tensor gradient = *cluster->gather("W1.grad");
    EXPECT_EQ(gradient.dtype(), DType::F32);
    if (arith == Arith::Native) { // the sum of four bf16 terms has more digits than one bf16
      std::vector<double> sum = gradient.toDoubles();
      EXPECT_TRUE(std::any_of(sum.begin(), sum.end(),
                              [](double x) { return kernels::roundTo(DType::BF16, x) != x; }));
    }
  }
}

//===----------------------------------------------------------------------===//
// Collectives and memory
//===----------------------------------------------------------------------===//

/// The collectives and the memory of one step on a rank, in bytes of each kind.
struct Signature {
  CollectiveCounts counts;
  MemoryUse memory;
};
Signature signatureOf(const MlpOptions &o, int64_t rank = 0) {
  Result<SimulatedCluster> cluster = SimulatedCluster::create(program::mlpProgram(o));
  EXPECT_TRUE(cluster);
  EXPECT_TRUE(cluster->load(
      [&](const std::string &name) { return tensorOf(name, {o.width, o.width}, Arith::Native); }));
  Result<Tensor> loss = cluster->step(stepInputs(o, 1, Arith::Native));
  EXPECT_TRUE(loss) << loss.error().message;
  return {cluster->executor(rank).collectives(), cluster->executor(rank).memory()};
}

constexpr int64_t weightBytes = 6 * 6 * 4;

TEST(Counters, DataParallelReducesEachGradientOnce) {
  MlpOptions o;
  o.dp = 2, o.microBatches = 4;
  CollectiveCounts expected = {{{InstructionKind::AllReduce, "dp", 0, weightBytes}, 2},
                               {{InstructionKind::AllReduce, "dp", 0, 4}, 1}}; // the loss
  EXPECT_EQ(signatureOf(o).counts, expected);
}

TEST(Counters, LastBackwardReducesEachGradientOnce) {
  MlpOptions o;
  o.dp = 2, o.microBatches = 4, o.reducesLast = true;
  CollectiveCounts expected = {{{InstructionKind::AllReduce, "dp", 0, weightBytes}, 2},
                               {{InstructionKind::AllReduce, "dp", 0, 4}, 1}}; // the loss
  EXPECT_EQ(signatureOf(o).counts, expected);
  o.zero = 1;
  expected = {{{InstructionKind::ReduceScatter, "dp", 0, weightBytes}, 2},
              {{InstructionKind::AllGather, "dp", 0, weightBytes}, 2},
              {{InstructionKind::AllReduce, "dp", 0, 4}, 1}};
  EXPECT_EQ(signatureOf(o).counts, expected);
}

TEST(Counters, Zero3GathersTwiceAndScattersOncePerMicroBatch) {
  MlpOptions o;
  o.dp = 8, o.zero = 3, o.microBatches = 4;
  int64_t padded = 8 * 5 * 4; // 36 elements in 8 chunks of 5
  // W0 is not gathered in backward, because x has no gradient.
  CollectiveCounts expected = {{{InstructionKind::AllGather, "dp", 0, padded}, (1 + 2) * 4},
                               {{InstructionKind::ReduceScatter, "dp", 0, padded}, 2 * 4},
                               {{InstructionKind::AllReduce, "dp", 0, 4}, 1}};
  EXPECT_EQ(signatureOf(o).counts, expected);
}

TEST(Counters, SendsAreCountedWhereTheyAreSent) {
  MlpOptions o;
  o.pp = 2, o.microBatches = 4;
  int64_t activationBytes = 8 * 6 * 4;
  CollectiveCounts first = {{{InstructionKind::Send, "pp", 0, activationBytes}, 4},
                            {{InstructionKind::AllReduce, "dp", 0, weightBytes}, 1}};
  CollectiveCounts last = {{{InstructionKind::Send, "pp", 1, activationBytes}, 4},
                           {{InstructionKind::AllReduce, "dp", 1, weightBytes}, 1},
                           {{InstructionKind::AllReduce, "dp", 1, 4}, 1}};
  EXPECT_EQ(signatureOf(o, 0).counts, first);
  EXPECT_EQ(signatureOf(o, 1).counts, last);
}

TEST(Memory, OfReplicasAndOfShards) {
  MlpOptions o;
  o.dp = 8;
  MemoryUse replicas = signatureOf(o).memory;
  EXPECT_EQ(replicas.parameterBytes, 2 * weightBytes);
  EXPECT_EQ(replicas.gradientBytes, 2 * weightBytes);
  EXPECT_EQ(replicas.optimizerStateBytes, 2 * weightBytes);
  o.zero = 3;
  MemoryUse shards = signatureOf(o).memory;
  EXPECT_EQ(shards.parameterBytes, 2 * 5 * 4);
  EXPECT_EQ(shards.gradientBytes, 2 * 5 * 4);
  EXPECT_EQ(shards.optimizerStateBytes, 2 * 5 * 4);
}

TEST(Memory, ResidualsAreThoseOfTheMicroBatchesInFlight) {
  MlpOptions o;
  o.numLayers = 4, o.pp = 2, o.microBatches = 8;
  int64_t residualBytes = 4 * 8 * 6 * 4; // two inputs and two pre-activations of a stage
  EXPECT_EQ(signatureOf(o, 0).memory.residualPeakBytes, 2 * residualBytes);
  o.schedule = "gpipe";
  EXPECT_EQ(signatureOf(o, 0).memory.residualPeakBytes, 8 * residualBytes);
}

TEST(Memory, ValuesLiveUntilTheirLastUse) {
  MlpOptions o;
  // A middle stage of one layer. The forward peak is the input and the output of the relu. The
  // stage's input is a result of the block and is already in its slot.
  o.numLayers = 3, o.pp = 3, o.samples = 16;
  EXPECT_EQ(signatureOf(o, 1).memory.valuePeakBytes, 2 * (16 * 6 * 4));
  // With a smaller batch the peak is in update: reduced gradient, new weight, new buffer.
  o.samples = 4;
  EXPECT_EQ(signatureOf(o, 1).memory.valuePeakBytes, 3 * weightBytes);
}

//===----------------------------------------------------------------------===//
// Failures
//===----------------------------------------------------------------------===//

Error errorOf(Program program, const MlpOptions &o, const StepInputs &inputs) {
  Result<SimulatedCluster> cluster = SimulatedCluster::create(std::move(program));
  if (!cluster)
    return cluster.error();
  Status loaded = cluster->load(
      [&](const std::string &name) { return tensorOf(name, {o.width, o.width}, Arith::Native); });
  if (!loaded)
    return loaded.error();
  Result<Tensor> loss = cluster->step(inputs);
  EXPECT_FALSE(loss) << "an error is expected";
  return loss ? Error() : loss.error();
}

TEST(Failure, AMissingInputNamesItAndItsRank) {
  MlpOptions o;
  o.pp = 2;
  StepInputs inputs = stepInputs(o, 1, Arith::Native);
  inputs.microBatches[0].erase("t");
  Error error = errorOf(mlpProgram(o), o, inputs);
  EXPECT_EQ(error.code, ErrorCode::RankFailed);
  EXPECT_THAT(error.message, HasSubstr("rank 1"));
  EXPECT_THAT(error.message, HasSubstr("input \"t\" of micro-batch 0"));
}

TEST(Failure, AnUnknownKernelIsRefusedAtOnce) {
  MlpOptions o;
  Program program = mlpProgram(o);
  program.stages[0].chunks[0].forward.instructions[0].op = "einsumm";
  Error error = errorOf(program, o, stepInputs(o, 1, Arith::Native));
  EXPECT_EQ(error.code, ErrorCode::Usage);
  EXPECT_THAT(error.message, HasSubstr("stage 0, forward block, instruction 0 (\"fc0\", einsumm)"));
}

TEST(Failure, AKernelErrorNamesTheInstruction) {
  MlpOptions o;
  Program program = mlpProgram(o);
  program.stages[0].chunks[0].forward.instructions[0].attrs.set("out_labels",
                                                                std::vector<int64_t>{0});
  Error error = errorOf(program, o, stepInputs(o, 1, Arith::Native));
  EXPECT_EQ(error.code, ErrorCode::RankFailed);
  EXPECT_THAT(error.message, HasSubstr("(\"fc0\", einsum), micro-batch 0"));
}

TEST(Failure, AReceiveWithoutItsSendIsAHangThatNamesTheInstruction) {
  MlpOptions o;
  o.pp = 2;
  Program program = mlpProgram(o);
  program.stages[0].chunks[0].forward.instructions.pop_back(); // the send
  Error error = errorOf(program, o, stepInputs(o, 1, Arith::Native));
  EXPECT_EQ(error.code, ErrorCode::HangDetected);
  EXPECT_THAT(error.message, HasSubstr("stage 1, forward block, instruction 0 (\"recv1\", recv)"));
}

TEST(Failure, ReplicasThatDriftApartAreNoticed) {
  MlpOptions o;
  o.dp = 2;
  Program program = mlpProgram(o);
  // Without the reduction each replica updates with its own gradient.
  auto &update = program.stages[0].update.instructions;
  ASSERT_EQ(update[0].id, "W0.reduce");
  program::ValueId reduced = update[0].results[0], raw = update[0].operands[0];
  update.erase(update.begin());
  for (program::Instruction &instruction : update)
    std::replace(instruction.operands.begin(), instruction.operands.end(), reduced, raw);
  Result<SimulatedCluster> cluster = SimulatedCluster::create(program);
  ASSERT_TRUE(cluster);
  ASSERT_TRUE(cluster->load(
      [&](const std::string &name) { return tensorOf(name, {o.width, o.width}, Arith::Native); }));
  ASSERT_TRUE(cluster->step(stepInputs(o, 1, Arith::Native)));
  Result<Tensor> weight = cluster->gather("W0");
  ASSERT_FALSE(weight);
  EXPECT_EQ(weight.error().code, ErrorCode::VerificationFailed);
  EXPECT_THAT(weight.error().message, HasSubstr("tensor \"W0\": ranks 0 and 1 disagree"));
  EXPECT_TRUE(cluster->gather("W1"));
}

} // namespace
} // namespace tbc::runtime
