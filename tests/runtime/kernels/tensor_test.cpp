//===- tensor_test.cpp - Dtypes, tensors, attributes -----------------------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/kernels/TestSupport.h"

#include <cmath>
#include <cstring>
#include <random>

using namespace tbc::kernels;
using ::testing::ElementsAre;

namespace {

TEST(DType, TensorsHaveStorableTypes) {
  for (DType dtype : tbc::dtypes())
    EXPECT_EQ(parseStorableDType(name(dtype)),
              isStorable(dtype) ? std::optional(dtype) : std::nullopt);
  EXPECT_EQ(parseStorableDType("f8e4m3"), std::nullopt); // Programs have no tensors of fp8
  EXPECT_EQ(parseStorableDType("f33"), std::nullopt);
  EXPECT_THROW(roundTo(DType::F8E5M2, 1), KernelError);
  EXPECT_THROW(wrapTo(DType::F8E5M2, 1), KernelError);
  EXPECT_THROW(Tensor::zeros({DType::F8E4M3, {1}}, Arith::Native).toBytes(), KernelError);
}

TEST(DType, BF16RoundsToNearestEven) {
  // bf16 keeps 8 significant bits: between 1 and 2 the spacing is 2^-7.
  EXPECT_EQ(roundTo(DType::BF16, 1 + 0x1p-8), 1);              // tie, down to even
  EXPECT_EQ(roundTo(DType::BF16, 1 + 3 * 0x1p-8), 1 + 0x1p-6); // tie, up to even
  EXPECT_EQ(roundTo(DType::BF16, 1 + 0x1p-8 + 0x1p-30), 1 + 0x1p-7);
  EXPECT_EQ(roundTo(DType::BF16, -1 - 0x1p-8), -1);
  EXPECT_EQ(roundTo(DType::BF16, 0x1.ffp127), INFINITY);
  EXPECT_EQ(roundTo(DType::BF16, 0x1p-133), 0x1p-133);
  EXPECT_EQ(roundTo(DType::BF16, 0x1p-134), 0); // half the smallest subnormal
}

TEST(DType, F16RoundsToNearestEven) {
  EXPECT_EQ(roundTo(DType::F16, 1 + 0x1p-11), 1);
  EXPECT_EQ(roundTo(DType::F16, 1 + 3 * 0x1p-11), 1 + 0x1p-9);
  EXPECT_EQ(roundTo(DType::F16, 65504), 65504);
  EXPECT_EQ(roundTo(DType::F16, 65519), 65504);
  EXPECT_EQ(roundTo(DType::F16, 65520), INFINITY);
  EXPECT_EQ(roundTo(DType::F16, 0x1p-24), 0x1p-24);
  EXPECT_EQ(roundTo(DType::F16, 0x1p-25), 0);
}

TEST(DType, RoundsDoublesOnce) {
  // Through f32 this would become the tie 1 + 2^-8 first, then 1.
  EXPECT_EQ(roundTo(DType::BF16, 1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-7);
}

/// `value` is rounded to the nearer of its neighbours in bf16; of two equally near ones, to the
/// even.
TEST(DType, BF16IsTheNearestNumber) {
  std::mt19937_64 generator(1);
  for (int i = 0; i < 100000; ++i) {
    // Every exponent of bf16, subnormal and too large ones, and often a tie or next to one.
    double value =
        std::ldexp(1 + double(generator() >> 11) * 0x1p-53, int(generator() % 268) - 138);
    if (i % 2)
      value = std::nextafter(double(decodeBF16(encodeBF16(float(value)))) * (1 + 0x1p-8),
                             i % 4 == 1 ? 0 : INFINITY);
    double rounded = roundTo(DType::BF16, value);
    if (std::isinf(rounded)) {
      EXPECT_GE(value, 0x1.ffp127);
      continue;
    }
    uint16_t bits = encodeBF16(float(rounded));
    ASSERT_EQ(double(decodeBF16(bits)), rounded) << value;
    double below = decodeBF16(uint16_t(bits - (bits > 0))), above = decodeBF16(uint16_t(bits + 1));
    double distance = std::fabs(value - rounded);
    EXPECT_LE(distance, std::fabs(value - below)) << value;
    EXPECT_LE(distance, std::fabs(above - value)) << value;
    EXPECT_EQ(roundTo(DType::BF16, -value), -rounded);
  }
}

TEST(DType, SixteenBitPatternsRoundTrip) {
  for (int bits = 0; bits < 65536; ++bits) {
    float bf = decodeBF16(uint16_t(bits)), half = decodeF16(uint16_t(bits));
    if (!std::isnan(bf)) {
      ASSERT_EQ(encodeBF16(bf), bits);
      ASSERT_EQ(roundTo(DType::BF16, bf), bf);
    }
    if (!std::isnan(half)) {
      ASSERT_EQ(encodeF16(half), bits);
      ASSERT_EQ(roundTo(DType::F16, half), half);
    }
  }
  EXPECT_TRUE(std::isnan(decodeBF16(encodeBF16(NAN))));
  EXPECT_TRUE(std::isnan(decodeF16(encodeF16(NAN))));
}

TEST(DType, BF16EncodingAgreesWithRounding) {
  std::mt19937 generator(3);
  for (int i = 0; i < 20000; ++i) {
    uint32_t bits = generator();
    float value;
    std::memcpy(&value, &bits, sizeof value);
    if (std::isfinite(value)) {
      ASSERT_EQ(decodeBF16(encodeBF16(value)), roundTo(DType::BF16, value)) << value;
      ASSERT_EQ(decodeF16(encodeF16(value)), roundTo(DType::F16, value)) << value;
    }
  }
}

TEST(DType, IntegersWrap) {
  EXPECT_EQ(wrapTo(DType::I8, 130), -126);
  EXPECT_EQ(wrapTo(DType::U8, -1), 255);
  EXPECT_EQ(wrapTo(DType::I32, int64_t(1) << 31), INT32_MIN);
  EXPECT_EQ(wrapTo(DType::Bool, -4), 1);
}

TEST(Tensor, HoldsItsArithmetic) {
  EXPECT_TRUE(Tensor::zeros({DType::F32, {2}}, Arith::Native).holds<float>());
  EXPECT_TRUE(Tensor::zeros({DType::F64, {2}}, Arith::Native).holds<double>());
  EXPECT_TRUE(Tensor::zeros({DType::BF16, {2}}, Arith::F64).holds<double>());
  EXPECT_TRUE(Tensor::zeros({DType::F32, {2}}, Arith::Residue61).holds<Residue>());
  EXPECT_TRUE(Tensor::zeros({DType::Bool, {2}}, Arith::Residue61).holds<int64_t>());
  EXPECT_FALSE(Tensor());
  EXPECT_THROW(Tensor::zeros({DType::F32, {2}}, Arith::Native).data<double>(), KernelError);
}

TEST(Tensor, NativeRoundsAndF64DoesNot) {
  double value = 1 + 0x1p-8 + 0x1p-30;
  EXPECT_EQ(floats(Arith::Native, {}, {value}, DType::BF16).toDoubles()[0], 1 + 0x1p-7);
  EXPECT_EQ(floats(Arith::Native, {}, {value}, DType::F32).toDoubles()[0], 1 + 0x1p-8);
  EXPECT_EQ(floats(Arith::F64, {}, {value}, DType::BF16).toDoubles()[0], value);
}

TEST(Tensor, CopiesShareUntilWritten) {
  Tensor a = floats(Arith::Native, {2}, {1, 2});
  Tensor b = a;
  EXPECT_EQ(&a.data<float>(), &b.data<float>());
  b.mutableData<float>()[0] = 9;
  EXPECT_THAT(a.toDoubles(), ElementsAre(1, 2));
  EXPECT_THAT(b.toDoubles(), ElementsAre(9, 2));
}

TEST(Tensor, RejectsWrongCounts) {
  EXPECT_THROW(floats(Arith::Native, {3}, {1, 2}), KernelError);
  EXPECT_THROW(Tensor({DType::F32, {1}}, std::vector<int64_t>{1}), KernelError);
  EXPECT_THROW(floats(Arith::Native, {3}, {1, 2, 3}).reshaped({2}), KernelError);
}

TEST(Tensor, BytesRoundTrip) {
  for (DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16}) {
    Tensor tensor = floats(Arith::Native, {2, 2}, {1.5, -0.25, 1000, 0}, dtype);
    std::vector<unsigned char> bytes = tensor.toBytes();
    EXPECT_EQ(int64_t(bytes.size()), 4 * byteWidth(dtype));
    EXPECT_TRUE(
        bitwiseEqual(Tensor::fromBytes(tensor.type(), Arith::Native, bytes.data()), tensor));
  }
  for (DType dtype : {DType::I64, DType::I32, DType::I16, DType::I8}) {
    Tensor tensor = ints({3}, {-1, 2, 100}, dtype);
    EXPECT_TRUE(bitwiseEqual(
        Tensor::fromBytes(tensor.type(), Arith::Native, tensor.toBytes().data()), tensor));
  }
  EXPECT_THAT(floats(Arith::Native, {1}, {1}).toBytes(), ElementsAre(0, 0, 0x80, 0x3f));
  EXPECT_THAT(ints({1}, {200}, DType::U8).toBytes(), ElementsAre(200));
}

TEST(Tensor, BitwiseEqualSeesSignAndType) {
  EXPECT_FALSE(bitwiseEqual(floats(Arith::Native, {1}, {0.0}), floats(Arith::Native, {1}, {-0.0})));
  EXPECT_FALSE(bitwiseEqual(floats(Arith::Native, {1}, {1}), floats(Arith::F64, {1}, {1})));
  EXPECT_FALSE(bitwiseEqual(ints({1}, {1}, DType::I32), ints({1}, {1}, DType::I64)));
  EXPECT_TRUE(bitwiseEqual(floats(Arith::Native, {1}, {NAN}), floats(Arith::Native, {1}, {NAN})));
}

TEST(Attrs, GettersCheck) {
  Attrs attrs = {{"dim", int64_t(1)}, {"epsilon", 0.5}, {"kind", "sum"}, {"on", true}};
  EXPECT_EQ(attrs.getInt("dim"), 1);
  EXPECT_EQ(attrs.getDouble("epsilon"), 0.5);
  EXPECT_EQ(attrs.getString("kind"), "sum");
  EXPECT_TRUE(attrs.getBool("on"));
  EXPECT_EQ(attrs.getInt("absent", 7), 7);
  EXPECT_FALSE(attrs.getBool("absent", false));
  try {
    attrs.getInts("dims");
    FAIL() << "expected a KernelError";
  } catch (const KernelError &error) {
    EXPECT_STREQ(error.what(), "attribute 'dims' is missing");
  }
  EXPECT_THROW(attrs.getInt("epsilon", 3), KernelError);
}

TEST(Registry, FindsKernelsByName) {
  EXPECT_NE(findKernel("add"), nullptr);
  EXPECT_EQ(findKernel("all_reduce"), nullptr);
  std::vector<std::string> names = kernelNames();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  for (const std::string &name : names)
    EXPECT_NE(findKernel(name), nullptr) << name;
}

/// Every op of the dialect except the collectives, from the op table of the IR.
TEST(Registry, IsComplete) {
  for (const char *op : {"neg",
                         "abs",
                         "exp",
                         "log",
                         "sqrt",
                         "rsqrt",
                         "reciprocal",
                         "tanh",
                         "erf",
                         "sigmoid",
                         "relu",
                         "sin",
                         "cos",
                         "atan",
                         "floor",
                         "ceil",
                         "round",
                         "is_nan",
                         "not",
                         "add",
                         "sub",
                         "mul",
                         "div",
                         "pow",
                         "maximum",
                         "minimum",
                         "and",
                         "or",
                         "bitwise_and",
                         "bitwise_or",
                         "bitwise_xor",
                         "compare",
                         "select",
                         "cast",
                         "relu_grad",
                         "detach",
                         "broadcast",
                         "transpose",
                         "reshape",
                         "slice",
                         "concat",
                         "pad",
                         "iota",
                         "constant",
                         "factor_size",
                         "reduce_sum",
                         "reduce_max",
                         "stabilizer_max",
                         "running_sum",
                         "einsum",
                         "gather",
                         "scatter_add",
                         "topk",
                         "gather_elements",
                         "scatter_elements_add",
                         "conv",
                         "conv_grad_input",
                         "conv_grad_weight",
                         "max_pool",
                         "max_pool_grad",
                         "avg_pool",
                         "avg_pool_grad",
                         "softmax",
                         "softmax_grad",
                         "layer_norm",
                         "layer_norm_grad",
                         "norm_scale_grad",
                         "rms_norm",
                         "rms_norm_grad",
                         "rms_scale_grad",
                         "gelu",
                         "gelu_grad",
                         "silu",
                         "silu_grad",
                         "swiglu",
                         "swiglu_grad",
                         "rotary",
                         "batch_norm",
                         "batch_norm_train",
                         "attention",
                         "attention_grad",
                         "attention_bias_grad",
                         "attention_merge",
                         "routed_experts",
                         "routed_experts_grad",
                         "dispatch",
                         "combine",
                         "combine_weights_grad",
                         "lstm",
                         "lstm_grad",
                         "gru",
                         "gru_grad",
                         "cross_entropy",
                         "cross_entropy_grad",
                         "sgd",
                         "sgd_momentum",
                         "adam",
                         "adamw",
                         "adagrad",
                         "divide_by_root",
                         "muon_momentum",
                         "gather_matrices",
                         "shard_matrices",
                         "divide_by_norm",
                         "weighted_sum",
                         "muon_step",
                         "factored_moment",
                         "factored_direction",
                         "root_direction",
                         "square_totals",
                         "adafactor_step",
                         "square_sum",
                         "count_not_finite",
                         "update_loss_scale",
                         "step_total",
                         "scale_by",
                         "clip_value",
                         "update_if",
                         "dropout",
                         "dropout_train",
                         "random_uniform",
                         "random_uniform_train",
                         "embedding",
                         "embedding_grad",
                         "class_max",
                         "class_sums",
                         "class_sums_grad"})
    EXPECT_NE(findKernel(op), nullptr) << op;
}

} // namespace
