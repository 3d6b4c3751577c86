//===- Cluster.h - The machine that a plan is for --------------------------===//
//
// Plain C++. Every constant of the cost and memory model stands in a cluster file with its source
// (planner/clusters/*.toml); none in code.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_CORE_CLUSTER_H
#define TBC_PLANNER_CORE_CLUSTER_H

#include "runtime/abi/Status.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tbc::planner {

/// Whether kernels of this class run on matrix units: matmul, conv, attention, causal_attention.
bool isMatrixClass(const std::string &kernelClass);

/// What a kernel of one class reaches of the peaks of the device.
struct KernelEfficiency {
  double flopsFraction = 1;  // of peak FLOP/s, in the limit of large operands
  double memoryFraction = 1; // of memory bandwidth
  /// Added to the arithmetic: the time in which the first and the last tiles of a kernel do not
  /// fill the device.
  double rampSeconds = 0;
  /// Of matrix products: the sum over how many elements costs as much beside the arithmetic
  /// (filling the pipeline of a tile, writing it) as in it.
  double halfDepth = 0;
  /// Of the FLOPs of the op, those that the kernel executes: less than 1 where it skips what a mask
  /// hides.
  double executedFraction = 1;
  /// Moved for each FLOP beside operands and results: more than 0 for attention that writes its
  /// scores to memory.
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
  double startSeconds = 0;   // per collective, whatever its size
  /// Where no switch gives every group the same: bus bandwidth of smaller groups, by their number
  /// of devices. A group takes the entry of the smallest size that it fits in, and
  /// `bytesPerSecond` where there is none.
  std::map<int64_t, double> groupBytesPerSecond = {};
  /// Of one step around a ring, which large messages take; a collective takes the ring where that
  /// is faster than the trees of small messages. 0: there is no such difference.
  double ringStepSeconds = 0;
  /// What the protocol of small messages reaches of the bandwidth; 1: all.
  double smallFraction = 1;
  /// Bytes of an all_reduce per second where a switch adds up (NVLink SHARP); 0: it does not.
  double switchBytesPerSecond = 0;

  /// Bus bandwidth of one device in a group of `devices` on this level, one direction.
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
/// alike, but where there are `groups` of them (isMixed).
struct Cluster {
  std::string name;
  std::string description;
  int64_t devicesPerNode = 1;

  int64_t memoryBytes = 0;
  double memoryBytesPerSecond = 0;
  /// Peak dense FLOP/s of matmul, conv and attention by precision: "f32", "bf16", "f16".
  std::map<std::string, double> peakFlopsPerSecond;
  /// Peak FLOP/s of everything else (vector units).
  double vectorFlopsPerSecond = 0;
  double launchSeconds = 0; // the gap before a kernel
  /// What a kernel takes at least, gap included: the pace at which the host issues them. Large ones
  /// hide it.
  double floorSeconds = 0;
  /// By kernel class; "default" stands for every class that is not named.
  std::map<std::string, KernelEfficiency> kernels;

  NetworkLevel intraNode;
  NetworkLevel interNode;

  /// The share of compute time that may hide data-parallel communication.
  double overlapFraction = 0;
  /// What a second of hidden communication adds to the kernels that hide it.
  double overlapSlowdown = 0;
  /// Relative half-width of the interval printed around a predicted step time.
  double timeUncertainty = 0;
  /// Half-widths of the interval around predicted memory: of the context, and of the allocator's
  /// margin relative to the program's memory.
  int64_t contextUncertaintyBytes = 0;
  double allocatorUncertainty = 0;

  /// Of one device: its share of the host's memory, and what its link to it carries in one
  /// direction from and to pinned memory.
  int64_t hostMemoryBytes = 0;
  double hostBytesPerSecond = 0;

  int64_t contextBytes = 0;     // taken by driver, libraries and communicators
  double allocatorFraction = 0; // of program-owned bytes lost to fragmentation
  double reservedFraction = 0;  // of the device's memory never planned with

  /// Where a file names nodes by kind: each kind as a cluster of its own, with how many nodes of it
  /// there are. Ranks fill them in this order. All other numbers here are then the best that any
  /// of them has, so that no plan is faster on the groups, or finds more room there.
  std::vector<Cluster> groups;
  int64_t numNodes = 0; // of a group; 0: as many as are asked for
  /// The network between nodes of different groups; none: the slower of what the two have between
  /// their own.
  std::optional<NetworkLevel> betweenGroups;

  /// Whether not all devices and nodes are alike: ask StageDevices then.
  bool isMixed() const;
  /// Of all groups; 0: as many as are asked for.
  int64_t numDevices() const;
  /// e.g. "2 nodes of 8 x h100-sxm and 1 node of 4 x l4", of one with groups.
  std::string groupsText() const;

  const KernelEfficiency &kernel(const std::string &kernelClass) const;
  /// Peak FLOP/s of a kernel class whose operands have elements of `elementBytes`; two bytes are
  /// f16 if `isF16`, else bf16.
  double peakFlops(const std::string &kernelClass, int64_t elementBytes, bool isF16 = false) const;
  /// What a plan may use on one device, and of its share of the host's memory.
  int64_t usableBytes() const;
  int64_t usableHostBytes() const;
  /// What of `seconds` of communication counts where kernels have room to hide `room` seconds: what
  /// is not hidden, and what the rest slows the kernels down.
  double exposedSeconds(double seconds, double room) const;
  /// A copy of `bytes` between a device and its host.
  double hostCopySeconds(double bytes) const;
  bool operator==(const Cluster &o) const;
};

/// The preset that a plan is for where none is named.
constexpr const char *defaultClusterName = "h100-sxm";

/// The names of the presets that are built in, sorted.
std::vector<std::string> clusterPresets();

/// The text of the cluster called `nameOrPath`: a preset, else a file.
/// Errors: Usage; an unknown name gets the nearest presets and a list of all.
Result<std::string> clusterText(const std::string &nameOrPath);

/// The cluster called `nameOrPath`: a preset, else a TOML file.
/// Errors: those of `clusterText`; Usage, naming file, line and key; an unknown key gets a
/// suggestion.
Result<Cluster> loadCluster(const std::string &nameOrPath);

/// What `text`, a cluster file that can be loaded, names as kinds of nodes by paths from its
/// folder.
std::vector<std::string> filesOfNodes(const std::string &text);

/// What a cluster may have of `groups`, for each of which networks to all others are looked at.
constexpr int64_t mostGroups = 64;

/// The cluster whose nodes are those of `groups`, in this order: 1 to mostGroups, each without
/// groups of its own and with its number of nodes. Errors: Usage, in words about "nodes".
Result<Cluster> clusterOfGroups(const std::string &name, const std::string &description,
                                std::vector<Cluster> groups,
                                std::optional<NetworkLevel> betweenGroups);

/// A network on which no collective is faster than on `a` or on `b`.
NetworkLevel slowerOf(const NetworkLevel &a, const NetworkLevel &b);
Network slowerOf(const Network &a, const Network &b);

/// Whether the devices of two groups and their networks are alike; their nodes may differ in size.
bool haveSameDevices(const Cluster &a, const Cluster &b);

/// Reads a cluster from TOML text; `source` names it in messages, and its folder is where files
/// are that it names.
Result<Cluster> parseCluster(const std::string &text, const std::string &source);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_CLUSTER_H
