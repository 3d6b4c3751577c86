//===- OmitRepeats.cpp - Which repeated blocks a smaller model can do without ===//

#include "planner/graph/OmitRepeats.h"
#include "planner/graph/Recompute.h"

#include <algorithm>
#include <map>
#include <optional>

using namespace tbc::reshard;

namespace tbc::planner {

namespace {

/// The occurrences that stay of any run: its ends.
constexpr int keptOfRun = 2;
/// Decisions may alternate with a period of up to this many occurrences.
constexpr int mostJoined = 8;

bool haveEqualSizes(const GraphValue &a, const GraphValue &b) {
  return a.role == b.role && a.dtype == b.dtype && a.layout.elementBytes == b.layout.elementBytes &&
         a.layout.shape() == b.layout.shape();
}

/// One block and the occurrences that it can do without.
class Shortener {
public:
  /// Takes `joined` occurrences of `whole` as one.
  Shortener(const Graph &graph, const Block &whole, int joined, const std::vector<uint64_t> &kindOf,
            const OpDecisions &decisions)
      : graph(graph), whole(whole), block{whole.first, whole.length * joined, whole.count / joined},
        numForward(numForwardOps(graph)) {
    findRuns(kindOf, decisions);
  }

  /// The number of omitted ops.
  int numOmitted() const {
    return int(std::count(omitted.begin(), omitted.end(), true)) * block.length;
  }
  void keepAll() { omitted.assign(omitted.size(), false); }
  OmittedRepeats::Shortened summary() const {
    return {whole, whole.count - numOmitted() / whole.length};
  }

  /// The occurrence of a forward op, or -1.
  int occurrence(int op) const {
    const int at = op - block.first;
    return op < 0 || at < 0 || at >= block.length * block.count ? -1 : at / block.length;
  }
  bool isOmitted(int op) const {
    const int at = occurrence(op);
    return at >= 0 && omitted[size_t(at)];
  }

  /// Returns the value that takes the place of operand `number` of the kept op `op`; nullopt if
  /// there is none.
  std::optional<int> valueFor(int op, int number) const {
    const int value = graph.ops[size_t(op)].operands[size_t(number)];
    const int producer = graph.values[size_t(value)].producer;
    const int from = occurrence(producer), to = occurrence(op);
    if (from < 0)
      return value;
    if (to < 0)
      return isOmitted(producer) ? std::nullopt : std::optional(value);
    if (std::none_of(omitted.begin() + from, omitted.begin() + to, [](bool is) { return is; }))
      return value;
    // The occurrence before shows whether all read this value or each that of a neighbour.
    if (to == 0 || !isLikeNext[size_t(to - 1)])
      return std::nullopt;
    if (graph.ops[size_t(op - block.length)].operands[size_t(number)] == value)
      return isOmitted(producer) ? std::nullopt : std::optional(value);
    const int steps = to - from;
    int at = to;
    for (int i = 0; i < steps; ++i)
      if (at = keptBefore(at); at < 0)
        return std::nullopt;
    const GraphOp &twin = graph.ops[size_t(producer - (from - at) * block.length)];
    const int result = graph.values[size_t(value)].producerResult;
    if (result >= int(twin.results.size()))
      return std::nullopt;
    const int instead = twin.results[size_t(result)];
    if (!haveEqualSizes(graph.values[size_t(value)], graph.values[size_t(instead)]))
      return std::nullopt;
    return instead;
  }

private:
  int keptBefore(int at) const {
    for (--at; at >= 0 && omitted[size_t(at)];)
      --at;
    return at;
  }

