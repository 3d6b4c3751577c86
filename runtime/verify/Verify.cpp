//===- Verify.cpp - Independent checks of a Program ------------------------===//

#include "runtime/verify/Verify.h"

namespace tbc::verify {

Status verifyProgram(const program::Program &program) {
  if (Status status = program::checkWellFormed(program); !status)
    return status;
  if (Status status = checkDataflow(program); !status)
    return status;
  if (Status status = checkLocations(program); !status)
    return status;
  if (Status status = checkOwnership(program); !status)
    return status;
  if (Status status = checkMatching(program); !status)
    return status;
  if (Status status = checkDeadlock(program); !status)
    return status;
  if (Status status = checkReplicas(program); !status)
    return status;
  if (Status status = checkHolders(program); !status)
    return status;
  if (Status status = checkLayouts(program); !status)
    return status;
  return checkMemory(program);
}

} // namespace tbc::verify
