//===- PyTorch.cpp - A plan as a training script that needs torch alone -----===//
//
// The script has the modules of the Python package tbc that the plan needs, so it applies a plan in
// the same forms (docs/pytorch.md).
//
//===----------------------------------------------------------------------===//

#include "tools/export/PyTorch.h"

#include "planner/plan/PlanFile.h"
#include "planner/support/Format.h"
#include "planner/support/JsonText.h"
#include "tools/export/PyTorchParts.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

namespace tbc::exporter {

using nlohmann::json;
using planner::format;

/// Refuses what tbc.torch refuses, before anything runs.
static void checkPlan(const PlanFacts &facts, Limits &limits) {
  const planner::Plan &plan = *facts.plan;
  const planner::MeshShape &mesh = facts.mesh();
  if (mesh.ep > 1)
    limits.refuse(
        format("ep=%lld; DTensor has no dispatch of tokens to experts", (long long)mesh.ep),
        "plan with ep=1");
  if (mesh.cp > 1)
    limits.refuse(format("cp=%lld; PyTorch's context parallelism has kernels for CUDA alone",
                         (long long)mesh.cp),
                  "plan with cp=1");
  if (!plan.offload.isNone())
    limits.refuse("offload of " + planner::offloadText(plan.offload), "plan with --offload none");
  if (facts.job().optimizer == planner::Optimizer::Muon)
    limits.refuse("muon; torch.optim.Muon reads whole matrices, and parameters are DTensors",
                  "plan with --optimizer adamw, or export --to megatron");
  if (facts.job().optimizer == planner::Optimizer::Adafactor)
    limits.refuse("adafactor; torch.optim.Adafactor reads whole matrices, and parameters are "
                  "DTensors",
                  "plan with --optimizer adamw");
  if (facts.job().optimizer == planner::Optimizer::Adagrad ||
      facts.job().optimizer == planner::Optimizer::RowwiseAdagrad)
    limits.refuse(std::string(planner::name(facts.job().optimizer)) +
                      ", for which tbc.torch has no form",
                  "plan with --optimizer adamw");
  planner::Precision precision = facts.job().precision;
  if (precision == planner::Precision::F16 && facts.setting("loss_scale", 0) != 1)
    limits.refuse("f16 with a dynamic loss scale", "plan with --precision bf16");
  if (const std::vector<std::string> tables = facts.paddedTablesOverTp(); !tables.empty())
    limits.refuse(facts.paddingText() + ", and tp splits " + tables.front() +
                      "; the module's own table has no padding",
                  "plan with --pad-vocabulary 1");
  else if (!facts.job().paddedVocabularies.empty())
    limits.warn("PaddedVocabulary", facts.paddingText() + ", which makes matmuls faster; the "
                                                          "module's own table has no padding");
  if (const ChunkBlocks *cut = facts.cutBlock())
    limits.refuse("a stage begins inside a block, at " + cut->begin,
                  "plan with --pin 'BLOCK.*=begin' for each stage");
  if (mesh.pp > 1 && facts.isVee() && plan.schedule != planner::ScheduleKind::ZeroBubble)
    limits.refuse("a V shape of " + planner::scheduleText(plan), "plan with --placement loop");
  else if (mesh.pp > 1 && !facts.isVee() && !facts.isLooped())
    limits.refuse("chunks that lie neither in loops nor in a V shape",
                  "plan with --placement loop");
}

/// Returns plan.json without what only people read. Decisions and their fingerprint stay.
static std::string planText(const PlanFacts &facts) {
  json plan = json::parse(planner::writePlan(*facts.plan));
  for (const char *key : {"alternatives", "assumptions", "blocks", "reasons", "warnings"})
    plan[key] = json::array();
  plan.erase("cluster");
  json prediction;
  for (const char *key : {"low_bytes", "high_bytes", "low_seconds", "high_seconds", "limit_bytes"})
    prediction[key] = plan["prediction"][key];
  plan["prediction"] = prediction;
  plan["layout"].erase("boundaries");
  return planner::jsonText(plan);
}

namespace {

/// A module of the package, taken apart.
struct Part {
  std::string doc;                  // the first line of its docstring
  std::vector<std::string> imports; // of modules outside of the package
  std::string body;
};

} // namespace

static bool begins(const std::string &line, const char *word) { return line.rfind(word, 0) == 0; }

/// Takes a module apart: its docstring, its imports at the top, and the rest.
static Part partOf(const std::string &text) {
  Part part;
  std::istringstream lines(text);
  std::string line;
  bool isInDoc = false, isHead = true;
  while (std::getline(lines, line)) {
    if (isHead && (isInDoc || begins(line, "\"\"\""))) {
      if (!isInDoc)
        part.doc = line.substr(3, line.find("\"\"\"", 3) - 3);
      bool isOneLine = !isInDoc && line.size() > 5 && line.find("\"\"\"", 3) != std::string::npos;
      isInDoc = !isOneLine && (!isInDoc || line.find("\"\"\"") == std::string::npos);
      continue;
    }
    bool isImport = isHead && (begins(line, "from ") || begins(line, "import "));
    if (isImport) {
      for (std::string more; line.back() == '(' || (line.find('(') != std::string::npos &&
                                                    line.find(')') == std::string::npos);) {
        if (!std::getline(lines, more))
          break;
        line += "\n" + more;
        if (more.find(')') != std::string::npos)
          break;
      }
      if (!begins(line, "from tbc") && !begins(line, "from __future__"))
        part.imports.push_back(line);
      continue;
    }
    if (line.empty() && part.body.empty())
      continue;
    isHead = false;
    part.body += line + "\n";
  }
  return part;
}

/// Returns `imports` with the names of each module once.
/// Example: "from m import a" and "from m import a, b" give "from m import a, b".
static std::string joinedImports(const std::set<std::string> &imports) {
  const std::string from = "from ", import = " import ";
  std::string text;
  std::map<std::string, std::set<std::string>> byModule;
  for (const std::string &line : imports) {
    const size_t split = line.find(import);
    if (!begins(line, from.c_str())) {
      text += line + "\n";
      continue;
    }
    std::string list = line.substr(split + import.size());
    for (char &c : list)
      if (c == '(' || c == ')' || c == '\n')
        c = ' ';
    std::istringstream names(list);
    for (std::string name; std::getline(names >> std::ws, name, ',');) {
      name.erase(name.find_last_not_of(' ') + 1);
      if (!name.empty())
        byModule[line.substr(from.size(), split - from.size())].insert(name);
    }
  }
  for (const auto &[module, names] : byModule) {
    std::string list;
    for (const std::string &name : names)
      list += (list.empty() ? "" : ", ") + name;
    text += from + module + import + list + "\n";
  }
  return text;
}

static const char *const mainText = R"python(

# ---- Yours: the module that was exported, its data, and the learning rate. ----
# model.py has make_model(), with equal weights on every rank, and batches(plan), which yields
# (inputs, labels) of plan.batch samples.
LEARNING_RATE = 1e-3
STEPS = 20


def main():
    import model

    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    plan = Plan.from_json(json.loads(PLAN))
    parallel = parallelize(model.make_model().to(device), plan)
    update = optimizer(parallel, lr=LEARNING_RATE)
    for step, (inputs, labels) in zip(range(STEPS), model.batches(plan)):
        local = parallel.local(inputs).to(device), parallel.local(labels).to(device)
        result = train_step(parallel, update, *local)
        if dist.get_rank() == 0:
            print(f"step {step} loss {result.loss!r} norm {result.norm!r}", flush=True)
    dist.destroy_process_group()


# ---- How the plan is applied: DTensor, FSDP2, pipelines, activation checkpointing. ----
)python";

