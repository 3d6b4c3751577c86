//===- KeepBound.cpp - Least cost of keeping little for backward ----------===//

#include "planner/bound/KeepBound.h"
#include "planner/cost/Cost.h"
#include "planner/graph/Recompute.h"
#include "planner/graph/Values.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

using namespace tbc::reshard;

namespace tbc::planner {

static constexpr double infinity = std::numeric_limits<double>::infinity();

//===----------------------------------------------------------------------===//
// Minimum cut
//===----------------------------------------------------------------------===//

namespace {

/// The minimum cut between node 0 and node 1, by blocking flows (Dinic 1970).
class MinimumCut {
public:
  explicit MinimumCut(int numNodes) : edgesOf(numNodes) {}

  void add(int from, int to, double capacity) {
    if (capacity <= 0)
      return;
    edgesOf[from].push_back(int(edges.size()));
    edges.push_back({to, capacity});
    edgesOf[to].push_back(int(edges.size()));
    edges.push_back({from, 0});
  }

  /// Returns the nodes on the side of node 0.
  std::vector<bool> run() {
    while (findLevels()) {
      next.assign(edgesOf.size(), 0);
      while (push(0, infinity) > tiny)
        ;
    }
    std::vector<bool> side;
    for (int at : level)
      side.push_back(at >= 0);
    return side;
  }

private:
  static constexpr double tiny = 1e-13; // capacities are about 1
  struct Edge {
    int to;
    double left;
  };

  bool findLevels() {
    level.assign(edgesOf.size(), -1);
    std::vector<int> queue{0};
    level[0] = 0;
    for (size_t i = 0; i < queue.size(); ++i)
      for (int edge : edgesOf[queue[i]])
        if (edges[edge].left > tiny && level[edges[edge].to] < 0) {
          level[edges[edge].to] = level[queue[i]] + 1;
          queue.push_back(edges[edge].to);
        }
    return level[1] >= 0;
  }

  double push(int node, double flow) {
    if (node == 1)
      return flow;
    for (size_t &i = next[node]; i < edgesOf[node].size(); ++i) {
      Edge &edge = edges[edgesOf[node][i]];
      if (edge.left <= tiny || level[edge.to] != level[node] + 1)
        continue;
      double pushed = push(edge.to, std::min(flow, edge.left));
      if (pushed > tiny) {
        edge.left -= pushed;
        edges[edgesOf[node][i] ^ 1].left += pushed;
        return pushed;
      }
    }
    return 0;
  }

  std::vector<Edge> edges; // each followed by its reverse edge
  std::vector<std::vector<int>> edgesOf;
  std::vector<int> level;
  std::vector<size_t> next;
};

//===----------------------------------------------------------------------===//
// Cost and saving of recomputing an op
//===----------------------------------------------------------------------===//

/// A value seen through views.
struct Source {
  int value;
  double bytes; // the minimum over the views
};

Source sourceOf(const Graph &graph, int value) {
  Source source{value, fullBytes(graph, value)};
  for (int producer = graph.values[value].producer; producer >= 0;
       producer = graph.values[source.value].producer) {
    if (graph.ops[producer].generator || !isView(graph.ops[producer]))
      break;
    source.value = graph.ops[producer].operands[0];
    source.bytes = std::min(source.bytes, fullBytes(graph, source.value));
  }
  return source;
}

bool mayFuse(const GraphOp &op) { return readsRegisters(op.kernelClass); }

/// Prices single ops. Bytes that may come from registers do not count as read.
class Prices {
public:
  Prices(const Graph &graph, const Cluster &cluster, double parts,
         const std::vector<KernelShare> *known = nullptr)
      : graph(graph), cluster(cluster), parts(parts),
        own(known ? std::vector<KernelShare>() : kernelShares(cluster, graph)),
        shares(known ? *known : own) {}

  /// Returns the least seconds to recompute op `index`, minus the saving elsewhere. An elementwise
  /// op saves if one reader is left in a phase and may take its result from registers: then the
  /// result is neither written nor read there.
  double net(int index) const {
    MostSaved saved = savedBy(index);
    return again(index) - saved.launchSeconds - saved.movementSeconds;
  }

