//===- instructions_test.cpp - Each class of instructions, by definition ---===//

#include "tests/ptx/Formats.h"
#include "tests/ptx/Gpu.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace tbc::ptx;
using ::testing::HasSubstr;

namespace {

/// Lane l loads element l of p0, p1, p2 (as many as given) into registers a, b, c of the class. It
/// runs `code` and stores `result` at element l of the last parameter.
template <typename In, typename Out>
std::vector<Out> lanes(const std::string &registers, const std::string &code,
                       const std::string &result, const std::vector<std::vector<In>> &inputs) {
  auto bits = [](size_t bytes) { return "b" + std::to_string(8 * bytes); };
  std::string body = "mov.u32 %r39, %tid.x;\n";
  auto address = [&](size_t p, size_t bytes) {
    return "ld.param.u64 %x39, [p" + std::to_string(p) + "];\ncvta.to.global.u64 %x38, %x39;\n" +
           "mad.wide.u32 %x37, %r39, " + std::to_string(bytes) + ", %x38;\n";
  };
  for (size_t input = 0; input < inputs.size(); ++input)
    body += address(input, sizeof(In)) + "ld.global." + bits(sizeof(In)) + " %" + registers +
            std::to_string(input) + ", [%x37];\n";
  body += code + "\n" + address(inputs.size(), sizeof(Out)) + "st.global." + bits(sizeof(Out)) +
          " [%x37], " + result + ";";
  Gpu gpu(body, int(inputs.size()) + 1);
  std::vector<uint64_t> arguments;
  for (const std::vector<In> &input : inputs)
    arguments.push_back(gpu.upload(input));
  size_t count = inputs[0].size();
  arguments.push_back(gpu.buffer(count * sizeof(Out)));
  gpu.run(arguments, {}, {uint32_t(count), 1, 1});
  return gpu.download<Out>(arguments.back(), count);
}

template <typename T> using List = std::vector<T>;
constexpr float inf = INFINITY;

TEST(PtxInstructions, Integers) {
  List<int32_t> a = {7, -7, INT32_MIN, 5}, b = {2, 2, -1, 0};
  auto two = [&](const std::string &code) {
    return lanes<int32_t, int32_t>("r", code + " %r9, %r0, %r1;", "%r9", {a, b});
  };
  EXPECT_EQ(two("add.s32"), (List<int32_t>{9, -5, INT32_MAX, 5}));
  EXPECT_EQ(two("sub.s32"), (List<int32_t>{5, -9, INT32_MIN + 1, 5}));
  EXPECT_EQ(two("mul.lo.s32"), (List<int32_t>{14, -14, INT32_MIN, 0}));
  EXPECT_EQ(two("mul.hi.u32"), (List<int32_t>{0, 1, INT32_MAX, 0}));
  EXPECT_EQ(two("mul.hi.s32"), (List<int32_t>{0, -1, 0, 0}));
  EXPECT_EQ(two("div.s32"), (List<int32_t>{3, -3, INT32_MIN, -1}));
  EXPECT_EQ(two("rem.s32"), (List<int32_t>{1, -1, 0, 5}));
  EXPECT_EQ(two("min.s32"), (List<int32_t>{2, -7, INT32_MIN, 0}));
  EXPECT_EQ(two("max.u32"), (List<int32_t>{7, -7, -1, 5}));
  EXPECT_EQ((lanes<int32_t, int32_t>("r", "abs.s32 %r9, %r0;", "%r9", {a})),
            (List<int32_t>{7, 7, INT32_MIN, 5}));
  EXPECT_EQ((lanes<int32_t, int64_t>("r", "mul.wide.s32 %x9, %r0, %r1;", "%x9", {a, b})),
            (List<int64_t>{14, -14, int64_t(1) << 31, 0}));
  EXPECT_EQ((lanes<int16_t, int16_t>("h", "mad.lo.s16 %h9, %h0, %h0, %h0;", "%h9", {{300, -2}})),
            (List<int16_t>{int16_t(300 * 300 + 300), 2}));
  EXPECT_EQ((lanes<uint64_t, uint64_t>("x", "mul.hi.u64 %x9, %x0, %x0;", "%x9",
                                       {{uint64_t(1) << 63, 3}})),
            (List<uint64_t>{uint64_t(1) << 62, 0}));
  EXPECT_EQ((lanes<int32_t, int32_t>("r", "sad.s32 %r9, %r0, %r1, %r0;", "%r9", {{5}, {-3}})),
            (List<int32_t>{13}));
}

TEST(PtxInstructions, Bits) {
  List<uint32_t> a = {0xf0f01234, 0x80000000, 1, 0}, b = {4, 31, 32, 40};
  auto two = [&](const std::string &code) {
    return lanes<uint32_t, uint32_t>("r", code, "%r9", {a, b});
  };
  EXPECT_EQ(two("shl.b32 %r9, %r0, %r1;"), (List<uint32_t>{0x0f012340, 0, 0, 0}));
  EXPECT_EQ(two("shr.u32 %r9, %r0, %r1;"), (List<uint32_t>{0x0f0f0123, 1, 0, 0}));
  EXPECT_EQ(two("shr.s32 %r9, %r0, %r1;"), (List<uint32_t>{0xff0f0123, ~0U, 0, 0}));
  EXPECT_EQ(two("xor.b32 %r9, %r0, -1;"), (List<uint32_t>{~a[0], ~a[1], ~a[2], ~0U}));
  EXPECT_EQ(two("not.b32 %r9, %r0;"), (List<uint32_t>{~a[0], ~a[1], ~a[2], ~0U}));
  EXPECT_EQ(two("popc.b32 %r9, %r0;"), (List<uint32_t>{13, 1, 1, 0}));
  EXPECT_EQ(two("clz.b32 %r9, %r0;"), (List<uint32_t>{0, 0, 31, 32}));
  EXPECT_EQ(two("brev.b32 %r9, %r0;"), (List<uint32_t>{0x2c480f0f, 1, 0x80000000, 0}));
  EXPECT_EQ(two("bfind.u32 %r9, %r0;"), (List<uint32_t>{31, 31, 0, ~0U}));
  EXPECT_EQ(two("bfe.u32 %r9, %r0, 8, 8;"), (List<uint32_t>{0x12, 0, 0, 0}));
  EXPECT_EQ(two("bfe.s32 %r9, %r0, 28, 8;"), (List<uint32_t>{~0U, 0xfffffff8, 0, 0}));
  EXPECT_EQ(two("bfi.b32 %r9, 255, %r0, 4, 8;"),
            (List<uint32_t>{0xf0f01ff4, 0x80000ff0, 0xff1, 0xff0}));
  EXPECT_EQ(two("prmt.b32 %r9, %r0, 0, 0x0123;"),
            (List<uint32_t>{0x3412f0f0, 0x80, 0x01000000, 0}));
  EXPECT_EQ(two("lop3.b32 %r9, %r0, %r1, %r0, 0x3c;")[0], a[0] ^ b[0]);
  EXPECT_EQ(two("shf.l.wrap.b32 %r9, %r0, %r0, %r1;")[0], 0x0f01234fU);
  EXPECT_EQ(two("shf.r.clamp.b32 %r9, 0, %r0, %r1;")[3], 0U);
}

TEST(PtxInstructions, Floats) {
  List<float> a = {1.5F, -0.0F, inf, NAN, 1e-40F}, b = {2.5F, 0.0F, 1.0F, 2.0F, 1.0F};
  auto two = [&](const std::string &code) {
    return lanes<float, float>("f", code + " %f9, %f0, %f1;", "%f9", {a, b});
  };
  EXPECT_EQ(two("add.rn.f32")[0], 4.0F);
  EXPECT_EQ(two("mul.rn.f32")[0], 3.75F);
  EXPECT_EQ(two("add.rn.ftz.f32")[4], 1.0F);
  EXPECT_EQ(two("mul.ftz.f32")[4], 0.0F);
  EXPECT_GT(two("mul.f32")[4], 0.0F);
  EXPECT_EQ(two("max.f32")[3], 2.0F);
  EXPECT_TRUE(std::isnan(two("max.NaN.f32")[3]));
  EXPECT_TRUE(std::signbit(two("min.f32")[1]));
  EXPECT_FALSE(std::signbit(two("max.f32")[1]));
  EXPECT_EQ(two("add.sat.f32"), (List<float>{1, 0, 1, 0, 1}));
  List<float> third = {1, -1}, three = {3, 3};
  auto divided = [&](const std::string &mode) {
    return lanes<float, float>("f", "div." + mode + ".f32 %f9, %f0, %f1;", "%f9", {third, three});
  };
  EXPECT_LT(divided("rm")[0], divided("rp")[0]);
  EXPECT_EQ(divided("rz")[1], -divided("rz")[0]);
  EXPECT_EQ(divided("rn")[0], 1.0F / 3);
  // fma rounds once; a product and a sum round twice.
  float x = 1 + 0x1p-12F;
  EXPECT_EQ(
      (lanes<float, float>("f", "fma.rn.f32 %f9, %f0, %f0, %f1;", "%f9", {{x}, {-1 - 0x1p-11F}})),
      (List<float>{0x1p-24F}));
  EXPECT_EQ((lanes<double, double>("d", "fma.rn.f64 %d9, %d0, %d0, %d1;", "%d9", {{3}, {1}})),
            (List<double>{10}));
  EXPECT_EQ((lanes<float, float>("f", "ex2.approx.f32 %f9, %f0;", "%f9", {{3, -inf}})),
            (List<float>{8, 0}));
  EXPECT_EQ((lanes<float, float>("f", "lg2.approx.f32 %f9, %f0;", "%f9", {{8, 0}})),
            (List<float>{3, -inf}));
  EXPECT_EQ((lanes<float, float>("f", "rsqrt.approx.f32 %f9, %f0;", "%f9", {{4, 0}})),
            (List<float>{0.5F, inf}));
  EXPECT_EQ((lanes<float, float>("f", "sqrt.rn.f32 %f9, %f0;", "%f9", {{9, 2}})),
            (List<float>{3, std::sqrt(2.0F)}));
  EXPECT_EQ((lanes<float, float>("f", "tanh.approx.f32 %f9, %f0;", "%f9", {{0, inf}})),
            (List<float>{0, 1}));
  EXPECT_EQ((lanes<float, float>("f", "copysign.f32 %f9, %f0, %f1;", "%f9", {{-1, 1}, {3, -3}})),
            (List<float>{-3, 3}));
  // 16 bits: 1 + 2^-11 lies between two f16 values.
  uint16_t one = 0x3c00, tiny = 0x1000; // 2^-11
  EXPECT_EQ((lanes<uint16_t, uint16_t>("h", "add.rn.f16 %h9, %h0, %h1;", "%h9", {{one}, {tiny}})),
            (List<uint16_t>{one}));
  EXPECT_EQ((lanes<uint32_t, uint32_t>("r", "fma.rn.bf16x2 %r9, %r0, %r0, %r0;", "%r9",
                                       {{0x3f804000}})), // 1 and 2
            (List<uint32_t>{0x400040c0}));
}

TEST(PtxInstructions, Conversions) {
  List<float> x = {2.5F, -2.5F, 3.5F, NAN, inf, -1e20F};
  auto integers = [&](const std::string &cvt) {
    return lanes<float, int32_t>("f", cvt + " %r9, %f0;", "%r9", {x});
  };
  EXPECT_EQ(integers("cvt.rni.s32.f32"), (List<int32_t>{2, -2, 4, 0, INT32_MAX, INT32_MIN}));
  EXPECT_EQ(integers("cvt.rzi.s32.f32"), (List<int32_t>{2, -2, 3, 0, INT32_MAX, INT32_MIN}));
  EXPECT_EQ(integers("cvt.rmi.s32.f32"), (List<int32_t>{2, -3, 3, 0, INT32_MAX, INT32_MIN}));
  EXPECT_EQ(integers("cvt.rpi.u32.f32"), (List<int32_t>{3, 0, 4, 0, -1, 0}));
  auto rounded = [&](const std::string &mode) {
    return lanes<double, float>("d", "cvt." + mode + ".f32.f64 %f9, %d0;", "%f9",
                                {{1 + 0x1p-24 + 0x1p-40, -1 - 0x1p-30, 1 + 0x1p-24}});
  };
  float up = 1 + 0x1p-23F;
  EXPECT_EQ(rounded("rn"), (List<float>{up, -1, 1}));
  EXPECT_EQ(rounded("rz"), (List<float>{1, -1, 1}));
  EXPECT_EQ(rounded("rp"), (List<float>{up, -1, up}));
  EXPECT_EQ(rounded("rm"), (List<float>{1, -up, 1}));
  EXPECT_EQ(
      (lanes<int64_t, float>("x", "cvt.rz.f32.s64 %f9, %x0;", "%f9", {{(int64_t(1) << 53) - 1}})),
      (List<float>{float((int64_t(1) << 53) - (int64_t(1) << 29))}));
  EXPECT_EQ((lanes<float, float>("f", "cvt.rmi.f32.f32 %f9, %f0;", "%f9", {{-1.5F, 1.5F}})),
            (List<float>{-2, 1}));
  EXPECT_EQ((lanes<int32_t, int64_t>("r", "cvt.s64.s32 %x9, %r0;", "%x9", {{-1}})),
            (List<int64_t>{-1}));
  EXPECT_EQ((lanes<int32_t, int64_t>("r", "cvt.u64.u32 %x9, %r0;", "%x9", {{-1}})),
            (List<int64_t>{0xffffffff}));
  EXPECT_EQ((lanes<int32_t, int32_t>("r", "cvt.s32.s8 %r9, %r0;", "%r9", {{0x1ff, 0x7f}})),
            (List<int32_t>{-1, 127}));
  EXPECT_EQ((lanes<int32_t, int32_t>("r", "cvt.sat.u8.s32 %r9, %r0;", "%r9", {{300, -5, 7}})),
            (List<int32_t>{255, 0, 7}));
  EXPECT_EQ((lanes<float, uint16_t>("f", "cvt.rn.bf16.f32 %h9, %f0;", "%h9",
                                    {{1.00390625F, 1.01171875F, 3e38F * 1.2F}})),
            (List<uint16_t>{0x3f80, 0x3f82, 0x7f80}));
  EXPECT_EQ((lanes<float, uint32_t>("f", "cvt.rn.f16x2.f32 %r9, %f0, %f1;", "%r9", {{1}, {-2}})),
            (List<uint32_t>{0x3c00c000}));
  EXPECT_EQ((lanes<float, uint16_t>("f", "cvt.rn.satfinite.e4m3x2.f32 %h9, %f0, %f1;", "%h9",
                                    {{1000}, {-0.015625F}})),
            (List<uint16_t>{0x7e88}));
  EXPECT_EQ((lanes<uint16_t, uint32_t>("h", "cvt.rn.f16x2.e5m2x2 %r9, %h0;", "%r9", {{0x3cc0}})),
            (List<uint32_t>{0x3c00c000}));
  EXPECT_EQ((lanes<float, uint32_t>("f", "cvt.rna.tf32.f32 %r9, %f0;", "%r9", {{1 + 0x1p-11F}})),
            (List<uint32_t>{0x3f802000}));
}

TEST(PtxInstructions, Comparisons) {
  List<float> a = {1, 2, NAN}, b = {2, 2, 2};
  auto compared = [&](const std::string &setp) {
    return lanes<float, int32_t>("f", setp + "\nselp.b32 %r9, 1, 0, %p0;", "%r9", {a, b});
  };
  EXPECT_EQ(compared("setp.lt.f32 %p0, %f0, %f1;"), (List<int32_t>{1, 0, 0}));
  EXPECT_EQ(compared("setp.ltu.f32 %p0, %f0, %f1;"), (List<int32_t>{1, 0, 1}));
  EXPECT_EQ(compared("setp.neu.f32 %p0, %f0, %f1;"), (List<int32_t>{1, 0, 1}));
  EXPECT_EQ(compared("setp.ne.f32 %p0, %f0, %f1;"), (List<int32_t>{1, 0, 0}));
  EXPECT_EQ(compared("setp.nan.f32 %p0, %f0, %f1;"), (List<int32_t>{0, 0, 1}));
  EXPECT_EQ(compared("setp.eq.f32 %p1, %f0, %f1;\nsetp.lt.or.f32 %p0, %f0, %f1, %p1;"),
            (List<int32_t>{1, 1, 0}));
  EXPECT_EQ(compared("setp.eq.f32 %p1, %f0, %f1;\nsetp.le.and.f32 %p0|%p2, %f0, %f1, !%p1;"),
            (List<int32_t>{1, 0, 0}));
  EXPECT_EQ(compared("testp.finite.f32 %p1, %f0;\nnot.pred %p0, %p1;"), (List<int32_t>{0, 0, 1}));
  EXPECT_EQ(
      (lanes<int32_t, int32_t>("r", "set.hi.u32.u32 %r9, %r0, %r1;", "%r9", {{-1, 0}, {1, 1}})),
      (List<int32_t>{-1, 0}));
  EXPECT_EQ((lanes<int32_t, int32_t>(
                "r", "setp.gt.s32 %p0, %r0, %r1;\n@!%p0 bra L;\nmov.u32 %r0, 9;\nL:", "%r0",
                {{-1, 5}, {1, 1}})),
            (List<int32_t>{-1, 9}));
}

TEST(PtxInstructions, Moves) {
  EXPECT_EQ((lanes<uint32_t, uint32_t>("r", "mov.b32 {%h1, %h2}, %r0;\nmov.b32 %r9, {%h2, %h1};",
                                       "%r9", {{0x12345678}})),
            (List<uint32_t>{0x56781234}));
  EXPECT_EQ((lanes<uint64_t, uint64_t>("x", "mov.b64 {%r1, %r2}, %x0;\nmov.b64 %x9, {%r2, %r1};",
                                       "%x9", {{0x123456789abcdef0}})),
            (List<uint64_t>{0x9abcdef012345678}));
  EXPECT_EQ((lanes<float, uint32_t>("f", "mov.b32 %r9, %f0;", "%r9", {{1}})),
            (List<uint32_t>{0x3f800000}));
}

TEST(PtxInstructions, ShufflesAndVotes) {
  List<uint32_t> ids(32);
  for (uint32_t lane = 0; lane < 32; ++lane)
    ids[lane] = lane;
  auto run = [&](const std::string &code) {
    return lanes<uint32_t, uint32_t>("r", code, "%r9", {ids});
  };
  List<uint32_t> found = run("shfl.sync.bfly.b32 %r9, %r0, 16, 31, -1;");
  for (uint32_t lane = 0; lane < 32; ++lane)
    EXPECT_EQ(found[lane], lane ^ 16U);
  found = run("shfl.sync.up.b32 %r9|%p0, %r0, 1, 0, -1;\n@!%p0 mov.u32 %r9, 99;");
  EXPECT_EQ(found[0], 99U);
  EXPECT_EQ(found[31], 30U);
  found = run("shfl.sync.down.b32 %r9, %r0, 4, 31, -1;");
  EXPECT_EQ(found[3], 7U);
  EXPECT_EQ(found[30], 30U);
  // Segments of eight lanes.
  found = run("shfl.sync.idx.b32 %r9, %r0, 2, 0x181f, -1;");
  EXPECT_EQ(found[13], 10U);
  found = run("setp.lt.u32 %p0, %r0, 3;\nvote.sync.ballot.b32 %r9, %p0, -1;");
  EXPECT_EQ(found[7], 7U);
  found =
      run("setp.lt.u32 %p0, %r0, 3;\nvote.sync.any.pred %p1, %p0, -1;\nselp.b32 %r9, 1, 0, %p1;");
  EXPECT_EQ(found[20], 1U);
  found = run("redux.sync.add.u32 %r9, %r0, -1;");
  EXPECT_EQ(found[5], 496U);
  found = run("and.b32 %r1, %r0, 1;\nmatch.any.sync.b32 %r9, %r1, -1;");
  EXPECT_EQ(found[2], 0x55555555U);
  found = run("activemask.b32 %r9;");
  EXPECT_EQ(found[2], ~0U);
}

TEST(PtxInstructions, LanesPartAndMeet) {
  List<uint32_t> ids(32);
  for (uint32_t lane = 0; lane < 32; ++lane)
    ids[lane] = lane;
  // Lane l does l iterations. After the loop all lanes reconverge, as the shuffle requires.
  List<uint32_t> found = lanes<uint32_t, uint32_t>("r", R"(
    mov.u32 %r1, 0;
    mov.u32 %r2, 0;
    LOOP:
    setp.ge.u32 %p0, %r1, %r0;
    @%p0 bra DONE;
    add.u32 %r1, %r1, 1;
    and.b32 %r3, %r1, 1;
    setp.eq.u32 %p1, %r3, 0;
    @%p1 bra EVEN;
    add.u32 %r2, %r2, 10;
    bra LOOP;
    EVEN:
    add.u32 %r2, %r2, 1;
    bra LOOP;
    DONE:
    shfl.sync.bfly.b32 %r9, %r2, 1, 31, -1;)",
                                                   "%r9", {ids});
  for (uint32_t lane = 0; lane < 32; ++lane) {
    uint32_t other = lane ^ 1U;
    EXPECT_EQ(found[lane], (other + 1) / 2 * 10 + other / 2) << lane;
  }
}

