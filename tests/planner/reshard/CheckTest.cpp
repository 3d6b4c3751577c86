//===- CheckTest.cpp - Invalid assignments ----------------------------------===//

#include "tests/planner/reshard/GraphBuilder.h"

#include "gtest/gtest.h"

namespace tbc::reshard {
namespace {

using test::GraphBuilder;

struct Case {
  GraphBuilder g = test::mlp(8, 3, 4, 2);
  Mesh mesh{{{"dp", 2}, {"tp", 4}}};
  AxisRef dp = wholeAxis(mesh, 0), tp = wholeAxis(mesh, 1);
  Assignment a = test::dataParallel(g.graph, mesh, {dp});
  std::string why() const { return whyInvalid(g.graph, a); }
  void shard(const std::string &id, char letter, const std::vector<AxisRef> &axes) {
    test::shard(g.graph, a.strategies[g.opIndex(id)], g.opIndex(id), letter, axes);
  }
};

TEST(WhyInvalidAssignment, ValidOnesPass) {
  Case c;
  EXPECT_EQ(c.why(), "");
  c.shard("fc1", 'h', {c.tp});
  EXPECT_EQ(c.why(), "");
}

TEST(WhyInvalidAssignment, NamesTheOpAndTheReason) {
  Case sizes;
  sizes.shard("fc1", 'i', {sizes.tp});
  EXPECT_EQ(sizes.why(), "op 'fc1': loop 2 of size 3 does not divide by 4");
  Case twice;
  twice.shard("fc1", 'h', {twice.dp});
  EXPECT_EQ(twice.why(), "op 'fc1': value 'fc1': mesh axis 'dp' is used twice");
  Case loop;
  loop.a.strategies[0].loopAxes[7] = {loop.dp};
  EXPECT_EQ(loop.why(), "op 'fc1': it has no loop 7");
  Case fixed;
  fixed.g.opOf(fixed.g.valueIndex("relu")).loops[0].kind = LoopKind::Fixed;
  EXPECT_EQ(fixed.why(), "op 'relu': loop 0 of size 8 may not be sharded");
}

TEST(WhyInvalidAssignment, NamesTheParameterAndTheReason) {
  Case c;
  c.a.parameterPlans[1].zero = 4;
  EXPECT_EQ(c.why(), "parameter 'b1': zero 4 is not one of 0, 1, 2, 3");
  c.a.parameterPlans[1] = {1, false, {c.dp}, {c.dp}};
  EXPECT_EQ(c.why(), "parameter 'b1': mesh axis 'dp' is used twice");
}

TEST(WhyInvalidAssignment, ValuesDoNotFlowAgainstTheirPass) {
  Case c;
  c.a.numStages = 2;
  c.g.opOf(c.g.valueIndex("relu")).chunk = 1;
  EXPECT_EQ(c.why(), "op 'fc2': it is on stage 0 and uses 'relu' of stage 1 in the same pass");
  Case backward;
  backward.a.numStages = 2;
  backward.g.opOf(backward.g.valueIndex("relu.bwd")).chunk = 1;
  EXPECT_EQ(backward.why(),
            "op 'relu.bwd': it is on stage 1 and uses 'fc2.bwd.x' of stage 0 in the same pass");
  Case none;
  none.g.opOf(none.g.valueIndex("relu")).chunk = 5;
  EXPECT_EQ(none.why(), "op 'relu': there is no stage 5");
}

TEST(WhyInvalidAssignment, CountsMustMatch) {
  Case c;
  c.a.strategies.pop_back();
  EXPECT_NE(c.why().find("strategies for"), std::string::npos);
  Case p;
  p.a.parameterPlans.pop_back();
  EXPECT_EQ(p.why(), "3 parameter plans for 4 parameters");
}

} // namespace
} // namespace tbc::reshard
