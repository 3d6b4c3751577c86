//===- SignatureDifference.cpp - Compares two lists of collectives --------===//

#include "tests/tools/IndependentCollectives.h"

#include <map>
#include <set>
#include <sstream>
#include <tuple>

using namespace tbc::reshard;

namespace tbc::test {

/// Executions by kind, axes, stage and bytes.
using Lines = std::map<std::tuple<CollectiveKind, std::string, int, int64_t>, int64_t>;

/// Puts axes in mesh order: all_gathers over "tp+dp" and "dp+tp" have the same ranks.
static Lines canonical(const Mesh &mesh, const std::vector<CollectiveCount> &list) {
  Lines merged;
  for (const CollectiveCount &line : list) {
    std::set<std::string> parts;
    std::stringstream stream(line.axes);
    for (std::string part; std::getline(stream, part, '+');)
      parts.insert(part);
    std::string axes;
    for (const MeshAxis &axis : mesh.axes)
      if (parts.erase(axis.name))
        axes += (axes.empty() ? "" : "+") + axis.name;
    for (const std::string &unknown : parts)
      axes += "+" + unknown;
    merged[{line.kind, axes, line.stage, line.bytes}] += line.count;
  }
  return merged;
}

/// Subtracts `list` from `lines`; returns false if it is not contained.
static bool subtract(Lines &lines, const Lines &list) {
  for (const auto &[key, count] : list) {
    auto found = lines.find(key);
    if (found == lines.end() || found->second < count)
      return false;
    found->second -= count;
    if (found->second == 0)
      lines.erase(found);
  }
  return true;
}

/// Returns whether `rest` is the sum of one alternative of each tie from index `first` on.
static bool isSumOfWays(const std::vector<std::vector<Lines>> &ties, size_t first,
                        const Lines &rest) {
  if (first == ties.size())
    return rest.empty();
  for (const Lines &way : ties[first]) {
    Lines less = rest;
    if (subtract(less, way) && isSumOfWays(ties, first + 1, less))
      return true;
  }
  return false;
}

static std::string onlyIn(const char *what, const Lines &lines, const Lines &other) {
  std::string text;
  for (const auto &[key, count] : lines) {
    auto same = other.find(key);
    if (same != other.end() && same->second == count)
      continue;
    const auto &[kind, axes, stage, bytes] = key;
    text += std::string(what) + ": stage " + std::to_string(stage) + ", " + std::to_string(count) +
            " x " + name(kind) + " over " + axes + " of " + std::to_string(bytes) + " bytes\n";
  }
  return text;
}

ResidentBytes residentBytes(const program::Stage &stage) {
  ResidentBytes bytes;
  for (const program::Slot &slot : stage.slots) {
    int64_t size = program::sizeBytes(slot.type);
    if (slot.location == program::Location::Host)
      bytes.hostOptimizerState += slot.role == program::Role::OptimizerState ? size : 0;
    else if (slot.role == program::Role::Parameter)
      bytes.parameters += size;
    else if (slot.role == program::Role::Gradient)
      bytes.gradients += size;
    else if (slot.role == program::Role::OptimizerState)
      bytes.optimizerState += size;
    else if (slot.role == program::Role::State)
      bytes.state += size;
  }
  return bytes;
}

std::string difference(const Mesh &mesh, const StepSignature &expected,
                       const std::vector<CollectiveCount> &actual) {
  Lines fixed = canonical(mesh, expected.collectives), program = canonical(mesh, actual);
  std::vector<std::vector<Lines>> ties;
  for (const auto &tie : expected.ties) {
    ties.emplace_back();
    for (const std::vector<CollectiveCount> &way : tie)
      ties.back().push_back(canonical(mesh, way));
  }
  Lines rest = program;
  if (subtract(rest, fixed) && isSumOfWays(ties, 0, rest))
    return "";
  for (const std::vector<Lines> &tie : ties)
    for (const auto &[key, count] : tie.front())
      fixed[key] += count;
  return onlyIn("expected only", fixed, program) + onlyIn("in the Program only", program, fixed);
}

std::string signatureDifference(const driver::CompiledPlan &compiled, const planner::Plan &plan) {
  const Assignment &assignment = compiled.planned.assignment;
  StepSignature expected = expectedSignature(compiled.planned.graph, assignment,
                                             plan.job.stateBytesPerElement(), joinedSizes(plan));
  std::string text =
      difference(assignment.mesh, expected, driver::countInstructions(compiled.program));
  for (const std::string &move : expected.moves)
    text += text.empty() ? "" : "expected move: " + move + "\n";
  for (size_t stage = 0; stage < compiled.program.stages.size(); ++stage) {
    ResidentBytes actual = residentBytes(compiled.program.stages[stage]);
    std::ostringstream line;
    line << "stage " << stage << " holds " << actual << ", expected " << expected.resident[stage]
         << "\n";
    if (!(actual == expected.resident[stage]))
      text += line.str();
  }
  return text;
}

} // namespace tbc::test