TEST(PtxInstructions, SharedMemoryAndBarriers) {
  // 96 threads reverse their numbers through shared memory.
  std::string body = R"(
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, tile;
    mad.lo.u32 %r2, %r0, 4, %r1;
    st.shared.u32 [%r2], %r0;
    bar.sync 0;
    sub.u32 %r3, 95, %r0;
    mad.lo.u32 %r2, %r3, 4, %r1;
    ld.shared.u32 %r4, [%r2];
    setp.lt.u32 %p0, %r0, 10;
    barrier.cta.red.popc.aligned.u32 %r5, 0, %p0;
    add.u32 %r4, %r4, %r5;
    ld.param.u64 %x0, [p0];
    mad.wide.u32 %x1, %r0, 4, %x0;
    st.global.u32 [%x1], %r4;)";
  Gpu gpu(body, 1, ".shared .align 4 .b8 tile[384];\n");
  uint64_t out = gpu.buffer(384);
  gpu.run({out}, {}, {96, 1, 1});
  List<uint32_t> found = gpu.download<uint32_t>(out, 96);
  for (uint32_t thread = 0; thread < 96; ++thread)
    EXPECT_EQ(found[thread], 95 - thread + 10);
}

/// Multiplies A [16, 16] by B [16, 8] of small integers, stored by rows or transposed, and adds
/// 100. Lane l copies 16 bytes of A, and the first 16 lanes 16 bytes of B.
List<float> multiplyMatrices(bool isTransposed) {
  std::string trans = isTransposed ? ".trans" : "";
  // Lanes 8 m to 8 m + 7 have the rows of matrix m. Of a transposed A matrices 1 and 2 change
  // place, for its second one lies beside the first in memory.
  std::string rowOfA = isTransposed ? "and.b32 %r5, %r0, 7;\nshr.u32 %r6, %r0, 4;\n"
                                      "mad.lo.u32 %r5, %r6, 8, %r5;\nshr.u32 %r6, %r0, 3;\n"
                                      "and.b32 %r6, %r6, 1;"
                                    : "and.b32 %r5, %r0, 15;\nshr.u32 %r6, %r0, 4;";
  std::string body = R"(
    mov.u32 %r0, %tid.x;
    ld.param.u64 %x0, [p0];
    mad.wide.u32 %x1, %r0, 16, %x0;
    ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%x1];
    mov.u32 %r10, tileA;
    mad.lo.u32 %r11, %r0, 16, %r10;
    st.shared.v4.u32 [%r11], {%r1, %r2, %r3, %r4};
    setp.lt.u32 %p0, %r0, 16;
    ld.param.u64 %x0, [p1];
    mad.wide.u32 %x1, %r0, 16, %x0;
    @%p0 ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%x1];
    mov.u32 %r12, tileB;
    mad.lo.u32 %r11, %r0, 16, %r12;
    @%p0 st.shared.v4.u32 [%r11], {%r1, %r2, %r3, %r4};
    bar.sync 0;
    )" + rowOfA + R"(
    mad.lo.u32 %r5, %r5, 32, %r10;
    mad.lo.u32 %r5, %r6, 16, %r5;
    ldmatrix.sync.aligned.m8n8.x4)" +
                     trans + R"(.shared.b16 {%r20, %r21, %r22, %r23}, [%r5];
    )" +
                     (isTransposed ? "and.b32 %r7, %r0, 15;\nmad.lo.u32 %r7, %r7, 16, %r12;"
                                   : "and.b32 %r7, %r0, 7;\nmad.lo.u32 %r7, %r7, 32, %r12;\n"
                                     "shr.u32 %r8, %r0, 3;\nand.b32 %r8, %r8, 1;\n"
                                     "mad.lo.u32 %r7, %r8, 16, %r7;") +
                     R"(
    ldmatrix.sync.aligned.m8n8.x2)" +
                     trans + R"(.shared.b16 {%r24, %r25}, [%r7];
    mov.f32 %f0, 0f42c80000;
    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
      {%f1, %f2, %f3, %f4}, {%r20, %r21, %r22, %r23}, {%r24, %r25}, {%f0, %f0, %f0, %f0};
    ld.param.u64 %x2, [p2];
    shr.u32 %r30, %r0, 2;
    and.b32 %r31, %r0, 3;
    mad.wide.u32 %x3, %r30, 32, %x2;
    mad.wide.u32 %x3, %r31, 8, %x3;
    st.global.v2.f32 [%x3], {%f1, %f2};
    st.global.v2.f32 [%x3+256], {%f3, %f4};)";
  auto bf16 = [](double value) { return uint16_t(encode(value, brainFormat, Rounding::Nearest)); };
  List<uint16_t> a(256), b(128);
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k)
      a[size_t(isTransposed ? k * 16 + row : row * 16 + k)] = bf16(row - 3 * k % 7);
  for (int k = 0; k < 16; ++k)
    for (int column = 0; column < 8; ++column)
      b[size_t(isTransposed ? k * 8 + column : column * 16 + k)] = bf16(k * column % 11 - 4);
  Gpu gpu(body, 3, ".shared .align 16 .b8 tileA[512];\n.shared .align 16 .b8 tileB[256];\n");
  uint64_t atA = gpu.upload(a), atB = gpu.upload(b), out = gpu.buffer(512);
  gpu.run({atA, atB, out});
  return gpu.download<float>(out, 128);
}

