//===- Kernels.cpp - The ops of a block that share a kernel -----------------===//

#include "planner/reshard/Kernels.h"

#include "planner/reshard/Nest.h"
#include "planner/reshard/SequenceOrder.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace tbc::reshard {

namespace {

/// Groups the ops of one block.
class BlockFuser {
public:
  BlockFuser(const Graph &graph, const Assignment &assignment, const Derivation &derivation,
             const std::vector<bool> &isKept, const std::vector<bool> &repeated, NestFinder &nests)
      : graph(graph), assignment(assignment), derivation(derivation), isKept(isKept),
        repeated(repeated), nests(nests), kernelOf(graph.ops.size(), none),
        inBlock(graph.ops.size(), false), isCutByReaders(graph.ops.size(), false) {}

  /// `ops`: those of the block, in the order of the graph, without generators.
  std::vector<Kernel> run(const std::vector<int> &ops) {
    for (int op : ops)
      inBlock[size_t(op)] = true;
    for (int op : ops)
      findPack(op);
    for (int op : ops)
      isCutByReaders[size_t(op)] = servesNests(op);
    for (int op : ops) {
      if (kernelOf[size_t(op)] != none || isCutByReaders[size_t(op)])
        continue;
      if (waitsForReader(op))
        continue;
      place(op);
    }
    // A view whose readers are in no kernel of this block.
    for (int op : ops)
      if (kernelOf[size_t(op)] == none && !isCutByReaders[size_t(op)])
        place(op);
    return inEmittedOrder();
  }

private:
  static constexpr int none = -1;

  int producerOf(int value) const { return graph.values[size_t(value)].producer; }

  /// Whether the op is executed in this block, now or later.
  bool isHere(int op) const {
    return op >= 0 && (graph.ops[size_t(op)].generator || inBlock[size_t(op)]);
  }

  bool isView(const GraphOp &op) const {
    return op.kernelClass == KernelClass::None && op.isLoopNest && op.operands.size() == 1;
  }

  /// A view waits if an op of this block reads it as it is made, and a cut of columns for the op
  /// that takes them.
  bool waitsForReader(int index) const {
    if (isCut.count(index))
      return true;
    const GraphOp &op = graph.ops[size_t(index)];
    if (!isView(op) || isKept[size_t(op.results[0])])
      return false;
    for (int user : graph.values[size_t(op.results[0])].users)
      if (inBlock[size_t(user)])
        return true;
    return false;
  }

  /// Whether each kernel that reads the op executes it again.
  bool isRepeated(int op) const { return repeated[size_t(op)] || isCutByReaders[size_t(op)]; }

  /// Whether the op cuts columns that nests of this block alone read, as it makes them.
  bool servesNests(int index) const {
    const GraphOp &op = graph.ops[size_t(index)];
    if (op.columns.kind != ColumnUse::Kind::Cuts || isCut.count(index) || !isDirect(index, 0))
      return false;
    const int part = op.results[0];
    const std::vector<int> &users = graph.values[size_t(part)].users;
    auto isRead = [&](int user) {
      const GraphOp &reader = graph.ops[size_t(user)];
      bool isDirectly = inBlock[size_t(user)] && reader.isLoopNest;
      for (size_t k = 0; k < reader.operands.size(); ++k)
        isDirectly = isDirectly && (reader.operands[k] != part || isDirect(user, k));
      return isDirectly;
    };
    return !isKept[size_t(part)] && !users.empty() &&
           std::all_of(users.begin(), users.end(), isRead);
  }

  /// Whether operand k of the op is read as its producer makes it, without communication.
  bool isDirect(int index, size_t k) const {
    const GraphOp &op = graph.ops[size_t(index)];
    if (op.generator)
      return true;
    int value = op.operands[k];
    const Derivation::Operand &operand = derivation.operands[size_t(index)][k];
    if (operand.reshard >= 0)
      return false;
    if (int producer = producerOf(value); producer >= 0 && graph.ops[size_t(producer)].generator)
      return isRepeated(producer);
    return !isHere(producerOf(value)) || operand.sharding == derivation.raw[size_t(value)];
  }

