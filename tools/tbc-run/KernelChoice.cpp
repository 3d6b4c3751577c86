//===- KernelChoice.cpp - Choose kernels and report their times ---------------===//

#include "tools/tbc-run/KernelChoice.h"

#include "runtime/cpu/CheckedMachine.h"
#include "runtime/launch/Environment.h"
#include "runtime/launch/Say.h"

#include <algorithm>
#include <cstdio>

namespace tbc::cli {

int numThreads(const RunOptions &options, int64_t numLocalRanks) {
  return options.threads > 0 ? options.threads
                             : int(std::max<int64_t>(1, launch::numCores() / numLocalRanks));
}

Result<runtime::MachineMaker>
machineOf(const train::LoadedProgram &loaded, const RunOptions &options, int64_t numLocalRanks,
          const std::shared_ptr<cpu::KernelComparisons> &comparisons) {
  if (options.kernels == "reference" || options.arith != "native")
    return runtime::MachineMaker(runtime::makeReferenceMachine);
  auto compiled = cpu::compiledKernelsOf(loaded.program, loaded.files, loaded.manifest.programHash);
  if (!compiled)
    return compiled.error();
  cpu::NativeOptions native;
  native.compiled = *compiled;
  native.threads = numThreads(options, numLocalRanks);
  if (!options.checksItself)
    return cpu::nativeMachine(native);
  cpu::CheckOptions check;
  check.native = native;
  check.comparisons = comparisons;
  check.steps = 1;
  check.stops = true;
  return cpu::checkedMachine(check);
}

void reportSelfCheck(const cpu::KernelComparisons &comparisons) {
  double worst = 0;
  int64_t executions = 0;
  const std::vector<cpu::KernelComparison> kernels = comparisons.list();
  for (const cpu::KernelComparison &kernel : kernels) {
    worst = std::max(worst, kernel.worst);
    executions += kernel.count;
  }
  char text[160];
  std::snprintf(text, sizeof text,
                "self-check: all %zu kernels of rank 0 (%lld executions of step 1) agree with "
                "the reference kernels, the worst at %.2g of its bound",
                kernels.size(), static_cast<long long>(executions), worst);
  launch::say(text);
}

/// Example: "1.234 ms" for 0.001234.
static std::string milliseconds(double seconds) {
  char text[40];
  std::snprintf(text, sizeof text, "%.3f ms", seconds * 1e3);
  return text;
}

void reportKernels(std::vector<runtime::KernelShare> shares, bool isVerbose) {
  double total = 0, slow = 0; // seconds
  std::string slowOps;
  std::sort(shares.begin(), shares.end(),
            [](const auto &a, const auto &b) { return a.seconds > b.seconds; });
  for (const runtime::KernelShare &share : shares) {
    total += share.seconds;
    if (!share.isReference || share.count == 0)
      continue;
    slow += share.seconds;
    slowOps += (slowOps.empty() ? "" : " ") + share.op;
  }
  auto percent = [&](double seconds) {
    return std::to_string(int(100 * seconds / std::max(total, 1e-9) + 0.5)) + " %";
  };
  std::string text;
  if (isVerbose && !shares.empty()) {
    text = "kernels of rank 0 took " + milliseconds(total);
    for (const runtime::KernelShare &share : shares)
      if (share.count > 0) {
        char line[160];
        std::snprintf(line, sizeof line, "\n  %-22s %-9s %10lld x %14s  %5.1f %%", share.op.c_str(),
                      share.isReference ? "reference" : "", static_cast<long long>(share.count),
                      milliseconds(share.seconds).c_str(),
                      100 * share.seconds / std::max(total, 1e-9));
        text += line;
      }
  } else if (slow > 0.1 * total && slow > 1) {
    text = percent(slow) +
           " of the kernels' time went to ops that have slow reference "
           "kernels only: " +
           slowOps;
  }
  if (!text.empty())
    launch::say(text);
}

} // namespace tbc::cli
