//===- checks_test.cpp - Checks find the faults planted for them -----------===//

#include "tests/ptx/Gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace tbc::ptx;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

/// Thread t (over all blocks) uses element t of p0, of four bytes. %x1 is its address, %r0 the
/// index, %r5 the thread in its block.
const char *const own = R"(
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.u32 %r0, %r1, %r2, %r5;
  ld.param.u64 %x0, [p0];
  mad.wide.u32 %x1, %r0, 4, %x0;
)";

TEST(PtxChecks, BytesOutsideOfMemory) {
  Gpu gpu(std::string(own) + "ld.global.f32 %f0, [%x1];", 1);
  uint64_t at = gpu.upload(std::vector<float>(33));
  EXPECT_EQ(gpu.fault({at}, {}, {33, 1, 1}), "");
  EXPECT_THAT(gpu.fault({at}, {2, 1, 1}, {32, 1, 1}),
              AllOf(HasSubstr("kernel k, line "), HasSubstr("`ld.global.f32 %f0, [%x1];`"),
                    HasSubstr("block (1, 0, 0), thread (1, 0, 0): reads 4 bytes at "
                              "0xd000000000000084, outside of memory: the allocation before it is "
                              "[0xd000000000000000, 0xd000000000000084)")));
  gpu.memory.remove(at);
  EXPECT_THAT(gpu.fault({at}), HasSubstr("outside of memory: no allocation lies before it"));
}

TEST(PtxChecks, ParametersHaveALimit) {
  constexpr int most = 4352 / 8;
  EXPECT_NO_THROW(Gpu("", most));
  try {
    Gpu("", most + 1);
    FAIL() << "a kernel with too many parameters";
  } catch (const Fault &fault) {
    EXPECT_THAT(fault.what(), HasSubstr("4360 bytes of parameters of kernel k, more than 4352"));
  }
}

TEST(PtxChecks, Alignment) {
  Gpu gpu(std::string(own) + "ld.global.v2.f32 {%f0, %f1}, [%x1];", 1);
  uint64_t at = gpu.upload(std::vector<float>(40));
  EXPECT_THAT(gpu.fault({at}),
              HasSubstr("thread (1, 0, 0): reads 8 bytes at 0xd000000000000004, which is no "
                        "multiple of that"));
}

TEST(PtxChecks, BytesThatNobodyWrote) {
  Gpu gpu(std::string(own) + "ld.global.u32 %r4, [%x1];", 1);
  uint64_t at = gpu.buffer(128);
  std::vector<uint32_t> part(5);
  gpu.memory.write(at, part.data(), 20);
  EXPECT_THAT(gpu.fault({at}), HasSubstr("thread (5, 0, 0): reads 4 bytes at 0xd000000000000014, "
                                         "which nobody wrote"));
  Gpu shared(".shared .align 4 .b8 tile[64];\nld.shared.u32 %r0, [tile+8];", 0);
  EXPECT_THAT(shared.fault({}), HasSubstr("which nobody wrote"));
  Gpu local(".local .align 4 .b8 depot[64];\nld.local.u32 %r0, [depot+8];", 0);
  EXPECT_THAT(local.fault({}), HasSubstr("which nobody wrote"));
}

TEST(PtxChecks, SharedMemoryEnds) {
  Gpu gpu(std::string(own) + R"(
    .shared .align 4 .b8 tile[64];
    mov.u32 %r3, tile;
    mad.lo.u32 %r4, %r5, 4, %r3;
    st.shared.u32 [%r4], %r5;)",
          1);
  uint64_t at = gpu.buffer(4);
  EXPECT_EQ(gpu.fault({at}, {}, {16, 1, 1}), "");
  EXPECT_THAT(gpu.fault({at}),
              HasSubstr("thread (16, 0, 0): writes 4 bytes at 0x40, outside of the 64 bytes of "
                        "shared memory"));
}

TEST(PtxChecks, RacesInSharedMemory) {
  std::string body = std::string(own) + R"(
    .shared .align 4 .b8 tile[256];
    mov.u32 %r3, tile;
    mad.lo.u32 %r4, %r5, 4, %r3;
    st.shared.u32 [%r4], %r5;
    BARRIER
    xor.b32 %r6, %r5, 32;
    mad.lo.u32 %r7, %r6, 4, %r3;
    ld.shared.u32 %r8, [%r7];)";
  auto with = [&](const std::string &barrier) {
    std::string text = body;
    return text.replace(text.find("BARRIER"), 7, barrier);
  };
  Gpu right(with("bar.sync 0;"), 1);
  EXPECT_EQ(right.fault({right.buffer(4)}, {}, {64, 1, 1}), "");
  // A second round overwrites bytes that the other warp may not have read yet.
  Gpu wrong(with("bar.sync 0;") + "\nst.shared.u32 [%r4], %r5;", 1);
  EXPECT_THAT(wrong.fault({wrong.buffer(4)}, {}, {64, 1, 1}),
              HasSubstr("which warp 0 writes, and no barrier is between"));
}

TEST(PtxChecks, RacesBetweenBlocks) {
  Gpu writes(std::string(own) + "st.global.u32 [%x0], %r5;", 1);
  uint64_t at = writes.buffer(4);
  EXPECT_EQ(writes.fault({at}, {1, 1, 1}, {1, 1, 1}), "");
  EXPECT_THAT(writes.fault({at}, {2, 1, 1}, {1, 1, 1}),
              AllOf(HasSubstr("block (1, 0, 0)"),
                    HasSubstr("which block 0 writes in the same launch: a race")));
  Gpu reads(std::string(own) + "ld.global.u32 %r6, [%x0];\nst.global.u32 [%x1], %r6;", 1);
  at = reads.upload(std::vector<uint32_t>(4));
  EXPECT_THAT(reads.fault({at}, {2, 1, 1}, {1, 1, 1}), HasSubstr("which block 0 writes"));
  Gpu atomics(std::string(own) + "red.global.add.u32 [%x0], 1;", 1);
  at = atomics.upload(std::vector<uint32_t>(1));
  EXPECT_EQ(atomics.fault({at}, {4, 1, 1}), "");
}

