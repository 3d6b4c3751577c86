//===- LowerKernel.h - Compile the text of a kernel to an object file -------===//

#ifndef TBC_CODEGEN_CPU_LOWERKERNEL_H
#define TBC_CODEGEN_CPU_LOWERKERNEL_H

#include "codegen/cpu/CpuTarget.h"
#include "runtime/abi/Status.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tbc::cpu {

/// Lowers modules of arith, math, vector, scf and llvm to machine code. Each instance has its own
/// context: several may work in parallel, but each only in one thread.
class KernelLowering {
public:
  explicit KernelLowering(CpuTarget target);
  ~KernelLowering();

  /// Returns the bytes of the ELF object of `text`, a module. The same text gives the same bytes.
  /// exp, log, tanh and erf of f32 become polynomials; other functions become calls of libm.
  /// Errors (bugs of the compiler) quote the message of LLVM or MLIR.
  Result<std::string> lower(const std::string &text);

  /// Returns an object that defines these (symbol, text) pairs as constant zero-terminated strings.
  Result<std::string> defineTexts(const std::vector<std::pair<std::string, std::string>> &texts);

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace tbc::cpu

#endif // TBC_CODEGEN_CPU_LOWERKERNEL_H
