//===- verify_test.cpp - Programs that the checkers reject -----------------===//

#include "runtime/verify/Verify.h"
#include "tests/runtime/support/MlpFamily.h"
#include "tests/runtime/verify/MlpEdits.h"

#include <algorithm>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tbc::verify {
namespace {

using namespace tbc::program;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Verify, AcceptsEveryValidProgram) {
  for (const MlpOptions &o : mlpFamily()) {
    Status status = verifyProgram(mlpProgram(o));
    ASSERT_TRUE(status) << describe(o) << ": " << status.error().message;
  }
}

TEST(Dataflow, RejectsReadsBeforeWrites) {
  expectAllRejected({
      {"instruction dropped",
       options(),
       [](Program &p) { drop(p, 0, Kind::Forward, "relu0"); },
       {"stage 0, forward block, instruction", "\"fc1\"", "read before it is written"}},
      {"instructions swapped",
       options(),
       [](Program &p) {
         Instructions &i = p.stages[0].chunks[0].forward.instructions;
         std::swap(i[find(i, "fc0")], i[find(i, "relu0")]);
       },
       {"stage 0, forward block, instruction 0 (\"relu0\", relu)", "read before it is written"}},
      {"instruction doubled",
       options(),
       [](Program &p) {
         Instructions &i = p.stages[1].chunks[0].backward.instructions;
         i.insert(i.begin() + 1, i[0]);
       },
       {"stage 1, backward block, instruction 1", "defined twice"}},
      {"result of a block that nothing defines",
       options(),
       [](Program &p) {
         p.stages[0].values.push_back(
             p.stages[0].values[resultTo(p, 0, Kind::Forward, "z0").value]);
         resultTo(p, 0, Kind::Forward, "z0").value = ValueId(p.stages[0].values.size()) - 1;
       },
       {"stage 0, forward block, residual slot \"z0\"", "read before it is written"}},
      {"value of another block",
       options(),
       [](Program &p) {
         ValueId theirs = p.stages[0].chunks[0].forward.instructions[0].operands[0];
         at(p, 0, Kind::Backward, "fc0.bwd.w").operands[0] = theirs;
       },
       {"stage 0, backward block", "\"fc0.bwd.w\"", "read before it is written"}},
      {"residual not written",
       options(),
       [](Program &p) { dropResult(p, 0, Kind::Forward, "z0"); },
       {"stage 0, backward block, residual slot \"z0\"", "nobody writes it"}},
      {"gradient not gathered",
       options(),
       [](Program &p) { dropResult(p, 0, Kind::Backward, "W0.grad"); },
       {"stage 0, backward block, instruction", "\"fc0.bwd.w\"", "is never used"}},
      {"gradient gathered into another",
       tied(), // of one shape
       [](Program &p) { resultTo(p, 0, Kind::Backward, "W0.grad").slot = slotOf(p, 0, "W1.grad"); },
       {"stage 0, update block, gradient slot \"W0.grad\"", "no micro-batch writes it"}},
      {"argument dropped",
       options(),
       [](Program &p) { p.stages[1].update.arguments.erase(p.stages[1].update.arguments.begin()); },
       {"stage 1, update block, instruction 0", "read before it is written"}},
  });
}

TEST(Dataflow, RejectsWrongWrites) {
  expectAllRejected({
      {"gradient overwritten",
       options(),
       [](Program &p) { resultTo(p, 0, Kind::Backward, "W0.grad").accumulate = false; },
       {"stage 0, backward block, gradient slot \"W0.grad\"", "other micro-batches are lost"}},
      {"gradient added twice",
       options(),
       [](Program &p) {
         p.stages[0].chunks[0].backward.results.push_back(
             resultTo(p, 0, Kind::Backward, "W0.grad"));
       },
       {"gradient slot \"W0.grad\"", "added to it twice"}},
      {"parameter added to",
       options(),
       [](Program &p) { resultTo(p, 0, Kind::Update, "W0").accumulate = true; },
       {"stage 0, update block, parameter slot \"W0\"", "only gradients and the loss"}},
      {"parameter not written",
       options(),
       [](Program &p) { dropResult(p, 0, Kind::Update, "W0"); },
       {"stage 0, update block, instruction", "\"W0.step\"", "is never used"}},
      {"buffer not written",
       options(),
       [](Program &p) { dropResult(p, 0, Kind::Update, "W0.buf"); },
       {"\"W0.step\"", "is never used"}},
      {"parameter written twice",
       options(),
       [](Program &p) { p.stages[0].update.results.push_back(resultTo(p, 0, Kind::Update, "W0")); },
       {"parameter slot \"W0\"", "written twice"}},
      {"residual in backward",
       options(),
       [](Program &p) {
         BlockResult z = {at(p, 0, Kind::Backward, "relu0.bwd").results[0], slotOf(p, 0, "z0"),
                          false};
         p.stages[0].chunks[0].backward.results.push_back(z);
       },
       {"stage 0, backward block, residual slot \"z0\"", "written twice"}},
      {"input in update",
       options(),
       [](Program &p) {
         p.stages[0].values.push_back(p.stages[0].slots[0].type);
         p.stages[0].update.arguments.push_back({ValueId(p.stages[0].values.size()) - 1, 0});
       },
       {"stage 0, update block, input slot \"x\"", "for a micro-batch only"}},
      {"reduction ignored",
       options(),
       [](Program &p) {
         Instruction &reduce = at(p, 0, Kind::Update, "W0.reduce");
         at(p, 0, Kind::Update, "W0.step").operands[1] = reduce.operands[0];
       },
       {"\"W0.reduce\", all_reduce", "is never used"}},
  });
}

