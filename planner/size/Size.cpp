//===- Size.cpp - Devices, days and money for a number of tokens -------------===//

#include "planner/size/Size.h"
#include "planner/plan/Describe.h"
#include "planner/search/Search.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

namespace tbc::planner {

constexpr double hoursPerDay = 24, secondsPerHour = 3600;

const char *name(Kept kept) {
  switch (kept) {
  case Kept::Surely:
    return "surely";
  case Kept::Probably:
    return "probably";
  case Kept::Not:
    return "not";
  }
  return "";
}

std::vector<int64_t> sizesBetween(int64_t from, int64_t to) {
  std::vector<int64_t> sizes;
  for (int64_t size = from; size < to; size *= 2)
    sizes.push_back(size);
  sizes.push_back(to);
  return sizes;
}

int64_t batchWithin(int64_t most, int64_t devices) {
  if (most >= devices)
    return most / devices * devices;
  int64_t power = 1;
  while (2 * power <= most)
    power *= 2;
  return power;
}

static Kept keptOf(const Estimate &estimate, double limit) {
  return estimate.high <= limit     ? Kept::Surely
         : estimate.middle <= limit ? Kept::Probably
                                    : Kept::Not;
}

/// Whether `a` is no worse than `b` in everything that both have; `isBetter`: and better in some.
static bool isNoWorse(const SizeRow &a, const SizeRow &b, bool &isBetter) {
  bool noWorse = true;
  isBetter = false;
  auto compare = [&](double x, double y) {
    noWorse &= x <= y;
    isBetter |= x < y;
  };
  compare(a.days.middle, b.days.middle);
  compare(a.deviceHours.middle, b.deviceHours.middle);
  if (a.money && b.money)
    compare(a.money->middle, b.money->middle);
  return noWorse;
}

void markFront(std::vector<SizeRow> &rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].isFront = true;
    for (size_t k = 0; k < rows.size(); ++k) {
      bool isBetter = false;
      if (k != i && isNoWorse(rows[k], rows[i], isBetter) && (isBetter || k < i))
        rows[i].isFront = false;
    }
  }
}

/// Returns the row of `plan`.
static SizeRow rowOf(const SizeQuestion &question, const Plan &plan) {
  const Prediction &p = plan.prediction;
  SizeRow row;
  row.cluster = plan.cluster.name;
  row.devices = plan.job.gpus;
  row.batch = plan.job.globalBatch;
  row.batchTokens = double(row.batch) * double(std::max<int64_t>(1, plan.job.sequence));
  row.stepSeconds = p.stepSeconds;
  row.mfu = p.mfu;
  row.steps = int64_t(std::ceil(question.tokens / row.batchTokens));
  row.decisions = describe(plan);
  const Estimate hours = Estimate{p.lowSeconds, p.stepSeconds, p.highSeconds}.times(
      double(row.steps) / secondsPerHour);
  row.days = hours.times(1 / hoursPerDay);
  row.deviceHours = hours.times(double(row.devices));
  if (const Price *price = question.prices.find(row.cluster))
    row.money = row.deviceHours.times(price->perDeviceHour);
  if (question.deadlineDays)
    row.deadline = keptOf(row.days, *question.deadlineDays);
  if (question.budget && row.money)
    row.budget = keptOf(*row.money, *question.budget);
  return row;
}