  /// Appends the op and, before it, those of its operands that are executed with it.
  void collect(int index, std::vector<int> &unit) {
    if (std::find(unit.begin(), unit.end(), index) != unit.end())
      return;
    const GraphOp &op = graph.ops[size_t(index)];
    // What is cut lies in memory.
    const size_t numOperands = isCutByReaders[size_t(index)] ? 0 : op.operands.size();
    for (size_t k = 0; k < numOperands; ++k) {
      int producer = producerOf(op.operands[k]);
      if (!isHere(producer) || !isDirect(index, k))
        continue;
      bool waits = kernelOf[size_t(producer)] == none && waitsForReader(producer);
      if (waits || isRepeated(producer))
        collect(producer, unit);
    }
    unit.push_back(index);
  }

  int onlyUserOf(int value) const {
    const std::vector<int> &users = graph.values[size_t(value)].users;
    return users.size() == 1 && !isKept[size_t(value)] ? users.front() : none;
  }

  int64_t columnsOf(int value) const { return graph.values[size_t(value)].layout.shape().back(); }

  /// Notes the ops that are a kernel with `taker`, if it takes and makes columns of one tensor.
  void findPack(int taker) {
    const GraphOp &op = graph.ops[size_t(taker)];
    if (op.columns.kind != ColumnUse::Kind::Takes)
      return;
    std::vector<int> pack;
    int64_t column = 0;
    int packed = none;
    for (size_t k = 0; k < ColumnUse::numParts; ++k) {
      const size_t operand = size_t(op.columns.first) + k;
      const int part = op.operands[operand], cut = producerOf(part);
      if (cut < 0 || !inBlock[size_t(cut)] || !isDirect(taker, operand) || !isDirect(cut, 0) ||
          onlyUserOf(part) != taker)
        return;
      const GraphOp &slice = graph.ops[size_t(cut)];
      if (slice.columns.kind != ColumnUse::Kind::Cuts || slice.columns.first != column ||
          (k > 0 && slice.operands[0] != packed))
        return;
      packed = slice.operands[0];
      column += columnsOf(part);
      pack.push_back(cut);
    }
    if (column != columnsOf(packed) || isStreamed(taker))
      return;
    const std::vector<int> cuts = pack;
    pack.push_back(taker);
    if (op.columns.makesColumns) {
      const int join = joinOf(op);
      if (join == none)
        return;
      pack.push_back(join);
    }
    isCut.insert(cuts.begin(), cuts.end());
    packs[taker] = std::move(pack);
  }

  bool isStreamed(int op) const {
    return !assignment.strategies.empty() &&
           streamedBlocks(graph, op, assignment.strategies[size_t(op)]) > 1;
  }

  /// Returns the op that makes one tensor of the columns that `op` makes, and nothing else.
  int joinOf(const GraphOp &op) const {
    const int join = onlyUserOf(op.results[0]);
    if (join == none || !inBlock[size_t(join)])
      return none;
    const GraphOp &joiner = graph.ops[size_t(join)];
    if (joiner.columns.kind != ColumnUse::Kind::Joins ||
        joiner.operands.size() != ColumnUse::numParts)
      return none;
    for (size_t k = 0; k < ColumnUse::numParts; ++k)
      if (joiner.operands[k] != op.results[k] || onlyUserOf(op.results[k]) != join ||
          !isDirect(join, k))
        return none;
    return join;
  }