/// Ends a rank without ending its interpreter. Caches of DTensor keep process groups beyond
/// destroy_process_group, and with them Gloo's threads. Such a thread may release the tensor of the
/// last collective late, needs the interpreter for it, and aborts the process where that is gone.
static const char *const endText = R"python(
if __name__ == "__main__":
    main()
    # Threads of Gloo outlive their groups, and abort an interpreter that ends while they release the
    # tensors of the last collective. So end as multiprocessing does: handlers of atexit do not run.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
)python";

Result<Exported> writePyTorch(const PlanFacts &facts) {
  Limits limits("PyTorch");
  limits.refuseFp8(facts.job());
  checkPlan(facts, limits);
  if (Status status = limits.status(); !status)
    return status.error();
  std::set<std::string> imports = {"import json", "import os", "import sys", "import torch",
                                   "import torch.distributed as dist"};
  std::string body;
  for (const auto &[name, text] : pythonParts()) {
    if (name == "torch/pipeline" && facts.mesh().pp == 1)
      continue;
    Part part = partOf(text);
    imports.insert(part.imports.begin(), part.imports.end());
    body += "\n\n# -- " + (part.doc.empty() ? name : part.doc) + "\n\n\n" + part.body;
  }
  std::string text = header(facts, limits.warnings(), "#");
  text += format(
      "# Start: torchrun --standalone --nproc-per-node %lld THIS_SCRIPT\nfrom __future__ import "
      "annotations\n\n",
      (long long)facts.mesh().numRanks());
  text += joinedImports(imports) + mainText + body;
  text += "\n\n# ---- The plan: decisions and layout of plan.json. ----\nPLAN = r'''\n" +
          planText(facts) + "'''\n" + endText;
  return Exported{text, limits.warnings()};
}

} // namespace tbc::exporter
