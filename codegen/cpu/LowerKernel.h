//===- LowerKernel.h - From the text of a kernel to an object file ----------===//

#ifndef TBC_CODEGEN_CPU_LOWERKERNEL_H
#define TBC_CODEGEN_CPU_LOWERKERNEL_H

#include "codegen/cpu/CpuTarget.h"
#include "runtime/abi/Status.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tbc::cpu {

/// Lowers modules of arith, math, vector, scf and llvm to machine code. Each has a context of its
/// own, so several may work at the same time; one alone is not to be used by two threads.
class KernelLowering {
public:
  explicit KernelLowering(CpuTarget target);
  ~KernelLowering();

  /// The bytes of the ELF object that defines what `text`, a module, defines. The same text is the
  /// same bytes. exp, log, tanh, erf and atan of f32 become polynomials; other functions calls of
  /// libm. Errors (bugs of the compiler) name what LLVM or MLIR says.
  Result<std::string> lower(const std::string &text);

  /// The object that defines these symbols as constant texts that end with a zero.
  Result<std::string> defineTexts(const std::vector<std::pair<std::string, std::string>> &texts);

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace tbc::cpu

#endif // TBC_CODEGEN_CPU_LOWERKERNEL_H
