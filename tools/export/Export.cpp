//===- Export.cpp - What targets have in common ------------------------------------===//

#include "tools/export/Export.h"

#include "planner/plan/Describe.h"

namespace tbc::exporter {

void Limits::refuse(const std::string &what, const std::string &instead) {
  refused.push_back(what + ": " + instead);
}

void Limits::warn(const std::string &name, const std::string &text) {
  named.push_back({name, text});
}

void Limits::refuseFp8(const planner::Job &job) {
  if (job.matmulPrecision == planner::MatmulPrecision::Fp8)
    refuse("matmuls in fp8", "plan without --matmul-precision fp8, or export --to megatron");
}

Status Limits::status() const {
  if (refused.empty())
    return Status::ok();
  std::string text = target + " cannot express this plan";
  for (const std::string &line : refused)
    text += "\n  " + line;
  return Error{ErrorCode::Usage, text};
}

std::string header(const PlanFacts &facts, const std::vector<Warning> &warnings,
                   const std::string &comment) {
  const planner::Job &job = facts.job();
  std::string text = comment + " " + planner::describe(*facts.plan) + "\n" + comment +
                     " made by tbc export of the plan " + facts.plan->layout.decisions + " for " +
                     job.modelPath + "\n";
  for (const Warning &warning : warnings)
    text += comment + " " + warning.name + ": " + warning.text + "\n";
  return text;
}

std::string pythonText(const std::string &text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      result += '\\';
    result += c;
  }
  return result + "\"";
}

} // namespace tbc::exporter