  AgainSeconds againSeconds(int index) const {
    AgainSeconds seconds;
    seconds.moreBackward = again(index);
    const GraphOp &op = graph.ops[index];
    if (isInNest(op)) {
      addNestSavings(index, seconds);
      return seconds;
    }
    if (!isElementwise(op) || op.generator || !isReadInBackward(op.results[0]))
      return seconds;
    const int result = op.results[0];
    const double bytes = fullBytes(graph, result) / parts;
    if (double perByte = savedByReader(result, Phase::Backward); perByte > 0) {
      seconds.backwardReader = readerOf(result, Phase::Backward);
      seconds.foundBackward = bytes * perByte;
    }
    if (double perByte = savedByReader(result, Phase::Forward); perByte > 0) {
      seconds.forwardReader = readerOf(result, Phase::Forward);
      seconds.foundForward = bytes * perByte;
      seconds.lessForward = std::max(cluster.floorSeconds, cluster.launchSeconds) +
                            bytes * secondsPerByte(op.kernelClass);
    }
    return seconds;
  }

  /// Returns the net saving of op `index` of a graph of one sample on one device: savings minus
  /// costs, each at least 0. Bytes count as a cost only if they grow with the samples.
  MostSaved netSaved(int index) const {
    MostSaved saved = savedBy(index);
    if (saved.launchSeconds + saved.movementSeconds == 0)
      return saved;
    const GraphOp &op = graph.ops[index];
    double bytes = 0;
    for (int value : op.operands)
      if (!isFromRegisters(value) && !isFoundInKernel(op, value) && hasBatch(value))
        bytes += sourceOf(graph, value).bytes;
    if (!(isInNest(op) ? staysInKernel(op) : mayBeReadOnce(op.results[0], Phase::Backward))) {
      bytes += hasBatch(op.results[0]) ? fullBytes(graph, op.results[0]) : 0;
      saved.launchSeconds -= cluster.launchSeconds;
    }
    const KernelEfficiency &kernel = cluster.kernel(KernelClass::Elementwise);
    saved.movementSeconds -= bytes / (cluster.memoryBytesPerSecond * kernel.memoryFraction);
    return {std::max(0.0, saved.launchSeconds), std::max(0.0, saved.movementSeconds)};
  }

private:
  /// Returns the least seconds to recompute op `index`: a roofline without the bytes that may come
  /// from registers.
  double again(int index) const {
    const GraphOp &op = graph.ops[index];
    if (op.kernelClass == KernelClass::None || op.generator)
      return 0;
    const KernelEfficiency &kernel = cluster.kernel(op.kernelClass);
    LocalWork work = workInOwnTypes(graph, index, OpStrategy(), frameworkShare(graph, op));
    double bytes = 0;
    if (!readsPart(op.kernelClass) && !op.fp8.isRounded)
      for (int value : op.operands)
        bytes +=
            isFromRegisters(value) || isFoundInKernel(op, value) ? 0 : sourceOf(graph, value).bytes;
    bool isFusable = isInNest(op)
                         ? staysInKernel(op)
                         : isElementwise(op) && mayBeReadOnce(op.results[0], Phase::Backward);
    // A clone of its reader, counted with a read of the product, may be an epilogue.
    const bool mayHaveEpilogue = cluster.executor.isOwn() &&
                                 op.kernelClass == KernelClass::Matmul && op.results.size() == 1 &&
                                 staysInKernel(op, Phase::Forward);
    if (!isFusable && !mayHaveEpilogue)
      for (int value : op.results)
        bytes += fullBytes(graph, value);
    double arithmetic = work.flops > 0 ? leastArithmetic(op, work) : 0;
    bytes += kernel.bytesPerFlop * work.flops;
    double movement = bytes / parts / (cluster.memoryBytesPerSecond * kernel.memoryFraction);
    double busy = std::max(arithmetic, movement);
    if (mayHaveEpilogue)
      busy = std::max(0.0, busy - fullBytes(graph, op.results[0]) / parts *
                                      std::max(secondsPerByte(KernelClass::Elementwise),
                                               secondsPerByte(KernelClass::Reduction)));
    return isFusable || isInNest(op) ? busy
                                     : std::max(cluster.floorSeconds, cluster.launchSeconds + busy);
  }

  /// Returns the arithmetic of `work`, or of the same matmul in fp8 if it may be and that is less.
  double leastArithmetic(const GraphOp &op, LocalWork work) const {
    auto seconds = [&] {
      return cluster.kernel(ratedClass(op.kernelClass, work.dtype)).rampSeconds +
             arithmeticSeconds(cluster, op.kernelClass, work) / parts;
    };
    const double own = seconds();
    if (!op.fp8.isRounded)
      return own;
    work.dtype = DType::F8E4M3;
    return std::min(own, seconds());
  }