  /// Puts the op into a kernel, after all ops of the block that it needs.
  void place(int index) {
    const GraphOp &op = graph.ops[size_t(index)];
    if (auto pack = packs.find(index); pack != packs.end()) {
      for (int member : pack->second)
        placeOperands(member, pack->second);
      begin(pack->second, /*isNest=*/false);
      kernels.back().isPacked = true;
      return;
    }
    if (op.isLoopNest) {
      std::vector<int> unit;
      collect(index, unit);
      for (int member : unit)
        placeOperands(member, unit);
      for (int kernel : candidates(unit))
        if (joins(kernel, unit))
          return;
      if (nests.isNest(unit, [&](int value) { return isReadOutside(value, unit, {}); }))
        return begin(unit, /*isNest=*/true);
    }
    placeOperands(index, {});
    const std::vector<int> alone = {index};
    if (op.columns.kind == ColumnUse::Kind::Joins)
      for (int kernel : candidates(alone))
        if (joins(kernel, alone))
          return;
    begin(alone, op.isLoopNest && nests.isNest(alone, [&](int value) {
      return isReadOutside(value, alone, {});
    }));
  }

  /// Places the producers of operands that are neither placed nor part of the unit.
  void placeOperands(int index, const std::vector<int> &unit) {
    for (int value : graph.ops[size_t(index)].operands) {
      int producer = producerOf(value);
      if (!isHere(producer) || kernelOf[size_t(producer)] != none || stored.count(producer) ||
          std::find(unit.begin(), unit.end(), producer) != unit.end())
        continue;
      if (isRepeated(producer))
        stored.insert(producer);
      place(producer);
    }
  }

  /// The kernels that the unit may join, the best first.
  std::vector<int> candidates(const std::vector<int> &unit) const {
    std::set<int> makers;
    bool sharesWithLast = false;
    for (int index : unit) {
      const GraphOp &op = graph.ops[size_t(index)];
      for (size_t k = 0; k < op.operands.size(); ++k) {
        int producer = producerOf(op.operands[k]);
        if (isHere(producer) && kernelOf[size_t(producer)] != none)
          makers.insert(kernelOf[size_t(producer)]);
        sharesWithLast |= lastReads.count(op.operands[k]) > 0;
      }
    }
    std::vector<int> list(makers.rbegin(), makers.rend());
    int last = int(kernels.size()) - 1;
    if (makers.count(last))
      return list;
    if (sharesWithLast)
      list.insert(list.begin(), last);
    else if (last >= 0 && reduces(unit) && reduces(kernels.back().ops))
      list.push_back(last);
    return list;
  }

  bool reduces(const std::vector<int> &ops) const {
    return std::any_of(ops.begin(), ops.end(), [&](int op) { return nests.isReduction(op); });
  }

  /// Adds the unit to a kernel if it can execute it.
  bool joins(int kernel, const std::vector<int> &unit) {
    std::vector<int> &ops = kernels[size_t(kernel)].ops;
    if (!kernels[size_t(kernel)].isNest || ops.size() + unit.size() > maxKernelOps)
      return false;
    for (int index : unit)
      if (!existsBefore(kernel, index, unit) || isReadStored(index, ops))
        return false;
    // A second copy would keep a library from executing the kernel with the matmul before it.
    if (nests.isCopy(unit.back()) &&
        isReadOutside(graph.ops[size_t(unit.back())].operands[0], unit, ops))
      return false;
    std::vector<int> all = ops;
    for (int op : unit)
      if (std::find(ops.begin(), ops.end(), op) == ops.end())
        all.push_back(op);
    if (!nests.isNest(all, [&](int value) { return isReadOutside(value, unit, ops); }))
      return false;
    ops = std::move(all);
    note(kernel, unit);
    return true;
  }

  /// Whether the operands of an op of the unit exist when the kernel begins, or are made by it.
  bool existsBefore(int kernel, int index, const std::vector<int> &unit) const {
    const GraphOp &op = graph.ops[size_t(index)];
    for (size_t k = 0; k < op.operands.size(); ++k) {
      int producer = producerOf(op.operands[k]);
      if (!isDirect(index, k))
        return false;
      if (!isHere(producer) || std::find(unit.begin(), unit.end(), producer) != unit.end())
        continue;
      if (kernelOf[size_t(producer)] == none || kernelOf[size_t(producer)] > kernel)
        return false;
    }
    return true;
  }

