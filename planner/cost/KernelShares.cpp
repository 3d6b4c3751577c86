//===- KernelShares.cpp - The memory traffic of kernels, by op -------------===//

#include "planner/cost/KernelShares.h"
#include "planner/cost/MatmulEpilogue.h"
#include "planner/graph/Values.h"

#include <algorithm>
#include <map>
#include <set>

using namespace tbc::reshard;

namespace tbc::planner {

namespace {

/// The kernels of tbc's own programs.
class OwnShares {
public:
  /// `hasLibrary`: for matmuls, with epilogues.
  OwnShares(const Graph &graph, bool hasLibrary)
      : graph(graph), hasLibrary(hasLibrary), kernelOf(graph.ops.size(), none) {}

  /// `blocks`: planUnsplitKernels() of the graph.
  std::vector<KernelShare> run(const BlockKernels &blocks) {
    for (const GraphOp &op : graph.ops) {
      KernelShare &share = shares.emplace_back();
      share.readBytes.assign(op.operands.size(), 0);
      share.writtenBytes.assign(op.results.size(), 0);
      share.isFused = true;
      // Ops of the other matrix classes are library calls.
      if (hasLibrary && (isOwnClass(op.kernelClass) || !isMatrixClass(op.kernelClass)))
        share.own = op.own;
    }
    addGenerators();
    const BlockKernels launched = hasLibrary ? withColumnSums(blocks) : blocks;
    int number = 0;
    for (const auto &[key, kernels] : launched)
      for (const Kernel &kernel : kernels) {
        for (int op : kernel.ops)
          if (!graph.ops[size_t(op)].generator && !kernel.cutsInPlace(graph.ops[size_t(op)]))
            kernelOf[size_t(op)] = number;
        ++number;
      }
    keepResults();
    for (const auto &[key, kernels] : launched)
      for (size_t k = 0; k < kernels.size(); ++k) {
        addKernel(kernels[k]);
        if (hasLibrary && k > 0 && isEpilogue(kernels[k - 1], kernels[k]))
          addEpilogue(kernels[k - 1].ops[0], kernels[k]);
      }
    return std::move(shares);
  }

private:
  static constexpr int none = -1;

  /// Joins column sums to the kernels before them, as code for GPUs does.
  static BlockKernels withColumnSums(const BlockKernels &blocks) {
    BlockKernels joined;
    for (const auto &[key, kernels] : blocks)
      for (const Kernel &kernel : kernels)
        if (std::vector<Kernel> &list = joined[key]; kernel.joinsPrevious)
          list.back().ops.insert(list.back().ops.end(), kernel.ops.begin(), kernel.ops.end());
        else
          list.push_back(kernel);
    return joined;
  }

  /// Whether only causal attention in 16 bits reads the constant: a library knows these positions.
  bool isOfAttention(const GraphOp &op) const {
    auto isAttention = [&](int user) {
      const GraphOp &reader = graph.ops[size_t(user)];
      return reader.kernelClass == KernelClass::CausalAttention &&
             graph.values[size_t(reader.results[0])].layout.elementBytes == 2;
    };
    return std::all_of(op.results.begin(), op.results.end(), [&](int value) {
      const std::vector<int> &users = graph.values[size_t(value)].users;
      return !users.empty() && std::all_of(users.begin(), users.end(), isAttention);
    });
  }

  /// Constants that no kernel computes again for itself have a kernel each.
  void addGenerators() {
    const std::vector<bool> repeated = repeatedOps(graph);
    for (size_t index = 0; index < graph.ops.size(); ++index) {
      const GraphOp &op = graph.ops[index];
      if (!op.generator || repeated[index] || (hasLibrary && isOfAttention(op)))
        continue;
      shares[index].isFused = false;
      shares[index].isCopy = op.kernelClass == KernelClass::None;
      for (size_t r = 0; r < op.results.size(); ++r)
        shares[index].writtenBytes[r] = fullBytes(graph, op.results[r]);
    }
  }

