//===- Emulator.h - The emulated GPUs of this process ----------------------===//
//
// A driver (FakeDriver) whose kernels are PTX, executed by tests/ptx. Of a process there is one,
// made when its first function is called. It is in libcuda.so.1; the libraries beside it enqueue
// their work there. What is wrong is said on stderr, with "emulated GPU:" before it, and the
// device is lost: the next call fails.
//
// Read from the environment: TBC_EMULATED_GPUS, how many devices (2); TBC_EMULATED_CAPABILITY, 10
// major + minor (100: it takes the PTX of sm_90, and no machine code that ptxas made for that);
// TBC_EMULATED_STATISTICS, a file to which every launch appends a line.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_EMULATED_EMULATOR_H
#define TBC_TESTS_EMULATED_EMULATOR_H

#include "tests/runtime/cuda/FakeDriver.h"

namespace tbc::emulated {

test::FakeDriver &driver();

/// The table of the driver, which exists from then on.
const cuda::Driver &driverTable();

/// Prints it after "emulated GPU: ".
void say(const std::string &text);

} // namespace tbc::emulated

#endif // TBC_TESTS_EMULATED_EMULATOR_H