  /// Whether the kernel of `ops`, which lacks `index`, reads its result where another kernel has
  /// stored it. Executed at the end of this kernel, the op would stand behind its reader.
  bool isReadStored(int index, const std::vector<int> &ops) const {
    if (!stored.count(index) || std::find(ops.begin(), ops.end(), index) != ops.end())
      return false;
    return std::any_of(ops.begin(), ops.end(), [&](int op) {
      const std::vector<int> &operands = graph.ops[size_t(op)].operands;
      return std::any_of(operands.begin(), operands.end(),
                         [&](int value) { return producerOf(value) == index; });
    });
  }

  /// Whether a value is read by an op that is in neither list, or is kept by the block.
  bool isReadOutside(int value, const std::vector<int> &some,
                     const std::vector<int> &others) const {
    int producer = producerOf(value);
    if (stored.count(producer) && !some.empty() && some.back() == producer)
      return true;
    if (producer >= 0 && isRepeated(producer))
      return false;
    if (isKept[size_t(value)])
      return true;
    auto contains = [](const std::vector<int> &list, int op) {
      return std::find(list.begin(), list.end(), op) != list.end();
    };
    for (int user : graph.values[size_t(value)].users) {
      if (!isHere(user))
        continue;
      if (!contains(some, user) && !contains(others, user))
        return true;
      const GraphOp &op = graph.ops[size_t(user)];
      for (size_t k = 0; k < op.operands.size(); ++k)
        if (op.operands[k] == value && !isDirect(user, k))
          return true;
    }
    return false;
  }

  /// Returns the kernels with each only reader of a matmul right behind the matmul, where a library
  /// can execute both in one call. Only matmuls stay where they are, so all that a reader needs is
  /// made before the matmul that it follows.
  std::vector<Kernel> inEmittedOrder() {
    std::map<int, int> makers; // by op: the kernel that makes its results for others
    for (size_t k = 0; k < kernels.size(); ++k)
      for (int op : kernels[k].ops)
        if (!isRepeated(op) || op == kernels[k].ops.back())
          makers[op] = int(k);
    std::vector<int> readerOf(kernels.size(), none); // by matmul
    std::vector<bool> isBehind(kernels.size(), false);
    for (size_t k = 0; k < kernels.size(); ++k)
      if (int matmul = matmulBefore(int(k), makers); matmul != none) {
        readerOf[size_t(matmul)] = int(k);
        isBehind[k] = true;
      }
    std::vector<int> placeOf(kernels.size()); // by kernel: itself, or the matmul before it
    std::iota(placeOf.begin(), placeOf.end(), 0);
    for (size_t k = 0; k < kernels.size(); ++k)
      if (readerOf[k] != none) // a later kernel
        placeOf[size_t(readerOf[k])] = int(k);
    std::vector<int> sumsOf(kernels.size(), none); // by nest of rows
    for (size_t k = 0; k < kernels.size(); ++k)
      if (!isBehind[k])
        if (int rows = rowsBefore(int(k), makers, placeOf);
            rows != none && sumsOf[size_t(rows)] == none) {
          sumsOf[size_t(rows)] = int(k);
          kernels[k].joinsPrevious = true;
          placeOf[k] = placeOf[size_t(rows)];
        }
    std::vector<Kernel> ordered;
    auto emit = [&](size_t k) {
      ordered.push_back(kernels[k]);
      if (sumsOf[k] != none)
        ordered.push_back(kernels[size_t(sumsOf[k])]);
    };
    for (size_t k = 0; k < kernels.size(); ++k) {
      if (isBehind[k] || kernels[k].joinsPrevious)
        continue;
      emit(k);
      if (readerOf[k] != none)
        emit(size_t(readerOf[k]));
    }
    return ordered;
  }

