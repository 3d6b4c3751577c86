//===- verify_bench.cpp - Time of the Program checkers --------------------===//
//
// Run: ninja -C build verify-bench && build/bin/verify-bench [INSTRUCTIONS]
//
// Prints the processor seconds of each checker, for Programs of INSTRUCTIONS instructions (default
// 10^6) and half as many. Exit code 1 if a whole verification of the larger takes 2 s or more, or
// over three times as long as the smaller.
//
//===----------------------------------------------------------------------===//

#include "codegen/PlanMemory.h"
#include "runtime/verify/Verify.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>

using namespace tbc;
using namespace tbc::program;

namespace {

int64_t numInstructions(const Program &program) {
  int64_t count = 0;
  for (const Stage &stage : program.stages)
    count +=
        int64_t(stage.chunks[0].forward.instructions.size() +
                stage.chunks[0].backward.instructions.size() + stage.update.instructions.size());
  return count;
}

/// Processor time, so other work on the machine does not count.
double seconds(std::clock_t since) { return double(std::clock() - since) / CLOCKS_PER_SEC; }

/// Returns the seconds of `verifyProgram`, and prints the seconds of each checker.
double measure(const char *what, Program program) {
  std::printf("%s: %lld instructions, %d stages, %lld micro-batches\n", what,
              (long long)numInstructions(program), program.numStages(),
              (long long)program.microBatches);
  auto planning = std::clock();
  planMemory(program);
  std::printf("  %-12s %.3f s\n", "(planning)", seconds(planning));
  struct Checker {
    const char *name;
    Status (*check)(const Program &);
  };
  const Checker checkers[] = {
      {"well-formed", checkWellFormed},
      {"dataflow", verify::checkDataflow},
      {"ownership", verify::checkOwnership},
      {"matching", verify::checkMatching},
      {"deadlock", [](const Program &p) { return verify::checkDeadlock(p); }},
      {"replicas", verify::checkReplicas},
      {"holders", verify::checkHolders},
      {"layouts", verify::checkLayouts},
      {"memory", verify::checkMemory}};
  for (const Checker &checker : checkers) {
    auto begin = std::clock();
    Status status = checker.check(program);
    std::printf("  %-12s %.3f s\n", checker.name, seconds(begin));
    if (!status) {
      std::printf("  rejected: %s\n", status.error().message.c_str());
      std::exit(1);
    }
  }
  auto begin = std::clock();
  bool isAccepted = bool(verify::verifyProgram(program));
  double all = seconds(begin);
  std::printf("  %-12s %.3f s%s\n", "all", all, isAccepted ? "" : ", rejected");
  std::fflush(stdout);
  return all;
}

/// Adds instructions and slots to a stage, and numbers them.
class StageWriter {
public:
  StageWriter(Program &program, int stage)
      : program(program), stage(program.stages[size_t(stage)]) {}

  ValueId value(kernels::Shape shape) {
    stage.values.push_back({kernels::DType::F32, std::move(shape)});
    return ValueId(stage.values.size()) - 1;
  }
  int slot(Role role, const std::string &name, const Piece &piece) {
    kernels::Shape local = localShape(piece);
    int tensor = -1;
    if (role != Role::Residual && role != Role::Scalar) {
      kernels::TensorType type{kernels::DType::F32, globalShape(piece)};
      program.tensors.push_back({name, role, "", type, piece, {}});
      tensor = int(program.tensors.size()) - 1;
    }
    stage.slots.push_back({name, role, tensor, {kernels::DType::F32, local}});
    return int(stage.slots.size()) - 1;
  }
  ValueId read(Block &block, int slot) {
    ValueId result = value(stage.slots[size_t(slot)].type.shape);
    block.arguments.push_back({result, slot});
    return result;
  }
  ValueId add(Block &block, const char *op, std::vector<ValueId> operands, kernels::Shape shape) {
    ValueId result = value(std::move(shape));
    block.instructions.push_back(
        {op, InstructionKind::Kernel, op, {}, {}, std::move(operands), {result}});
    return result;
  }
  ValueId overData(Block &block, InstructionKind kind, ValueId operand, kernels::Shape shape) {
    Communication comm;
    comm.axes = {wholeAxis(program.mesh, 1)};
    ValueId result = value(std::move(shape));
    block.instructions.push_back({"move", kind, "", {}, comm, {operand}, {result}});
    return result;
  }
  void message(Block &block, InstructionKind kind, ValueId value, int peer) {
    Communication comm;
    comm.peerStage = peer, comm.channel = 0;
    bool isSend = kind == InstructionKind::Send;
    std::vector<ValueId> in, out;
    (isSend ? in : out).push_back(value);
    block.instructions.push_back({"message", kind, "", {}, comm, in, out});
  }

