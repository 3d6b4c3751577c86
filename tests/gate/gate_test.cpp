//===- gate_test.cpp - The gate finds each fault planted for it ------------===//

#include "tests/gate/Gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace tbc;
using namespace tbc::gate;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

namespace {

constexpr int64_t elements = 1 << 22; // 16 MB of f32

Device h100() {
  auto cluster = planner::loadCluster("h100-sxm");
  return deviceOf(*cluster, *roofline::processorOf(*cluster));
}

/// Returns kernel `k` with parameters p0 and p1. %r0 is the index of the thread. %x2 and %x3 are
/// its addresses in both tensors, with `scale` bytes per thread.
std::string kernelOf(const std::string &body, int scale = 16, const std::string &declared = "") {
  return ".version 8.0\n.target sm_90\n.address_size 64\n"
         ".visible .entry k(.param .u64 p0, .param .u64 p1)\n{\n" +
         declared +
         ".reg .pred %p<8>;\n.reg .b32 %r<16>;\n.reg .f32 %f<16>;\n.reg .b64 %x<16>;\n"
         "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\n"
         "mad.lo.u32 %r0, %r1, %r2, %r3;\n"
         "ld.param.u64 %x0, [p0];\nld.param.u64 %x1, [p1];\n"
         "mul.wide.u32 %x4, %r0, " +
         std::to_string(scale) + ";\nadd.s64 %x2, %x0, %x4;\nadd.s64 %x3, %x1, %x4;\n" + body +
         "\nret;\n}\n";
}

const char *const copy = "ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%x2];\n"
                         "st.global.v4.f32 [%x3], {%f0, %f1, %f2, %f3};";

Sample sampleOf(const std::string &text, int64_t blocks, int threads = 256,
                const SampleOptions &options = {}) {
  program::CudaKernel kernel{"k", blocks, threads, 0};
  Buffer buffer{{kernels::DType::F32, {elements}}};
  return Sampler(text).samples(kernel, {buffer, buffer}, options).front();
}
Verdict verdictOf(const std::string &text, int64_t blocks, int threads = 256) {
  return judge(sampleOf(text, blocks, threads), 2.0 * 4 * elements, h100());
}

/// Repeats `body` `count` times, with %r5 as the counter.
std::string repeated(const std::string &body, int64_t count) {
  return "mov.u32 %r5, 0;\nagain:\n" + body + "\nadd.s32 %r5, %r5, 1;\nsetp.lt.s32 %p0, %r5, " +
         std::to_string(count) + ";\n@%p0 bra again;\n";
}

TEST(KernelGate, NumbersOfAnH100) {
  Device device = h100();
  EXPECT_NEAR(device.bytesNeededInFlight(), 6.88e5,
              1e3); // 478.8 cycles, 1.98 GHz, 0.85 * 3.35 TB/s
  EXPECT_NEAR(device.instructionsPerByte(), 0.3676, 1e-3);
  EXPECT_EQ(device.residentThreads, 132 * 2048);
}

TEST(KernelGate, ACopyPasses) {
  Verdict verdict = verdictOf(kernelOf(copy), elements / 4 / 256);
  EXPECT_TRUE(verdict.isJudged);
  EXPECT_THAT(verdict.failed, IsEmpty());
  EXPECT_EQ(verdict.movedBytes, 2.0 * 4 * elements);
  EXPECT_EQ(verdict.sectorRatio, 1);
  EXPECT_EQ(verdict.seconds, verdict.idealSeconds);
}

TEST(KernelGate, OneBlockThatLoopsFails) {
  std::string loop = repeated("ld.global.f32 %f0, [%x2];\nadd.f32 %f1, %f1, %f0;\n"
                              "add.s64 %x2, %x2, 1024;",
                              elements / 256);
  Verdict verdict = verdictOf(kernelOf("mov.f32 %f1, 0f00000000;\n" + loop, 4), 1);
  EXPECT_THAT(verdict.failed, ElementsAre(Criterion::Parallelism));
  EXPECT_EQ(verdict.bytesInFlight, 8 * 128);
  EXPECT_GT(verdict.seconds, 100 * verdict.idealSeconds);
}

TEST(KernelGate, FewBlocksWithManyBytesInFlightPass) {
  // 132 blocks of 512 threads: a quarter of the device's threads, with 64 bytes each.
  std::string loads, uses;
  for (int k = 0; k < 4; ++k)
    loads += "ld.global.v4.f32 {%f" + std::to_string(4 * k) + ", %f" + std::to_string(4 * k + 1) +
             ", %f" + std::to_string(4 * k + 2) + ", %f" + std::to_string(4 * k + 3) + "}, [%x2+" +
             std::to_string(k * 132 * 512 * 16) + "];\n";
  for (int k = 0; k < 16; ++k)
    uses += "add.f32 %f0, %f0, %f" + std::to_string(k) + ";\n";
  Verdict verdict = verdictOf(kernelOf(loads + uses), 132, 512);
  EXPECT_EQ(verdict.bytesInFlight, 132 * 512 * 64);
  EXPECT_THAT(verdict.failed, IsEmpty());
}

TEST(KernelGate, ASmallKernelWhoseBytesAreAllInFlightPasses) {
  // 2 MB, 16 bytes per thread: all loads are in flight at once.
  Verdict verdict = verdictOf(kernelOf(copy), 256);
  EXPECT_TRUE(verdict.isJudged);
  EXPECT_THAT(verdict.failed, IsEmpty());
}

TEST(KernelGate, ManyInstructionsPerByteFail) {
  std::string body = "ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%x2];\n" +
                     repeated("fma.rn.f32 %f0, %f0, %f1, %f2;", 100) +
                     "st.global.v4.f32 [%x3], {%f0, %f1, %f2, %f3};";
  Verdict verdict = verdictOf(kernelOf(body), elements / 4 / 256);
  EXPECT_THAT(verdict.failed, ElementsAre(Criterion::Instructions));
  EXPECT_GT(verdict.seconds, verdict.idealSeconds);
}

TEST(KernelGate, TensorCoresMayNeedLongerThanMemory) {
  std::string product = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0, %f1, %f2, %f3}, "
                        "{%r4, %r4, %r4, %r4}, {%r4, %r4}, {%f0, %f1, %f2, %f3};\n";
  std::string loads = "ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%x2];\nmov.u32 %r4, 0;\n";
  std::string stores = "st.global.v4.f32 [%x3], {%f0, %f1, %f2, %f3};";
  constexpr int products = 200;
  Verdict verdict =
      verdictOf(kernelOf(loads + repeated(product, products) + stores), elements / 4 / 256);
  EXPECT_THAT(verdict.failed, IsEmpty());
  // 2 x 16 x 8 x 16 FLOPs of a warp, at 62.9 % of 989 TFLOP/s.
  double warps = double(elements) / 4 / 32;
  EXPECT_NEAR(verdict.idealSeconds, products * warps * 4096 / (0.629 * 989e12), 1e-8);
  // Sixteen other instructions beside each product take longer than it.
  for (int i = 0; i < 16; ++i)
    product += "fma.rn.f32 %f0, %f0, %f1, %f2;\n";
  verdict = verdictOf(kernelOf(loads + repeated(product, products) + stores), elements / 4 / 256);
  EXPECT_THAT(verdict.failed, ElementsAre(Criterion::Instructions));
}

