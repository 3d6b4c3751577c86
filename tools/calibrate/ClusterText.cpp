//===- ClusterText.cpp - Measurements as a cluster file ----------------------===//

#include "tools/calibrate/Calibrate.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace tbc::calibrate {

static std::string format(const char *text, ...) __attribute__((format(printf, 1, 2)));
static std::string format(const char *text, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, text);
  std::vsnprintf(line, sizeof line, text, arguments);
  va_end(arguments);
  return line;
}

namespace {

/// Time of a matmul: ramp + flops / peak.
struct MatmulLine {
  double ramp = 0, peak = 0, error = 0;
};

/// Time of a collective: start + steps * latency + bytes on the wire / bandwidth.
struct NetworkLine {
  double start = 0, latency = 0, bytesPerSecond = 0, error = 0;
};

} // namespace

static MatmulLine matmulLine(const std::vector<KernelPoint> &points, const std::string &dtype,
                             double floor) {
  std::vector<std::vector<double>> rows;
  std::vector<double> seconds;
  double best = 0;
  for (const KernelPoint &point : points) {
    if (point.dtype != dtype)
      continue;
    rows.push_back({1, point.flops});
    seconds.push_back(point.seconds);
    best = std::max(best, point.flops / point.seconds);
  }
  std::vector<double> found = fit(rows, seconds);
  MatmulLine line;
  line.ramp = std::max(0.0, found[0] - floor);
  line.peak = found[1] > 0 ? 1 / found[1] : best;
  line.error = relativeError(rows, seconds, found);
  return line;
}

/// Uses the planner's counts of steps and bytes (planner/cost/Cost.h).
static NetworkLine networkLine(const std::vector<CollectivePoint> &points) {
  std::vector<std::vector<double>> rows;
  std::vector<double> seconds;
  for (const CollectivePoint &point : points) {
    double n = double(point.ranks), times = point.kind == "all_reduce" ? 2 : 1;
    rows.push_back({1, times * std::log2(n), times * (n - 1) / n * point.bytes});
    seconds.push_back(point.seconds);
  }
  std::vector<double> found = fit(rows, seconds);
  NetworkLine line;
  line.start = found[0];
  line.latency = found[1];
  constexpr double unbounded = 1e12; // bytes per second; their cost is not measurable
  line.bytesPerSecond = found[2] > 0 ? 1 / found[2] : unbounded;
  line.error = relativeError(rows, seconds, found);
  return line;
}

static double best(const std::vector<KernelPoint> &points, double KernelPoint::*what) {
  double rate = 0;
  for (const KernelPoint &point : points)
    rate = std::max(rate, point.*what / point.seconds);
  return rate;
}

static std::string comments(const Measurements &m) {
  std::string text;
  for (const KernelPoint &point : m.matmuls)
    text += format("#   matmul %s, %lld x %lld x %lld: %.3g s, %.2f GFLOP/s\n", point.dtype.c_str(),
                   (long long)point.size, (long long)point.size, (long long)point.size,
                   point.seconds, point.flops / point.seconds / 1e9);
  for (const KernelPoint &point : m.rows)
    text += format("#   one row times %lld x %lld: %.3g s, %.2f GB/s\n", (long long)point.size,
                   (long long)point.size, point.seconds, point.bytes / point.seconds / 1e9);
  for (const KernelPoint &point : m.adds)
    text += format("#   %s of %lld: %.3g s, %.2f GB/s\n",
                   m.device.empty() ? "sum of two vectors" : "copy of a vector",
                   (long long)point.size, point.seconds, point.bytes / point.seconds / 1e9);
  for (const CollectivePoint &point : m.collectives)
    text += format("#   %s of %.0f bytes over %lld ranks: %.3g s\n", point.kind.c_str(),
                   point.bytes, (long long)point.ranks, point.seconds);
  return text;
}

/// Network lines of GPUs: measured with several GPUs, else assumed.
static std::string gpuNetwork(const Measurements &m) {
  const char *section = "[network.intra_node]\n";
  if (m.collectives.empty())
    return std::string("# Not measured with one GPU; as h100-sxm.\n") + section +
           "bytes_per_second = 3.6e11\nstart_seconds = 8e-6\nlatency_seconds = 1.4e-6\n\n";
  NetworkLine network = networkLine(m.collectives);
  return section + format("# start + steps * latency + bytes / bandwidth; mean error %.0f %%.\n"
                          "bytes_per_second = %.4g\nstart_seconds = %.4g\n"
                          "latency_seconds = %.4g\n\n",
                          100 * network.error, network.bytesPerSecond, network.start,
                          network.latency);
}

