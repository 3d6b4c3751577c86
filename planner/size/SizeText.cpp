//===- SizeText.cpp - Sizes as text and as JSON ------------------------------===//

#include "planner/size/Size.h"
#include "planner/support/Format.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace tbc::planner {

using Json = nlohmann::json;

/// Returns a number with three digits and a unit. Example: 752100 gives "752 k".
static std::string countText(double value) {
  const char *units[] = {"", " k", " M", " G", " T", " P"};
  size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < std::size(units); ++unit)
    value /= 1000;
  if (unit == 0 && value == std::floor(value))
    return format("%.0f", value);
  return format(value >= 99.95   ? "%.0f%s"
                : value >= 9.995 ? "%.1f%s"
                                 : "%.2f%s",
                value, units[unit]);
}

/// Returns days with three digits. Example: "61.2", "0.125".
static std::string daysText(double days) {
  return format(days >= 99.95    ? "%.0f"
                : days >= 9.995  ? "%.1f"
                : days >= 0.9995 ? "%.2f"
                                 : "%.3f",
                days);
}

/// Appends `text`, broken at blanks into lines of at most 80 columns, those after the first with an
/// indent.
static void addWrapped(std::string &out, const std::string &text) {
  constexpr size_t width = 80;
  std::string line;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    if (!line.empty() && line.size() + 1 + word.size() > width) {
      out += line + "\n";
      line = "   ";
    }
    line += (line.empty() ? "" : " ") + word;
  }
  out += line + "\n";
}

static std::string nameOf(const SizeRow &row) {
  return std::to_string(row.devices) + " x " + row.cluster;
}

namespace {

/// Writes the answer for a terminal.
class Writer {
public:
  Writer(const SizeAnswer &answer, bool all) : answer(answer), all(all) {}

  std::string run() {
    add(countText(answer.tokens) + " " + answer.unit() + " of " + answer.model + " in " +
        answer.precision +
        (answer.sequence > 0 ? ", samples of " + std::to_string(answer.sequence) + " tokens" : ""));
    text += "\n";
    table();
    text += "\n";
    verdict();
    omitted();
    text += "\n";
    basis();
    return std::move(text);
  }

private:
  void add(const std::string &line) { addWrapped(text, line); }
  bool hasMoney() const { return !answer.prices.empty(); }
  bool hasLimits() const { return answer.deadlineDays || answer.budget; }

  /// Returns "+" for a row that surely keeps all limits, "~" for one that probably does.
  char markOf(const SizeRow &row) const {
    if (!hasLimits() || !answer.isAllowed(row))
      return ' ';
    return row.deadline == Kept::Probably || row.budget == Kept::Probably ? '~' : '+';
  }

  void table() {
    text += all ? "every size\n" : "the Pareto front of days, device-hours and money\n";
    text += format("  %-21s %6s %13s %8s %8s %8s %5s\n", "devices", "days", "interval", "device-h",
                   hasMoney() ? answer.currency.c_str() : "", "batch", "MFU");
    for (const SizeRow &row : answer.rows) {
      if (!all && !row.isFront)
        continue;
      const std::string money =
          row.money ? countText(row.money->middle) : std::string(hasMoney() ? "-" : "");
      text += format("%c %-21s %6s %13s %8s %8s %8s %3.0f %%\n", markOf(row), nameOf(row).c_str(),
                     daysText(row.days.middle).c_str(),
                     (daysText(row.days.low) + " to " + daysText(row.days.high)).c_str(),
                     countText(row.deviceHours.middle).c_str(), money.c_str(),
                     countText(row.batchTokens).c_str(), 100 * row.mfu);
    }
    if (hasLimits())
      text += "  + keeps every limit, ~ keeps them at the middle of its interval\n";
  }

  std::string limits() const {
    std::string words;
    if (answer.deadlineDays)
      words = daysText(*answer.deadlineDays) + " days";
    if (answer.budget)
      words += (words.empty() ? "" : " and ") + countText(*answer.budget) + " " + answer.currency;
    return words;
  }

  std::string sentence(const SizeRow &row) const {
    std::string words = nameOf(row) + ", " + daysText(row.days.middle) + " days (" +
                        daysText(row.days.low) + " to " + daysText(row.days.high) + "), " +
                        countText(row.deviceHours.middle) + " device-hours (" +
                        countText(row.deviceHours.low) + " to " + countText(row.deviceHours.high) +
                        ")";
    if (row.money)
      words += ", " + countText(row.money->middle) + " " + answer.currency + " (" +
               countText(row.money->low) + " to " + countText(row.money->high) + ")";
    return words + ": " + row.decisions;
  }

  void verdict() {
    const SizeRow *cheapest = cheapestOf(answer), *fastest = fastestOf(answer);
    const std::string within = hasLimits() ? " within " + limits() : "";
    if (!cheapest) {
      add("no size here keeps " + limits() + "; more devices, another --cluster or fewer " +
          answer.unit() + " would");
      return;
    }
    if (cheapest == fastest) {
      add("cheapest and fastest" + within + ": " + sentence(*cheapest));
      return;
    }
    add("cheapest" + within + ": " + sentence(*cheapest));
    add("fastest" + within + ": " + sentence(*fastest));
  }