/// The last block sums the others' values. This is correct with a fence before the counter.
TEST(PtxChecks, FencesAndAtomicsOrderBlocks) {
  std::string begin = std::string(own) + R"(
    add.u32 %r9, %r1, 1;
    mad.wide.u32 %x2, %r9, 4, %x0;
    st.global.u32 [%x2], %r9;)";
  std::string end = R"(
    atom.global.add.u32 %r6, [%x0], 1;
    setp.ne.u32 %p0, %r6, 3;
    @%p0 ret;
    ld.global.u32 %r7, [%x0+4];
    ld.global.u32 %r8, [%x0+12];
    add.u32 %r7, %r7, %r8;
    st.global.u32 [%x0+20], %r7;)";
  Gpu right(begin + "membar.gl;" + end, 1);
  uint64_t at = right.upload(std::vector<uint32_t>(6));
  EXPECT_EQ(right.fault({at}, {4, 1, 1}, {1, 1, 1}), "");
  EXPECT_EQ(right.download<uint32_t>(at, 6)[5], 4U);
  Gpu wrong(begin + end, 1);
  at = wrong.upload(std::vector<uint32_t>(6));
  EXPECT_THAT(wrong.fault({at}, {4, 1, 1}, {1, 1, 1}), HasSubstr("which block 0 writes"));
}

TEST(PtxChecks, LanesThatWriteOneAddress) {
  Gpu gpu(std::string(own) + "st.global.u32 [%x0], %r5;", 1);
  EXPECT_THAT(gpu.fault({gpu.buffer(4)}),
              HasSubstr("another lane stores another value to the same address"));
  Gpu same(std::string(own) + "st.global.u32 [%x0], 3;", 1);
  EXPECT_EQ(same.fault({same.buffer(4)}), "");
}

TEST(PtxChecks, ShufflesThatLanesMiss) {
  Gpu parted(std::string(own) +
                 "setp.lt.u32 %p0, %r5, 5;\n@%p0 shfl.sync.bfly.b32 %r6, %r5, 1, 31, -1;",
             1);
  EXPECT_THAT(parted.fault({parted.buffer(4)}),
              HasSubstr("lanes 0xffffffe0 of the members 0xffffffff do not come here"));
  Gpu few(std::string(own) + "shfl.sync.down.b32 %r6, %r5, 1, 31, -1;", 1);
  EXPECT_THAT(few.fault({few.buffer(4)}, {}, {20, 1, 1}),
              HasSubstr("it reads lane 20, which takes no part"));
}

TEST(PtxChecks, BarriersThatThreadsMiss) {
  Gpu ended(std::string(own) + "setp.gt.u32 %p0, %r5, 31;\n@%p0 ret;\nbar.sync 0;", 1);
  EXPECT_THAT(ended.fault({ended.buffer(4)}, {}, {64, 1, 1}),
              HasSubstr("barrier 0 has 32 of 64 threads, and no other comes"));
  Gpu parted(std::string(own) + "setp.gt.u32 %p0, %r5, 7;\n@%p0 bra OVER;\nbar.sync 0;\nOVER:", 1);
  EXPECT_THAT(parted.fault({parted.buffer(4)}), HasSubstr("do not come here together"));
  Gpu named(std::string(own) + "bar.sync 1, 64;\nbar.sync 1, 64;\nbar.sync 0;", 1);
  EXPECT_EQ(named.fault({named.buffer(4)}, {}, {64, 1, 1}), "");
}

TEST(PtxChecks, AWarpThatDoesNotEnd) {
  Gpu gpu("AGAIN:\nbra AGAIN;", 0);
  gpu.launch.instructionLimit = 1000;
  EXPECT_THAT(gpu.fault({}), HasSubstr("does not end: it has executed 1000 instructions"));
}

TEST(PtxChecks, Launches) {
  Gpu gpu("", 2);
  EXPECT_THAT(gpu.fault({1}), HasSubstr("with 1 arguments and has 2"));
  EXPECT_THAT(gpu.fault({1, 2}, {}, {2048, 1, 1}), HasSubstr("allows 1024"));
}

/// The last blocks of a launch over 2^31 elements and more. Untouched memory costs nothing.
TEST(PtxChecks, BeyondTwoToThe31) {
  Gpu gpu(R"(
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r5, %tid.x;
    cvt.u64.u32 %x3, %r5;
    mad.wide.u32 %x4, %r1, %r2, %x3;
    ld.param.u64 %x0, [p0];
    shl.b64 %x5, %x4, 2;
    add.s64 %x1, %x0, %x5;
    st.global.u32 [%x1], %r5;)",
          1);
  constexpr uint64_t count = (uint64_t(1) << 31) + 300, blocks = (count + 255) / 256;
  uint64_t at = gpu.buffer(count * 4);
  gpu.launch.firstBlock = blocks - 2;
  EXPECT_THAT(gpu.fault({at}, {uint32_t(blocks), 1, 1}, {256, 1, 1}),
              HasSubstr("thread (44, 0, 0): writes 4 bytes at 0xd0000002000004b0, outside"));
  EXPECT_EQ(gpu.download<uint32_t>(at + (count - 13) * 4, 1)[0], 31U);
}

} // namespace