  /// Whether the op is a part of a kernel of tbc's own programs (reshard::planKernels).
  bool isInNest(const GraphOp &op) const {
    return cluster.executor.isOwn() && op.isLoopNest && !op.generator &&
           readsRegisters(op.kernelClass);
  }

  /// Calls `visit` for every op that reads `value` in `phase`, through views.
  template <typename Visit> void forEachReader(int value, Phase phase, const Visit &visit) const {
    for (int user : graph.values[value].users)
      if (const GraphOp &op = graph.ops[user]; isView(op))
        forEachReader(op.results[0], phase, visit);
      else if ((op.phase == Phase::Forward) == (phase == Phase::Forward))
        visit(user);
  }

  /// Whether only parts of kernels read the results of `op` in `phase`, so that no result may be
  /// written.
  bool staysInKernel(const GraphOp &op, Phase phase = Phase::Backward) const {
    bool stays = true;
    for (int value : op.results)
      forEachReader(value, phase, [&](int user) { stays &= isInNest(graph.ops[user]); });
    return stays;
  }

  /// Whether the kernel of a clone of `op` may have operand `value` without reading it for the
  /// clone: a part of the kernel makes it or reads it.
  bool isFoundInKernel(const GraphOp &op, int value) const {
    if (!isInNest(op))
      return false;
    const int source = sourceOf(graph, value).value, producer = graph.values[source].producer;
    bool isFound = producer >= 0 && isInNest(graph.ops[producer]);
    forEachReader(source, Phase::Backward, [&](int user) { isFound |= isInNest(graph.ops[user]); });
    return isFound;
  }

  /// Adds the savings if a part of a kernel runs again: its kernel does not write the results that
  /// only backward reads from memory, and kernels of the backward do not read them.
  void addNestSavings(int index, AgainSeconds &seconds) const {
    const GraphOp &op = graph.ops[index];
    const bool stays = staysInKernel(op, Phase::Forward);
    for (size_t r = 0; r < op.results.size(); ++r) {
      double perByte = 0;
      int reader = -1;
      forEachReader(op.results[r], Phase::Backward, [&](int user) {
        const GraphOp &by = graph.ops[user];
        if (reader < 0 || isInNest(by))
          reader = user;
        if (isInNest(by))
          perByte = std::max(perByte, secondsPerByte(by.kernelClass));
      });
      if (reader < 0)
        continue;
      seconds.backwardReader = reader;
      seconds.foundBackward += fullBytes(graph, op.results[r]) / parts * perByte;
      if (stays)
        seconds.lessForward +=
            shares[size_t(index)].writtenBytes[r] / parts * secondsPerByte(op.kernelClass);
    }
  }

  MostSaved savedBy(int index) const {
    const AgainSeconds again = againSeconds(index);
    MostSaved saved;
    if (again.forwardReader >= 0)
      saved.launchSeconds = std::max(cluster.floorSeconds, cluster.launchSeconds);
    saved.movementSeconds =
        again.lessForward - saved.launchSeconds + again.foundForward + again.foundBackward;
    return saved;
  }

  bool hasBatch(int value) const {
    return hasFactor(graph.values[value].layout, graph.batchFactor);
  }

  static bool isElementwise(const GraphOp &op) {
    return op.kernelClass == KernelClass::Elementwise && op.results.size() == 1;
  }

  bool isFromRegisters(int value) const {
    int producer = graph.values[sourceOf(graph, value).value].producer;
    return producer >= 0 && (graph.ops[producer].generator || isElementwise(graph.ops[producer]));
  }

  bool isReadInBackward(int value) const {
    const std::vector<int> &users = graph.values[value].users;
    return std::any_of(users.begin(), users.end(), [&](int user) {
      const GraphOp &op = graph.ops[user];
      return op.phase != Phase::Forward || (isView(op) && isReadInBackward(op.results[0]));
    });
  }

  /// The ops that read a value in one phase, seen through views.
  struct Readers {
    int count = 0;
    bool mayAllFuse = true;
    double secondsPerByte = 0; // bytes not read by one of them; 0 if no reader can fuse
  };

  /// `kept`: backward readers of a view that forward makes and may keep.
  void addReaders(int value, Phase phase, Readers &readers, Readers &kept) const {
    for (int user : graph.values[value].users) {
      const GraphOp &op = graph.ops[user];
      bool isForward = op.phase == Phase::Forward;
      if (isView(op)) {
        bool mayBeKept = isForward && phase != Phase::Forward;
        addReaders(op.results[0], phase, mayBeKept ? kept : readers, kept);
      } else if (isForward == (phase == Phase::Forward)) {
        ++readers.count;
        readers.mayAllFuse &= mayFuse(op);
        if (mayFuse(op))
          readers.secondsPerByte = std::max(readers.secondsPerByte, secondsPerByte(op.kernelClass));
      }
    }
  }

