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

std::string recomputeText(const std::string &mode, int64_t blocks, int64_t of) {
  if (blocks == of)
    return mode;
  return mode + " " + std::to_string(blocks) + "/" + std::to_string(of);
}

/// Whether `text` is two numbers such as "3/8".
static bool isShare(const std::string &text) {
  size_t slash = text.find('/');
  auto isNumber = [](const std::string &digits) {
    return !digits.empty() && digits.size() < 9 &&
           std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  return slash != std::string::npos && isNumber(text.substr(0, slash)) &&
         isNumber(text.substr(slash + 1));
}

bool isRecomputeText(const std::string &text) {
  size_t space = text.find(' ');
  std::string mode = text.substr(0, space);
  if (space == std::string::npos)
    return mode == "none" || mode == "selective" || mode == "full";
  return (mode == "selective" || mode == "full") && isShare(text.substr(space + 1));
}

std::string offloadedBlocks(int64_t blocks, int64_t of) {
  return blocks == of ? "all" : std::to_string(blocks) + "/" + std::to_string(of);
}

bool isOffloadedBlocks(const std::string &text) {
  return text == "none" || text == "all" || isShare(text);
}

std::string weakerMode(const std::string &mode) { return mode == "full" ? "selective" : "none"; }

} // namespace tbc::planner
