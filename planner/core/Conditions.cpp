//===- Conditions.cpp - Single decisions that a plan shall have or not -----===//

#include "planner/core/Conditions.h"
#include "runtime/schedule/Schedule.h"

#include <algorithm>

namespace tbc::planner {

static bool isAxis(const std::string &word) {
  return std::find(axisNames().begin(), axisNames().end(), word) != axisNames().end();
}

static int64_t sizeOf(MeshShape mesh, const std::string &axis) { return *mesh.find(axis); }

std::string zeroWord(const ZeroChoice &choice) {
  return choice.keepGathered ? "shard-grad-op" : std::to_string(choice.zero);
}

bool Condition::isIn(const Plan &plan) const {
  if (isAxis(decision))
    return std::to_string(sizeOf(plan.mesh, decision)) == value;
  if (decision == "zero")
    return zeroWord({plan.parameterDefault.zero, plan.parameterDefault.keepGathered}) == value;
  if (decision == "micro-batch")
    return std::to_string(plan.microBatch) == value;
  if (decision == "recompute") // whatever the number of blocks
    return plan.recompute.substr(0, plan.recompute.find(' ')) == value;
  if (decision == "schedule")
    return plan.schedule == value;
  return std::to_string(plan.numChunks() / plan.mesh.pp) == value; // virtual-stages
}

std::string toString(const std::vector<Condition> &conditions) {
  std::string text;
  for (const Condition &condition : conditions)
    text += (text.empty() ? "" : " and ") + std::string(condition.isForbidden ? "not " : "") +
            condition.decision + "=" + condition.value;
  return text;
}

bool meets(const std::vector<Condition> &conditions, const std::string &decision,
           const std::string &value) {
  return std::none_of(conditions.begin(), conditions.end(), [&](const Condition &condition) {
    return condition.decision == decision && (condition.value == value) == condition.isForbidden;
  });
}

bool meets(const std::vector<Condition> &conditions, const MeshShape &mesh) {
  return std::all_of(axisNames().begin(), axisNames().end(), [&](const std::string &axis) {
    return meets(conditions, axis, std::to_string(sizeOf(mesh, axis)));
  });
}

/// The values that a decision may have; none: a number.
static std::vector<std::string> valuesOf(const std::string &decision) {
  if (decision == "zero")
    return {"0", "1", "2", "3", "shard-grad-op"};
  if (decision == "recompute")
    return {"none", "selective", "full"};
  if (decision == "schedule") {
    std::vector<std::string> words = schedule::scheduleNames();
    words.push_back("none");
    return words;
  }
  return {};
}

static std::string listed(const std::string &word, const std::vector<std::string> &words) {
  std::string text;
  for (const std::string &w : words)
    text += (text.empty() ? "" : ", ") + w;
  std::string closest = closestWord(word, words);
  return text + (closest.empty() ? "" : "; did you mean " + closest + "?");
}

Result<std::vector<Condition>> parseConditions(const std::string &text) {
  std::vector<std::string> decisions = axisNames();
  for (const char *word : {"zero", "micro-batch", "recompute", "schedule", "virtual-stages"})
    decisions.push_back(word);
  std::vector<Condition> conditions;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    size_t equals = part.find('=');
    if (equals == std::string::npos)
      return Error{ErrorCode::Usage, "\"" + part + "\": expected DECISION=VALUE, as in tp=8"};
    Condition condition{part.substr(0, equals), part.substr(equals + 1)};
    if (std::find(decisions.begin(), decisions.end(), condition.decision) == decisions.end())
      return Error{ErrorCode::Usage, "\"" + condition.decision + "\" is no decision; there are " +
                                         listed(condition.decision, decisions)};
    std::vector<std::string> values = valuesOf(condition.decision);
    const std::string &value = condition.value;
    bool isNumber = !value.empty() && value.size() < 16 && value[0] != '0' &&
                    value.find_first_not_of("0123456789") == std::string::npos;
    if (values.empty() && !isNumber)
      return Error{ErrorCode::Usage,
                   "\"" + part + "\": " + condition.decision + " is a number of 1 or more"};
    if (!values.empty() && std::find(values.begin(), values.end(), value) == values.end())
      return Error{ErrorCode::Usage, "\"" + part + "\": " + condition.decision + " is one of " +
                                         listed(value, values)};
    for (const Condition &other : conditions)
      if (other.decision == condition.decision)
        return Error{ErrorCode::Usage, condition.decision + " is given twice"};
    conditions.push_back(std::move(condition));
  }
  return conditions;
}

} // namespace tbc::planner
