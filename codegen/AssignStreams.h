//===- AssignStreams.h - Overlap communication with kernels ------------------===//

#ifndef TBC_CODEGEN_ASSIGNSTREAMS_H
#define TBC_CODEGEN_ASSIGNSTREAMS_H

#include "runtime/abi/Program.h"

namespace tbc {

/// Moves the communication of every block to a stream beside the compute stream of its kernels and
/// slices, and adds the waits of `memory::overlapCommunication`. The instruction order stays, so
/// all ranks still meet in the same order of collectives.
void assignStreams(program::Program &program);

} // namespace tbc

#endif // TBC_CODEGEN_ASSIGNSTREAMS_H