/// The run itself reads the gradient norm, so it needs no reader in the Program.
TEST(Dataflow, TheNormOfGradientsMayBeForTheRunAlone) {
  auto withScalar = [](const char *id) {
    return [id](Program &p) {
      Instruction norm;
      norm.id = id;
      norm.op = "square_sum";
      norm.operands = {at(p, 0, Kind::Update, "W0.step").operands[1]};
      norm.results = {ValueId(p.stages[0].values.size())};
      p.stages[0].values.push_back({kernels::DType::F32, {}});
      p.stages[0].update.instructions.push_back(norm);
    };
  };
  Program program = mlpProgram(options());
  withScalar("gradient_norm")(program);
  Status status = verifyProgram(program);
  EXPECT_TRUE(status) << status.error().message;
  expectAllRejected(
      {{"another scalar", options(), withScalar("other"), {"\"other\"", "is never used"}}});
}

TEST(Dataflow, RejectsWrongTables) {
  auto withTable = [](std::function<void(std::vector<schedule::Action> &)> change) {
    return [=](Program &p) {
      for (int stage = 0; stage < 2; ++stage)
        p.schedule.table.push_back(scheduledActions(p, stage));
      p.schedule.generator = "table";
      change(p.schedule.table[1]);
    };
  };
  EXPECT_TRUE([&] {
    Program p = mlpProgram(options());
    withTable([](auto &) {})(p);
    return bool(verifyProgram(p));
  }());
  expectAllRejected({
      {"backward first",
       options(),
       withTable([](auto &a) { std::swap(a[0], a[1]); }),
       {"stage 1, schedule", "backward of micro-batch 0 comes before its forward"}},
      {"twice",
       options(),
       withTable([](auto &a) { a[2] = a[0]; }),
       {"stage 1, schedule", "forward of micro-batch 0 comes twice"}},
      {"missing",
       options(),
       withTable([](auto &a) { a.erase(a.end() - 2); }),
       {"stage 1, schedule", "backward of micro-batch 2 is missing"}},
      {"no update", options(), withTable([](auto &a) { a.pop_back(); }), {"update is missing"}},
      {"update too early",
       options(),
       withTable([](auto &a) { std::swap(a[a.size() - 1], a[a.size() - 2]); }),
       {"backward of micro-batch 2 comes after update"}},
      {"micro-batches in another order",
       options(),
       withTable([](auto &a) {
         std::swap(a[0], a[2]);
         std::swap(a[1], a[3]);
       }),
       {"stage 1, forward block, instruction 0", "another micro-batch"}},
  });
}

TEST(Matching, RejectsMessagesWithoutCounterpart) {
  expectAllRejected({
      {"send dropped",
       options(),
       [](Program &p) { // its operand is kept instead
         ValueId value = at(p, 0, Kind::Forward, "send2").operands[0];
         drop(p, 0, Kind::Forward, "send2");
         p.stages[0].slots.push_back({"kept", Role::Residual, -1, p.stages[0].values[value]});
         p.stages[0].chunks[0].forward.results.push_back({value, slotOf(p, 0, "kept"), false});
       },
       {"stage 1, forward block, instruction 0 (\"recv2\", recv)", "nobody sends it"}},
      {"receive replaced by a constant",
       options(),
       [](Program &p) {
         Instruction &recv = at(p, 0, Kind::Backward, "recv.bwd2");
         recv = {"zero",      InstructionKind::Kernel,
                 "constant",  {{"value", std::vector<double>{0}}},
                 {},          {},
                 recv.results};
       },
       {"stage 1, backward block", "\"send.bwd2\", send", "nobody receives it"}},
      {"send doubled",
       options(),
       [](Program &p) {
         p.stages[0].chunks[0].forward.instructions.push_back(at(p, 0, Kind::Forward, "send2"));
       },
       {"stage 0, forward block", "\"send2\", send", "channel 2 is also that of"}},
      {"channel changed",
       options(),
       [](Program &p) { at(p, 0, Kind::Forward, "send2").comm.channel = 7; },
       {"\"recv2\", recv", "channel 2", "channel 7", "stage 0, forward block"}},
      {"sends swapped",
       withSkip(),
       [](Program &p) {
         Instructions &i = p.stages[0].chunks[0].forward.instructions;
         std::swap(i[find(i, "send2")], i[find(i, "skip.send")]);
       },
       {"\"recv2\", recv", "channel 2", "channel 1000"}},
      {"another size",
       options(),
       [](Program &p) { // before and after the cut
         p.stages[0].values[at(p, 0, Kind::Forward, "send2").operands[0]].shape = {3, 6};
       },
       {"it waits for 4x6xf32, the message is 3x6xf32"}},
  });
}

