//===- AssignStreams.h - What runs beside what -------------------------------===//

#ifndef TBC_CODEGEN_ASSIGNSTREAMS_H
#define TBC_CODEGEN_ASSIGNSTREAMS_H

#include "runtime/abi/Program.h"

namespace tbc {

/// Puts the communication of every block on a stream beside its kernels and slices, with the waits
/// of memory::overlapCommunication. The order of instructions stays, so collectives meet as before.
void assignStreams(program::Program &program);

} // namespace tbc

#endif // TBC_CODEGEN_ASSIGNSTREAMS_H
