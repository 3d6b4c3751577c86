//===- Megatron.cpp - Tensor parallelism as Megatron-LM lays it out -------===//

#include "planner/pins/Megatron.h"
#include "planner/graph/Recompute.h"
#include "planner/pins/OpPins.h"
#include "planner/plan/ModelNames.h"

#include <algorithm>
#include <map>
#include <optional>

using namespace tbc::reshard;

namespace tbc::planner {

namespace {

/// What a value holds on a rank of tp.
enum class Held {
  NoData, // from parameters and constants alone
  Whole,
  Part // of the features or the heads
};

/// Whether `op` has a loop over the tokens that may be split.
bool hasTokens(const Graph &graph, const GraphOp &op) {
  return std::any_of(op.loops.begin(), op.loops.end(), [&](const Loop &loop) {
    return loop.factor == graph.sequenceFactor && loop.kind == LoopKind::Parallel && loop.size > 1;
  });
}

/// Megatron's layout of a graph.
struct SplitLayout {
  std::vector<unsigned> splits; // by op: the allowed SplitKinds
  std::vector<bool> isMatrix;   // by op: whether it multiplies with a parameter
  std::vector<Held> held;       // by value
};

SplitLayout layoutOf(const Graph &graph, bool splitsTokens) {
  SplitLayout layout;
  std::vector<Held> &held = layout.held;
  std::vector<unsigned> &splits = layout.splits;
  std::vector<bool> &isMatrix = layout.isMatrix;
  held.assign(graph.values.size(), Held::NoData);
  for (size_t value = 0; value < graph.values.size(); ++value)
    if (graph.values[value].producer < 0 && graph.values[value].role != ValueRole::Parameter)
      held[value] = Held::Whole;
  splits.assign(graph.ops.size(), AnySplit);
  isMatrix.assign(graph.ops.size(), false);
  bool hasTable = false;
  for (int index = 0; index < numForwardOps(graph); ++index) {
    const GraphOp &op = graph.ops[size_t(index)];
    if (op.generator)
      continue;
    Held result = Held::NoData;
    bool readsMatrix = false;
    for (int value : op.operands) {
      result = std::max(result, held[size_t(value)]);
      readsMatrix |= isParameterMatrix(graph, value);
    }
    unsigned &allowed = splits[size_t(index)];
    if (readsMatrix && result != Held::NoData && op.kernelClass == KernelClass::Gather) {
      allowed = hasTable ? WholeOp | TokenSplit : unsigned(RowSplit);
      isMatrix[size_t(index)] = !hasTable;
      hasTable = true;
      result = Held::Whole;
    } else if (readsMatrix && op.flops > 0 && isMatrixClass(op.kernelClass) &&
               result != Held::NoData) {
      isMatrix[size_t(index)] = true;
      allowed = result == Held::Whole ? ColumnSplit : RowSplit;
      result = result == Held::Whole ? Held::Part : Held::Whole;
    } else if (result == Held::Whole && splitsTokens && hasTokens(graph, op)) {
      allowed = TokenSplit;
    } else if (result == Held::Whole) {
      allowed = WholeOp;
    }
    for (int value : op.results)
      held[size_t(value)] = result;
  }
  return layout;
}

bool hasExperts(const Graph &graph) {
  return std::any_of(graph.ops.begin(), graph.ops.end(),
                     [](const GraphOp &op) { return op.expertLoop >= 0; });
}

bool runsThrough(const std::vector<TensorDim> &dims, int tensor, int dim) {
  return std::any_of(dims.begin(), dims.end(), [&](const TensorDim &place) {
    return place.tensor == tensor && place.dim == dim;
  });
}

bool runsThrough(const std::vector<TensorDim> &dims, int tensor) {
  return std::any_of(dims.begin(), dims.end(),
                     [&](const TensorDim &place) { return place.tensor == tensor; });
}

/// Returns the first operand that is a matrix of parameters; -1 without.
int matrixOf(const Graph &graph, const GraphOp &op) {
  for (size_t k = 0; k < op.operands.size(); ++k)
    if (isParameterMatrix(graph, op.operands[k]))
      return int(k);
  return -1;
}

/// The columns or the rows of a matrix that tp splits: a dim, and its outermost factor of more than
/// one. `size` is 1 if no loop of the op may split it.
struct SplitDim {
  int64_t size = 1, all = 1;
};

SplitDim splitDim(const Graph &graph, const GraphOp &op, bool isColumn) {
  const int matrix = matrixOf(graph, op);
  const std::vector<DimLayout> &dims =
      graph.values[size_t(op.operands[size_t(matrix)])].layout.dims;
  SplitDim found;
  for (int dim = 0; dim < int(dims.size()); ++dim) {
    auto isOfKind = [&](const Loop &loop) {
      return runsThrough(loop.operandDims, matrix, dim) && loop.resultDims.empty() != isColumn;
    };
    if (std::none_of(op.loops.begin(), op.loops.end(), isOfKind))
      continue;
    for (const Factor &factor : dims[size_t(dim)].segments.front().factors) {
      if (factor.size == 1)
        continue;
      const bool mayBeSplit = std::any_of(op.loops.begin(), op.loops.end(), [&](const Loop &loop) {
        return isOfKind(loop) && loop.factor == factor.id && loop.kind != LoopKind::Fixed;
      });
      if (mayBeSplit && factor.size > found.size)
        found = {factor.size, dims[size_t(dim)].numElements()};
      break;
    }
  }
  return found;
}

/// Returns the product of the loops that all operands of `op` with data have, without samples and
/// tokens.
int64_t commonLoops(const Graph &graph, const GraphOp &op, const std::vector<Held> &held) {
  int64_t product = 1;
  for (const Loop &loop : op.loops) {
    if (loop.kind != LoopKind::Parallel || loop.factor == graph.batchFactor ||
        loop.factor == graph.sequenceFactor)
      continue;
    bool isCommon = true;
    for (size_t k = 0; k < op.operands.size(); ++k)
      isCommon = isCommon && (held[size_t(op.operands[k])] != Held::Part ||
                              runsThrough(loop.operandDims, int(k)));
    product *= isCommon ? loop.size : 1;
  }
  return product;
}

} // namespace

std::vector<unsigned> megatronSplits(const Graph &graph, bool splitsTokens,
                                     std::vector<bool> &isMatrix) {
  SplitLayout layout = layoutOf(graph, splitsTokens);
  isMatrix = std::move(layout.isMatrix);
  return std::move(layout.splits);
}

std::vector<std::pair<int64_t, std::string>> megatronSizes(const Graph &graph, const Job &job) {
  const SplitLayout layout = layoutOf(graph, /*splitsTokens=*/false);
  const bool isDense = !hasExperts(graph);
  std::map<int64_t, std::string> sizes;
  for (int index = 0; index < numForwardOps(graph); ++index) {
    const GraphOp &op = graph.ops[size_t(index)];
    const bool isTable = op.kernelClass == KernelClass::Gather;
    if (layout.isMatrix[size_t(index)] && (isDense || isTable)) {
      const GraphValue &matrix = graph.values[size_t(op.operands[size_t(matrixOf(graph, op))])];
      const bool isColumn = layout.splits[size_t(index)] == ColumnSplit;
      SplitDim split = splitDim(graph, op, isColumn);
      if (isTable) // each rank has as many whole rows
        split.size = split.all = matrix.layout.shape()[0];
      const std::string line = isColumn ? "columns" : "rows";
      sizes.emplace(split.size, std::to_string(split.size) +
                                    (split.size == split.all
                                         ? " " + line
                                         : " groups of " + std::to_string(split.all / split.size) +
                                               " " + line) +
                                    " of " + displayName(job, matrix));
    } else if (matrixOf(graph, op) < 0 && isMatrixClass(op.kernelClass) &&
               std::count_if(op.operands.begin(), op.operands.end(), [&](int value) {
                 return layout.held[size_t(value)] == Held::Part;
               }) > 1) {
      const int64_t size = commonLoops(graph, op, layout.held);
      const std::string module = moduleOf(job, graph, index);
      sizes.emplace(size, std::to_string(size) + " parts of " +
                              (module.empty() ? op.id : op.kind + " in " + module));
    }
  }
  return {sizes.begin(), sizes.end()};
}

bool hasMegatronLayers(const Graph &graph, const Job &job) {
  if (!job.names || job.names->parameters.empty())
    return true;
  struct Layers {
    double elements = 0;
    int64_t count = 0, rows = 0, whole = 0;
  };
  const SplitLayout layout = layoutOf(graph, /*splitsTokens=*/false);
  std::map<std::string, Layers> lists;
  for (const GraphParameter &parameter : graph.parameters) {
    const GraphValue &value = graph.values[size_t(parameter.value)];
    const NumberedModule module = numberedModule(displayName(job, value));
    if (module.number < 0)
      continue;
    Layers &layers = lists[module.list];
    layers.elements += double(value.layout.numElements());
    layers.count = std::max(layers.count, module.number + 1);
    if (value.layout.dims.size() < 2)
      continue;
    const auto reader = std::find_if(value.users.begin(), value.users.end(),
                                     [&](int user) { return layout.isMatrix[size_t(user)]; });
    layers.whole += reader == value.users.end();
    layers.rows += reader != value.users.end() && layout.splits[size_t(*reader)] == RowSplit;
  }
  const auto most = std::max_element(lists.begin(), lists.end(), [](const auto &a, const auto &b) {
    return a.second.elements < b.second.elements;
  });
  return most != lists.end() && !hasExperts(graph) && most->second.whole == 0 &&
         most->second.rows == 2 * most->second.count;
}

} // namespace tbc::planner
