//===- counts_test.cpp - The counts of a launch with measures --------------===//

#include "tests/ptx/Gpu.h"

#include <gtest/gtest.h>

using namespace tbc::ptx;

namespace {

/// %x1 is the address of byte `thread * %r3` of p0, with %r3 = 4 * `stride`.
std::string addressed(int stride) {
  return "mov.u32 %r1, %tid.x;\nmov.u32 %r3, " + std::to_string(4 * stride) +
         ";\nld.param.u64 %x0, [p0];\nmad.wide.u32 %x1, %r1, %r3, %x0;\n";
}

Counts measured(const std::string &body, size_t bytes = 1 << 16) {
  Gpu gpu(body, 1);
  gpu.launch.measures = true;
  gpu.launch.checksInitialization = false;
  return gpu.run({gpu.buffer(bytes)});
}

TEST(PtxCounts, SectorsOfNeighbours) {
  Counts counts = measured(addressed(1) + "ld.global.f32 %f0, [%x1];");
  EXPECT_EQ(counts.sectors, 4U);
  EXPECT_EQ(counts.fewestSectors, 4U);
}

TEST(PtxCounts, SectorsOfLanesFarApart) {
  Counts counts = measured(addressed(256) + "ld.global.f32 %f0, [%x1];");
  EXPECT_EQ(counts.sectors, 32U);
  EXPECT_EQ(counts.fewestSectors, 4U);
}

TEST(PtxCounts, SectorsOfOneAddress) {
  Counts counts = measured(addressed(0) + "ld.global.f32 %f0, [%x1];");
  EXPECT_EQ(counts.sectors, 1U);
  EXPECT_EQ(counts.fewestSectors, 1U);
}

TEST(PtxCounts, LoadsOfABlockFlyTogether) {
  Counts counts = measured(addressed(1) + "ld.global.f32 %f0, [%x1];\n"
                                          "add.f32 %f2, %f0, %f0;\n"
                                          "ld.global.f32 %f1, [%x1+4096];\n"
                                          "add.f32 %f2, %f2, %f1;\n"
                                          "st.global.f32 [%x1], %f2;");
  EXPECT_EQ(counts.flightBytes(), 256);
}

TEST(PtxCounts, AStoreOfALoadEndsItsGroup) {
  Counts counts = measured(addressed(1) + "ld.global.f32 %f0, [%x1];\n"
                                          "st.global.f32 [%x1], %f0;\n"
                                          "ld.global.f32 %f1, [%x1+4096];\n"
                                          "st.global.f32 [%x1+4096], %f1;");
  EXPECT_EQ(counts.flightBytes(), 128);
}

TEST(PtxCounts, AnIterationThatUsesItsLoadsEndsTheirGroup) {
  std::string loop = "mov.f32 %f1, 0f00000000;\nmov.u32 %r2, 0;\nagain:\n"
                     "ld.global.f32 %f0, [%x1];\nadd.f32 %f1, %f1, %f0;\n"
                     "add.s64 %x1, %x1, 128;\nadd.s32 %r2, %r2, 1;\n"
                     "setp.lt.s32 %p0, %r2, 8;\n@%p0 bra again;\nst.global.f32 [%x1], %f1;";
  EXPECT_EQ(measured(addressed(1) + loop).flightBytes(), 128);
}

TEST(PtxCounts, AnAddressThatIsLoadedWaitsForIt) {
  Counts counts = measured(addressed(1) + "ld.global.u32 %r4, [%x1];\n"
                                          "mad.wide.u32 %x2, %r4, 4, %x0;\n"
                                          "ld.global.f32 %f0, [%x2];");
  // Groups of 128 bytes and of one sector: (128 * 128 + 32 * 32) / 160.
  EXPECT_EQ(counts.flightBytes(), 108.8);
}

TEST(PtxCounts, ABudgetEndsALaunch) {
  Gpu gpu(addressed(1) + "ld.global.f32 %f0, [%x1];", 1);
  gpu.launch.checksInitialization = false;
  gpu.launch.instructionBudget = 20;
  Counts counts = gpu.run({gpu.buffer(4096)}, {100, 1, 1});
  EXPECT_TRUE(counts.isCut);
  EXPECT_EQ(counts.warpInstructions, 21U);
  gpu.launch.instructionBudget = 2000;
  EXPECT_FALSE(gpu.run({gpu.buffer(4096)}, {100, 1, 1}).isCut);
}

} // namespace
