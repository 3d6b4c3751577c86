//===- OpPins.cpp - The user's decisions about single ops -----------------===//

#include "planner/pins/OpPins.h"
#include "planner/graph/Recompute.h"
#include "planner/graph/Stages.h"
#include "planner/pins/Megatron.h"
#include "planner/plan/ModelNames.h"
#include "runtime/abi/ClosestWord.h"

#include <algorithm>
#include <fnmatch.h>
#include <map>
#include <numeric>
#include <set>

using namespace tbc::reshard;

namespace tbc::planner {

std::string toString(const OpPin &pin) {
  return (pin.isForbidden ? "--forbid " : "--pin ") + pin.glob + "=" + pin.spec;
}

const std::vector<std::string> &opPinWords() {
  static const std::vector<std::string> words = {"tp",
                                                 "column",
                                                 "row",
                                                 "whole",
                                                 toString(TensorParallel::Megatron),
                                                 toString(TensorParallel::MegatronTokens),
                                                 "recompute",
                                                 "keep",
                                                 "begin"};
  return words;
}

bool isParameterMatrix(const Graph &graph, int value) {
  return graph.values[value].role == ValueRole::Parameter &&
         graph.values[value].layout.dims.size() > 1;
}

/// Returns the kind of a split of op `op` by `loop`.
static SplitKind kindOf(const Graph &graph, const GraphOp &op, const Loop &loop) {
  bool isInMatrix =
      std::any_of(loop.operandDims.begin(), loop.operandDims.end(), [&](const TensorDim &place) {
        return isParameterMatrix(graph, op.operands[place.tensor]);
      });
  if (!isInMatrix)
    return loop.factor == graph.sequenceFactor ? TokenSplit : OtherSplit;
  return loop.kind == LoopKind::Parallel ? ColumnSplit : RowSplit;
}

SplitKind splitKind(const Graph &graph, int op, const OpStrategy &strategy, int axis) {
  if (axis >= 0)
    for (const auto &[loop, axes] : strategy.loopAxes)
      for (const AxisRef &ref : axes)
        if (ref.axis == axis)
          return kindOf(graph, graph.ops[op], graph.ops[op].loops[loop]);
  return WholeOp;
}

/// Returns all kinds of split offered by the loops of `op`, except the batch's.
static unsigned offeredSplits(const Graph &graph, const GraphOp &op) {
  unsigned kinds = WholeOp;
  for (const Loop &loop : op.loops)
    if (loop.kind != LoopKind::Fixed && loop.kind != LoopKind::Streamed && loop.size > 1 &&
        loop.factor != graph.batchFactor)
      kinds |= kindOf(graph, op, loop);
  return kinds;
}

static bool matches(const std::string &glob, const std::string &name) {
  return !name.empty() && fnmatch(glob.c_str(), name.c_str(), 0) == 0;
}

std::vector<int> matchingOps(const Graph &graph, const Job &job, const std::string &glob) {
  std::vector<int> ops;
  for (int op = 0; op < numForwardOps(graph); ++op) {
    const GraphOp &graphOp = graph.ops[op];
    if (graphOp.generator)
      continue;
    std::string module = moduleOf(job, graph, op);
    bool isMatch = matches(glob, graphOp.id) || matches(glob, module) ||
                   (!module.empty() && matches(glob, module + "." + graphOp.kind));
    for (int value : graphOp.operands)
      isMatch |= graph.values[value].role == ValueRole::Parameter &&
                 (matches(glob, graph.values[value].name) ||
                  matches(glob, displayName(job, graph.values[value])));
    if (isMatch)
      ops.push_back(op);
  }
  return ops;
}

/// Returns `glob` with each unknown part between dots replaced by the closest known one; "" if it
/// still has no match.
static std::string closestGlob(const Graph &graph, const Job &job, const std::string &glob) {
  std::set<std::string> known;
  auto addParts = [&](const std::string &name) {
    for (size_t begin = 0; begin <= name.size();) {
      size_t end = std::min(name.find('.', begin), name.size());
      known.insert(name.substr(begin, end - begin));
      begin = end + 1;
    }
  };
  for (int op = 0; op < numForwardOps(graph); ++op) {
    addParts(graph.ops[op].id);
    addParts(moduleOf(job, graph, op));
    addParts(graph.ops[op].kind);
  }
  for (const GraphParameter &parameter : graph.parameters) {
    addParts(graph.values[parameter.value].name);
    addParts(displayName(job, graph.values[parameter.value]));
  }
  std::string other;
  for (size_t begin = 0; begin <= glob.size();) {
    size_t end = std::min(glob.find('.', begin), glob.size());
    std::string part = glob.substr(begin, end - begin);
    if (part.find_first_of("*?[") == std::string::npos && !known.count(part))
      if (std::string closest = closestWord(part, {known.begin(), known.end()}); !closest.empty())
        part = closest;
    other += (begin ? "." : "") + part;
    begin = end + 1;
  }
  return other == glob || matchingOps(graph, job, other).empty() ? "" : other;
}

/// Returns the layout named by `spec`; Any for other pins.
static TensorParallel layoutOf(const std::string &spec) {
  return parseTensorParallel(spec).value_or(TensorParallel::Any);
}

/// Returns the splits named by `spec`; 0 for other pins.
static unsigned splitsOf(const std::string &spec) {
  if (spec == "tp")
    return ColumnSplit | RowSplit | TokenSplit | OtherSplit;
  return spec == "column" ? ColumnSplit : spec == "row" ? RowSplit : spec == "whole" ? WholeOp : 0;
}

namespace {

/// Restricts the choices of ops, pin by pin.
class Narrowing {
public:
  Narrowing(const Graph &graph, const Job &job, const std::vector<OpPin> &pins)
      : graph(graph), job(job), pins(pins) {}

