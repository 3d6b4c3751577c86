//===- SearchSample.cpp - The key "search" of plan.json ---------------------===//

#include "planner/plan/SearchSample.h"
#include "planner/support/JsonObject.h"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <cstdlib>
#include <limits>

namespace tbc::planner {

using Json = nlohmann::json;

std::vector<bool> paretoFront(const std::vector<ScoredCandidate> &candidates) {
  std::vector<bool> isFront;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const ScoredCandidate &candidate : candidates) {
    isFront.push_back(candidate.bytes < least);
    least = std::min(least, candidate.bytes);
  }
  return isFront;
}

/// The cells of a row, in order.
static const std::vector<std::string> &columnWords() {
  static const std::vector<std::string> words = {
      "mesh",         "zero",  "micro_batch", "schedule",      "recompute",
      "step_seconds", "bytes", "fits",        "bound_seconds", "rank"};
  return words;
}

/// Returns `value` with five significant digits, enough for a picture.
static double rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.5g", value);
  return std::strtod(text, nullptr);
}

Json searchJson(const SearchSample &sample) {
  Json rows = Json::array();
  for (const ScoredCandidate &c : sample.candidates)
    rows.push_back(
        Json::array({c.mesh, c.zero, c.microBatch, c.schedule, c.recompute, rounded(c.stepSeconds),
                     c.bytes, c.fits, rounded(c.boundSeconds), c.rank ? Json(*c.rank) : Json()}));
  return {{"listed", sample.listed},
          {"scored", sample.scored},
          {"columns", columnWords()},
          {"candidates", rows}};
}

namespace {

/// The cells of one row.
class Row {
public:
  Row(const Json &json, const std::string &path, KeyProblem &problem)
      : json(json), path(path), problem(problem) {
    if (!json.is_array() || json.size() != columnWords().size())
      fail("must be a list of " + std::to_string(columnWords().size()) + " cells");
  }

  std::string text() {
    const Json *cell = next();
    return check(cell && cell->is_string(), "a text") ? cell->get<std::string>() : "";
  }
  int64_t integer(int64_t low) {
    const Json *cell = next();
    bool isGood = cell && cell->is_number_integer() && cell->get<int64_t>() >= low;
    return check(isGood, "a whole number from " + std::to_string(low)) ? cell->get<int64_t>() : low;
  }
  std::optional<int64_t> integerOrNull() {
    if (index < json.size() && isRow && json[index].is_null()) {
      ++index;
      return std::nullopt;
    }
    return integer(0);
  }
  double number() {
    const Json *cell = next();
    bool isGood = cell && cell->is_number() && cell->get<double>() >= 0;
    return check(isGood, "a number from 0") ? cell->get<double>() : 0;
  }
  bool flag() {
    const Json *cell = next();
    return check(cell && cell->is_boolean(), "true or false") && cell->get<bool>();
  }

private:
  const Json *next() { return isRow ? &json[index++] : nullptr; }
  void fail(const std::string &message) {
    problem.report(path, message);
    isRow = false;
  }
  bool check(bool isGood, const std::string &wanted) {
    if (!isGood && isRow)
      fail("must have " + wanted + " as its " + columnWords()[index - 1]);
    return isGood && isRow;
  }

  const Json &json;
  const std::string path;
  KeyProblem &problem;
  size_t index = 0;
  bool isRow = true;
};

} // namespace

SearchSample readSearch(const Json &json, KeyProblem &problem) {
  constexpr int64_t maxCount = int64_t(1) << 40;
  JsonObject object(json, "search", problem);
  SearchSample sample;
  sample.listed = object.integer("listed", 0, maxCount);
  sample.scored = object.integer("scored", 0, maxCount);
  if (object.texts("columns") != columnWords())
    problem.report(object.at("columns"), "names other columns than this version of tbc has");
  object.forEach("candidates", [&](const Json &item, const std::string &path) {
    Row row(item, path, problem);
    ScoredCandidate c;
    c.mesh = row.text();
    c.zero = row.text();
    c.microBatch = row.integer(1);
    c.schedule = row.text();
    c.recompute = row.text();
    c.stepSeconds = row.number();
    c.bytes = row.integer(0);
    c.fits = row.flag();
    c.boundSeconds = row.number();
    c.rank = row.integerOrNull();
    sample.candidates.push_back(std::move(c));
  });
  if (sample.candidates.size() > SearchSample::mostCandidates)
    problem.report(object.at("candidates"),
                   "has more than " + std::to_string(SearchSample::mostCandidates) + " rows");
  return sample;
}

} // namespace tbc::planner
