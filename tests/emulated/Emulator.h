//===- Emulator.h - The emulated GPUs of this process ----------------------===//
//
// A driver (FakeDriver) whose kernels are PTX, executed by tests/ptx. A process has one emulator,
// created by the first call of one of its functions. It is in libcuda.so.1; the libraries beside it
// enqueue their work there. Faults are printed to stderr after "emulated GPU:", and the device is
// lost: the next call fails.
//
// Environment variables:
//
// - TBC_EMULATED_GPUS: the number of devices (default 2).
// - TBC_EMULATED_CAPABILITY: 10 * major + minor (default 100, which takes PTX of sm_90). Machine
//   code is refused, so PTX is taken in its place.
// - TBC_EMULATED_STATISTICS: a file; every launch appends a line.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_EMULATED_EMULATOR_H
#define TBC_TESTS_EMULATED_EMULATOR_H

#include "tests/runtime/cuda/FakeDriver.h"

namespace tbc::emulated {

test::FakeDriver &driver();

/// Returns the table of the driver, and creates the driver if needed.
const cuda::Driver &driverTable();

/// Prints `text` after "emulated GPU: ".
void say(const std::string &text);

} // namespace tbc::emulated

#endif // TBC_TESTS_EMULATED_EMULATOR_H