TEST(PtxInstructions, MatricesOfAWarp) {
  for (bool isTransposed : {false, true}) {
    List<float> found = multiplyMatrices(isTransposed);
    for (int row = 0; row < 16; ++row)
      for (int column = 0; column < 8; ++column) {
        int sum = 100;
        for (int k = 0; k < 16; ++k)
          sum += (row - 3 * k % 7) * (k * column % 11 - 4);
        EXPECT_EQ(found[size_t(row * 8 + column)], float(sum))
            << row << " " << column << " " << isTransposed;
      }
  }
}

TEST(PtxInstructions, DynamicSharedLocalAndConstantMemory) {
  std::string body = R"(
    .local .align 8 .b8 depot[16];
    mov.u32 %r0, %tid.x;
    mov.u64 %x0, depot;
    cvta.local.u64 %x1, %x0;
    st.u32 [%x1+4], %r0;
    ld.local.u32 %r1, [%x0+4];
    mov.u64 %x2, table;
    cvta.const.u64 %x3, %x2;
    ld.u32 %r2, [%x3+8];
    mov.u64 %x4, more;
    ld.global.u32 %r3, [%x4+4];
    ld.const.u32 %r4, [table+4];
    mov.u32 %r5, open;
    mad.lo.u32 %r6, %r0, 4, %r5;
    st.shared.u32 [%r6], %r1;
    ld.shared.u32 %r7, [%r6];
    mad.lo.u32 %r8, %r2, 1000, %r3;
    mad.lo.u32 %r8, %r4, 1000000, %r8;
    add.u32 %r8, %r8, %r7;
    ld.param.u64 %x5, [p0];
    mad.wide.u32 %x6, %r0, 4, %x5;
    st.global.u32 [%x6], %r8;)";
  Gpu gpu(body, 1,
          ".const .align 4 .u32 table[3] = {1, 2, 3};\n.global .align 4 .u32 more[2] = {4, 50};\n"
          ".extern .shared .align 16 .b8 open[];\n");
  gpu.launch.dynamicSharedBytes = 128;
  uint64_t out = gpu.buffer(128);
  gpu.run({out});
  List<uint32_t> found = gpu.download<uint32_t>(out, 32);
  for (uint32_t thread = 0; thread < 32; ++thread)
    EXPECT_EQ(found[thread], 2003050 + thread);
}

