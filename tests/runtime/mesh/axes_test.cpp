#include "runtime/mesh/AxisIndex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace tbc::mesh;
using testing::ElementsAre;

TEST(Axes, AreInTheOrderOfRanks) {
  EXPECT_THAT(axisNames(), ElementsAre("pp", "dp", "fsdp", "ep", "cp", "tp"));
  for (Axis axis : allAxes())
    EXPECT_EQ(parseAxis(row(axis).name), axis);
  EXPECT_EQ(parseAxis("xp"), std::nullopt);
}

TEST(Axes, AreFoundByTheirMeaning) {
  EXPECT_THAT(dataAxisNames(), ElementsAre("dp", "fsdp", "ep"));
  EXPECT_THAT(tokenAxisNames(), ElementsAre("dp", "fsdp", "ep", "cp"));
  EXPECT_THAT(axisNames(Divides::Samples), ElementsAre("dp", "fsdp"));
  EXPECT_THAT(axisNames(Divides::Tensors), ElementsAre("tp"));
}

/// Ranks on cp and tp compute values in common; on other axes they have samples or layers of their
/// own.
TEST(Axes, SomeNeedEqualBits) {
  std::vector<std::string> names;
  for (Axis axis : allAxes())
    if (row(axis).needsEqualBits)
      names.push_back(row(axis).name);
  EXPECT_THAT(names, ElementsAre("cp", "tp"));
}

TEST(Axes, AreFoundInAMesh) {
  const Mesh mesh{{{"pp", 2}, {"tp", 4}}};
  EXPECT_EQ(axisIndex(mesh, Axis::Pipeline), 0);
  EXPECT_EQ(axisIndex(mesh, Axis::Tensor), 1);
  EXPECT_EQ(axisIndex(mesh, Axis::Data), -1);
}