  Result<PinnedOps> run(TensorParallel layout) {
    const bool hasExperts = std::any_of(graph.ops.begin(), graph.ops.end(),
                                        [](const GraphOp &op) { return op.expertLoop >= 0; });
    const bool isOpen = std::none_of(pins.begin(), pins.end(), [](const OpPin &pin) {
      return splitsOf(pin.spec) || layoutOf(pin.spec) != TensorParallel::Any;
    });
    found.followsLayout = layout != TensorParallel::Any && isOpen;
    if (found.followsLayout && !hasExperts)
      if (Status status = follow(layout, nullptr, allOps()); !status)
        return status.error();
    for (const OpPin &pin : pins) {
      std::vector<int> ops = matchingOps(graph, job, pin.glob);
      if (ops.empty()) {
        std::string closest = closestGlob(graph, job, pin.glob);
        return fail(pin, "no op, module or parameter of the model is called so" +
                             (closest.empty() ? "; tbc check lists parameters"
                                              : "; did you mean \"" + closest + "\"?"));
      }
      const TensorParallel asked = layoutOf(pin.spec);
      if (asked != TensorParallel::Any && (pin.isForbidden || hasExperts))
        return fail(pin, pin.isForbidden ? "Megatron's layout can be pinned, not forbidden"
                                         : "this layout is for models without experts; pin the "
                                           "ops by column, row and whole");
      Status status = asked != TensorParallel::Any ? follow(asked, &pin, ops)
                      : splitsOf(pin.spec)         ? split(pin, std::move(ops))
                      : pin.spec == "begin"        ? begin(pin, ops)
                                                   : keep(pin, ops);
      if (!status)
        return status.error();
    }
    for (const auto &[op, pin] : beginOf)
      found.begins.push_back(op);
    return std::move(found);
  }

private:
  static Error fail(const OpPin &pin, const std::string &message) {
    return Error{ErrorCode::Usage, toString(pin) + ": " + message};
  }

  Error contradict(const OpPin &pin, int op, unsigned bits) const {
    const OpPin *other = nullptr; // the last pin against `bits`, else the last of all
    for (auto [of, before, allowed] : narrowed)
      if (of == op && (!other || (allowed & bits) == 0))
        other = before;
    return fail(pin, "contradicts " + toString(*other) + ": op \"" + graph.ops[op].id +
                         "\" matches both");
  }

  /// Returns the ops affected by `pin`. A split affects the ops that multiply with parameters, or
  /// all splittable ops if there are no such ops. If whole ops are allowed, it affects all ops.
  std::vector<int> concerned(const OpPin &pin, const std::vector<int> &ops,
                             unsigned allowed) const {
    if (allowed & WholeOp)
      return ops;
    std::vector<int> multiplying, splittable;
    for (int op : ops) {
      const std::vector<int> &operands = graph.ops[op].operands;
      if ((offeredSplits(graph, graph.ops[op]) & allowed) == 0)
        continue;
      splittable.push_back(op);
      if (std::any_of(operands.begin(), operands.end(),
                      [&](int value) { return isParameterMatrix(graph, value); }))
        multiplying.push_back(op);
    }
    return multiplying.empty() ? splittable : multiplying;
  }

  Status split(const OpPin &pin, std::vector<int> ops) {
    unsigned allowed = splitsOf(pin.spec);
    if (pin.isForbidden)
      allowed = AnySplit & ~allowed;
    ops = concerned(pin, ops, allowed);
    if (ops.empty())
      return fail(pin, pin.spec == "tp" || pin.isForbidden
                           ? "none of the ops that match can be split over tp"
                           : "none of the ops that match multiplies with a matrix of parameters");
    if (!(allowed & WholeOp) && !found.splitter)
      found.splitter = &pin;
    found.splits.resize(graph.ops.size(), AnySplit);
    for (int op : ops) {
      if ((found.splits[op] & allowed) == 0)
        return contradict(pin, op, allowed);
      found.splits[op] &= allowed;
      narrowed.push_back({op, &pin, allowed});
    }
    return Status::ok();
  }

