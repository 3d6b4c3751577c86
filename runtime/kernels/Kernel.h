//===- Kernel.h - The reference kernels, by op mnemonic --------------------===//
//
// Part of tbc. Plain C++.
//
// A reference kernel defines the meaning of one op, in every arithmetic. Both the IR's evaluation
// interface and the in-process runtime execute it, so neither needs the other.
//
// Arithmetic rules for all kernels:
//
// - Sums of Native f32, bf16 and f16 values are accumulated in double, in ascending index order,
//   and rounded once. Composites compute their elementwise steps in float and round to the dtype at
//   the end.
// - A real constant c of a composite's formula (epsilon, scale, sqrt(1/2) ...) is rounded to f32,
//   unless the op computes in f64. A decomposed graph has the same value in an f32 `constant`. This
//   is a *composite constant*.
// - In residues every kernel equals its formula over Z/p exactly. The formula stands in the header
//   of its family.
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
  /// The one residue that means "not finite". It has no effect on arithmetic. A test plants it by
  /// setting it to the residue of a value. The default is harmless: a value equals it with a
  /// probability of 2^-61, about 4e-19.
  Residue notFinite{0x0a3c59d7e1b6f284};
};

/// Returns the results of an op, one per entry of `resultTypes`. Inputs have elements of
/// `context.arith`. Throws KernelError for operands that the op's verifier rejects.
using KernelFn = std::vector<Tensor> (*)(const KernelContext &context, const Attrs &attrs,
                                         const std::vector<Tensor> &inputs,
                                         const std::vector<TensorType> &resultTypes);

/// Returns the kernel of the op `opMnemonic` (without "tbc."), or nullptr if it has no kernel.
/// Collectives have no kernel, because they are not local.
KernelFn findKernel(std::string_view opMnemonic);

/// Returns whether the op is elementwise, for all attributes: element i of every result depends
/// only on element i of the operands of the result's shape, and on scalar operands. Such a kernel
/// reads an element before it writes it, so a result may overwrite an operand of its type. False
/// for an op without a kernel. Example: true for add, false for softmax.
bool isElementwiseKernel(std::string_view opMnemonic);

/// Every mnemonic with a kernel, sorted.
std::vector<std::string> kernelNames();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_KERNEL_H