  void findRuns(const std::vector<uint64_t> &kindOf, const OpDecisions &decisions) {
    omitted.assign(size_t(block.count), false);
    auto repeat = [&](const auto &numbers, int at) {
      const auto begin = numbers.begin() + firstOp(at);
      return std::equal(begin, begin + block.length, begin + block.length);
    };
    struct Run {
      int first, last;
      int length() const { return last + 1 - first; }
    };
    std::vector<Run> runs;
    std::map<std::vector<uint64_t>, size_t> longest; // by decisions, a run
    for (int at = 0; at < block.count; ++at) {
      if (at > 0)
        isLikeNext.push_back(areAlike(at - 1, kindOf));
      if (at > 0 && isLikeNext.back() && repeat(decisions.numbers, at - 1) &&
          repeat(decisions.chunks, at - 1)) {
        ++runs.back().last;
        continue;
      }
      runs.push_back({at, at});
    }
    for (size_t i = 0; i < runs.size(); ++i) {
      const auto begin = decisions.numbers.begin() + firstOp(runs[i].first);
      size_t &known = longest.emplace(std::vector(begin, begin + block.length), i).first->second;
      if (runs[i].length() > runs[known].length())
        known = i;
    }
    for (size_t i = 0; i < runs.size(); ++i) {
      const bool isLongest = std::any_of(longest.begin(), longest.end(),
                                         [&](const auto &entry) { return entry.second == i; });
      for (int at = runs[i].first + (isLongest ? 2 : 1); at < runs[i].last; ++at)
        omitted[size_t(at)] = true;
    }
  }

  int firstOp(int at) const { return block.first + at * block.length; }

  /// Whether occurrences `at` and `at + 1` have the same ops on corresponding operands.
  bool areAlike(int at, const std::vector<uint64_t> &kindOf) const {
    for (int op = firstOp(at); op < firstOp(at + 1); ++op) {
      const int next = op + block.length;
      const GraphOp &a = graph.ops[size_t(op)], &b = graph.ops[size_t(next)];
      if (kindOf[size_t(op)] != kindOf[size_t(next)] || a.kind != b.kind ||
          a.kernelClass != b.kernelClass || a.flops != b.flops || a.expertLoop != b.expertLoop ||
          a.routing.copies != b.routing.copies || a.operands.size() != b.operands.size() ||
          a.results.size() != b.results.size())
        return false;
      for (size_t r = 0; r < a.results.size(); ++r)
        if (!haveEqualSizes(graph.values[size_t(a.results[r])], graph.values[size_t(b.results[r])]))
          return false;
      for (size_t o = 0; o < a.operands.size(); ++o)
        if (!correspond(a.operands[o], b.operands[o], at))
          return false;
    }
    return true;
  }

  /// Whether what `v` is to occurrence `at`, `w` is to the next one.
  bool correspond(int v, int w, int at) const {
    if (v == w)
      return true;
    const GraphValue &a = graph.values[size_t(v)], &b = graph.values[size_t(w)];
    if (!haveEqualSizes(a, b))
      return false;
    if (a.producer < 0 || b.producer < 0)
      return a.producer == b.producer && isOwn(v, at) && isOwn(w, at + 1);
    const int from = occurrence(a.producer), next = occurrence(b.producer);
    if (from < 0) // the first ones read what comes before the block instead of a neighbour's
      return next >= 0 && next < at + 1 && at - (at + 1 - next) < 0;
    return next == from + 1 && b.producer - a.producer == block.length &&
           a.producerResult == b.producerResult;
  }

  /// Whether the argument `value` is a parameter or a state of occurrence `at` alone.
  bool isOwn(int value, int at) const {
    const GraphValue &argument = graph.values[size_t(value)];
    return (argument.role == ValueRole::Parameter || argument.role == ValueRole::State) &&
           std::all_of(argument.users.begin(), argument.users.end(),
                       [&](int user) { return user >= numForward || occurrence(user) == at; });
  }

