//===- Activation.h - Smooth activations and their gradients ---------------===//
//
// Part of tbc.
//
// Elementwise composites. Composite constants (see Kernel.h): c = sqrt(1/2) = 0.7071067811865476,
// k = 2/sqrt(pi) = 1.1283791670955126, t = sqrt(2/pi) = 0.7978845608028654, a = 0.044715.
//
//   gelu{none}        u = x * c;  y = 0.5 * x * (1 + erf(u))
//   gelu_grad{none}   dx = dy * (0.5 * (1 + erf(u)) + 0.5 * x * c * k * exp(-(u * u)))
//   gelu{tanh}        u = t * (x + a * x * x * x);  y = 0.5 * x * (1 + tanh(u))
//   gelu_grad{tanh}   h = tanh(u);
//                     dx = dy * (0.5 * (1 + h) + 0.5 * x * (1 - h * h) * t * (1 + 3 * a * x * x))
//   silu              y = x * sigmoid(x)
//   silu_grad         s = sigmoid(x);  dx = dy * (s + x * s * (1 - s))
//   swiglu            x, u -> y = x * sigmoid(x) * u
//   swiglu_grad       x, u, dy -> dx = dy * u * (s + x * s * (1 - s)), du = dy * (x * s)
//
// The gradients are the VJPs of the formulas, with these derivatives: erf has k * exp(-(u * u)),
// tanh 1 - h * h, sigmoid s * (1 - s). "none" and "tanh" are values of the attribute `approximate`.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_ACTIVATION_H
#define TBC_RUNTIME_KERNELS_ACTIVATION_H

#include "runtime/kernels/Support.h"

namespace tbc::kernels {

const KernelTable &activationKernels();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_ACTIVATION_H