  /// Notes the values that others than ops read.
  void keepResults() {
    isKept.assign(graph.values.size(), false);
    auto keep = [&](int value) {
      if (value >= 0)
        isKept[size_t(value)] = true;
    };
    for (const GraphParameter &parameter : graph.parameters)
      keep(parameter.gradient);
    for (auto [state, updated] : graph.stateUpdates)
      keep(updated);
    keep(graph.loss);
    keep(graph.count);
  }

  bool isViewHere(int op, int kernel) const {
    return op >= 0 && kernelOf[size_t(op)] == kernel && isView(graph.ops[size_t(op)]);
  }

  /// Returns the value that `value` is a view of, by views of the kernel.
  int sourceOf(int value, int kernel) const {
    int producer = graph.values[size_t(value)].producer;
    for (; isViewHere(producer, kernel); producer = graph.values[size_t(value)].producer)
      value = graph.ops[size_t(producer)].operands[0];
    return value;
  }

  /// Returns the bytes that the kernel reads for `value`, which may be a view that it makes itself.
  /// Each value counts once.
  double bytesOf(int value, int kernel, std::set<int> &seen) const {
    double bytes = fullBytes(graph, value);
    int producer = graph.values[size_t(value)].producer;
    const bool isPart =
        producer >= 0 && !graph.ops[size_t(producer)].generator &&
        graph.ops[size_t(producer)].columns.kind == ColumnUse::Kind::Cuts &&
        (kernelOf[size_t(producer)] == kernel || kernelOf[size_t(producer)] == none);
    if (isPart) // of a packed tensor, with columns of its own
      return seen.insert(value).second ? bytes : 0;
    for (; isViewHere(producer, kernel); producer = graph.values[size_t(value)].producer) {
      value = graph.ops[size_t(producer)].operands[0];
      bytes = std::min(bytes, fullBytes(graph, value));
    }
    const bool isMade = producer >= 0 && (kernelOf[size_t(producer)] == kernel ||
                                          graph.ops[size_t(producer)].generator);
    return isMade || !seen.insert(value).second ? 0 : bytes;
  }

  bool isWritten(int value, int kernel) const {
    const std::vector<int> &users = graph.values[size_t(value)].users;
    return isKept[size_t(value)] || std::any_of(users.begin(), users.end(), [&](int user) {
             return kernelOf[size_t(user)] != kernel;
           });
  }

  void addKernel(const Kernel &kernel) {
    std::vector<int> ops;
    for (int op : kernel.ops)
      if (!graph.ops[size_t(op)].generator)
        ops.push_back(op);
    auto isWork = [&](int op) { return graph.ops[size_t(op)].kernelClass != KernelClass::None; };
    auto first = std::find_if(ops.begin(), ops.end(), isWork);
    if (ops.empty())
      return;
    const int number = kernelOf[size_t(ops.back())];
    const bool isCopy = first == ops.end();
    KernelShare &launched = shares[size_t(isCopy ? ops.back() : *first)];
    launched.isFused = false;
    launched.isCopy = isCopy;
    std::set<int> seen;
    for (int index : ops) {
      const GraphOp &op = graph.ops[size_t(index)];
      KernelShare &share = shares[size_t(index)];
      // The bytes of views count for their readers, or for the last one.
      const bool counts = isWork(index) || (isCopy && index == ops.back());
      for (size_t k = 0; counts && k < op.operands.size(); ++k)
        share.readBytes[k] = bytesOf(op.operands[k], number, seen);
      for (size_t r = 0; r < op.results.size(); ++r)
        if ((counts || !isView(op)) && !kernel.cutsInPlace(op) && isWritten(op.results[r], number))
          share.writtenBytes[r] = fullBytes(graph, op.results[r]);
    }
  }