  const Graph &graph;
  const Block whole, block;
  const int numForward;
  std::vector<bool> isLikeNext; // by occurrence but the last
  std::vector<bool> omitted;    // by occurrence
};

/// Returns the block with its occurrences joined so that most ops can be omitted.
std::optional<Shortener> shortened(const Graph &graph, const Block &block,
                                   const std::vector<uint64_t> &kindOf,
                                   const OpDecisions &decisions) {
  std::optional<Shortener> best;
  for (int joined = 1; joined <= mostJoined; ++joined) {
    if (block.count / joined <= keptOfRun)
      break;
    Shortener one(graph, block, joined, kindOf, decisions);
    if (one.numOmitted() > (best ? best->numOmitted() : 0))
      best.emplace(std::move(one));
  }
  return best;
}

/// Chooses the omitted repeats of all blocks together.
class Omitter {
public:
  Omitter(const Graph &graph, std::vector<Shortener> blocks)
      : graph(graph), blocks(std::move(blocks)) {}

  OmittedRepeats run() {
    while (std::optional<size_t> impossible = readAll())
      blocks[*impossible].keepAll();
    const int numForward = numForwardOps(graph);
    for (int op = 0; op < numForward; ++op)
      result.isOmitted.push_back(ownerOf(op) && blocks[*ownerOf(op)].isOmitted(op));
    for (const Shortener &one : blocks)
      if (one.numOmitted() > 0)
        result.blocks.push_back(one.summary());
    return std::move(result);
  }

private:
  /// The block with the forward op.
  std::optional<size_t> ownerOf(int op) const {
    for (size_t i = 0; i < blocks.size(); ++i)
      if (blocks[i].occurrence(op) >= 0)
        return i;
    return std::nullopt;
  }

  /// Finds what all kept ops read. Returns a block that has to stay whole, if there is one.
  std::optional<size_t> readAll() {
    result.reads.clear();
    const int numForward = numForwardOps(graph);
    for (int op = 0; op < numForward; ++op) {
      if (const auto own = ownerOf(op); own && blocks[*own].isOmitted(op))
        continue;
      const std::vector<int> &operands = graph.ops[size_t(op)].operands;
      for (int number = 0; number < int(operands.size()); ++number) {
        const int value = operands[size_t(number)];
        const auto owner = ownerOf(graph.values[size_t(value)].producer);
        const std::optional<int> instead =
            owner ? blocks[*owner].valueFor(op, number) : std::optional(value);
        if (!instead)
          return owner;
        if (*instead != value)
          result.reads.push_back({op, number, *instead});
      }
    }
    for (int value : {graph.loss, graph.count})
      if (value >= 0)
        if (const auto owner = ownerOf(graph.values[size_t(value)].producer);
            owner && blocks[*owner].isOmitted(graph.values[size_t(value)].producer))
          return owner;
    return whereStateStays();
  }

  /// Returns a block that would lose the update of a state but keep uses of it.
  std::optional<size_t> whereStateStays() const {
    const int numForward = numForwardOps(graph);
    for (auto [state, next] : graph.stateUpdates) {
      const int producer = graph.values[size_t(next)].producer;
      const auto owner = ownerOf(producer);
      const std::vector<int> &users = graph.values[size_t(state)].users;
      if (owner && blocks[*owner].isOmitted(producer) &&
          std::any_of(users.begin(), users.end(), [&](int user) {
            return user < numForward && !blocks[*owner].isOmitted(user);
          }))
        return owner;
    }
    return std::nullopt;
  }

  const Graph &graph;
  std::vector<Shortener> blocks;
  OmittedRepeats result;
};

} // namespace

OmittedRepeats omitRepeats(const Graph &graph, const std::vector<uint64_t> &kindOf,
                           const OpDecisions &decisions) {
  std::vector<Shortener> blocks;
  for (const Block &block : foldBlocks(looseHashes(graph, kindOf)))
    if (block.count > keptOfRun)
      if (auto one = shortened(graph, block, kindOf, decisions))
        blocks.push_back(std::move(*one));
  return Omitter(graph, std::move(blocks)).run();
}

} // namespace tbc::planner