  /// Sizes of one cluster with one reason share a line.
  void omitted() {
    for (size_t i = 0; i < answer.omitted.size();) {
      size_t end = i;
      std::string sizes;
      // The reasons of neighbours differ in numbers; the last one of them is shown.
      for (;
           end < answer.omitted.size() && answer.omitted[end].cluster == answer.omitted[i].cluster;
           ++end)
        sizes += (sizes.empty() ? "" : ", ") + std::to_string(answer.omitted[end].devices);
      add("left out: " + sizes + " x " + answer.omitted[i].cluster + ": " +
          answer.omitted[end - 1].reason);
      i = end;
    }
  }

  /// Returns, for example, "-20 % to +20 % of days, device-hours and money alike".
  std::string uncertainty() const {
    double low = 1, high = 1;
    for (const SizeRow &row : answer.rows) {
      low = std::min(low, row.days.low / row.days.middle);
      high = std::max(high, row.days.high / row.days.middle);
    }
    return format("%+.0f %% to %+.0f %% of days%s alike", 100 * (low - 1), 100 * (high - 1),
                  hasMoney() ? ", device-hours and money" : " and device-hours");
  }

  /// Returns how sizes have their batch. By default many devices have a sample each.
  std::string batchText() const {
    const auto [least, most] = std::minmax_element(
        answer.rows.begin(), answer.rows.end(),
        [](const SizeRow &a, const SizeRow &b) { return a.batchTokens < b.batchTokens; });
    if (least->batchTokens == most->batchTokens)
      return "the same at every size";
    return "as tbc plan chooses it for the devices, " + countText(least->batchTokens) + " to " +
           countText(most->batchTokens) + " " + answer.unit();
  }

  void basis() {
    if (answer.maxBatchTokens)
      add("batch: the largest within " + countText(*answer.maxBatchTokens) + " " + answer.unit() +
          " that the devices can share (--max-batch-tokens)");
    else if (answer.sequence == 0)
      add("batch: as tbc plan chooses it for the devices (--batch)");
    else
      add("batch: " + batchText() +
          "; larger ones use many devices better, and --max-batch-tokens says how large one may "
          "be");
    for (const auto &[cluster, price] : answer.prices)
      add(format("price: %s %g %s per device and hour, %s, ", cluster.c_str(), price.perDeviceHour,
                 answer.currency.c_str(), price.date.c_str()) +
          price.source);
    if (answer.pricesAreExamples && hasMoney())
      add("prices are examples: tbc size --write-prices FILE writes them, --prices FILE reads "
          "yours");
    if (!answer.unpriced.empty()) {
      std::string names;
      for (const std::string &name : answer.unpriced)
        names += (names.empty() ? "" : ", ") + name;
      add("money is left out for " + names + ": --prices has none");
    }
    add("intervals: uncertainty of the cluster's times, " + uncertainty() +
        ". Restarts, evaluation, idle nodes, storage and networks are not in");
  }

  const SizeAnswer &answer;
  const bool all;
  std::string text;
};

} // namespace

std::string toText(const SizeAnswer &answer, bool all) { return Writer(answer, all).run(); }

static Json jsonOf(const Estimate &estimate) {
  return {{"low", estimate.low}, {"middle", estimate.middle}, {"high", estimate.high}};
}

std::string toJson(const SizeAnswer &answer) {
  Json rows = Json::array(), omitted = Json::array(), prices = Json::object();
  for (const SizeRow &row : answer.rows) {
    Json json = {{"cluster", row.cluster},
                 {"devices", row.devices},
                 {"batch", row.batch},
                 {"batch_tokens", row.batchTokens},
                 {"step_seconds", row.stepSeconds},
                 {"steps", row.steps},
                 {"mfu", row.mfu},
                 {"decisions", row.decisions},
                 {"days", jsonOf(row.days)},
                 {"device_hours", jsonOf(row.deviceHours)},
                 {"front", row.isFront}};
    if (row.money)
      json["money"] = jsonOf(*row.money);
    if (row.deadline)
      json["deadline"] = name(*row.deadline);
    if (row.budget)
      json["budget"] = name(*row.budget);
    rows.push_back(std::move(json));
  }
  for (const OmittedSize &size : answer.omitted)
    omitted.push_back(
        {{"cluster", size.cluster}, {"devices", size.devices}, {"reason", size.reason}});
  for (const auto &[cluster, price] : answer.prices)
    prices[cluster] = {
        {"per_device_hour", price.perDeviceHour}, {"date", price.date}, {"source", price.source}};
  auto orNull = [](const std::optional<double> &value) { return value ? Json(*value) : Json(); };
  const SizeRow *cheapest = cheapestOf(answer), *fastest = fastestOf(answer);
  auto indexOf = [&](const SizeRow *row) {
    return row ? Json(int64_t(row - answer.rows.data())) : Json();
  };
  const Json json = {{"format", "tbc-size"},
                     {"version", 1},
                     {"model", answer.model},
                     {"precision", answer.precision},
                     {"tokens", answer.tokens},
                     {"sequence", answer.sequence},
                     {"max_batch_tokens", orNull(answer.maxBatchTokens)},
                     {"deadline_days", orNull(answer.deadlineDays)},
                     {"budget", orNull(answer.budget)},
                     {"currency", answer.currency},
                     {"prices", prices},
                     {"prices_are_examples", answer.pricesAreExamples},
                     {"rows", rows},
                     {"omitted", omitted},
                     {"cheapest", indexOf(cheapest)},
                     {"fastest", indexOf(fastest)}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace tbc::planner
