//===- RecomputeBlocks.cpp - Graph blocks recomputed or kept as a whole ---===//

#include "planner/graph/RecomputeBlocks.h"
#include "planner/graph/Fold.h"
#include "planner/graph/Recompute.h"
#include "planner/graph/Stages.h"

#include <algorithm>

using namespace tbc::reshard;

namespace tbc::planner {

std::vector<int> blockStarts(const Graph &graph) {
  std::vector<int> joints = singleValueCuts(graph);
  auto mayStart = [&](int op) { return op > 0 && joints[op - 1] >= 0; };
  Block best;
  for (const Block &block : foldBlocks(graph))
    if (block.count > 2 && block.count * block.length > best.count * best.length)
      best = block;
  std::vector<int> starts;
  if (best.count <= 2) {
    for (int op = 0; op < int(joints.size()); ++op)
      if (op == firstOwnOp(graph) || mayStart(op))
        starts.push_back(op);
    return starts;
  }
  // A period may begin anywhere in a layer; take the joint with the fewest elements.
  int at = best.first;
  int64_t fewest = -1;
  for (int op = best.first; op < best.first + best.length; ++op) {
    if (!mayStart(op))
      continue;
    int64_t elements = graph.values[joints[op - 1]].layout.numElements();
    if (fewest < 0 || elements < fewest) {
      fewest = elements;
      at = op;
    }
  }
  for (int i = 0; i < best.count; ++i)
    starts.push_back(at + i * best.length);
  return starts;
}

//===----------------------------------------------------------------------===//
// Texts of plan.json
//===----------------------------------------------------------------------===//

const std::vector<RecomputeMode> &recomputeModes() {
  static const std::vector<RecomputeMode> modes = {RecomputeMode::None, RecomputeMode::Selective,
                                                   RecomputeMode::Full};
  return modes;
}

const char *name(RecomputeMode mode) {
  switch (mode) {
  case RecomputeMode::None:
    return "none";
  case RecomputeMode::Selective:
    return "selective";
  case RecomputeMode::Full:
    return "full";
  }
  return "";
}

std::optional<RecomputeMode> parseRecomputeMode(const std::string &word) {
  for (RecomputeMode mode : recomputeModes())
    if (name(mode) == word)
      return mode;
  return std::nullopt;
}

RecomputeMode weakerMode(RecomputeMode mode) {
  switch (mode) {
  case RecomputeMode::None:
  case RecomputeMode::Selective:
    return RecomputeMode::None;
  case RecomputeMode::Full:
    return RecomputeMode::Selective;
  }
  return RecomputeMode::None;
}

static std::string toString(const BlockShare &share) {
  return std::to_string(share.blocks) + "/" + std::to_string(share.of);
}

/// Reads two numbers such as "3/8", the second at least 1 and the first no larger.
static std::optional<BlockShare> parseShare(const std::string &text) {
  size_t slash = text.find('/');
  auto isNumber = [](const std::string &digits) {
    return !digits.empty() && digits.size() < 9 &&
           std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  if (slash == std::string::npos || !isNumber(text.substr(0, slash)) ||
      !isNumber(text.substr(slash + 1)))
    return std::nullopt;
  const int64_t blocks = std::stoll(text.substr(0, slash)), of = std::stoll(text.substr(slash + 1));
  if (of < 1 || blocks > of)
    return std::nullopt;
  return BlockShare::share(blocks, of);
}

std::string toString(const Recompute &recompute) {
  const std::string mode = name(recompute.mode);
  return recompute.share.isAll() ? mode : mode + " " + toString(recompute.share);
}

std::optional<Recompute> parseRecompute(const std::string &text) {
  size_t space = text.find(' ');
  std::optional<RecomputeMode> mode = parseRecomputeMode(text.substr(0, space));
  if (!mode)
    return std::nullopt;
  if (space == std::string::npos)
    return Recompute{*mode};
  std::optional<BlockShare> share = parseShare(text.substr(space + 1));
  if (!share || mode == RecomputeMode::None)
    return std::nullopt;
  return Recompute{*mode, *share};
}

std::string residualsText(const std::optional<BlockShare> &residuals) {
  return !residuals ? "none" : residuals->isAll() ? "all" : toString(*residuals);
}

bool parseResiduals(const std::string &text, std::optional<BlockShare> &residuals) {
  residuals.reset();
  if (text == residualsText(std::nullopt))
    return true;
  residuals = text == residualsText(BlockShare()) ? BlockShare() : parseShare(text);
  return residuals.has_value();
}

} // namespace tbc::planner