TEST(Matching, RejectsCollectivesAcrossStagesThatDiffer) {
  expectAllRejected({
      {"dropped",
       tied(),
       [](Program &p) { shortCircuit(p, 1, Kind::Update, "W0.tie"); },
       {"stage 0, update block, instruction", "\"W0.tie\"", "stage 1 does not take part"}},
      {"another reduction",
       tied(),
       [](Program &p) { at(p, 1, Kind::Update, "W0.tie").comm.reduce = ReduceKind::Max; },
       {"\"W0.tie\"", "another reduction"}},
      {"another axis as well",
       tied(),
       [](Program &p) { at(p, 1, Kind::Update, "W0.tie").comm.axes.push_back({1, 1, 2}); },
       {"\"W0.tie\"", "other axes"}},
      {"another dtype",
       tied(),
       [](Program &p) {
         // Changes stage 1's gradient from its kernel to the optimizer.
         Stage &stage = p.stages[1];
         int slot = slotOf(p, 1, "W0.grad");
         stage.slots[slot].tensor = -1;
         stage.slots[slot].type.dtype = kernels::DType::F64;
         for (const BlockResult &result : stage.chunks[0].backward.results)
           if (result.slot == slot)
             stage.values[result.value].dtype = kernels::DType::F64;
         for (const char *id : {"W0.tie", "W0.reduce"})
           for (ValueId value :
                {at(p, 1, Kind::Update, id).operands[0], at(p, 1, Kind::Update, id).results[0]})
             stage.values[value].dtype = kernels::DType::F64;
       },
       {"\"W0.tie\"", "6x6xf32", "6x6xf64"}},
  });
}

TEST(Deadlock, RejectsABlockThatWaitsForItsOwnSuccessor) {
  // Both stages receive before the other sends; the channel order is right.
  Program p = mlpProgram(options());
  auto addRecv = [&](int stage, int peer, int64_t channel) {
    Stage &s = p.stages[stage];
    s.values.push_back({kernels::DType::F32, {}});
    s.values.push_back({kernels::DType::F32, {}});
    ValueId received = ValueId(s.values.size()) - 2, sum = received + 1;
    Communication comm;
    comm.peerStage = peer, comm.channel = channel;
    ValueId lr = at(p, stage, Kind::Update, stage ? "W2.step" : "W0.step").operands[3];
    s.update.instructions.insert(s.update.instructions.begin(),
                                 {"early", InstructionKind::Recv, "", {}, comm, {}, {received}});
    s.update.instructions.push_back(
        {"late", InstructionKind::Kernel, "add", {}, {}, {received, lr}, {sum}});
    s.update.instructions.push_back({"send", InstructionKind::Send, "", {}, comm, {sum}, {}});
  };
  addRecv(0, 1, 50);
  addRecv(1, 0, 50);
  ASSERT_TRUE(checkWellFormed(p));
  EXPECT_TRUE(checkMatching(p));
  Status status = verifyProgram(p);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message,
              AllOf(HasSubstr("deadlock"),
                    HasSubstr("stage 0, update block, instruction 0 (\"early\", recv)"),
                    HasSubstr("stage 1, update block, instruction 0 (\"early\", recv)")));
}

TEST(Deadlock, OneFOneBNeedsBufferedSends) {
  MlpOptions o = options();
  Program program = mlpProgram(o);
  EXPECT_TRUE(checkDeadlock(program, SendSemantics::Buffered));
  EXPECT_FALSE(checkDeadlock(program, SendSemantics::Rendezvous));
  o.schedule = "gpipe";
  EXPECT_TRUE(checkDeadlock(mlpProgram(o), SendSemantics::Rendezvous));
}

