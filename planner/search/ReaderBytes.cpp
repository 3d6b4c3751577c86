//===- ReaderBytes.cpp - Bytes of parameters while an op reads them --------===//

#include "planner/search/ReaderBytes.h"
#include "planner/graph/Values.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

using namespace tbc::reshard;

namespace tbc::planner {

/// Whether experts read `value`.
static bool isOfExperts(const Graph &graph, const GraphValue &value) {
  return std::any_of(value.users.begin(), value.users.end(),
                     [&](int user) { return graph.ops[size_t(user)].expertLoop >= 0; });
}

/// Whether op `op` runs as a kernel of its own, in the block of its forward op: not a view, nor a
/// part of a sum over chunks.
static bool isMatmul(const Graph &graph, int op) {
  return op >= 0 && isMatrixClass(graph.ops[size_t(op)].kernelClass);
}

/// Returns ParameterReaders::Use::perSample of op `op`.
static std::array<double, 2> bytesPerSample(const Graph &graph, int op) {
  const GraphOp &of = graph.ops[size_t(op)];
  // A tensor over the experts is split over them.
  auto isOverExperts = [&](bool isResult, size_t tensor) {
    if (of.expertLoop < 0)
      return true;
    const Loop &loop = of.loops[size_t(of.expertLoop)];
    const std::vector<TensorDim> &dims = isResult ? loop.resultDims : loop.operandDims;
    return std::any_of(dims.begin(), dims.end(),
                       [&](const TensorDim &dim) { return dim.tensor == int(tensor); });
  };
  std::array<double, 2> results{}, operand{};
  auto bytesOf = [&](int value) {
    const TensorLayout &layout = graph.values[size_t(value)].layout;
    const double samples = double(factorSize(layout, graph.batchFactor));
    return samples > 0 ? fullBytes(layout) / samples : 0;
  };
  for (size_t r = 0; r < of.results.size(); ++r)
    results[!isOverExperts(true, r)] += bytesOf(of.results[r]);
  for (size_t k = 0; k < of.operands.size(); ++k) {
    double &most = operand[!isOverExperts(false, k)];
    most = std::max(most, bytesOf(of.operands[k]));
  }
  const size_t kind = operand[1] > 0; // one operand: the others may be views of it
  results[kind] += operand[kind];
  return results;
}

std::vector<ParameterReaders> parameterReaders(const Graph &graph, const Job &job,
                                               const std::vector<uint64_t> &hashes, int64_t tp,
                                               bool exchangesTokens) {
  // By op: its use of parameters. By forward op: its own use and those of its backward ops, and the
  // values of the parameters that it is the first to read.
  std::map<int, ParameterReaders::Use> useOf;
  std::map<int, std::set<int>> firstReads;
  for (const GraphParameter &parameter : graph.parameters) {
    const GraphValue &value = graph.values[size_t(parameter.value)];
    if (value.users.empty() || graph.ops[size_t(value.users[0])].phase != Phase::Forward)
      continue;
    firstReads[value.users[0]].insert(parameter.value);
    const size_t kind = isOfExperts(graph, value);
    auto add = [&](TensorBytes &to, const TensorLayout &layout) {
      (mayDivide(value.layout, tp) ? to.divided : to.whole)[kind] += fullBytes(layout);
    };
    for (int user : value.users)
      if (isMatmul(graph, user))
        add(useOf[user].parameters, value.layout);
    if (parameter.gradient < 0)
      continue;
    const GraphValue &gradient = graph.values[size_t(parameter.gradient)];
    if (isMatmul(graph, gradient.producer))
      add(useOf[gradient.producer].gradients, gradient.layout);
  }
  for (auto &[op, use] : useOf) {
    use.perSample = bytesPerSample(graph, op);
    use.mostRanks = exchangesTokens ? graph.ops[size_t(op)].routing.copies : 0;
  }
  std::map<int, std::vector<ParameterReaders::Use>> usesOf;
  for (const auto &[op, use] : useOf)
    if (int forward = graph.ops[size_t(op)].forwardOp; forward >= 0)
      usesOf[forward].push_back(use);

  std::map<std::pair<uint64_t, std::vector<ParameterReaders::Use>>, std::vector<int>> classes;
  for (auto &[op, uses] : usesOf) {
    std::sort(uses.begin(), uses.end());
    uses.erase(std::unique(uses.begin(), uses.end()), uses.end());
    classes[{hashes[size_t(op)], uses}].push_back(op);
  }
  std::vector<ParameterReaders> readers;
  for (const auto &[key, ops] : classes) {
    std::set<int> values;
    for (int op : ops)
      values.insert(firstReads[op].begin(), firstReads[op].end());
    auto isRead = [&](const GraphParameter &parameter) {
      return values.count(parameter.value) > 0;
    };
    readers.push_back({int64_t(ops.size()), dividedTotals(graph, job, tp, isRead), key.second});
  }
  return readers;
}

/// Returns the bytes of the tensors on a device of `mesh`, of the kinds accepted by `isCounted`.
static double localBytes(const MeshShape &mesh, const TensorBytes &bytes,
                         const std::array<bool, 2> &isCounted) {
  double local = 0;
  for (bool isExpert : {false, true})
    if (isCounted[isExpert])
      local += (bytes.divided[isExpert] + bytes.whole[isExpert] * double(mesh.tp)) /
               parameterParts(mesh, isExpert);
  return local;
}

double leastReaderBytes(const MeshShape &mesh, int64_t microBatch, const DataMode &mode,
                        const ParameterReaders &readers) {
  std::array<bool, 2> gathers, reduces;
  double fixed = 0;
  for (bool isExpert : {false, true}) {
    const bool isSharded = mode.groups[isExpert].zero.size > 1;
    gathers[isExpert] = isSharded && mode.zero == 3 && !mode.keepGathered;
    reduces[isExpert] = isSharded && mode.keepsGradientShards;
    fixed +=
        leastParameterBytes(mesh, mode, readers.totals.divided[isExpert], isExpert) +
        leastParameterBytes(mesh, mode, readers.totals.whole[isExpert], isExpert) * double(mesh.tp);
  }
  auto ranksOf = [&](const ParameterReaders::Use &use) {
    return use.mostRanks > 0 ? std::min(use.mostRanks, mesh.ep) : mesh.ep;
  };
  double most = 0;
  for (const ParameterReaders::Use &use : readers.uses)
    most = std::max(most, localBytes(mesh, use.parameters, gathers) +
                              localBytes(mesh, use.gradients, reduces) +
                              (use.perSample[0] + use.perSample[1] * double(ranksOf(use))) *
                                  double(microBatch) / double(mesh.tp * mesh.cp));
  return fixed / double(std::min(mesh.pp, readers.count)) + most;
}

} // namespace tbc::planner