Result<SizeAnswer> sizesOf(const SizeQuestion &question) {
  SizeAnswer answer;
  answer.model = question.job.modelPath.substr(question.job.modelPath.rfind('/') + 1);
  answer.precision = name(question.job.precision);
  answer.tokens = question.tokens;
  answer.sequence = question.job.sequence;
  answer.maxBatchTokens = question.maxBatchTokens;
  answer.deadlineDays = question.deadlineDays;
  answer.budget = question.budget;
  answer.currency = question.prices.currency;
  answer.pricesAreExamples = question.prices.isExample;
  for (const Cluster &cluster : question.clusters)
    if (const Price *price = question.prices.find(cluster.name))
      answer.prices.push_back({cluster.name, *price});
    else
      answer.unpriced.push_back(cluster.name);
  const std::vector<int64_t> sizes = sizesBetween(question.fromDevices, question.toDevices);
  const int count = int(sizes.size() * question.clusters.size());
  int index = 0;
  for (const Cluster &cluster : question.clusters)
    for (int64_t devices : sizes) {
      Job job = question.job;
      question.setDevices(job, devices);
      if (question.maxBatchTokens) {
        const double each = double(std::max<int64_t>(1, job.sequence));
        const auto most = int64_t(*question.maxBatchTokens / each);
        if (most < 1)
          return Error{ErrorCode::Usage, "--max-batch-tokens: a sample has " +
                                             std::to_string(int64_t(each)) + " " + answer.unit() +
                                             ", more than the largest batch"};
        job.globalBatch = batchWithin(most, devices);
        job.batchIsDefault = false;
      }
      ++index;
      if (question.tell)
        question.tell(std::to_string(devices) + " x " + cluster.name, index, count);
      Result<SearchAnswer> found = search(question.graph, job, cluster, question.pins);
      if (found) {
        answer.rows.push_back(rowOf(question, found->plan));
        continue;
      }
      const std::string &message = found.error().message;
      answer.omitted.push_back({cluster.name, devices, message.substr(0, message.find('\n'))});
    }
  if (answer.rows.empty())
    return Error{ErrorCode::NoFeasiblePlan,
                 "no size has a plan. " + std::to_string(answer.omitted.back().devices) + " x " +
                     answer.omitted.back().cluster + ": " + answer.omitted.back().reason};
  markFront(answer.rows);
  return answer;
}

/// Returns the allowed row with the least (cost, days), or (days, cost).
static const SizeRow *bestOf(const SizeAnswer &answer, bool byDays) {
  auto keyOf = [&](const SizeRow &row) {
    const double cost = answer.unpriced.empty() ? row.money->middle : row.deviceHours.middle;
    return byDays ? std::make_pair(row.days.middle, cost) : std::make_pair(cost, row.days.middle);
  };
  const SizeRow *best = nullptr;
  for (const SizeRow &row : answer.rows)
    if (answer.isAllowed(row) && (!best || keyOf(row) < keyOf(*best)))
      best = &row;
  return best;
}

const SizeRow *cheapestOf(const SizeAnswer &answer) { return bestOf(answer, /*byDays=*/false); }
const SizeRow *fastestOf(const SizeAnswer &answer) { return bestOf(answer, /*byDays=*/true); }

/// Splits "30d" into 30 and 'd'; the letter is 0 without one.
static std::optional<std::pair<double, char>> numberAndLetter(const std::string &text) {
  if (text.empty() || !std::isdigit(static_cast<unsigned char>(text[0])))
    return std::nullopt;
  char *end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const std::string rest = end;
  if (!std::isfinite(value) || rest.size() > 1 || text.find_first_of("xXpP") != std::string::npos)
    return std::nullopt;
  return std::make_pair(value, rest.empty() ? '\0' : rest[0]);
}

std::optional<double> parseCount(const std::string &text) {
  constexpr double most = 1e18;
  const auto parsed = numberAndLetter(text);
  if (!parsed)
    return std::nullopt;
  double value = parsed->first;
  switch (parsed->second) {
  case '\0':
    break;
  case 'k':
  case 'K':
    value *= 1e3;
    break;
  case 'M':
    value *= 1e6;
    break;
  case 'B':
  case 'G':
    value *= 1e9;
    break;
  case 'T':
    value *= 1e12;
    break;
  default:
    return std::nullopt;
  }
  return value >= 1 && value <= most ? std::optional<double>(value) : std::nullopt;
}

std::optional<double> parseDays(const std::string &text) {
  constexpr double daysPerWeek = 7;
  const auto parsed = numberAndLetter(text);
  if (!parsed || parsed->first <= 0)
    return std::nullopt;
  switch (parsed->second) {
  case 'd':
    return parsed->first;
  case 'w':
    return parsed->first * daysPerWeek;
  case 'h':
    return parsed->first / hoursPerDay;
  default:
    return std::nullopt;
  }
}

} // namespace tbc::planner
