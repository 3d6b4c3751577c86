//===- Failed.h - The error of a rank that cannot go on ---------*- C++ -*-===//

#ifndef TBC_RUNTIME_EXEC_FAILED_H
#define TBC_RUNTIME_EXEC_FAILED_H

#include "runtime/exec/Machine.h"

#include <string>

namespace tbc::runtime {

inline Error failed(const std::string &place, const std::string &why) {
  return Error{ErrorCode::RankFailed, place + ": " + why};
}

/// Uses the code of a failed device if the machine reported one.
inline Error failed(const std::string &place, const kernels::KernelError &error) {
  auto *ofMachine = dynamic_cast<const MachineError *>(&error);
  return Error{ofMachine ? ofMachine->code() : ErrorCode::RankFailed, place + ": " + error.what()};
}

} // namespace tbc::runtime

#endif // TBC_RUNTIME_EXEC_FAILED_H
