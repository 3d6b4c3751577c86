//===- Report.cpp - Findings as text and as JSON -----------------------------===//

#include "tools/doctor/Doctor.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

namespace tbc::doctor {

static const char *nameOf(State state) {
  return state == State::Ok ? "ok" : state == State::Missing ? "missing" : "problem";
}

/// Returns `words` from column `indent` on, in lines of at most 100 columns; longer words stay
/// whole.
static std::string wrapped(const std::string &words, size_t indent) {
  constexpr size_t lineWidth = 100;
  std::string text;
  size_t column = indent;
  std::istringstream stream(words);
  for (std::string word; stream >> word; column += word.size()) {
    if (column > indent && column + 1 + word.size() > lineWidth) {
      text += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      text += ' ';
      ++column;
    }
    text += word;
  }
  return text + "\n";
}

std::string textOf(const std::vector<Finding> &findings) {
  constexpr size_t stateWidth = 9, nameWidth = 21;
  auto padded = [](std::string text, size_t width) {
    text.resize(std::max(width, text.size() + 1), ' ');
    return text;
  };
  std::string text;
  for (const Finding &finding : findings) {
    text += padded(nameOf(finding.state), stateWidth) + padded(finding.name, nameWidth) +
            wrapped(finding.found, stateWidth + nameWidth);
    if (!finding.advice.empty())
      text += std::string(stateWidth + nameWidth, ' ') +
              wrapped(finding.advice, stateWidth + nameWidth);
  }
  return text;
}

std::string jsonOf(const std::vector<Finding> &findings) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  bool ok = true;
  for (const Finding &finding : findings) {
    ok &= finding.state != State::Problem;
    list.push_back({{"name", finding.name},
                    {"state", nameOf(finding.state)},
                    {"found", finding.found},
                    {"advice", finding.advice}});
  }
  // Messages of the system may not be UTF-8.
  Json json{{"format", "tbc-doctor"}, {"version", 1}, {"ok", ok}, {"findings", list}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace tbc::doctor