static std::string gpuClusterText(const Measurements &m, const std::string &name) {
  MatmulLine f32 = matmulLine(m.matmuls, "f32", m.kernelFloor);
  MatmulLine bf16 = matmulLine(m.matmuls, "bf16", m.kernelFloor);
  double rowShare = std::clamp(best(m.rows, &KernelPoint::bytes) / m.bytesPerSecond, 0.001, 1.0);
  double uncertainty = std::clamp(std::max(f32.error, bf16.error), 0.1, 0.9);
  std::string text = format("# Measured by `tbc calibrate --gpus %lld`: %s.\n", (long long)m.ranks,
                            m.device.c_str()) +
                     comments(m) + "\n";
  text +=
      format("name = \"%s\"\ndescription = \"%lld x %s, measured\"\ndevices_per_node = %lld\n\n",
             name.c_str(), (long long)m.ranks, m.device.c_str(), (long long)m.ranks);
  text += format("[device]\n# What the driver says.\nmemory_bytes = %.0f\n", m.memoryBytes);
  text += format("# Copies within the device, read and written.\nmemory_bytes_per_second = %.4g\n",
                 m.bytesPerSecond);
  text += format("# As of products of f32.\nvector_flops_per_second = %.4g\n", f32.peak);
  text += format("# A copy of four bytes among many.\nlaunch_seconds = %.4g\n\n", m.kernelFloor);
  text += format("[device.peak_flops_per_second]\n# Of square matmuls by cuBLASLt, as launch + "
                 "ramp + FLOPs / this; mean error %.0f %% and %.0f %%.\nf32 = %.4g\nbf16 = %.4g\n"
                 "# Not measured; as bf16.\nf16 = %.4g\n\n",
                 100 * f32.error, 100 * bf16.error, f32.peak, bf16.peak, bf16.peak);
  text += format("[kernel.matmul]\nflops_fraction = 1.0\nmemory_fraction = %.4g\n"
                 "ramp_seconds = %.4g\n\n",
                 rowShare, std::max(f32.ramp, bf16.ramp));
  text += "# Not measured; as h100-sxm, of libraries that are not called yet.\n"
          "[kernel.conv]\nflops_fraction = 0.55\nmemory_fraction = 0.75\nramp_seconds = 3e-6\n\n"
          "[kernel.attention]\nflops_fraction = 0.50\nmemory_fraction = 0.80\n"
          "ramp_seconds = 3e-6\n\n"
          "[kernel.default]\nflops_fraction = 0.50\nmemory_fraction = 0.70\n\n";
  text += gpuNetwork(m);
  text += "# Not measured; as h100-sxm.\n[network.inter_node]\nbytes_per_second = 4.5e10\n"
          "start_seconds = 3e-5\nlatency_seconds = 1.5e-5\n\n";
  text += format("[host]\n# Not counted: --offload needs it here.\nmemory_bytes = 0\n# To a GPU, "
                 "while the others do the same.\nbytes_per_second = %.4g\n\n",
                 m.hostBytesPerSecond);
  text += "# Not measured; as h100-sxm.\n[overlap]\nfraction = 0.8\n\n";
  text += format("[uncertainty]\n# The mean error of products, 0.1 at least.\ntime = %.2f\n\n",
                 uncertainty);
  text += format("[memory]\n# Taken on a GPU by a rank that has connected to the others.\n"
                 "context_bytes = %.0f\n# As h100-sxm.\nallocator_fraction = 0.03\n"
                 "reserved_fraction = 0.02\n",
                 m.processBytes);
  return text;
}

