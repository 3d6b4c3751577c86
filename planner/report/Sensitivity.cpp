//===- Sensitivity.cpp - The worth of other hardware and jobs ----------------===//

#include "planner/report/Sensitivity.h"
#include "planner/support/Format.h"
#include "planner/support/JsonObject.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>

namespace tbc::planner {

using Json = nlohmann::json;

const char *name(Worth worth) {
  switch (worth) {
  case Worth::Gain:
    return "gain";
  case Worth::Loss:
    return "loss";
  case Worth::Tie:
    return "tie";
  case Worth::Impossible:
    return "impossible";
  }
  return "";
}

Worth worthOf(const SizedPlan &before, const SizedPlan &after) {
  constexpr double tie = 0.02; // the default of --tie-percent
  const double ratio = after.perSecond() / before.perSecond();
  // The interval of a rate is that of its step, upside down.
  auto slowest = [](const SizedPlan &p) { return p.perSecond() * p.stepSeconds / p.highSeconds; };
  auto fastest = [](const SizedPlan &p) { return p.perSecond() * p.stepSeconds / p.lowSeconds; };
  const bool overlap = slowest(after) <= fastest(before) && slowest(before) <= fastest(after);
  if (overlap && ratio < 1 + tie && ratio > 1 - tie)
    return Worth::Tie;
  return ratio > 1 ? Worth::Gain : Worth::Loss;
}

void sortByEffect(std::vector<SensitivityRow> &rows) {
  std::map<std::string, double> effects;
  for (const SensitivityRow &row : rows)
    if (row.worth != Worth::Impossible)
      effects[row.subject] = std::max(effects[row.subject], std::fabs(row.ratio - 1));
  std::stable_sort(rows.begin(), rows.end(), [&](const auto &a, const auto &b) {
    return std::make_pair(-effects[a.subject], a.subject) <
           std::make_pair(-effects[b.subject], b.subject);
  });
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

static std::string rateText(double value) {
  const char *units[] = {"", " k", " M", " G", " T"};
  size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(units); ++unit)
    value /= 1000;
  return format(value >= 100 ? "%.0f%s" : value >= 10 ? "%.1f%s" : "%.2f%s", value, units[unit]);
}

/// Returns a change in percent. Example: 0.036 gives "+3.6 %"; what rounds to 0 is "0 %".
static std::string percentText(double change) {
  constexpr double leastShown = 5e-4;
  return std::fabs(change) < leastShown ? "0 %" : format("%+.1f %%", 100 * change);
}

/// Returns a bar of `half` columns to each side of a "|".
static std::string barOf(double effect, double largest, int half) {
  const int length =
      largest > 0 ? std::clamp(int(std::lround(half * std::fabs(effect) / largest)), 0, half) : 0;
  const std::string none(size_t(half), ' '), rest(size_t(half - length), ' ');
  return effect < 0 ? rest + std::string(size_t(length), '-') + "|"
                    : none + "|" + std::string(size_t(length), '+');
}

/// Breaks `text` at blanks into lines of at most `width` columns, each after `indent`.
static std::string wrapped(const std::string &text, const std::string &indent, size_t width) {
  std::string result, line;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    if (!line.empty() && indent.size() + line.size() + 1 + word.size() > width) {
      result += indent + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return result + indent + line + "\n";
}

std::string toText(const Sensitivity &answer) {
  constexpr size_t width = 80;
  constexpr int half = 10;
  std::string text = "the worth of a change, by planning again\n";
  auto lineOf = [&](const char *label, const SizedPlan &plan) {
    text += format("%s: %s, %s %s\n", label, formatSeconds(plan.stepSeconds).c_str(),
                   rateText(plan.perSecond()).c_str(), answer.unit().c_str());
    text += wrapped(plan.decisions, "  ", width);
  };
  lineOf("this plan", answer.plan);
  if (answer.base.decisions != answer.plan.decisions ||
      answer.base.stepSeconds != answer.plan.stepSeconds)
    lineOf("planned again, and the base below", answer.base);
  text += "\n";
  double largest = 0;
  for (const SensitivityRow &row : answer.rows)
    if (row.worth != Worth::Impossible)
      largest = std::max(largest, std::fabs(row.ratio - 1));
  text += format("  %-27s %9s %8s %8s\n", "change", "step", answer.unit().c_str(), "effect");
  for (const SensitivityRow &row : answer.rows) {
    const std::string change = row.subject + " " + row.change;
    std::string line;
    if (row.worth == Worth::Impossible)
      line = format("  %-27s %9s", change.c_str(), "no plan");
    else
      line = format("  %-27s %9s %8s %8s %s", change.c_str(),
                    formatSeconds(row.plan.stepSeconds).c_str(),
                    rateText(row.plan.perSecond()).c_str(), percentText(row.ratio - 1).c_str(),
                    row.worth == Worth::Tie ? (std::string(size_t(half), ' ') + "| a tie").c_str()
                                            : barOf(row.ratio - 1, largest, half).c_str());
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  text += "  a tie: within 2 %, less than this cost model tells apart\n";
  bool isFirst = true;
  for (const SensitivityRow &row : answer.rows) {
    if (row.worth != Worth::Impossible && !row.planChanges)
      continue;
    text += isFirst ? "\nother plans\n" : "";
    isFirst = false;
    text +=
        "  " + row.subject + " " + row.change + "\n" +
        wrapped(row.worth == Worth::Impossible ? row.reason : row.plan.decisions, "    ", width);
  }
  return text + (isFirst ? "\nthe plan stays the same in all of them\n" : "");
}

//===----------------------------------------------------------------------===//
// JSON
//===----------------------------------------------------------------------===//

static Json jsonOf(const SizedPlan &plan) {
  return {{"gpus", plan.gpus},
          {"batch", plan.batch},
          {"sequence", plan.sequence},
          {"step_seconds", plan.stepSeconds},
          {"low_seconds", plan.lowSeconds},
          {"high_seconds", plan.highSeconds},
          {"peak_bytes", plan.peakBytes},
          {"samples_per_second", double(plan.batch) / plan.stepSeconds},
          {"tokens_per_second", double(plan.batch) * double(plan.sequence) / plan.stepSeconds},
          {"decisions", plan.decisions}};
}

std::string toJson(const Sensitivity &answer) {
  Json rows = Json::array();
  for (const SensitivityRow &row : answer.rows) {
    Json json = {{"subject", row.subject}, {"change", row.change}, {"worth", name(row.worth)}};
    if (row.worth == Worth::Impossible) {
      json["reason"] = row.reason;
    } else {
      json["plan"] = jsonOf(row.plan);
      json["ratio"] = row.ratio;
      json["plan_changes"] = row.planChanges;
    }
    rows.push_back(std::move(json));
  }
  const Json json = {{"format", "tbc-explain"},
                     {"version", 1},
                     {"about", "sensitivity"},
                     {"model", answer.model},
                     {"cluster", answer.cluster},
                     {"plan_fingerprint", answer.fingerprint},
                     {"plan", jsonOf(answer.plan)},
                     {"base", jsonOf(answer.base)},
                     {"rows", rows}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

static SizedPlan readPlanOf(JsonObject &parent, const std::string &key, KeyProblem &problem) {
  constexpr int64_t most = int64_t(1) << 60;
  JsonObject object(parent.get(key), parent.at(key), problem);
  SizedPlan plan;
  plan.gpus = object.integer("gpus", 1, most);
  plan.batch = object.integer("batch", 1, most);
  plan.sequence = object.integer("sequence", 0, most);
  plan.stepSeconds = object.positive("step_seconds");
  plan.lowSeconds = object.positive("low_seconds");
  plan.highSeconds = object.positive("high_seconds");
  plan.peakBytes = object.integer("peak_bytes", 0, most);
  object.number("samples_per_second");
  object.number("tokens_per_second");
  plan.decisions = object.text("decisions");
  return plan;
}

Result<Sensitivity> readSensitivity(const std::string &text, const std::string &source) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("about", Json()) != "sensitivity")
    return Error{ErrorCode::Usage, source + ": not the output of tbc explain --sensitivity --json"};
  KeyProblem problem;
  Sensitivity answer;
  {
    JsonObject root(json, "", problem);
    root.word("format", {"tbc-explain"});
    root.integer("version", 1, 1);
    root.word("about", {"sensitivity"});
    answer.model = root.text("model");
    answer.cluster = root.text("cluster");
    answer.fingerprint = root.text("plan_fingerprint");
    answer.plan = readPlanOf(root, "plan", problem);
    answer.base = readPlanOf(root, "base", problem);
    root.forEach("rows", [&](const Json &item, const std::string &path) {
      JsonObject object(item, path, problem);
      SensitivityRow row;
      row.subject = object.text("subject");
      row.change = object.text("change");
      const std::vector<Worth> all = {Worth::Gain, Worth::Loss, Worth::Tie, Worth::Impossible};
      std::vector<std::string> words;
      for (Worth worth : all)
        words.push_back(name(worth));
      const std::string word = object.word("worth", words);
      for (Worth worth : all)
        if (word == name(worth))
          row.worth = worth;
      if (row.worth == Worth::Impossible) {
        row.reason = object.text("reason");
      } else {
        row.plan = readPlanOf(object, "plan", problem);
        row.ratio = object.positive("ratio");
        row.planChanges = object.flag("plan_changes");
      }
      answer.rows.push_back(std::move(row));
    });
  }
  if (!problem.text.empty())
    return Error{ErrorCode::Usage, source + ": " + problem.text};
  return answer;
}

} // namespace tbc::planner
