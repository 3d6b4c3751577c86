//===- Random.cpp - Dropout and random numbers in compiled kernels ----------===//

#include "ir/Random.h"
#include "codegen/region/ops/Philox.h"

using namespace mlir;

namespace tbc::region {
namespace {

/// 32-bit arithmetic of Philox on elements.
struct Words {
  const Elements &e;

  Value word(Value x) const {
    return e.make<arith::TruncIOp>(Elements::typeLike(x, e.builder.getI32Type()), x);
  }
  Value high(Value x) const { return word(e.make<arith::ShRUIOp>(x, e.number(x, 32))); }
  Value bits(Value like, uint32_t value) const { return e.number(like, double(int32_t(value))); }
  Value exclusiveOr(Value x, Value y) const { return e.make<arith::XOrIOp>(x, y); }
  /// Returns the 64-bit product of a word and a number below 2^32.
  Value product(uint32_t factor, Value x) const {
    Value wide = e.make<arith::ExtUIOp>(Elements::typeLike(x, e.builder.getI64Type()), x);
    return e.mul(wide, e.number(wide, double(factor)));
  }
};

/// Returns word number % 4 of block number / 4 of Philox 4x32-10, like `tbc::kernels::philox`.
/// Source: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (2011).
Value philoxWord(const Elements &e, Value number, Value step, int64_t op, int64_t seed) {
  Words w{e};
  Value two = e.number(number, 2);
  Value block = e.make<arith::ShRUIOp>(number, two);
  SmallVector<Value, 4> counter = {w.word(block), w.high(block), e.splat(w.word(step), number), {}};
  counter[3] = w.bits(counter[0], uint32_t(op));
  uint32_t key[2] = {uint32_t(uint64_t(seed)), uint32_t(uint64_t(seed) >> 32)};
  for (int round = 0; round < 10; ++round) {
    Value first = w.product(0xD2511F53, counter[0]), second = w.product(0xCD9E8D57, counter[2]);
    Value mixed0 = w.exclusiveOr(w.high(second), counter[1]);
    Value mixed2 = w.exclusiveOr(w.high(first), counter[3]);
    counter = {w.exclusiveOr(mixed0, w.bits(mixed0, key[0])), w.word(second),
               w.exclusiveOr(mixed2, w.bits(mixed2, key[1])), w.word(first)};
    key[0] += 0x9E3779B9, key[1] += 0xBB67AE85;
  }
  Value which = e.make<arith::AndIOp>(number, e.number(number, 3));
  Value word = counter[0];
  for (int i = 1; i < 4; ++i)
    word = e.select(e.make<arith::CmpIOp>(arith::CmpIPredicate::eq, which, e.number(which, i)),
                    counter[i], word);
  return word;
}

} // namespace

Value keepsElement(const Elements &e, Value number, Value step, int64_t key, int64_t seed,
                   double ratio) {
  Value word = philoxWord(e, number, step, key, seed);
  auto threshold = uint32_t(std::floor(std::ldexp(ratio, 32)));
  return e.make<arith::CmpIOp>(arith::CmpIPredicate::uge, word,
                               e.number(word, double(int32_t(threshold))));
}

namespace {

/// Operands: input, step, the indices of each dim.
Value buildDropout(DropoutTrainOp op, const Elements &e, ValueRange x) {
  Value number = e.constant(Elements::typeLike(x[0], e.builder.getI64Type()), 0);
  for (Value index : x.drop_front(2))
    number = e.add(number, index);
  double ratio = op.getRatio().convertToDouble();
  Value keeps = keepsElement(e, number, x[1], op.getKey(), op.getSeed(), ratio);
  Value scale = e.number(x[0], double(1.0F / float(1 - ratio)));
  Value trained = e.select(keeps, e.mul(x[0], scale), e.number(x[0], 0));
  Value isEvaluation = e.make<arith::CmpIOp>(arith::CmpIPredicate::eq, x[1], e.number(x[1], 0));
  return e.select(e.splat(isEvaluation, trained), x[0], trained);
}

/// Operands: step, the indices of each dim.
Value buildUniform(RandomUniformTrainOp op, const Elements &e, ValueRange x) {
  Value number = e.constant(e.builder.getI64Type(), 0);
  for (Value index : x.drop_front(1))
    number = e.add(number, index);
  Value word = philoxWord(e, number, x[0], op.getKey(), op.getSeed());
  Value bits = e.make<arith::ShRUIOp>(word, e.number(word, 8));
  Value y = e.make<arith::UIToFPOp>(Elements::typeLike(bits, e.builder.getF32Type()), bits);
  return e.mul(y, e.number(y, 0x1p-24));
}

} // namespace

void attachRandomKernels(MLIRContext &context) {
  RandomUniformTrainOp::attachInterface<
      ElementModel<RandomUniformTrainOp, buildUniform, Types::All>>(context);
  DropoutTrainOp::attachInterface<ElementModel<DropoutTrainOp, buildDropout, Types::All>>(context);
}

} // namespace tbc::region
