//===- Cluster.h - The devices and networks of a plan ---------------------===//
//
// Plain C++. Every constant of the cost and memory model comes from a cluster file
// (planner/clusters/*.toml), with its source. The code has no such constants.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_DEVICES_CLUSTER_H
#define TBC_PLANNER_DEVICES_CLUSTER_H

#include "planner/devices/Executor.h"
#include "planner/devices/Measured.h"
#include "planner/reshard/KernelClass.h"
#include "runtime/abi/Status.h"
#include "runtime/dtype/DType.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tbc::planner {

/// The most devices of a job.
constexpr int64_t mostDevices = int64_t(1) << 20;

using reshard::KernelClass;

/// The key of a kernel table of a cluster; nullopt stands for every class without a table.
using KernelKey = std::optional<KernelClass>;
/// Returns the word of a cluster file and of plan.json. Example: "matmul", "default".
std::string kernelWord(KernelKey key);
/// Returns all words: classes with a kernel, and "default".
const std::vector<std::string> &kernelWords();
/// The inverse of kernelWord(). Returns false for any word that is not in kernelWords().
bool parseKernelKey(const std::string &word, KernelKey &key);

/// The achieved fractions of the peaks of a device, for one kernel class.
struct KernelEfficiency {
  double flopsFraction = 1;  // of peak FLOP/s, in the limit of large operands
  double memoryFraction = 1; // of memory bandwidth
  /// Seconds added to the arithmetic while the first and the last tiles of a kernel do not fill the
  /// device.
  double rampSeconds = 0;
  /// For GEMMs: the depth (elements per sum) at which the fixed cost of a tile, filling its
  /// pipeline and writing it, equals its arithmetic.
  double halfDepth = 0;
  /// The executed share of the op's FLOPs; less than 1 if the kernel skips masked elements.
  double executedFraction = 1;
  /// Bytes moved per FLOP beside operands and results; more than 0 for attention with its scores in
  /// memory.
  double bytesPerFlop = 0;
  bool operator==(const KernelEfficiency &o) const {
    return flopsFraction == o.flopsFraction && memoryFraction == o.memoryFraction &&
           rampSeconds == o.rampSeconds && halfDepth == o.halfDepth &&
           executedFraction == o.executedFraction && bytesPerFlop == o.bytesPerFlop;
  }
};

/// One level of the network, as one device sees it.
struct NetworkLevel {
  double latencySeconds = 0; // of one step of a collective's algorithm
  double bytesPerSecond = 0; // bus bandwidth of one device, one direction
  double startSeconds = 0;   // per collective, for any size
  /// Bus bandwidth of smaller groups, by number of devices, if no switch gives every group the
  /// same. A group takes the entry of the smallest size at least its own, else `bytesPerSecond`.
  /// Example: with entries for 2 and 4, a group of 3 takes the entry for 4.
  std::map<int64_t, double> groupBytesPerSecond = {};
  /// Latency of one step around a ring. Large messages use the ring if it is faster than the trees
  /// for small messages. 0: no distinction.
  double ringStepSeconds = 0;
  /// Achieved share of the bandwidth with the protocol of small messages; 1: all.
  double smallFraction = 1;
  /// Bytes of an all_reduce per second if the switch reduces (NVLink SHARP); 0: it does not.
  double switchBytesPerSecond = 0;

  /// Returns the bus bandwidth in bytes/s of one device in a group of `devices`, one direction.
  double bandwidth(int64_t devices) const;
  bool operator==(const NetworkLevel &o) const {
    return latencySeconds == o.latencySeconds && bytesPerSecond == o.bytesPerSecond &&
           startSeconds == o.startSeconds && groupBytesPerSecond == o.groupBytesPerSecond &&
           ringStepSeconds == o.ringStepSeconds && smallFraction == o.smallFraction &&
           switchBytesPerSecond == o.switchBytesPerSecond;
  }
};

/// Both levels of a network.
struct Network {
  NetworkLevel intraNode, interNode;
};

/// Devices in nodes, a network inside a node and one between nodes. All devices and all nodes are
/// alike, except in a cluster with `groups` (isMixed).
struct Cluster {
  std::string name;
  std::string description;
  int64_t devicesPerNode = 1;

  int64_t memoryBytes = 0;
  double memoryBytesPerSecond = 0;
  /// Peak dense FLOP/s of matmul, conv and attention by rateKey(). Example: "bf16".
  std::map<std::string, double> peakFlopsPerSecond;
  /// Peak FLOP/s of everything else (vector units).
  double vectorFlopsPerSecond = 0;
  double launchSeconds = 0; // the gap before a kernel
  /// Least seconds per kernel, gap included: the pace at which the host issues kernels. Long
  /// kernels hide it.
  double floorSeconds = 0;
  std::map<KernelKey, KernelEfficiency> kernels;

  NetworkLevel intraNode;
  NetworkLevel interNode;

