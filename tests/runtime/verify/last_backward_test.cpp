//===- last_backward_test.cpp - Last backwards that the checkers reject ----===//

#include "tests/runtime/verify/MlpEdits.h"

namespace tbc::verify {
namespace {

TEST(Dataflow, RejectsLastBackwardsThatLoseGradients) {
  expectAllRejected({
      {"the last micro-batch is lost",
       reducingLast(),
       [](Program &p) { shortCircuit(p, 0, Kind::LastBackward, "W0.total"); },
       {"stage 0, last_backward block", "is never used"}},
      {"the other micro-batches are lost",
       reducingLast(),
       [](Program &p) {
         Instruction &total = at(p, 0, Kind::LastBackward, "W0.total");
         total.operands[0] = total.operands[1];
       },
       {"stage 0, last_backward block", "\"W0.grad\"", "other micro-batches are lost"}},
      {"a shard of the last micro-batch alone",
       reducingLast(1),
       [](Program &p) {
         at(p, 0, Kind::LastBackward, "W0.scatter").operands[0] =
             at(p, 0, Kind::LastBackward, "W0.total").operands[1];
       },
       {"stage 0, last_backward block", "\"W0.grad.reduced\"", "other micro-batches are lost"}},
      {"a gradient is not written",
       reducingLast(1),
       [](Program &p) { dropResult(p, 0, Kind::LastBackward, "W0.grad"); },
       {"stage 0, last_backward block", "\"W0.grad\"", "before all micro-batches are gathered"}},
      {"a term of the other micro-batches alone",
       [] {
         MlpOptions o = reducingLast();
         o.tp = 1;
         return o;
       }(),
       [](Program &p) {
         std::vector<BlockResult> &results = p.stages[0].chunks[0].backward.results;
         results.push_back(resultTo(p, 0, Kind::Backward, "W0.grad"));
         results.back().slot = slotOf(p, 0, "W1.grad");
       },
       {"stage 0, last_backward block", "\"W1.grad\"", "a different number of times"}},
      {"a shard that is added up",
       reducingLast(1),
       [](Program &p) { resultTo(p, 0, Kind::LastBackward, "W0.grad.reduced").accumulate = true; },
       {"stage 0, last_backward block", "\"W0.grad.reduced\"", "it is added to a gradient of all"}},
      {"added where it is complete",
       reducingLast(),
       [](Program &p) { resultTo(p, 0, Kind::LastBackward, "W0.grad").accumulate = true; },
       {"stage 0, last_backward block", "\"W0.grad\"", "what is added to it is made from it"}},
      {"an earlier micro-batch comes later",
       reducingLast(),
       [](Program &p) {
         for (int stage = 0; stage < 2; ++stage)
           p.schedule.table.push_back(scheduledActions(p, stage));
         p.schedule.generator = "table";
         std::vector<schedule::Action> &actions = p.schedule.table[0];
         for (schedule::Action &action : actions)
           if (action.kind == Kind::Backward)
             action.microBatch = p.microBatches - 1 - action.microBatch;
         std::stable_partition(actions.begin(), actions.end(),
                               [](const schedule::Action &a) { return a.kind == Kind::Forward; });
       },
       {"stage 0, schedule", "last_backward of micro-batch 2 comes before backward of"}},
  });
}

TEST(Matching, RejectsAChannelOfTwoMessagesInALastBackward) {
  expectAllRejected({{"received twice",
                      reducingLast(),
                      [](Program &p) {
                        Instructions &list = p.stages[0].chunks[0].lastBackward.instructions;
                        Instruction again = list[find(list, "recv.bwd2")];
                        p.stages[0].values.push_back(p.stages[0].values[size_t(again.results[0])]);
                        again.results = {ValueId(p.stages[0].values.size()) - 1};
                        Instruction &relu = list[find(list, "relu1.bwd")];
                        relu.operands[0] = again.results[0];
                        list.insert(list.begin() + 1, again);
                      },
                      {"stage 0, last_backward block", "channel 2 is also that of"}}});
}

TEST(Replicas, RejectsLastBackwardsThatDoNotReduce) {
  expectAllRejected({
      {"not reduced",
       reducingLast(),
       [](Program &p) { shortCircuit(p, 0, Kind::LastBackward, "W0.reduce"); },
       {"stage 0, last_backward block", "\"W0.grad\"", "hold the same piece"}},
      {"reduced twice",
       reducingLast(),
       [](Program &p) { doItTwice(p, 0, Kind::LastBackward, "W0.reduce"); },
       {"stage 0, last_backward block", "no shards or partial sums"}},
      {"reduced again in the update",
       reducingLast(),
       [](Program &p) {
         Instruction again = at(p, 0, Kind::LastBackward, "W0.reduce");
         Instruction &step = at(p, 0, Kind::Update, "W0.step");
         again.operands = {step.operands[1]};
         p.stages[0].values.push_back(p.stages[0].values[size_t(again.results[0])]);
         again.results = {ValueId(p.stages[0].values.size()) - 1};
         step.operands[1] = again.results[0];
         Instructions &update = p.stages[0].update.instructions;
         update.insert(update.begin(), again);
       },
       {"stage 0, update block", "no shards or partial sums"}},
  });
}

} // namespace
} // namespace tbc::verify
