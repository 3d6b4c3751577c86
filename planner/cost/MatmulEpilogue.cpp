//===- MatmulEpilogue.cpp - Kernels in the call of a matmul ---------------===//

#include "planner/cost/MatmulEpilogue.h"
#include "planner/graph/Values.h"

#include <algorithm>
#include <map>
#include <optional>

using namespace tbc::reshard;

namespace tbc::planner {

namespace {

/// The loops of a tensor's elements in memory order, the slowest first. A dim of several segments
/// is one loop.
using Order = std::vector<std::vector<std::vector<FactorId>>>;

Order orderOf(const TensorLayout &layout) {
  Order order;
  for (const DimLayout &dim : layout.dims) {
    std::vector<std::vector<FactorId>> segments;
    for (const Segment &segment : dim.segments) {
      segments.emplace_back();
      for (const Factor &factor : segment.factors)
        if (factor.size > 1)
          segments.back().push_back(factor.id);
    }
    if (segments.size() != 1)
      order.push_back(segments);
    else
      for (FactorId factor : segments[0])
        order.push_back({{factor}});
  }
  return order;
}

/// Returns n of a matmul's result [m, n]: the product of its loops in the operand of the last one.
/// 0 if the loops of both operands are mixed, or in both operands (a batch).
int64_t rowLength(const GraphOp &product) {
  std::vector<const Loop *> loops;
  for (const Loop &loop : product.loops)
    if (!loop.resultDims.empty() && loop.size > 1)
      loops.push_back(&loop);
  std::stable_sort(loops.begin(), loops.end(), [](const Loop *a, const Loop *b) {
    return a->resultDims.front().dim < b->resultDims.front().dim;
  });
  int64_t length = 1;
  int operand = -1, changes = 0;
  for (const Loop *loop : loops) {
    for (const TensorDim &place : loop->operandDims)
      if (place.tensor != loop->operandDims.front().tensor)
        return 0;
    if (loop->operandDims.empty())
      return 0;
    const int here = loop->operandDims.front().tensor;
    changes += operand >= 0 && here != operand;
    length = here == operand ? length * loop->size : loop->size;
    operand = here;
  }
  return changes > 1 ? 0 : length;
}

/// Reads a kernel as steps on a matmul's result.
class EpilogueReader {
public:
  EpilogueReader(const Graph &graph, const GraphOp &product, const std::vector<int> &ops)
      : graph(graph), product(product), ops(ops) {
    levels[product.results[0]] = 0;
  }

  bool read(const std::function<bool(int value)> &isWritten) {
    return std::all_of(ops.begin(), ops.end(), [&](int op) { return step(op); }) &&
           hasOneResult(isWritten) && isOfLibrary();
  }

private:
  bool isProduct(int value) const {
    auto found = levels.find(value);
    return found != levels.end() && found->second == last;
  }

  /// Returns the value of another kernel that `value` is, by reshapes; nullopt for a value made
  /// here.
  std::optional<int> sourceOf(int value) const {
    if (auto renamed = sources.find(value); renamed != sources.end())
      return renamed->second;
    const int producer = graph.values[size_t(value)].producer;
    const bool isMade = std::find(ops.begin(), ops.end(), producer) != ops.end();
    return isMade || levels.count(value) ? std::nullopt : std::optional(value);
  }

  bool step(int index) {
    const GraphOp &op = graph.ops[size_t(index)];
    if (op.generator || op.results.size() != 1)
      return false;
    if (isView(op))
      return view(op);
    switch (op.function) {
    case ElementFunction::Sum:
      return add(op);
    case ElementFunction::Cast:
      return cast(op);
    case ElementFunction::Gelu:
      return gelu(op);
    case ElementFunction::GeluGradient:
      return geluGradient(op);
    case ElementFunction::Other:
      break;
    }
    return false;
  }