  std::vector<int> allOps() const {
    std::vector<int> ops(graph.ops.size());
    std::iota(ops.begin(), ops.end(), 0);
    return ops;
  }

  /// Restricts `ops` to Megatron's layout, which `pin` (or, if null, the executor) asks for.
  Status follow(TensorParallel layout, const OpPin *pin, const std::vector<int> &ops) {
    std::vector<bool> isMatrix;
    std::vector<unsigned> splits =
        megatronSplits(graph, layout == TensorParallel::MegatronTokens, isMatrix);
    // A table of a vocabulary that cannot be split stays whole.
    for (int op : ops)
      if ((offeredSplits(graph, graph.ops[op]) & splits[op]) == 0) {
        splits[op] = WholeOp | TokenSplit;
        isMatrix[op] = false;
      }
    found.splits.resize(graph.ops.size(), AnySplit);
    found.isPreference.resize(graph.ops.size(), false);
    for (int op : ops) {
      if (pin && !(found.splits[op] & splits[op]))
        return contradict(*pin, op, splits[op]);
      found.splits[op] &= splits[op];
      found.isPreference[op] = !pin || !isMatrix[op];
      if (pin)
        narrowed.push_back({op, pin, splits[op]});
      if (pin && isMatrix[op] && !found.splitter)
        found.splitter = pin;
    }
    return Status::ok();
  }

  Status keep(const OpPin &pin, const std::vector<int> &ops) {
    bool isKept = (pin.spec == "keep") != pin.isForbidden;
    PinnedOps::Keep wanted = isKept ? PinnedOps::Keep::Keep : PinnedOps::Keep::Recompute;
    found.keep.resize(graph.ops.size(), PinnedOps::Keep::Open);
    keptBy.resize(graph.ops.size(), nullptr);
    for (int op : ops) {
      if (found.keep[op] != PinnedOps::Keep::Open && found.keep[op] != wanted)
        return fail(pin, "contradicts " + toString(*keptBy[op]) + ": op \"" + graph.ops[op].id +
                             "\" matches both");
      found.keep[op] = wanted;
      keptBy[op] = &pin;
    }
    return Status::ok();
  }

  /// Pins the beginning of a stage to the first of `ops` that may begin one.
  Status begin(const OpPin &pin, const std::vector<int> &ops) {
    if (pin.isForbidden)
      return fail(pin, "where a stage begins can be pinned, not forbidden");
    if (mayBegin.empty())
      mayBegin = stageMayBegin(graph);
    auto first = std::find_if(ops.begin(), ops.end(), [&](int op) { return op && mayBegin[op]; });
    if (first == ops.end())
      return fail(pin, "no stage can begin with an op that matches: what is between op \"" +
                           graph.ops[ops[0]].id + "\" and those before it belongs together");
    auto [before, isNew] = beginOf.emplace(*first, &pin);
    if (!isNew)
      return fail(pin, "begins the same stage as " + toString(*before->second) + ", with op \"" +
                           graph.ops[*first].id + "\"");
    if (!found.beginner)
      found.beginner = &pin;
    return Status::ok();
  }

  struct Narrowed {
    int op;
    const OpPin *pin;
    unsigned allowed;
  };

  const Graph &graph;
  const Job &job;
  const std::vector<OpPin> &pins;
  PinnedOps found;
  std::vector<Narrowed> narrowed;
  std::vector<const OpPin *> keptBy; // by op
  std::vector<bool> mayBegin;        // by forward op; empty: not computed yet
  std::map<int, const OpPin *> beginOf;
};

} // namespace

Result<PinnedOps> PinnedOps::make(const Graph &graph, const Job &job,
                                  const std::vector<OpPin> &pins, TensorParallel layout) {
  return Narrowing(graph, job, pins).run(layout);
}

bool PinnedOps::areMetBy(const Graph &graph, const std::vector<OpStrategy> &strategies,
                         int axis) const {
  for (int op = 0; op < int(splits.size()); ++op)
    if (splits[op] != AnySplit && (isPreference.empty() || !isPreference[op]) &&
        !allows(op, splitKind(graph, op, strategies[op], axis)))
      return false;
  return true;
}

void PinnedOps::applyTo(std::vector<bool> &recompute) const {
  for (size_t op = 0; op < keep.size(); ++op)
    if (keep[op] != Keep::Open)
      recompute[op] = keep[op] == Keep::Recompute;
}

} // namespace tbc::planner
