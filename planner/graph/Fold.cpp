//===- Fold.cpp - Repeated blocks of the forward order ---------------------===//

#include "planner/graph/Fold.h"
#include "planner/graph/Recompute.h"
#include "planner/graph/Stages.h"

#include <algorithm>
#include <map>
#include <string>

using namespace tbc::reshard;

namespace tbc::planner {

namespace {

/// FNV-1a over words (Fowler, Noll, Vo).
class Hash {
public:
  void add(uint64_t word) {
    for (int byte = 0; byte < 8; ++byte) {
      state ^= (word >> (8 * byte)) & 0xff;
      state *= 1099511628211u;
    }
  }
  void add(const std::string &text) {
    add(uint64_t(text.size()));
    for (unsigned char letter : text)
      add(uint64_t(letter));
  }
  uint64_t value() const { return state; }

private:
  uint64_t state = 14695981039346656037u;
};

/// Numbers factors in the order of their appearance in one op.
class LocalNames {
public:
  uint64_t operator()(FactorId id) { return names.emplace(id, names.size()).first->second; }

private:
  std::map<FactorId, uint64_t> names;
};

void addLayout(Hash &hash, const GraphValue &value, LocalNames &names) {
  const TensorLayout &layout = value.layout;
  hash.add(uint64_t(layout.elementBytes));
  hash.add(uint64_t(value.dtype));
  for (const DimLayout &dim : layout.dims) {
    hash.add(uint64_t(1) << 40);
    for (const Segment &segment : dim.segments) {
      hash.add(uint64_t(1) << 41);
      for (const Factor &factor : segment.factors) {
        hash.add(names(factor.id));
        hash.add(uint64_t(factor.size));
      }
    }
  }
}

} // namespace

std::vector<uint64_t> structuralHashes(const Graph &graph) {
  std::vector<uint64_t> hashes;
  for (int index = 0; index < numForwardOps(graph); ++index) {
    const GraphOp &op = graph.ops[index];
    Hash hash;
    LocalNames names;
    hash.add(op.kind);
    hash.add(uint64_t(op.kernelClass));
    hash.add(uint64_t(op.additive) * 2 + uint64_t(op.generator));
    hash.add(uint64_t(int64_t(op.expertLoop) + 1));
    hash.add(uint64_t(op.routing.copies));
    hash.add(uint64_t(op.fp8.isRounded));
    hash.add(uint64_t(op.flops));
    for (int value : op.operands) {
      const GraphValue &operand = graph.values[value];
      addLayout(hash, operand, names);
      hash.add(operand.producer < 0 ? (uint64_t(1) << 32) + uint64_t(operand.role)
               // Constant-derived values may be far before the blocks that use them.
               : graph.ops[operand.producer].generator ? uint64_t(1) << 33
                                                       : uint64_t(index - operand.producer));
    }
    for (int value : op.results)
      addLayout(hash, graph.values[value], names);
    for (const Loop &loop : op.loops) {
      hash.add(names(loop.factor));
      hash.add(uint64_t(loop.size));
      hash.add(uint64_t(loop.kind));
      for (const auto *places : {&loop.operandDims, &loop.resultDims})
        for (const TensorDim &place : *places)
          hash.add(uint64_t(place.tensor) * 64 + uint64_t(place.dim));
    }
    hashes.push_back(hash.value());
  }
  return hashes;
}

std::vector<Block> foldBlocks(const Graph &graph) { return foldBlocks(structuralHashes(graph)); }

std::vector<Block> foldBlocks(const std::vector<uint64_t> &hashes) {
  int n = int(hashes.size());
  std::map<uint64_t, std::vector<int>> places;
  for (int i = 0; i < n; ++i)
    places[hashes[i]].push_back(i);

  /// Returns the number of consecutive repeats of the `period` ops at `first`.
  auto repeats = [&](int first, int period) {
    int same = 0;
    while (first + period + same < n && hashes[first + same] == hashes[first + period + same])
      ++same;
    return same / period + 1;
  };
  std::vector<Block> blocks;
  for (int at = 0; at < n;) {
    Block best{at, 1, 1};
    for (int other : places[hashes[at]]) {
      int period = other - at;
      if (period <= 0)
        continue;
      if (period * 2 > n - at)
        break;
      int count = repeats(at, period);
      if (count > 1 && count * period > best.count * best.length)
        best = {at, period, count};
    }
    bool repeated = best.count > 1;
    if (!repeated && !blocks.empty() && blocks.back().count == 1)
      ++blocks.back().length;
    else
      blocks.push_back(best);
    at += best.length * best.count;
  }
  return blocks;
}

/// Returns a hash of an op without its connections.
static uint64_t hashAlone(const Graph &graph, const GraphOp &op) {
  Hash hash;
  LocalNames names;
  hash.add(op.kind);
  hash.add(uint64_t(op.kernelClass));
  hash.add(uint64_t(op.additive));
  hash.add(uint64_t(op.flops));
  for (const auto *values : {&op.operands, &op.results})
    for (int value : *values)
      addLayout(hash, graph.values[value], names);
  return hash.value();
}

std::vector<uint64_t> looseHashes(const Graph &graph, const std::vector<uint64_t> &kindOf) {
  std::vector<uint64_t> hashes;
  for (int index = 0; index < numForwardOps(graph); ++index) {
    const GraphOp &op = graph.ops[size_t(index)];
    Hash hash;
    hash.add(hashAlone(graph, op));
    hash.add(kindOf[size_t(index)]);
    for (int value : op.operands) {
      const GraphValue &operand = graph.values[size_t(value)];
      hash.add(operand.producer < 0 ? 1 + uint64_t(operand.role) : 0);
    }
    hashes.push_back(hash.value());
  }
  return hashes;
}

Repeat largestRepeat(const Graph &graph) {
  Repeat repeat;
  Block best;
  for (const Block &block : foldBlocks(graph))
    if (block.count > 2 && block.count * block.length > best.count * best.length)
      best = block;
  if (best.count <= 2)
    return repeat;
  std::vector<int> anchors = forwardAnchors(graph);
  std::vector<std::vector<uint64_t>> backward(best.count);
  repeat.ops.assign(graph.ops.size(), false);
  for (int op = 0; op < int(graph.ops.size()); ++op) {
    int at = anchors[op] - best.first;
    if (at < 0 || at >= best.length * best.count)
      continue;
    repeat.ops[op] = at / best.length == 1;
    if (graph.ops[op].phase == Phase::Backward)
      backward[at / best.length].push_back(hashAlone(graph, graph.ops[op]));
  }
  for (std::vector<uint64_t> &hashes : backward)
    std::sort(hashes.begin(), hashes.end());
  repeat.like.assign(graph.ops.size(), -1);
  for (int i = 0; i < best.count; ++i) {
    if (backward[i] != backward[1])
      continue;
    ++repeat.count;
    for (int op = 0; op < best.length; ++op)
      repeat.like[best.first + i * best.length + op] = best.first + best.length + op;
  }
  return repeat;
}

} // namespace tbc::planner