std::string clusterText(const Measurements &m, const std::string &name) {
  if (!m.device.empty())
    return gpuClusterText(m, name);
  MatmulLine f32 = matmulLine(m.matmuls, "f32", m.kernelFloor);
  MatmulLine bf16 = matmulLine(m.matmuls, "bf16", m.kernelFloor);
  NetworkLine network = networkLine(m.collectives);
  auto share = [&](double bytesPerSecond) {
    return std::clamp(bytesPerSecond / m.bytesPerSecond, 0.001, 1.0);
  };
  double rowShare = share(best(m.rows, &KernelPoint::bytes));
  // The largest size does not fit into caches.
  double addShare = share(m.adds.back().bytes / m.adds.back().seconds);
  double uncertainty = std::clamp(std::max({f32.error, bf16.error, network.error}), 0.1, 0.9);
  std::string text = "# Measured by `tbc calibrate` with " + std::to_string(m.ranks) +
                     " ranks on this machine at once, each by what `tbc run` executes.\n" +
                     comments(m) + "\n";
  text += format("name = \"%s\"\ndescription = \"this machine, measured with %lld ranks\"\n",
                 name.c_str(), (long long)m.ranks);
  text += format("devices_per_node = %lld\n\n[device]\n", (long long)m.ranks);
  text += format("# An equal share of the machine's %.1f GiB.\nmemory_bytes = %.0f\n",
                 m.memoryBytes / double(1 << 30), std::floor(m.memoryBytes / double(m.ranks)));
  text += format("# STREAM's triad, while the other ranks did the same.\n"
                 "memory_bytes_per_second = %.4g\n",
                 m.bytesPerSecond);
  text += format("# The most of the sums of vectors, one FLOP per element.\n"
                 "vector_flops_per_second = %.4g\n",
                 best(m.adds, &KernelPoint::flops));
  text += format("# A sum of one element.\nlaunch_seconds = %.4g\n\n", m.kernelFloor);
  text += format("[device.peak_flops_per_second]\n# Of square matmuls, as launch + ramp + FLOPs / "
                 "this; mean error %.0f %% and %.0f %%.\nf32 = %.4g\nbf16 = %.4g\n"
                 "# Not measured; as bf16.\nf16 = %.4g\n\n",
                 100 * f32.error, 100 * bf16.error, f32.peak, bf16.peak, bf16.peak);
  text += format("[kernel.matmul]\nflops_fraction = 1.0\nmemory_fraction = %.4g\n"
                 "ramp_seconds = %.4g\n\n",
                 rowShare, std::max(f32.ramp, bf16.ramp));
  for (const char *kernel : {"conv", "attention"})
    text += format("# Not measured; as matmul.\n[kernel.%s]\nflops_fraction = 1.0\n"
                   "memory_fraction = %.4g\nramp_seconds = %.4g\n\n",
                   kernel, rowShare, std::max(f32.ramp, bf16.ramp));
  text += format("[kernel.default]\n# Of sums of vectors.\nflops_fraction = 1.0\n"
                 "memory_fraction = %.4g\n\n",
                 addShare);
  text += format("[network.intra_node]\n# start + steps * latency + bytes / bandwidth; mean error "
                 "%.0f %%.\nbytes_per_second = %.4g\nstart_seconds = %.4g\n"
                 "latency_seconds = %.4g\n\n",
                 100 * network.error, network.bytesPerSecond, network.start, network.latency);
  text += "[network.inter_node]\n# Not measured: Gigabit Ethernet, as cpu-local has it.\n"
          "bytes_per_second = 1.1e8\nstart_seconds = 5e-5\nlatency_seconds = 1e-4\n\n";
  text += format(
      "[host]\n# Its memory is the device's, all of it.\nmemory_bytes = 0\n# A copy reads and "
      "writes.\nbytes_per_second = %.4g\n\n",
      m.bytesPerSecond / 2);
  text += "[overlap]\n# The same cores compute and communicate.\nfraction = 0.0\n\n";
  text += format("[uncertainty]\n# The largest mean error of the lines above, 0.1 at least.\n"
                 "time = %.2f\n\n",
                 uncertainty);
  text += format(
      "[memory]\n# A rank that has connected to the others and holds nothing.\n"
      "context_bytes = %.0f\n# As cpu-local.\nallocator_fraction = 0.03\n"
      "reserved_fraction = 0.02\nkernel_workspace = false # kernels on CPUs have one launch\n",
      m.processBytes);
  return text;
}

} // namespace tbc::calibrate
