//===- Lanes.h - Actions applied to every lane -----------------------------===//
//
// Internal to the executor.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_PTX_LANES_H
#define TBC_TESTS_PTX_LANES_H

#include "tests/ptx/Decode.h"
#include "tests/ptx/Warp.h"

namespace tbc::ptx {

/// at[0] = Op(at[1]), with values of type T.
template <typename T, typename Op> void unary(Warp &warp, const Instruction &i) {
  const T *a = warp.at<T>(i.at[1]);
  each<T>(warp, i.at[0], [=](int lane) { return Op()(a[lane]); });
}
template <typename T, typename Op> void binary(Warp &warp, const Instruction &i) {
  const T *a = warp.at<T>(i.at[1]), *b = warp.at<T>(i.at[2]);
  each<T>(warp, i.at[0], [=](int lane) { return Op()(a[lane], b[lane]); });
}
template <typename T, typename Op> void ternary(Warp &warp, const Instruction &i) {
  const T *a = warp.at<T>(i.at[1]), *b = warp.at<T>(i.at[2]), *c = warp.at<T>(i.at[3]);
  each<T>(warp, i.at[0], [=](int lane) { return Op()(a[lane], b[lane], c[lane]); });
}
/// at[0], of type To, = Op(at[1]), of type From.
template <typename To, typename From, typename Op> void unaryTo(Warp &warp, const Instruction &i) {
  const From *a = warp.at<From>(i.at[1]);
  each<To>(warp, i.at[0], [=](int lane) { return Op()(a[lane]); });
}

/// Reads the operands of an instruction with a single type.
inline void takeOperands(Decoder &d, int bytes, int numInputs) {
  d.instruction.at[0] = d.write(0, bytes);
  for (int input = 1; input <= numInputs; ++input)
    d.instruction.at[size_t(input)] = d.read(size_t(input), bytes);
}

} // namespace tbc::ptx

#endif // TBC_TESTS_PTX_LANES_H