  Program &program;
  Stage &stage;
};

/// Returns a Program of layers with weights in flat pieces, over 8 stages: 10 instructions and 4
/// slots each.
Program deepProgram(int64_t count) {
  constexpr int numStages = 8;
  Program program;
  program.mesh.axes = {{"pp", numStages}, {"fsdp", 4}};
  program.pipelineAxis = 0;
  program.microBatches = 16;
  program.stages.resize(numStages);
  Piece activation = wholePiece({8, 16}), weight = wholePiece({16, 16});
  activation.dims[0][0][0].axes = weight.flat = {wholeAxis(program.mesh, 1)};
  const kernels::Shape local = localShape(activation), full = {16, 16}, chunk = localShape(weight);
  for (int s = 0; s < numStages; ++s) {
    StageWriter w(program, s);
    Block &forward = w.stage.chunks[0].forward, &backward = w.stage.chunks[0].backward,
          &update = w.stage.update;
    int lr = w.slot(Role::Scalar, "lr", wholePiece({}));
    ValueId rate = w.read(update, lr);
    ValueId h, g;
    if (s == 0)
      h = w.read(forward, w.slot(Role::Input, "x", activation));
    else
      w.message(forward, InstructionKind::Recv, h = w.value(local), s - 1);
    struct Layer {
      int weight, gradient, buffer, saved;
    };
    std::vector<Layer> layers;
    for (int64_t i = 0; i < count / 10 / numStages; ++i) {
      std::string name = std::to_string(s) + "." + std::to_string(i);
      Layer layer = {w.slot(Role::Parameter, "w" + name, weight),
                     w.slot(Role::Gradient, "g" + name, weight),
                     w.slot(Role::OptimizerState, "m" + name, weight),
                     w.slot(Role::Residual, "h" + name, wholePiece(local))};
      layers.push_back(layer);
      forward.results.push_back({h, layer.saved, false});
      ValueId gathered =
          w.overData(forward, InstructionKind::AllGather, w.read(forward, layer.weight), full);
      h = w.add(forward, "relu", {w.add(forward, "einsum", {h, gathered}, local)}, local);
    }
    if (s + 1 < numStages) {
      w.message(forward, InstructionKind::Send, h, s + 1);
      w.message(backward, InstructionKind::Recv, g = w.value(local), s + 1);
    } else {
      int last = w.slot(Role::Residual, "last", wholePiece(local));
      forward.results.push_back({h, last, false});
      g = w.read(backward, last);
    }
    for (size_t i = layers.size(); i-- > 0;) {
      ValueId saved = w.read(backward, layers[i].saved);
      g = w.add(backward, "relu_grad", {saved, g}, local);
      ValueId dw = w.add(backward, "einsum", {saved, g}, full);
      dw = w.overData(backward, InstructionKind::ReduceScatter, dw, chunk);
      backward.results.push_back({dw, layers[i].gradient, true});
      if (s > 0 || i > 0) {
        ValueId gathered = w.overData(backward, InstructionKind::AllGather,
                                      w.read(backward, layers[i].weight), full);
        g = w.add(backward, "einsum", {g, gathered}, local);
      }
      ValueId p = w.read(update, layers[i].weight), m = w.read(update, layers[i].buffer);
      ValueId next = w.add(update, "add", {m, w.read(update, layers[i].gradient)}, chunk);
      update.results.push_back({next, layers[i].buffer, false});
      update.results.push_back(
          {w.add(update, "step", {p, next, rate}, chunk), layers[i].weight, false});
    }
    if (s > 0)
      w.message(backward, InstructionKind::Send, g, s - 1);
  }
  return program;
}

/// Returns one block of messages between two stages, `count` instructions in all.
Program chattyProgram(int64_t count) {
  Program program;
  program.mesh.axes = {{"pp", 64}};
  program.pipelineAxis = 0;
  program.schedule.generator = "gpipe";
  program.stages.resize(64);
  int64_t numRounds = count / (64 * 2);
  for (int s = 0; s < 64; ++s) {
    Stage &stage = program.stages[size_t(s)];
    for (int64_t round = 0; round < numRounds; ++round) {
      stage.values.push_back({kernels::DType::F32, {4}});
      ValueId value = ValueId(stage.values.size()) - 1;
      Communication from, to;
      from.peerStage = (s + 63) % 64, to.peerStage = (s + 1) % 64;
      from.channel = to.channel = round;
      Instruction make = {"recv", InstructionKind::Recv, "", {}, from, {}, {value}};
      if (s == 0) // the first of a round
        make = {"make", InstructionKind::Kernel, "constant", {}, {}, {}, {value}};
      stage.chunks[0].forward.instructions.push_back(make);
      if (s != 63)
        stage.chunks[0].forward.instructions.push_back(
            {"send", InstructionKind::Send, "", {}, to, {value}, {}});
    }
    if (s == 63) {
      stage.slots.push_back({"loss", Role::Loss, -1, {kernels::DType::F32, {4}}});
      for (size_t v = 0; v < stage.values.size(); ++v)
        stage.chunks[0].forward.results.push_back({ValueId(v), 0, true});
    }
  }
  return program;
}

} // namespace

int main(int argc, char **argv) {
  int64_t count = argc > 1 ? std::atoll(argv[1]) : 1000000;
  if (count < 10000) {
    std::fprintf(stderr, "usage: verify-bench [INSTRUCTIONS >= 10000]\n");
    return 2;
  }
  struct Case {
    const char *what;
    Program (*make)(int64_t);
  };
  const Case cases[] = {
      {"layers", deepProgram},
      {"messages only", chattyProgram},
  };
  bool isFast = true;
  for (const Case &testCase : cases) {
    double half = measure(testCase.what, testCase.make(count / 2));
    std::fflush(stdout);
    double whole = measure(testCase.what, testCase.make(count));
    isFast &= whole < 2 && whole < 3 * half;
  }
  std::puts(isFast ? "within 2 s and linear" : "TOO SLOW: 2 s or more, or not linear");
  return isFast ? 0 : 1;
}
