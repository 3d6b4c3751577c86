//===- Calibrate.h - Measure the speed of this machine -----------------------===//
//
// Plain C++. Measures under the conditions of a run: all ranks work at once; kernels run on the
// backend that executes Programs, collectives on the communicator.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TOOLS_CALIBRATE_CALIBRATE_H
#define TBC_TOOLS_CALIBRATE_CALIBRATE_H

#include "runtime/comm/Communicator.h"
#include "runtime/exec/Machine.h"

#include <string>
#include <vector>

namespace tbc::calibrate {

struct Options {
  int64_t ranks = 2;
  /// Small sizes only, for a trial in seconds; the numbers are inaccurate.
  bool isQuick = false;
  int threads = 1; // per rank
  /// The share of a core per rank, if ranks of one thread share cores; else 1. Example: 0.5 for 8
  /// ranks on 4 cores.
  double coreShare = 1;
  runtime::MachineMaker machine = runtime::makeReferenceMachine; // makes the backend of each rank
};

/// One kernel at one size; the mean over the ranks.
struct KernelPoint {
  std::string dtype; // "f32", "bf16"
  int64_t size = 0;  // rows of a square matmul, else elements
  double flops = 0, bytes = 0, seconds = 0;
};

struct CollectivePoint {
  std::string kind; // "all_reduce", "all_gather"
  int64_t ranks = 0;
  double bytes = 0; // of the whole tensor, bytes
  double seconds = 0;
};

struct Measurements {
  int64_t ranks = 0;
  std::string device;            // model of the GPUs; empty: CPUs
  double memoryBytes = 0;        // of the machine, or of one GPU
  double processBytes = 0;       // of a rank after connecting to the others
  double bytesPerSecond = 0;     // of one rank's loop, while all ranks run it
  double hostBytesPerSecond = 0; // of a copy from host to GPU
  double kernelFloor = 0;        // seconds of a kernel on one element
  // rows: one row times a matrix; adds: copies on GPUs
  std::vector<KernelPoint> matmuls, rows, adds;
  std::vector<CollectivePoint> collectives;
};

/// Starts the ranks and measures. Errors: a rank failed; its message is on stderr.
Result<Measurements> measure(const Options &options);

/// Measures kernels in one rank of `measure`. Fills all fields but `ranks`, with the same values on
/// all ranks.
Status measureKernels(const Options &options, comm::Communicator &communicator,
                      Measurements &measurements);
Status measureCollectives(const Options &options, comm::Communicator &communicator,
                          Measurements &measurements);

/// Returns the mean of `mine` over the ranks.
Result<double> meanOf(comm::Communicator &communicator, double mine);

/// Returns the coefficients c >= 0 with the smallest relative error of rows * c against `seconds`:
/// least squares of (row . c - t) / t. The most negative coefficient is dropped until there are no
/// negative ones, which is exact for the two or three coefficients in use. Rows have equal lengths;
/// there are at least as many rows as coefficients. Example: rows {1, 10}, {1, 20} and 3, 5 seconds
/// give {1, 0.2}.
std::vector<double> fit(const std::vector<std::vector<double>> &rows,
                        const std::vector<double> &seconds);

/// Returns the mean of |row . c - t| / t.
double relativeError(const std::vector<std::vector<double>> &rows,
                     const std::vector<double> &seconds, const std::vector<double> &coefficients);

/// Returns a cluster file, with the measurements as comments. `name`: the cluster's name.
std::string clusterText(const Measurements &measurements, const std::string &name);

} // namespace tbc::calibrate

#endif // TBC_TOOLS_CALIBRATE_CALIBRATE_H