  /// Returns the nest that kernel `sums` may follow as its column sums: the latest one that makes
  /// or reads one of its operands, if all others are made by then. `placeOf`: the order of kernels.
  int rowsBefore(int sums, const std::map<int, int> &makers,
                 const std::vector<int> &placeOf) const {
    const Kernel &kernel = kernels[size_t(sums)];
    if (!kernel.isNest || !reduces(kernel.ops))
      return none;
    int rows = none, latest = none;
    std::set<int> reads;
    for (int index : kernel.ops) {
      const GraphOp &op = graph.ops[size_t(index)];
      for (size_t k = 0; k < op.operands.size(); ++k) {
        if (!isDirect(index, k))
          return none;
        auto maker = makers.find(producerOf(op.operands[k]));
        if (maker != makers.end() && maker->second == sums)
          continue;
        if (int producer = producerOf(op.operands[k]); producer < 0 || !isRepeated(producer))
          reads.insert(op.operands[k]);
        if (maker == makers.end())
          continue;
        latest = std::max(latest, placeOf[size_t(maker->second)]);
        rows = std::max(rows, maker->second);
      }
    }
    if (sums > 0 && !kernels[size_t(sums) - 1].joinsPrevious && readsOneOf(sums - 1, reads))
      rows = sums - 1;
    if (rows == none || latest > placeOf[size_t(rows)] || !kernels[size_t(rows)].isNest ||
        kernels[size_t(rows)].joinsPrevious || !reduces(kernels[size_t(rows)].ops))
      return none;
    std::vector<int> all = kernels[size_t(rows)].ops;
    for (int op : kernel.ops)
      if (std::find(all.begin(), all.end(), op) == all.end())
        all.push_back(op);
    const bool isOne =
        all.size() <= size_t(maxKernelOps) &&
        nests.isNestWithColumnSums(all, [&](int value) { return isReadOutside(value, all, {}); });
    return isOne ? rows : none;
  }

  bool readsOneOf(int kernel, const std::set<int> &values) const {
    for (int index : kernels[size_t(kernel)].ops)
      for (int value : graph.ops[size_t(index)].operands)
        if (values.count(value))
          return true;
    return false;
  }

  /// Returns the matmul that kernel `reader` may follow: the last maker of its operands, whose
  /// result is for it alone. None if an operand needs communication.
  int matmulBefore(int reader, const std::map<int, int> &makers) const {
    const Kernel &kernel = kernels[size_t(reader)];
    int last = none;
    for (int index : kernel.ops) {
      const GraphOp &op = graph.ops[size_t(index)];
      for (size_t k = 0; k < op.operands.size(); ++k) {
        if (!isDirect(index, k))
          return none;
        auto maker = makers.find(producerOf(op.operands[k]));
        if (maker != makers.end() && maker->second != reader)
          last = std::max(last, maker->second);
      }
    }
    if (!kernel.isNest || last == none || kernels[size_t(last)].isNest)
      return none;
    const GraphOp &maker = graph.ops[size_t(kernels[size_t(last)].ops[0])];
    const bool isMatmul = maker.kernelClass == KernelClass::Matmul && maker.results.size() == 1;
    return isMatmul && !isReadOutside(maker.results[0], kernel.ops, {}) ? last : none;
  }

  void begin(const std::vector<int> &unit, bool isNest) {
    kernels.push_back({unit, isNest});
    lastReads.clear();
    note(int(kernels.size()) - 1, unit);
  }

  void note(int kernel, const std::vector<int> &unit) {
    for (int op : unit) {
      if (!isRepeated(op))
        kernelOf[size_t(op)] = kernel;
      if (kernel + 1 == int(kernels.size()) && kernels.back().isNest)
        for (int value : graph.ops[size_t(op)].operands)
          if (int producer = producerOf(value); producer < 0 || !isRepeated(producer))
            lastReads.insert(value);
    }
  }

