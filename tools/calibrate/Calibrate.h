//===- Calibrate.h - What this machine reaches -------------------------------===//
//
// Plain C++. Measured as a run would use it: by all ranks at once, kernels by the machine that
// executes Programs, collectives by the communicator.
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
  /// Small sizes only, to try it out: numbers that are not worth much, in seconds.
  bool isQuick = false;
  int threads = 1; // of a rank
  /// Of a core, where ranks of one thread take turns on the cores; else 1.
  double coreShare = 1;
  runtime::MachineMaker machine = runtime::makeReferenceMachine; // each rank makes its own
};

/// One kernel at one size, the mean over the ranks.
struct KernelPoint {
  std::string dtype; // "f32", "bf16"
  int64_t size = 0;  // of a square matmul its rows, else elements
  double flops = 0, bytes = 0, seconds = 0;
};

struct CollectivePoint {
  std::string kind; // "all_reduce", "all_gather"
  int64_t ranks = 0;
  double bytes = 0; // of the whole tensor
  double seconds = 0;
};

struct Measurements {
  int64_t ranks = 0;
  std::string device;                           // the model of the GPUs; empty: CPUs
  double memoryBytes = 0;                       // of the machine; of one GPU
  double processBytes = 0;                      // of a rank that has connected to the others
  double bytesPerSecond = 0;                    // of one rank's plain loop, while all do the same
  double hostBytesPerSecond = 0;                // of a copy from the host to a GPU
  double kernelFloor = 0;                       // seconds of a kernel on one element
  std::vector<KernelPoint> matmuls, rows, adds; // rows: one row times a matrix; adds: GPUs copy
  std::vector<CollectivePoint> collectives;
};

/// Starts the ranks and measures. Errors: a rank failed; what they say of it is on stderr.
Result<Measurements> measure(const Options &options);

/// Of `measure`, in each rank; fills all but `ranks`, alike on all of them.
Status measureKernels(const Options &options, comm::Communicator &communicator,
                      Measurements &measurements);
Status measureCollectives(const Options &options, comm::Communicator &communicator,
                          Measurements &measurements);

/// The mean of what the ranks say.
Result<double> meanOf(comm::Communicator &communicator, double mine);

/// The coefficients c >= 0 for which rows * c comes closest to `seconds` in relative error: least
/// squares of (row . c - t) / t, the most negative coefficient left out until there is none (exact
/// for the two or three that are used). Rows of equal length, at least as many as that.
std::vector<double> fit(const std::vector<std::vector<double>> &rows,
                        const std::vector<double> &seconds);

/// The mean of |row . c - t| / t.
double relativeError(const std::vector<std::vector<double>> &rows,
                     const std::vector<double> &seconds, const std::vector<double> &coefficients);

/// A cluster file, with what was measured as comments. `name`: of the cluster.
std::string clusterText(const Measurements &measurements, const std::string &name);

} // namespace tbc::calibrate

#endif // TBC_TOOLS_CALIBRATE_CALIBRATE_H
