//===- KernelError.h - The exception of kernels for invalid operands ------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_KERNELERROR_H
#define TBC_RUNTIME_KERNELS_KERNELERROR_H

#include <stdexcept>
#include <string>

namespace tbc::kernels {

/// Thrown for operands or attributes that cannot occur in a verified module (missing attribute,
/// wrong shape). Also thrown for data without a meaning (a gather index out of range, a non-finite
/// residue). The message names the culprit. Executors catch it at the op and add the op's name.
class KernelError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// Throws KernelError with `message` unless `condition` holds. The message is built only then.
template <typename MessageFn> void require(bool condition, MessageFn &&message) {
  if (!condition)
    throw KernelError(message());
}
inline void require(bool condition, const char *message) {
  if (!condition)
    throw KernelError(message);
}

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_KERNELERROR_H