TEST(Ownership, RejectsTensorsThatNobodyHoldsOrOnlySomeUpdate) {
  expectAllRejected({
      {"a parameter without a slot",
       options(),
       [](Program &p) { p.tensors.push_back({"lost", Role::Parameter, "lost", {}, {}, {}}); },
       {"parameter \"lost\"", "no rank holds it"}},
      {"one of two holders does not update",
       tied(),
       [](Program &p) {
         // Stage 1 computes its update but writes only its buffer.
         dropResult(p, 1, Kind::Update, "W0");
         Instruction &step = at(p, 1, Kind::Update, "W0.step");
         step.op = "add";
         step.attrs = {};
         step.operands.resize(2);
         step.results = {step.results[1]};
       },
       {"parameter \"W0\"", "stage 0 updates it, stage 1 holds it too and does not"}},
      {"two slots for one tensor",
       options(),
       [](Program &p) {
         Slot slot = p.stages[0].slots[slotOf(p, 0, "W0")];
         slot.name = "W0 again";
         p.stages[0].slots.push_back(slot);
       },
       {"stage 0", "both hold tensor \"W0\""}},
  });
}

TEST(Replicas, RejectsWhatWouldMakeThemDiffer) {
  expectAllRejected({
      {"gradient not reduced",
       options(),
       [](Program &p) { shortCircuit(p, 0, Kind::Update, "W0.reduce"); },
       {"stage 0, update block, instruction", "\"W0.step\", sgd_momentum", "differs along \"dp"}},
      {"reduced over another axis of the same size",
       options(),
       [](Program &p) { at(p, 0, Kind::Update, "W0.reduce").comm.axes = {{2, 1, 2}}; },
       {"stage 0, update block", "\"W0.step\"", "differs along \"dp"}},
      {"scattered over another axis of the same size",
       options(3),
       [](Program &p) { at(p, 1, Kind::Backward, "fc2.bwd.w.scatter").comm.axes = {{2, 1, 2}}; },
       {"stage 1, backward block", "\"fc2.bwd.w.scatter\""}},
      {"gathered over another axis of the same size",
       options(3),
       [](Program &p) { at(p, 0, Kind::Forward, "W1.gather.fwd").comm.axes = {{2, 1, 2}}; },
       {"stage 0"}},
      {"sliced over another axis of the same size",
       options(1),
       [](Program &p) { at(p, 0, Kind::Update, "W1.slice").comm.axes = {{2, 1, 2}}; },
       {"stage 0, update block", "\"W1.slice\"", "slices a value that differs along \"tp\""}},
      {"tied weight not reduced over its stages",
       tied(),
       [](Program &p) {
         shortCircuit(p, 0, Kind::Update, "W0.tie");
         shortCircuit(p, 1, Kind::Update, "W0.tie");
       },
       {"\"W0.step\"", "slot \"W0\"", "\"pp\""}},
      {"loss not reduced",
       options(),
       [](Program &p) { shortCircuit(p, 1, Kind::Update, "loss.sum"); },
       {"stage 1, slot \"loss\"", "differs between ranks along \"dp\""}},
      {"partial sums of a row-parallel layer passed round instead of added",
       options(),
       [](Program &p) { at(p, 1, Kind::Forward, "fc3.sum").kind = InstructionKind::Permute; },
       {"stage 1"}},
      {"partial sums of a row-parallel layer not added",
       options(),
       [](Program &p) { shortCircuit(p, 1, Kind::Forward, "fc3.sum"); },
       {"stage 1"}},
  });
}

TEST(Replicas, RejectsReductionsDoneTwice) {
  expectAllRejected({
      {"in update",
       options(),
       [](Program &p) { doItTwice(p, 0, Kind::Update, "W0.reduce"); },
       {"\"W0.reduce.again\", all_reduce", "the same along \"dp\""}},
      {"in forward",
       options(),
       [](Program &p) { doItTwice(p, 0, Kind::Forward, "fc1.sum"); },
       {"\"fc1.sum.again\", all_reduce", "the same along \"tp\""}},
      {"passed round though all have the same",
       options(),
       [](Program &p) {
         doItTwice(p, 0, Kind::Forward, "fc1.sum");
         at(p, 0, Kind::Forward, "fc1.sum.again").kind = InstructionKind::Permute;
       },
       {"\"fc1.sum.again\", permute", "the same along \"tp\""}},
      {"of a value that is no partial sum",
       options(),
       [](Program &p) { at(p, 1, Kind::Update, "loss.sum").comm.axes.push_back({2, 1, 2}); },
       {"\"loss.sum\"", "the same along \"tp\""}},
  });
}

} // namespace
} // namespace tbc::verify