  /// Whether `matmul` is one that only `kernel` reads, and a library executes both in one call.
  bool isEpilogue(const Kernel &matmul, const Kernel &kernel) const {
    const GraphOp &product = graph.ops[size_t(matmul.ops[0])];
    if (matmul.isNest || !kernel.isNest || product.kernelClass != KernelClass::Matmul ||
        product.results.size() != 1 || isKept[size_t(product.results[0])])
      return false;
    const std::vector<int> &users = graph.values[size_t(product.results[0])].users;
    const int number = kernelOf[size_t(kernel.ops.back())];
    return !users.empty() && std::all_of(users.begin(), users.end(), [&](int user) {
      return kernelOf[size_t(user)] == number;
    }) && isMatmulEpilogue(graph, product, kernel.ops, [&](int value) {
      return isWritten(value, number);
    });
  }

  /// Adds the traffic of `kernel` to that of the matmul, in place of the product.
  void addEpilogue(int matmul, const Kernel &kernel) {
    double &bytes = shares[size_t(matmul)].writtenBytes[0];
    bytes = 0;
    for (int op : kernel.ops) {
      KernelShare &share = shares[size_t(op)];
      if (graph.ops[size_t(op)].generator)
        continue;
      for (size_t k = 0; k < share.readBytes.size(); ++k) {
        const int source = sourceOf(graph.ops[size_t(op)].operands[k], kernelOf[size_t(op)]);
        bytes += graph.values[size_t(source)].producer == matmul ? 0 : share.readBytes[k];
        share.readBytes[k] = 0;
      }
      for (double &written : share.writtenBytes) {
        bytes += written;
        written = 0;
      }
      share.isFused = true;
    }
  }

  const Graph &graph;
  const bool hasLibrary;
  std::vector<int> kernelOf; // by op; none for constants and cuts in place
  std::vector<bool> isKept;  // by value
  std::vector<KernelShare> shares;
};

} // namespace

/// Adds the rounding of the operands of matmuls in fp8 to `shares`, by `rule`.
static void addRounding(const Graph &graph, const Fp8Rule &rule, std::vector<KernelShare> &shares) {
  std::set<int> rounded;
  for (size_t index = 0; index < graph.ops.size(); ++index) {
    const GraphOp &op = graph.ops[index];
    if (!op.fp8.isRounded)
      continue;
    KernelShare &share = shares[index];
    share.roundingBytes.assign(op.operands.size(), 0);
    share.roundingLaunches.assign(op.operands.size(), 0);
    for (size_t k = 0; k < op.operands.size(); ++k) {
      const int value = viewedBy(graph, op.operands[k]);
      const bool isAgain =
          !rounded.insert(value).second || graph.values[size_t(value)].role == ValueRole::Parameter;
      if (rule.roundsOnce && isAgain)
        continue;
      const TensorLayout &layout = graph.values[size_t(op.operands[k])].layout;
      share.roundingBytes[k] = double(layout.numElements()) *
                               (rule.reads * double(layout.elementBytes) + rule.writtenBytes);
      share.roundingLaunches[k] = rule.launches;
    }
  }
}

std::vector<KernelShare> ownKernelShares(const Cluster &cluster, const Graph &graph,
                                         const BlockKernels &kernels) {
  std::vector<KernelShare> shares = OwnShares(graph, cluster.hasKernelWorkspace).run(kernels);
  addRounding(graph, cluster.executor.fp8, shares);
  return shares;
}

std::vector<KernelShare> kernelShares(const Cluster &cluster, const Graph &graph) {
  if (cluster.executor.isOwn())
    return ownKernelShares(cluster, graph, planUnsplitKernels(graph));
  std::vector<KernelShare> shares;
  const std::vector<double> once = flopsOnce(graph);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const GraphOp &op = graph.ops[i];
    shares.push_back(frameworkShare(graph, op));
    // Frameworks keep the inner values of experts (KeptRows), unless they recompute all of forward.
    const bool isAgain = op.forwardOp >= 0 && graph.ops[size_t(op.forwardOp)].isRecomputed;
    if (op.routing.copies > 0 && op.flops > 0 && !isAgain)
      shares.back().own.work = once[i] / op.flops;
  }
  addRounding(graph, cluster.executor.fp8, shares);
  return shares;
}

} // namespace tbc::planner