TEST(PtxInstructions, ParametersAtComputedOffsets) {
  std::string body = R"(
    mov.u32 %r0, %tid.x;
    and.b32 %r1, %r0, 1;
    mov.b64 %x0, p0;
    mad.wide.u32 %x1, %r1, 8, %x0;
    ld.param.u64 %x2, [%x1+8];
    ld.param.u64 %x3, [p0];
    mad.wide.u32 %x4, %r0, 8, %x3;
    st.global.u64 [%x4], %x2;)";
  Gpu gpu(body, 3);
  uint64_t out = gpu.buffer(256);
  gpu.run({out, 70, 90});
  List<uint64_t> found = gpu.download<uint64_t>(out, 32);
  for (uint64_t thread = 0; thread < 32; ++thread)
    EXPECT_EQ(found[thread], thread % 2 == 0 ? 70 : 90);
}

TEST(PtxInstructions, Atomics) {
  std::string body = R"(
    ld.param.u64 %x0, [p0];
    atom.global.add.u32 %r0, [%x0], 2;
    red.global.add.f32 [%x0+4], 0f3f000000;
    atom.global.cas.b32 %r1, [%x0+8], 0, 7;
    atom.global.max.s32 %r1, [%x0+12], -3;
    atom.global.exch.b32 %r1, [%x0+16], 5;
    atom.global.inc.u32 %r1, [%x0+20], 9;
    red.global.or.b32 [%x0+24], 6;)";
  Gpu gpu(body, 1);
  uint64_t at = gpu.upload<uint32_t>({0, 0, 0, uint32_t(-9), 0, 0, 1});
  gpu.run({at}, {2, 1, 1});
  List<uint32_t> found = gpu.download<uint32_t>(at, 7);
  EXPECT_EQ(found, (List<uint32_t>{128, 0x42000000, 7, uint32_t(-3), 5, 4, 7}));
}