  /// Returns the saved seconds per byte if a single op may read `value` in `phase` and take it from
  /// registers; else 0.
  double savedByReader(int value, Phase phase) const {
    Readers readers, kept;
    addReaders(value, phase, readers, kept);
    if (readers.count > 0)
      return readers.count == 1 && readers.mayAllFuse ? readers.secondsPerByte : 0;
    return kept.secondsPerByte;
  }
  bool mayBeReadOnce(int value, Phase phase) const { return savedByReader(value, phase) > 0; }

  double secondsPerByte(KernelClass kernelClass) const {
    return 1 / (cluster.memoryBytesPerSecond * cluster.kernel(kernelClass).memoryFraction);
  }

  /// Returns the op that reads `value` in `phase`, through views; -1 if there is no reader.
  int readerOf(int value, Phase phase) const {
    for (int user : graph.values[value].users) {
      const GraphOp &op = graph.ops[user];
      if (isView(op)) {
        if (int reader = readerOf(op.results[0], phase); reader >= 0)
          return reader;
      } else if ((op.phase == Phase::Forward) == (phase == Phase::Forward)) {
        return user;
      }
    }
    return -1;
  }

  const Graph &graph;
  const Cluster &cluster;
  double parts;
  const std::vector<KernelShare> own; // if they were not known
  const std::vector<KernelShare> &shares;
};

} // namespace

MostSaved mostSavedByRunningAgain(const Graph &graph, const Cluster &cluster) {
  Prices prices(graph, cluster, 1);
  MostSaved total;
  for (int op = 0; op < numForwardOps(graph); ++op) {
    MostSaved saved = prices.netSaved(op);
    total.launchSeconds += saved.launchSeconds;
    total.movementSeconds += saved.movementSeconds;
  }
  return total;
}

std::vector<AgainSeconds> secondsOfRunningAgain(const Graph &graph, const Cluster &cluster,
                                                double parts,
                                                const std::vector<KernelShare> *shares) {
  Prices prices(graph, cluster, parts, shares);
  std::vector<AgainSeconds> seconds;
  for (int op = 0; op < numForwardOps(graph); ++op)
    seconds.push_back(prices.againSeconds(op));
  return seconds;
}

KeepBound::KeepBound(const Graph &graph, const Cluster &cluster, const Repeat &repeat, double parts,
                     const std::vector<KernelShare> *shares) {
  Prices prices(graph, cluster, parts, shares);
  count = repeat.count > 0 ? double(repeat.count) : 1;
  numForward = numForwardOps(graph);
  auto isInside = [&](int op) {
    return op >= 0 && op < numForward && !graph.ops[op].generator &&
           (repeat.count == 0 || repeat.ops[op]);
  };
  std::map<int, int> numberOf; // of sources
  auto number = [&](int value) {
    auto [found, isNew] = numberOf.emplace(value, int(values.size()));
    if (isNew)
      values.push_back({});
    return found->second;
  };
  std::vector<double> nets;
  for (int op = 0; op < numForward; ++op)
    nets.push_back(prices.net(op));
  for (int op = 0; op < numForward; ++op) {
    const double net = nets[size_t(op)];
    int like = repeat.count > 0 ? repeat.like[op] : op;
    outsideSeconds += std::min(0.0, like < 0 ? net : net - nets[size_t(like)]);
    if (!isInside(op))
      continue;
    if (isView(graph.ops[op]))
      continue; // seen through
    for (int value : graph.ops[op].results)
      values[number(value)].maker = int(ops.size());
    ops.push_back({net, {}});
    numbers.push_back(op);
    for (int value : graph.ops[op].operands)
      if (Source source = sourceOf(graph, value); isInside(graph.values[source.value].producer)) {
        int operand = number(source.value);
        values[operand].bytes = std::max(values[operand].bytes, source.bytes / parts);
        ops.back().operands.push_back(operand);
      }
  }
  // The values read by backward, in every occurrence of the block.
  std::map<int, double> readBytes;
  for (int op = numForward; op < int(graph.ops.size()); ++op)
    for (int value : graph.ops[op].operands) {
      Source source = sourceOf(graph, value);
      double &bytes = readBytes[source.value];
      bytes = std::max(bytes, source.bytes / parts);
    }
  for (auto [value, number] : numberOf) {
    values[number].isRead = true;
    if (auto found = readBytes.find(value); found != readBytes.end())
      values[number].bytes = std::max(values[number].bytes, found->second);
  }
  for (int op = 0; op < numForward; ++op) {
    int like = repeat.count > 0 ? repeat.like[op] : op;
    if (like < 0 || !isInside(like))
      continue;
    for (size_t r = 0; r < graph.ops[op].results.size(); ++r)
      if (auto found = numberOf.find(graph.ops[like].results[r]); found != numberOf.end())
        values[found->second].isRead &= readBytes.count(graph.ops[op].results[r]) > 0;
  }
  double seconds = 0, bytes = 0;
  for (const Op &op : ops)
    seconds += std::abs(op.seconds);
  for (const Value &value : values)
    bytes += value.bytes;
  unitSeconds = seconds > 0 ? seconds : 1;
  unitBytes = bytes > 0 ? bytes : 1;
}

std::vector<bool> KeepBound::sidesAt(double multiplier) const {
  // Side 0: values needed in backward, and recomputed ops.
  int numValues = int(values.size());
  auto nodeOf = [&](int op) { return 2 + numValues + op; };
  MinimumCut problem(2 + numValues + int(ops.size()));
  constexpr double never = 1e12;
  for (int v = 0; v < numValues; ++v) {
    if (values[v].isRead)
      problem.add(0, 2 + v, never);
    problem.add(2 + v, nodeOf(values[v].maker), multiplier * values[v].bytes / unitBytes);
  }
  for (int op = 0; op < int(ops.size()); ++op) {
    for (int value : ops[op].operands)
      problem.add(nodeOf(op), 2 + value, never);
    problem.add(nodeOf(op), 1, ops[op].seconds / unitSeconds);
    problem.add(0, nodeOf(op), -ops[op].seconds / unitSeconds);
  }
  std::vector<bool> side = problem.run();
  return {side.begin() + 2, side.end()};
}

const KeepBound::Cut &KeepBound::cutAt(double multiplier) const {
  return cuts.get(multiplier, [&] { return computeCut(multiplier); });
}

KeepBound::Cut KeepBound::computeCut(double multiplier) const {
  Cut cut;
  std::vector<bool> side = sidesAt(multiplier);
  size_t numValues = values.size();
  for (size_t op = 0; op < ops.size(); ++op)
    cut.seconds += side[numValues + op] ? ops[op].seconds : 0;
  for (size_t v = 0; v < numValues; ++v)
    cut.bytes += side[v] && !side[numValues + size_t(values[v].maker)] ? values[v].bytes : 0;
  cut.seconds = count * cut.seconds;
  cut.bytes = count * cut.bytes;
  return cut;
}

const std::vector<double> &KeepBound::keptWhereFree() const {
  return whereFree.get([&] { return computeWhereFree(); });
}

std::vector<double> KeepBound::computeWhereFree() const {
  std::vector<double> kept(size_t(numForward), 0);
  std::vector<bool> side = sidesAt(0);
  for (size_t v = 0; v < values.size(); ++v)
    if (size_t maker = size_t(values[v].maker); side[v] && !side[values.size() + maker])
      kept[size_t(numbers[maker])] += values[v].bytes;
  return kept;
}

double KeepBound::leastSeconds(double bytes) const {
  const double scale = unitSeconds / unitBytes; // of multipliers
  // Returns the bound for a multiplier, slightly reduced for rounding.
  auto proven = [&](double multiplier, const Cut &cut) {
    double value = cut.seconds + multiplier * scale * (cut.bytes - bytes);
    return value - 1e-9 * count * unitSeconds + outsideSeconds;
  };
  constexpr double largest = 1e7;
  double low = 0, high = largest;
  Cut many = cutAt(low), few = cutAt(high);
  if (many.bytes <= bytes)
    return proven(low, many);
  if (few.bytes > bytes + 1e-6 * count * unitBytes)
    return infinity;
  double best = proven(low, many);
  constexpr int mostSteps = 40;
  for (int step = 0; step < mostSteps; ++step) {
    double multiplier =
        (few.seconds - many.seconds) / std::max(many.bytes - few.bytes, 1e-300) / scale;
    if (multiplier <= low || multiplier >= high)
      break;
    const Cut &between = cutAt(multiplier);
    best = std::max(best, proven(multiplier, between));
    bool isNew = between.bytes < many.bytes && between.bytes > few.bytes;
    if (!isNew)
      break;
    (between.bytes > bytes ? many : few) = between;
    (between.bytes > bytes ? low : high) = multiplier;
  }
  return best;
}

} // namespace tbc::planner
