//===- Conditions.cpp - Decisions required or forbidden by the user -------===//

#include "planner/pins/Conditions.h"
#include "planner/pins/OpPins.h"
#include "runtime/abi/ClosestWord.h"

#include <algorithm>
#include <map>
#include <optional>

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
  if (decision == "accumulation")
    return std::to_string(plan.accumulation) == value;
  if (decision == "recompute") // for any number of blocks
    return name(plan.recompute.mode) == value;
  if (decision == "schedule")
    return scheduleWord(plan.schedule) == value;
  return std::to_string(plan.numChunks() / plan.mesh.pp) == value; // virtual-stages
}

static std::string words(const Condition &condition) {
  return std::string(condition.isForbidden ? "not " : "") + condition.decision + "=" +
         condition.value;
}

std::string toString(const std::vector<Condition> &conditions) {
  std::string text;
  for (const Condition &condition : conditions)
    text += (text.empty() ? "" : " and ") + words(condition);
  return text;
}

std::string flagOf(const Condition &condition) {
  return condition.flag.empty() ? words(condition) : condition.flag;
}

int64_t numberOf(const Condition &condition) { return std::stoll(condition.value); }

const Condition *askedSize(const Pins &pins, Axis axis) {
  for (const Condition &condition : pins.conditions)
    if (condition.decision == mesh::row(axis).name && !condition.isForbidden)
      return &condition;
  return nullptr;
}

Status checkConditions(const Pins &pins) {
  auto contradict = [](const Condition &condition, const std::string &other) {
    return Error{ErrorCode::Usage, flagOf(condition) + " contradicts " + other};
  };
  // By decision: its pinned value, and the flag for it.
  std::map<std::string, std::pair<std::string, std::string>> pinned;
  if (!pins.mesh.empty()) {
    std::string mesh;
    for (const auto &[axis, size] : pins.mesh)
      mesh += (mesh.empty() ? "" : ",") + axis + "=" + std::to_string(size);
    for (const std::string &axis : axisNames())
      pinned[axis] = {"1", "--mesh " + mesh};
    for (const auto &[axis, size] : pins.mesh)
      pinned[axis].first = std::to_string(size);
  }
  auto pin = [&](const char *decision, const std::string &value) {
    pinned[decision] = {value, std::string("--") + decision + " " + value};
  };
  if (std::optional<ZeroChoice> zero = zeroOfStrategy(pins.strategy))
    pinned["zero"] = {zeroWord(*zero), "--strategy " + pins.strategy};
  else if (pins.zero)
    pin("zero", std::to_string(*pins.zero));
  if (pins.microBatch)
    pin("micro-batch", std::to_string(*pins.microBatch));
  if (pins.virtualStages)
    pin("virtual-stages", std::to_string(*pins.virtualStages));
  if (!pins.schedule.empty())
    pin("schedule", pins.schedule);
  if (!pins.recomputeIsOpen())
    pinned["recompute"] = {pins.recompute.substr(0, pins.recompute.find(':')),
                           "--recompute " + pins.recompute};

  for (size_t i = 0; i < pins.conditions.size(); ++i) {
    const Condition &condition = pins.conditions[i];
    auto found = pinned.find(condition.decision);
    if (found != pinned.end() && (found->second.first == condition.value) == condition.isForbidden)
      return contradict(condition, found->second.second);
    for (size_t j = 0; j < i; ++j) {
      const Condition &other = pins.conditions[j];
      if (other.decision != condition.decision || (other.isForbidden && condition.isForbidden))
        continue;
      bool isSame = other.value == condition.value;
      if (isSame == (other.isForbidden || condition.isForbidden))
        return contradict(condition, flagOf(other));
    }
  }
  return Status::ok();
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

/// Returns the possible values of a decision; empty for a number.
static std::vector<std::string> valuesOf(const std::string &decision) {
  if (decision == "zero")
    return {"0", "1", "2", "3", "shard-grad-op"};
  if (decision == "recompute") {
    std::vector<std::string> words;
    for (RecomputeMode mode : recomputeModes())
      words.push_back(name(mode));
    return words;
  }
  if (decision == "schedule") {
    std::vector<std::string> words = schedule::scheduleNames();
    words.push_back(scheduleWord(std::nullopt));
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

static std::vector<std::string> decisionNames() {
  std::vector<std::string> decisions = axisNames();
  for (const char *word :
       {"zero", "micro-batch", "accumulation", "recompute", "schedule", "virtual-stages"})
    decisions.push_back(word);
  return decisions;
}

static bool isDecision(const std::string &word) {
  std::vector<std::string> decisions = decisionNames();
  return std::find(decisions.begin(), decisions.end(), word) != decisions.end();
}

/// Returns the neutral value of `decision`, or "" without one. Example: "1" for an axis, "0" for
/// zero.
static std::string valueOfNone(const std::string &decision) {
  if (isAxis(decision) || decision == "virtual-stages" || decision == "accumulation")
    return "1";
  return decision == "zero" ? "0" : decision == "recompute" ? name(RecomputeMode::None) : "";
}

Status addPin(const std::string &text, bool isForbidden, Pins &pins) {
  const std::string flag = (isForbidden ? "--forbid " : "--pin ") + text;
  auto fail = [&](const std::string &message) {
    return Error{ErrorCode::Usage, flag + ": " + message};
  };
  size_t equals = text.rfind('=');
  if (equals == std::string::npos && isForbidden && isDecision(text)) {
    std::string none = valueOfNone(text);
    if (none.empty())
      return fail("every plan has a " + text + "; say which, as in " + text +
                  (text == "schedule" ? "=gpipe" : "=1"));
    pins.conditions.push_back({text, none, false, flag});
    return Status::ok();
  }
  std::string left = text.substr(0, equals);
  if (equals == std::string::npos)
    return fail("expected DECISION=VALUE, as in tp=8, or GLOB=SPEC, as in *.mlp.*=tp" +
                std::string(isForbidden ? ", or a decision alone, such as tp" : ""));
  if (isDecision(left)) {
    Result<std::vector<Condition>> conditions = parseConditions(text);
    if (!conditions)
      return fail(conditions.error().message);
    for (Condition &condition : *conditions) {
      condition.isForbidden = isForbidden;
      condition.flag = flag;
      pins.conditions.push_back(std::move(condition));
    }
    return Status::ok();
  }
  std::string spec = text.substr(equals + 1);
  const std::vector<std::string> &words = opPinWords();
  if (left.empty() || std::find(words.begin(), words.end(), spec) == words.end()) {
    std::string closest = closestWord(left, decisionNames());
    if (!closest.empty())
      return fail("\"" + left + "\" is no decision; did you mean " + closest + "?");
    return fail("ops that a name matches are pinned to one of " + listed(spec, words));
  }
  pins.ops.push_back({left, spec, isForbidden});
  return Status::ok();
}

Result<Pins> pinsOf(const Plan &plan) {
  Pins pins;
  for (const Reason &reason : plan.reasons) {
    bool isForbidden = reason.decision == "forbid";
    if (reason.decision != "pin" && !isForbidden)
      continue;
    if (Status status = addPin(reason.value, isForbidden, pins); !status)
      return Error{ErrorCode::Usage, "reasons of the plan: " + status.error().message};
  }
  return pins;
}

Result<std::vector<Condition>> parseConditions(const std::string &text) {
  const std::vector<std::string> decisions = decisionNames();
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
