//===- Processor.cpp - Processor counts and latencies of GPUs --------------===//

#include "tools/roofline/Processor.h"

namespace tbc::roofline {

namespace {

/// Multiprocessors: NVIDIA's data sheets and white papers of each architecture (V100 80, A100 108,
/// H100 SXM 132, H100 PCIe 114, H200 132, L4 58, L40S 142, RTX 4090 128, B200 148).
///
/// Latency of a load from device memory, in cycles: 466.3 on A100, 478.8 on H800, 541.5 on RTX 4090
/// (Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture", arXiv 2402.13499,
/// memory latencies). Assumed: V100 as A100; H100, H200, B200 as H800, which is Hopper too; L4 and
/// L40S as RTX 4090, which is Ada too. No device here has confirmed them.
struct Row {
  const char *cluster;
  int capability, multiprocessors;
  double latencyCycles;
};
constexpr Row rows[] = {
    {"v100-16gb", 70, 80, 466.3},       {"v100-32gb", 70, 80, 466.3},
    {"a100-40gb-sxm", 80, 108, 466.3},  {"a100-80gb-sxm", 80, 108, 466.3},
    {"a100-80gb-pcie", 80, 108, 466.3}, {"a800-80gb-sxm", 80, 108, 466.3},
    {"h100-sxm", 90, 132, 478.8},       {"h800-sxm", 90, 132, 478.8},
    {"h20-sxm", 90, 78, 478.8},         {"h100-pcie", 90, 114, 478.8},
    {"h200-sxm", 90, 132, 478.8},       {"l4", 89, 58, 541.5},
    {"l40s", 89, 142, 541.5},           {"rtx4090", 89, 128, 541.5},
    {"b200", 100, 148, 478.8},          {"gb200-nvl72", 100, 148, 478.8},
    {"gb300-nvl72", 103, 148, 478.8},
};

} // namespace

std::optional<Processor> processorOf(const planner::Cluster &cluster) {
  for (const Row &row : rows) {
    if (cluster.name != row.cluster)
      continue;
    Processor found;
    found.capability = row.capability;
    found.multiprocessors = row.multiprocessors;
    // "CUDA C++ Programming Guide", technical specifications by compute capability: resident
    // threads, and FP32 results per cycle of a multiprocessor.
    found.threadsPerMultiprocessor = row.capability == 89 ? 1536 : 2048;
    int lanes = row.capability <= 80 ? 64 : 128;
    // An FMA counts as two operations. Example: h100-sxm has 6.7e13 / (132 * 128 * 2) = 1.98 GHz.
    found.clockHertz =
        cluster.vectorFlopsPerSecond / (2.0 * double(row.multiprocessors) * double(lanes));
    constexpr int hopper = 90;
    constexpr double shareOfHopper = 0.629;
    found.mmaShare = row.capability >= hopper ? shareOfHopper : 1;
    found.latencySeconds = row.latencyCycles / found.clockHertz;
    return found;
  }
  return std::nullopt;
}

} // namespace tbc::roofline
