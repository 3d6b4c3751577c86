//===- CaseGradient.h - The gradient of an op case -------------------------===//

#ifndef TBC_TESTS_IR_CASEGRADIENT_H
#define TBC_TESTS_IR_CASEGRADIENT_H

#include "tests/ir/OpCases.h"

#include <memory>

namespace tbc {

using Tensors = std::vector<kernels::Tensor>;

/// An op case in f64, and its VJP.
struct CaseGradient {
  std::unique_ptr<ParsedModule> forward;
  Tensors operands;
  /// Belongs to the first result; random.
  kernels::Tensor cotangent;
  /// The operands with a gradient, and their gradients.
  std::vector<unsigned> wanted;
  Tensors gradients;
};

/// Fills `result`. Fails the test where the op has no gradient.
void computeGradient(const OpCase &opCase, CaseGradient &result);

/// Turns @f into the gradient: @f then takes the cotangent of the first result as one more
/// argument, and returns the cotangents of the operands `wanted`.
void differentiate(ParsedModule &module, const std::vector<unsigned> &wanted);

/// The results of @f in f64.
Tensors runInDoubles(ParsedModule &module, const Tensors &operands);

} // namespace tbc

#endif // TBC_TESTS_IR_CASEGRADIENT_H
