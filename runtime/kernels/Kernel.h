//===- Kernel.h - The reference kernels, by op mnemonic --------------------===//
//
// Part of tbc. Plain C++.
//
// A reference kernel is the plain meaning of one op, in every arithmetic. The IR's evaluation
// interface and the in-process runtime both execute it, so neither needs the other.
//
// Arithmetic rules that all kernels share:
//  - Sums of Native f32, bf16 and f16 values are accumulated in double, in ascending index order,
//  and
//    rounded once. Composites compute their elementwise steps in float and round to the dtype at
//    the end.
//  - A real constant c of a composite's formula (epsilon, scale, sqrt(1/2) ...) stands for c
//  rounded to f32,
//    unless the op computes in f64: the value a decomposed graph holds in a f32 `constant`.
//  - In residues every kernel equals its formula over Z/p exactly; the formula stands in the
//  docstring.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_KERNEL_H
#define TBC_RUNTIME_KERNELS_KERNEL_H

#include "runtime/kernels/Attrs.h"
#include "runtime/kernels/Tensor.h"

#include <string>
#include <string_view>
#include <vector>

namespace tbc::kernels {

struct KernelContext {
  KernelContext(Arith arith = Arith::Native) : arith(arith) {} // NOLINT: an arithmetic says it all

  Arith arith;
  /// The one residue for "not finite". It has no effect on arithmetic; a test plants it by naming
  /// the residue of a value. The default is harmless: a value equals it with a probability of
  /// 2^-61, about 4e-19.
  Residue notFinite{0x0a3c59d7e1b6f284};
};

/// The results of an op, one per entry of `resultTypes`. Inputs have elements of `context.arith`.
/// Throws KernelError for operands that the op's verifier rejects.
using KernelFn = std::vector<Tensor> (*)(const KernelContext &context, const Attrs &attrs,
                                         const std::vector<Tensor> &inputs,
                                         const std::vector<TensorType> &resultTypes);

/// The kernel of the op called `opMnemonic` (without "tbc."), or nullptr without one. Collectives
/// have no kernel: they are not local.
KernelFn findKernel(std::string_view opMnemonic);

/// Whether element i of every result depends only on element i of each operand of the result's
/// shape and on scalar operands, for all attributes. Such a kernel may write a result over an
/// operand of the result's type: it reads an element before it writes it. False for an op without a
/// kernel. Example: true for add, false for softmax.
bool isElementwiseKernel(std::string_view opMnemonic);

/// Every mnemonic with a kernel, sorted.
std::vector<std::string> kernelNames();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_KERNEL_H