  /// Share of compute time available to hide data-parallel communication.
  double overlapFraction = 0;
  /// Slowdown: seconds added to the overlapping kernels per second of hidden communication.
  double overlapSlowdown = 0;
  /// Relative half-width of the interval printed around a predicted step time.
  double timeUncertainty = 0;
  /// The product of the measured factors that the times above have; 1: none. See applyMeasured().
  double timeFactor = 1;
  /// Measured times by executor, from the file; runBy() applies one and removes all.
  std::map<std::string, Measured> measured;
  /// Half-widths of the interval around predicted memory: of the context in bytes, and of the
  /// allocator's margin relative to the program's memory.
  int64_t contextUncertaintyBytes = 0;
  double allocatorUncertainty = 0;

  /// Per device: its share of the host's memory, and the bandwidth of its host link in one
  /// direction with pinned memory.
  int64_t hostMemoryBytes = 0;
  double hostBytesPerSecond = 0;

  int64_t contextBytes = 0;     // taken by driver, libraries and communicators
  double allocatorFraction = 0; // of program-owned bytes lost to fragmentation
  double reservedFraction = 0;  // of the device's memory, left unplanned
  /// Whether kernels of several launches keep values in memory of their own between these, as on
  /// GPUs (GraphOp::workspace).
  bool hasKernelWorkspace = true;
  /// Whether neighbouring kernels share launches, as on GPUs (reshard::joinLaunches).
  bool joinsLaunches() const { return hasKernelWorkspace; }

  /// The program that runs on these devices. Cluster files do not name it; runBy() does.
  Executor executor;

  /// The kinds of nodes, if a file names several: each kind as a cluster of its own with its number
  /// of nodes. Ranks fill them in this order. All other numbers here are then the best of any
  /// group, so no plan is faster or has more memory on the groups.
  std::vector<Cluster> groups;
  int64_t numNodes = 0; // of a group; 0: as many as requested
  /// The network between nodes of different groups; unset: the slower of the two groups' own
  /// networks between nodes.
  std::optional<NetworkLevel> betweenGroups;

  /// Whether devices or nodes differ; StageDevices then has the devices of each stage.
  bool isMixed() const;
  /// Sum over all groups; 0: as many as requested.
  int64_t numDevices() const;
  /// Describes a cluster with groups. Example: "2 nodes of 8 x h100-sxm and 1 node of 4 x l4".
  std::string groupsText() const;

  /// Returns the table of a class, else of its broader class, else of nullopt. Example: without a
  /// table for causal_attention, the table for attention. The rates of grouped matmuls are those of
  /// tbc's kernels; other executors have the rates of matmuls.
  const KernelEfficiency &kernel(KernelKey key) const;
  /// Returns the peak FLOP/s of a kernel class for operands of `dtype`, which must have a rate.
  double peakFlops(KernelClass kernelClass, DType dtype) const;
  /// Returns the missing key if some devices have no rate for `dtype`, else "". Example: for f8e4m3
  /// "device.peak_flops_per_second.f8".
  std::string missingRate(DType dtype) const;
  /// Memory budget in bytes of a plan: on one device, and in its share of the host's memory.
  int64_t usableBytes() const;
  int64_t usableHostBytes() const;
  /// Returns the exposed part of `seconds` of communication, if kernels can hide up to `room`
  /// seconds: the unhidden part, plus the slowdown of the kernels by the hidden part.
  double exposedSeconds(double seconds, double room) const;
  /// Returns the seconds of a copy of `bytes` between a device and its host.
  double hostCopySeconds(double bytes) const;
  bool operator==(const Cluster &o) const;
};

/// The default preset.
constexpr const char *defaultClusterName = "h100-sxm";

/// Returns the names of the built-in presets, sorted.
std::vector<std::string> clusterPresets();

/// Returns the text of the cluster `nameOrPath`: a preset, else a file. Errors: Usage; for an
/// unknown name, with the nearest presets and a list of all.
Result<std::string> clusterText(const std::string &nameOrPath);

/// Loads the cluster `nameOrPath`: a preset, else a TOML file. Errors: those of `clusterText`;
/// Usage with file, line and key; for an unknown key, with a suggestion.
Result<Cluster> loadCluster(const std::string &nameOrPath);

/// Returns the paths of the kinds of nodes named in `text`, a valid cluster file, relative to its
/// folder.
std::vector<std::string> filesOfNodes(const std::string &text);

/// The most groups of a cluster. The network of each group to all others is examined.
constexpr int64_t mostGroups = 64;

/// Returns the cluster with the nodes of `groups`, in this order. There are 1 to mostGroups groups,
/// each without groups of its own and with its number of nodes. Errors: Usage, in terms of "nodes".
Result<Cluster> clusterOfGroups(const std::string &name, const std::string &description,
                                std::vector<Cluster> groups,
                                std::optional<NetworkLevel> betweenGroups);

/// Returns a network on which every collective takes at least its time on `a` and on `b`.
NetworkLevel slowerOf(const NetworkLevel &a, const NetworkLevel &b);
Network slowerOf(const Network &a, const Network &b);

/// Whether the devices and networks of two groups are alike; their nodes may differ in size.
bool haveSameDevices(const Cluster &a, const Cluster &b);

/// Reads a cluster from TOML text. `source` names it in messages, and relative paths start in its
/// folder.
Result<Cluster> parseCluster(const std::string &text, const std::string &source);

} // namespace tbc::planner

#endif // TBC_PLANNER_DEVICES_CLUSTER_H
