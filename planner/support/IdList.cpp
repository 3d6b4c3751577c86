//===- IdList.cpp - Long lists of op names, written short ------------------===//

#include "planner/support/IdList.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <set>

namespace tbc::planner {

static bool isDigit(char letter) { return std::isdigit(static_cast<unsigned char>(letter)) != 0; }

namespace {

/// A number inside an id.
struct Number {
  size_t begin = 0, end = 0;
  int64_t value = 0;
};

/// Ids that differ in one number: the text before and after it.
using Template = std::pair<std::string, std::string>;

} // namespace

/// Returns the numbers of `id` without leading zeros.
static std::vector<Number> numbersOf(const std::string &id) {
  std::vector<Number> numbers;
  for (size_t i = 0; i < id.size();) {
    size_t end = i;
    while (end < id.size() && isDigit(id[end]))
      ++end;
    size_t digits = end - i;
    if (digits > 0 && digits < 10 && (digits == 1 || id[i] != '0'))
      numbers.push_back({i, end, std::stoll(id.substr(i, digits))});
    i = std::max(end, i + 1);
  }
  return numbers;
}

static std::string escaped(const std::string &text) {
  std::string out;
  for (char letter : text) {
    out += letter;
    if (letter == '{' || letter == '}')
      out += letter;
  }
  return out;
}

/// Returns the first index and the length of the longest run of equal steps among ascending
/// `values`, the first of equals.
static std::pair<size_t, size_t> longestProgression(const std::vector<int64_t> &values) {
  std::pair<size_t, size_t> best{0, 1};
  for (size_t first = 0; first + 1 < values.size();) {
    size_t last = first + 1;
    int64_t step = values[last] - values[first];
    while (last + 1 < values.size() && values[last + 1] - values[last] == step)
      ++last;
    if (last - first + 1 > best.second)
      best = {first, last - first + 1};
    first = last;
  }
  return best;
}

std::vector<std::string> compressIds(const std::vector<std::string> &ids) {
  std::set<std::string> left(ids.begin(), ids.end());
  std::map<Template, std::vector<int64_t>> templates;
  for (const std::string &id : left)
    for (const Number &number : numbersOf(id))
      templates[{id.substr(0, number.begin), id.substr(number.end)}].push_back(number.value);

  // The template with the most members first, ties by name.
  std::vector<std::pair<int64_t, Template>> order;
  for (const auto &[key, values] : templates)
    if (values.size() >= 3)
      order.push_back({-int64_t(values.size()), key});
  std::sort(order.begin(), order.end());

  std::vector<std::string> patterns;
  for (const auto &[size, key] : order) {
    std::vector<int64_t> values;
    for (int64_t value : templates[key])
      if (left.count(key.first + std::to_string(value) + key.second))
        values.push_back(value);
    std::sort(values.begin(), values.end());
    while (true) {
      auto [first, count] = longestProgression(values);
      if (count < 3)
        break;
      int64_t step = values[first + 1] - values[first];
      std::string range = std::to_string(values[first]) + ".." +
                          std::to_string(values[first + count - 1]) +
                          (step == 1 ? "" : ".." + std::to_string(step));
      patterns.push_back(escaped(key.first) + "{" + range + "}" + escaped(key.second));
      for (size_t i = first; i < first + count; ++i)
        left.erase(key.first + std::to_string(values[i]) + key.second);
      values.erase(values.begin() + first, values.begin() + first + count);
    }
  }
  for (const std::string &id : left)
    patterns.push_back(escaped(id));
  std::sort(patterns.begin(), patterns.end());
  return patterns;
}

/// Reads "a..b" or "a..b..step" up to the closing brace; returns false for other text.
static bool readRange(const std::string &text, size_t &at, int64_t &first, int64_t &last,
                      int64_t &step) {
  auto number = [&](int64_t &value) {
    size_t begin = at;
    value = 0;
    while (at < text.size() && isDigit(text[at]) && at - begin < 10)
      value = value * 10 + (text[at++] - '0');
    return at > begin;
  };
  auto word = [&](const char *expected) {
    std::string w(expected);
    if (text.compare(at, w.size(), w) != 0)
      return false;
    at += w.size();
    return true;
  };
  step = 1;
  if (!number(first) || !word("..") || !number(last))
    return false;
  if (word("..") && !number(step))
    return false;
  return word("}") && step > 0 && first <= last;
}

Result<std::vector<std::string>> expandIds(const std::vector<std::string> &patterns) {
  constexpr int64_t most = 1000000;
  std::set<std::string> ids;
  for (const std::string &pattern : patterns) {
    std::string before, after;
    int64_t first = 0, last = 0, step = 1;
    bool ranged = false, good = true;
    for (size_t at = 0; good && at < pattern.size();) {
      char letter = pattern[at++];
      bool doubled = at < pattern.size() && pattern[at] == letter;
      if (letter == '{' && !doubled) {
        good = !ranged && readRange(pattern, at, first, last, step);
        ranged = true;
        continue;
      }
      if (letter == '{' || letter == '}') {
        good = doubled;
        ++at;
      }
      (ranged ? after : before) += letter;
    }
    if (!good)
      return Error{ErrorCode::Other,
                   "\"" + pattern + "\" is not a name or a pattern like h.{0..11}.fc"};
    if (ranged && (last - first) / step + int64_t(ids.size()) >= most)
      return Error{ErrorCode::Other, "\"" + pattern + "\" stands for too many names"};
    if (!ranged)
      ids.insert(before);
    for (int64_t value = first; ranged && value <= last; value += step)
      ids.insert(before + std::to_string(value) + after);
  }
  return std::vector<std::string>(ids.begin(), ids.end());
}

} // namespace tbc::planner
