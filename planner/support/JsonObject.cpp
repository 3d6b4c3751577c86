//===- JsonObject.cpp - An object of a JSON text, read and checked --------===//

#include "planner/support/JsonObject.h"

#include "planner/support/IdList.h"
#include "runtime/abi/ClosestWord.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace tbc::planner {

using Json = nlohmann::json;

JsonObject::JsonObject(const Json &json, std::string path, KeyProblem &problem)
    : json(json), path(std::move(path)), problem(problem) {
  if (!json.is_object())
    problem.report(this->path, "must be an object");
}

JsonObject::~JsonObject() {
  if (!json.is_object())
    return;
  std::vector<std::string> known(asked.begin(), asked.end());
  for (const auto &[key, value] : json.items()) {
    if (asked.count(key))
      continue;
    std::string closest = closestWord(key, known);
    problem.report(at(key),
                   "is unknown" + (closest.empty() ? "" : "; did you mean \"" + closest + "\"?"));
  }
}

const Json &JsonObject::get(const std::string &key) {
  static const Json nothing;
  asked.insert(key);
  if (!json.is_object())
    return nothing;
  auto found = json.find(key);
  if (found == json.end()) {
    problem.report(at(key), "is missing");
    return nothing;
  }
  return *found;
}

bool JsonObject::has(const std::string &key) const {
  return json.is_object() && json.contains(key);
}

std::string JsonObject::text(const std::string &key) {
  const Json &value = get(key);
  if (value.is_string())
    return value.get<std::string>();
  problem.report(at(key), "must be a string");
  return "";
}

std::string JsonObject::word(const std::string &key, const std::vector<std::string> &words) {
  std::string value = text(key);
  if (std::find(words.begin(), words.end(), value) == words.end()) {
    std::string all;
    for (const std::string &w : words)
      all += (all.empty() ? "" : ", ") + w;
    problem.report(at(key), "is \"" + value + "\", but must be one of " + all);
  }
  return value;
}

int64_t JsonObject::integer(const std::string &key, int64_t low, int64_t high) {
  const Json &value = get(key);
  if (!value.is_number_integer()) {
    problem.report(at(key), "must be an integer");
    return low;
  }
  bool large = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t(INT64_MAX);
  int64_t number = large ? 0 : value.get<int64_t>();
  if (!large && number >= low && number <= high)
    return number;
  problem.report(at(key),
                 "must be between " + std::to_string(low) + " and " + std::to_string(high));
  return low;
}

double JsonObject::number(const std::string &key, double high) {
  const Json &value = get(key);
  double number = value.is_number() ? value.get<double>() : -1;
  if (number >= 0 && number <= high) // false for NaN
    return number;
  problem.report(at(key), high == 1 ? "must be a number between 0 and 1"
                                    : "must be a number of zero or more");
  return 0;
}

double JsonObject::numberOr(const std::string &key, double otherwise, double high) {
  return has(key) ? number(key, high) : otherwise;
}

double JsonObject::positive(const std::string &key, double high) {
  double value = number(key, high);
  if (value <= 0)
    problem.report(at(key), "must be more than 0");
  return value;
}

bool JsonObject::flag(const std::string &key) {
  const Json &value = get(key);
  if (!value.is_boolean())
    problem.report(at(key), "must be true or false");
  return value.is_boolean() && value.get<bool>();
}

std::vector<std::string> JsonObject::texts(const std::string &key) {
  std::vector<std::string> result;
  forEach(key, [&](const Json &item, const std::string &where) {
    if (item.is_string())
      result.push_back(item.get<std::string>());
    else
      problem.report(where, "must be a string");
  });
  return result;
}

std::vector<std::string> JsonObject::ids(const std::string &key) {
  Result<std::vector<std::string>> expanded = expandIds(texts(key));
  if (expanded)
    return *expanded;
  problem.report(at(key), ": " + expanded.error().message);
  return {};
}

void JsonObject::forEach(
    const std::string &key,
    const std::function<void(const Json &item, const std::string &path)> &function) {
  const Json &value = get(key);
  if (!value.is_array()) {
    problem.report(at(key), "must be an array");
    return;
  }
  for (size_t i = 0; i < value.size(); ++i)
    function(value[i], at(key) + "[" + std::to_string(i) + "]");
}

} // namespace tbc::planner