TEST(PtxInstructions, VectorsOfEveryWidth) {
  std::string body = R"(
    ld.param.u64 %x0, [p0];
    ld.param.u64 %x1, [p1];
    mov.u32 %r0, %tid.x;
    mad.wide.u32 %x2, %r0, 16, %x0;
    mad.wide.u32 %x3, %r0, 16, %x1;
    ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%x2];
    st.global.v2.b64 [%x3], {%x8, %x9};
    st.global.v4.f32 [%x3], {%f3, %f2, %f1, %f0};
    ld.global.s8 %r1, [%x3+3];
    ld.global.u16 %h0, [%x3+2];
    st.global.v2.u8 [%x3], {%h0, %h0};)";
  Gpu gpu(body, 2);
  List<float> values(128);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = float(i) + 1;
  uint64_t from = gpu.upload(values), to = gpu.buffer(512);
  Counts counts = gpu.run({from, to});
  EXPECT_EQ(gpu.download<float>(to, 128)[5], 7.0F);
  EXPECT_EQ(counts.loadedBytes, 32U * (16 + 1 + 2));
  EXPECT_EQ(counts.sectors, 16U * 3 + 3 * 16);
}

TEST(PtxInstructions, AnUnknownOneIsNamed) {
  auto refused = [](const std::string &body) -> std::string {
    try {
      Gpu gpu(body);
    } catch (const Fault &fault) {
      return fault.what();
    }
    return "";
  };
  EXPECT_THAT(refused("frobnicate.f32 %f0, %f1;"), HasSubstr("instruction frobnicate.f32"));
  EXPECT_THAT(refused("add.rn.strange.f32 %f0, %f1, %f2;"), HasSubstr("modifier .strange"));
  EXPECT_THAT(refused("add.f32 %f0, %f1, %d2;"), HasSubstr("another width: %d2"));
  EXPECT_THAT(refused("bra NOWHERE;"), HasSubstr("NOWHERE, which is nowhere"));
  EXPECT_THAT(refused("mov.u32 %r0, %smid;"), HasSubstr("the operand '%smid'"));
}

} // namespace
