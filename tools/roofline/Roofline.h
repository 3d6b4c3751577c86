//===- Roofline.h - Roofline time of kernel launches -----------------------===//
//
// Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TOOLS_ROOFLINE_ROOFLINE_H
#define TBC_TOOLS_ROOFLINE_ROOFLINE_H

#include "tools/roofline/Launches.h"
#include "tools/roofline/Processor.h"

#include <functional>
#include <map>

namespace tbc::roofline {

/// The work of an instruction, as counted by the planner.
struct OpCost {
  double flops = 0;
  reshard::KernelClass kernelClass = reshard::KernelClass::Elementwise;
  reshard::OwnKernel own; // where no library has the instruction
};
using CostOf =
    std::function<Result<OpCost>(const program::Stage &stage, const program::Instruction &)>;

/// The limit that bounds a launch's time.
enum class Bound { Memory, Flops, Launch, Blocks, Host };

/// "memory", "flops", "launch", "blocks", "host".
const char *name(Bound bound);

/// One execution of a launch.
struct Estimate {
  Launch launch;
  int launches = 1; // of the device: a kernel may take several, with a workspace between them
  double bytes = 0; // of operands and results, and of the workspace, written and read once
  double flops = 0;
  int64_t blocks = 0; // of the kernel's largest launch; 0 if unknown
  double seconds = 0;
  Bound bound = Bound::Memory;
};

/// The peaks of a device. h100-sxm: 3350 GB/s, 989 TFLOP/s in bf16, 132 multiprocessors.
struct Machine {
  planner::Cluster cluster;
  std::optional<Processor> processor; // null: kernels are assumed to fill the device
};

/// Returns the seconds of every launch:
///
///     max(launches * launch, max(bytes / bandwidth, flops / rate) / min(1, blocks /
///     multiprocessors))
///
/// - `launch` is the cluster's launch_seconds.
/// - `rate` is the ops' class rate for libraries and CPUs, and the vector units' rate for GPU
///   kernels. Those on tensor cores have the rate of mma.sync (Processor::mmaShare) in 16-bit
///   types, and may execute more FLOPs than the op has (OwnKernel).
/// - No efficiency is applied: these are bounds, not predictions (tbc plan predicts).
/// - A kernel of fewer blocks than multiprocessors gets their share of bandwidth and arithmetic.
/// - Gathers and views read at most as many bytes of an operand as their results have.
/// - Ops without a kernel move their bytes over the host's link.
///
/// Example: a column sum of 25 MB by 1 block on h100-sxm takes 25e6 / 3.35e12 = 7.5 us at full
/// bandwidth. One multiprocessor takes 132 times that, 0.99 ms: bound by "blocks".
///
/// Errors: those of `costOf`, at the instruction.
Result<std::vector<Estimate>> estimate(const program::Program &program,
                                       const program::CudaKernels *kernels, const Machine &machine,
                                       const CostOf &costOf);

/// Launches of one kind, summed over a step: the same ops of one stage, executed by the same
/// backend.
struct Kind {
  int stage = 0;
  std::string what;
  By by = By::Kernel;
  int64_t launches = 0; // of the device
  double bytes = 0, flops = 0, seconds = 0;
  std::map<Bound, double> bySeconds; // seconds by bound
  int64_t fewestBlocks = 0;          // of launches bound by blocks; 0: there are none
  Bound bound() const;
};

/// Returns kinds by stage, then by descending seconds.
std::vector<Kind> kindsOf(const std::vector<Estimate> &estimates);

struct TableOptions {
  bool all = false; // one row per launch instead of one per kind
  bool json = false;
};

/// Returns the table as text or as JSON: {"format": "tbc-roofline", "version": 1, ...}.
std::string tableOf(const program::Program &program, const std::vector<Estimate> &estimates,
                    const Machine &machine, bool isCuda, const TableOptions &options);

} // namespace tbc::roofline

#endif // TBC_TOOLS_ROOFLINE_ROOFLINE_H
