//===- peers_test.cpp - Pairs of ranks that communicate ----------------------===//

#include "runtime/exec/Peers.h"

#include "tests/runtime/support/MlpProgram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tbc::runtime {
namespace {

using comm::Group;
using comm::MessagePair;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Peers, OneRankHasNone) {
  program::Program program = program::mlpProgram({});
  Peers peers = peersOf(program);
  EXPECT_THAT(peers.partitions, IsEmpty());
  EXPECT_THAT(peers.messages, IsEmpty());
}

TEST(Peers, AreTheGroupsOfAxesAndTheNeighboursOfStages) {
  program::MlpOptions o;
  o.pp = 2, o.tp = 2, o.numLayers = 4, o.microBatches = 2;
  program::Program program = program::mlpProgram(o);
  Peers peers = peersOf(program);
  std::vector<Group> byTensor;
  for (const std::vector<Group> &partition : peers.partitions) {
    std::vector<int64_t> ranks;
    for (const Group &group : partition)
      for (int64_t rank : group)
        ranks.push_back(rank);
    std::sort(ranks.begin(), ranks.end());
    EXPECT_EQ(std::unique(ranks.begin(), ranks.end()), ranks.end()) << "a rank is in two groups";
    byTensor.insert(byTensor.end(), partition.begin(), partition.end());
  }
  // The executor asks its communicator for these peers only.
  for (int64_t rank = 0; rank < program.mesh.numRanks(); ++rank) {
    std::vector<int64_t> coordinates = program.mesh.coordinates(rank);
    const program::Stage &stage = program.stages[size_t(program.stageOf(coordinates))];
    for (program::BlockId id : stage.blocks())
      for (const program::Instruction &instruction : stage.block(id).instructions)
        if (instruction.kind == program::InstructionKind::AllReduce) {
          Group group = program::groupOf(program, instruction.comm, coordinates);
          EXPECT_TRUE(group.size() == 1 ||
                      std::count(byTensor.begin(), byTensor.end(), group) == 1);
        }
  }
  // Activations go forward and gradients backward, each within its tp coordinate.
  std::vector<MessagePair> expected;
  for (int64_t rank = 0; rank < 4; ++rank) {
    std::vector<int64_t> other = program.mesh.coordinates(rank);
    other[size_t(program.pipelineAxis)] = 1 - other[size_t(program.pipelineAxis)];
    expected.push_back({rank, program.mesh.rankOf(other), 0});
  }
  std::sort(expected.begin(), expected.end());
  for (const MessagePair &pair : expected)
    EXPECT_THAT(peers.messages, ::testing::Contains(pair));
}

} // namespace
} // namespace tbc::runtime