  /// A reshape is its operand under another name. A broadcast adds dims in front.
  bool view(const GraphOp &op) {
    const Order from = orderOf(graph.values[size_t(op.operands[0])].layout),
                to = orderOf(graph.values[size_t(op.results[0])].layout);
    const std::optional<int> source = sourceOf(op.operands[0]);
    auto level = levels.find(op.operands[0]);
    if (from == to && level != levels.end())
      levels[op.results[0]] = level->second;
    else if (from == to && source)
      sources[op.results[0]] = *source;
    else if (source && from.size() < to.size() && !from.empty() &&
             std::equal(from.rbegin(), from.rend(), to.rbegin()))
      biases[op.results[0]] = *source;
    else
      return false;
    return true;
  }

  bool add(const GraphOp &op) {
    int x = op.operands[0], y = op.operands[1];
    if (!isProduct(x))
      std::swap(x, y);
    if (!isProduct(x) || isProduct(y) || function != ElementFunction::Other)
      return false;
    if (auto found = biases.find(y); found != biases.end() && !bias)
      bias = found->second;
    else if (const std::optional<int> source = sourceOf(y); source && !added)
      added = source;
    else
      return false;
    next(op);
    return true;
  }

  bool cast(const GraphOp &op) {
    const DType from = graph.values[size_t(op.operands[0])].dtype;
    if (last > 0 || !isProduct(op.operands[0]) || (from != DType::BF16 && from != DType::F16) ||
        graph.values[size_t(op.results[0])].dtype != DType::F32)
      return false;
    function = ElementFunction::Cast;
    next(op);
    return true;
  }

  bool gelu(const GraphOp &op) {
    if (function != ElementFunction::Other || !isProduct(op.operands[0]))
      return false;
    function = ElementFunction::Gelu;
    geluLevel = last;
    next(op);
    return true;
  }

  bool geluGradient(const GraphOp &op) {
    const std::optional<int> x = sourceOf(op.operands[0]);
    if (last > 0 || !isProduct(op.operands[1]) || !x)
      return false;
    function = ElementFunction::GeluGradient;
    geluInput = x;
    next(op);
    return true;
  }

  void next(const GraphOp &op) { levels[op.results[0]] = ++last; }

  /// Whether the kernel writes the last value alone, or beside it the input of gelu.
  bool hasOneResult(const std::function<bool(int value)> &isWritten) {
    bool hasResult = false;
    for (int op : ops) {
      const int value = graph.ops[size_t(op)].results[0];
      auto level = levels.find(value);
      if (!isWritten(value))
        continue;
      if (level == levels.end())
        return false;
      if (level->second == last && !hasResult)
        hasResult = true;
      else if (function == ElementFunction::Gelu && level->second == geluLevel && !geluInput)
        geluInput = value;
      else
        return false;
    }
    return hasResult && last > 0;
  }

  /// Whether the library has the matmul with these terms.
  bool isOfLibrary() const {
    constexpr int64_t geluStep = 8; // for CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD
    if (function == ElementFunction::Cast)
      return true;
    const int64_t columns = rowLength(product);
    const DType dtype = graph.values[size_t(product.results[0])].dtype;
    for (const std::optional<int> &value : {bias, added, geluInput})
      if (value && graph.values[size_t(*value)].dtype != dtype)
        return false;
    return columns > 0 && (!geluInput || columns % geluStep == 0) &&
           (!bias || graph.values[size_t(*bias)].layout.numElements() == columns);
  }

  const Graph &graph;
  const GraphOp &product;
  const std::vector<int> &ops;
  ElementFunction function = ElementFunction::Other;
  std::optional<int> bias, added, geluInput; // values
  std::map<int, int> levels;                 // by value computed from the product: number of steps
  int last = 0, geluLevel = -1;
  std::map<int, int> sources; // by reshaped value: the original
  std::map<int, int> biases;  // by broadcast: its operand
};

} // namespace

bool isMatmulEpilogue(const Graph &graph, const GraphOp &product, const std::vector<int> &ops,
                      const std::function<bool(int value)> &isWritten) {
  return EpilogueReader(graph, product, ops).read(isWritten);
}

} // namespace tbc::planner