  const Graph &graph;
  const Assignment &assignment;
  const Derivation &derivation;
  const std::vector<bool> &isKept;   // by value: a block passes it on
  const std::vector<bool> &repeated; // by op (repeatedOps)
  NestFinder &nests;
  std::vector<Kernel> kernels;
  std::vector<int> kernelOf;             // by op
  std::vector<bool> inBlock;             // by op
  std::vector<bool> isCutByReaders;      // by op
  std::set<int> lastReads;               // values read by the last kernel
  std::set<int> isCut;                   // ops that cut columns for an op of `packs`
  std::map<int, std::vector<int>> packs; // by the op that takes columns: the ops of its kernel
  std::set<int> stored;                  // repeated ops whose result a kernel has made for others
};

/// Returns, by value, whether something other than an op reads it: another block, a collective, the
/// update.
std::vector<bool> keptValues(const Graph &graph, const Derivation &derivation) {
  std::vector<bool> isKept(graph.values.size(), false);
  auto keep = [&](int value) {
    if (value >= 0)
      isKept[size_t(value)] = true;
  };
  for (const Reshard &reshard : derivation.reshards)
    keep(reshard.value);
  for (const Residual &residual : derivation.residuals)
    keep(residual.value);
  for (const Transfer &transfer : derivation.transfers)
    keep(transfer.value);
  for (const GradientParts &parts : derivation.gradientParts)
    for (const GradientParts::Part &part : parts.parts)
      keep(part.value);
  for (auto [state, updated] : graph.stateUpdates)
    keep(updated);
  keep(graph.loss);
  keep(graph.count);
  return isKept;
}

} // namespace

std::vector<bool> repeatedOps(const Graph &graph) {
  const std::vector<bool> positions = positionValues(graph);
  std::vector<bool> repeated(graph.ops.size(), false);
  for (size_t index = 0; index < graph.ops.size(); ++index) {
    const GraphOp &op = graph.ops[index];
    bool isRepeated = op.generator && op.isLoopNest;
    for (int value : op.operands)
      isRepeated = isRepeated && repeated[size_t(graph.values[size_t(value)].producer)];
    for (int value : op.results)
      isRepeated = isRepeated && !positions[size_t(value)];
    repeated[index] = isRepeated;
  }
  return repeated;
}

BlockKernels planKernels(const Graph &graph, const Assignment &assignment,
                         const Derivation &derivation) {
  std::set<int> skipped;
  for (const GradientParts &parts : derivation.gradientParts)
    skipped.insert(parts.skippedAdds.begin(), parts.skippedAdds.end());
  std::map<BlockKey, std::vector<int>> blocks;
  for (int op = 0; op < int(graph.ops.size()); ++op)
    if (const GraphOp &o = graph.ops[size_t(op)]; !o.generator && !skipped.count(op))
      blocks[{o.chunk, o.phase}].push_back(op);
  const std::vector<bool> isKept = keptValues(graph, derivation);
  const std::vector<bool> repeated = repeatedOps(graph);
  NestFinder nests(graph, assignment, derivation);
  BlockKernels result;
  for (const auto &[key, ops] : blocks)
    result[key] = BlockFuser(graph, assignment, derivation, isKept, repeated, nests).run(ops);
  return result;
}

BlockKernels planUnsplitKernels(const Graph &graph) {
  Assignment assignment;
  assignment.strategies.resize(graph.ops.size());
  Derivation derivation;
  derivation.raw.resize(graph.values.size());
  for (const GraphOp &op : graph.ops)
    derivation.operands.emplace_back(op.operands.size());
  for (size_t p = 0; p < graph.parameters.size(); ++p)
    derivation.gradientParts.push_back(gradientParts(graph, int(p)));
  // Values that another block reads.
  for (int value = 0; value < int(graph.values.size()); ++value) {
    const int producer = graph.values[size_t(value)].producer;
    if (producer < 0 || graph.ops[size_t(producer)].generator)
      continue;
    const GraphOp &maker = graph.ops[size_t(producer)];
    for (int user : graph.values[size_t(value)].users)
      if (const GraphOp &reader = graph.ops[size_t(user)];
          reader.chunk != maker.chunk || reader.phase != maker.phase) {
        derivation.residuals.emplace_back();
        derivation.residuals.back().value = value;
        break;
      }
  }
  return planKernels(graph, assignment, derivation);
}

} // namespace tbc::reshard