TEST(KernelGate, ScatteredLanesFail) {
  // Lane l of warp w reads element 1024 l + w: 32 sectors per request; 4 could hold its bytes.
  std::string body = "and.b32 %r4, %r0, 31;\nshr.u32 %r5, %r0, 5;\n"
                     "mad.lo.u32 %r6, %r4, 1024, %r5;\nand.b32 %r6, %r6, 4194303;\n"
                     "mad.wide.u32 %x5, %r6, 4, %x0;\n"
                     "ld.global.f32 %f0, [%x5];\nst.global.f32 [%x3], %f0;";
  Verdict verdict = verdictOf(kernelOf(body, 4), elements / 256);
  EXPECT_EQ(verdict.sectorRatio, 36.0 / 8);
  EXPECT_THAT(verdict.failed, ElementsAre(Criterion::Coalescing));
}

TEST(KernelGate, LocalMemoryFails) {
  std::string spill = "st.local.f32 [depot], %f0;\nld.local.f32 %f0, [depot];\n";
  std::string body = std::string(copy).insert(std::string(copy).find("st."), spill);
  Verdict verdict =
      verdictOf(kernelOf(body, 16, ".local .align 4 .b8 depot[4];\n"), elements / 4 / 256);
  EXPECT_EQ(verdict.localBytes, 4);
  EXPECT_THAT(verdict.failed, ElementsAre(Criterion::LocalMemory));
}

TEST(KernelGate, SmallKernelsAreNotJudged) {
  EXPECT_FALSE(verdictOf(kernelOf(copy), 16).isJudged); // 131 kB
}

TEST(KernelGate, ASmallKernelOfOneLongThreadIsJudged) {
  std::string loop = repeated("ld.global.f32 %f0, [%x2];\nadd.f32 %f1, %f1, %f0;\n"
                              "add.s64 %x2, %x2, 4;",
                              50000);
  Verdict verdict = verdictOf(kernelOf("mov.f32 %f1, 0f00000000;\n" + loop), 1, 1);
  EXPECT_TRUE(verdict.isJudged);
  EXPECT_EQ(verdict.failed.front(), Criterion::Parallelism);
}

TEST(KernelGate, ACutSampleCountsAsTooManyInstructions) {
  SampleOptions options;
  options.budget = 1000;
  std::string loop = repeated("add.f32 %f1, %f1, %f0;", 1 << 20);
  Sample sample = sampleOf(kernelOf("mov.f32 %f0, 0f00000000;\nmov.f32 %f1, %f0;\n" + loop),
                           elements / 4 / 256, 256, options);
  EXPECT_TRUE(sample.counts.isCut);
  EXPECT_EQ(sample.executed, 1);
}

TEST(KernelGate, IntegersAreSpreadOverTheirRange) {
  // Thread t reads index t and touches this element: a warp's lanes are far apart.
  std::string body = "ld.global.u32 %r4, [%x2];\nmad.wide.u32 %x5, %r4, 4, %x1;\n"
                     "ld.global.f32 %f0, [%x5];";
  program::CudaKernel kernel{"k", 64, 256, 0};
  Buffer indices{{kernels::DType::I32, {64 * 256}}, elements};
  Buffer table{{kernels::DType::F32, {elements}}};
  Sample sample = Sampler(kernelOf(body, 4)).samples(kernel, {indices, table}).front();
  EXPECT_GT(sample.counts.sectors, 30 * sample.counts.loads / 2);
}

} // namespace
