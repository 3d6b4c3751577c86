//===- EmitIr.cpp - The IR of a plan, as text ------------------------------===//

#include "tools/driver/EmitIr.h"

#include "planner/graph/Fold.h"
#include "planner/graph/Stages.h"
#include "planner/plan/PlanApply.h"
#include "tools/driver/ApplyPlan.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <map>

using namespace mlir;

namespace tbc::driver {

static constexpr llvm::StringLiteral applyPlanName = "tbc-apply-plan";

/// Maps each folded op of `graph` to the comment printed in place of its run; all ops of a run have
/// the same comment. Unfolded ops have no entry.
static std::map<int, std::string> foldedOps(const reshard::Graph &graph) {
  std::vector<int> anchors = planner::forwardAnchors(graph);
  std::map<int, std::string> folded;
  for (const planner::Block &block : planner::foldBlocks(graph)) {
    int end = block.first + block.length * block.count;
    if (block.count == 1)
      continue;
    for (int op = 0; op < int(graph.ops.size()); ++op)
      if (anchors[op] >= block.first + block.length && anchors[op] < end)
        folded[op] = "// " + std::to_string(block.count - 1) +
                     " more graph blocks like that of \"" + graph.ops[block.first].id + "\", " +
                     std::to_string(block.length) + " forward ops each: --full prints them";
  }
  return folded;
}

/// Returns the text of a module without the lines of folded ops of @train and the body of @update.
/// Each line of a function's body is one op.
static std::string fold(StringRef text, const std::map<int, std::string> &folded) {
  std::string result;
  SmallVector<StringRef> lines;
  text.split(lines, '\n');
  int op = -1;
  bool isTrain = false, isUpdate = false;
  std::string lastComment;
  for (StringRef line : lines) {
    if (line.contains("func.func @")) {
      isTrain = line.contains("func.func @train(");
      isUpdate = line.contains("func.func @update(");
      op = -1;
      if (isUpdate)
        result += line.str() + "\n    // the optimizer's step: --full prints it\n";
      if (isUpdate)
        continue;
    } else if (line.trim() == "}") {
      isTrain = isUpdate = false;
    } else if (isUpdate) {
      continue;
    } else if (isTrain) {
      auto found = folded.find(++op);
      if (found != folded.end() && found->second != lastComment)
        result += "    " + found->second + "\n";
      lastComment = found == folded.end() ? "" : found->second;
      if (found != folded.end())
        continue;
    }
    result += line.str() + "\n";
  }
  while (result.size() > 1 && result[result.size() - 2] == '\n')
    result.pop_back();
  return result;
}

Result<std::string> annotatedText(const TrainingStep &step, const planner::Plan &plan,
                                  bool isFolded) {
  auto planned = planner::applyPlan(step.step.graph, plan);
  if (!planned)
    return planned.error();
  OwningOpRef<ModuleOp> module = annotatedModule(step, plan, *planned);
  std::string text;
  llvm::raw_string_ostream stream(text);
  OpPrintingFlags flags;
  if (isFolded)
    flags.elideLargeElementsAttrs(16);
  module->print(stream, flags);
  stream << "\n";
  return isFolded ? fold(text, foldedOps(step.step.graph)) : text;
}

Status runPasses(const TrainingStep &step, const planner::Plan &plan, const AfterPass &afterPass) {
  auto planned = planner::applyPlan(step.step.graph, plan);
  if (!planned)
    return planned.error();
  DiagnosticCollector diagnostics(*ModuleOp(*step.model.module).getContext());
  OwningOpRef<ModuleOp> module = annotatedModule(step, plan, *planned);
  afterPass(applyPlanName, *module);
  if (failed(runPlanPasses(std::move(module), afterPass)))
    return diagnostics.error(ErrorCode::Other, "a pass failed");
  return Status::ok();
}

std::vector<std::string> passNames() {
  std::vector<std::string> names = planPassNames();
  names.insert(names.begin(), applyPlanName.str());
  return names;
}

} // namespace tbc::driver
