//===- JsonText.cpp - JSON for people and for diff ------------------------===//

#include "planner/support/JsonText.h"

#include <nlohmann/json.hpp>

namespace tbc::planner {

using Json = nlohmann::json;

static std::string scalar(const Json &json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Returns the text of `json` on one line. Stops when it is longer than `room`: the caller then
/// uses several lines.
static std::string oneLine(const Json &json, size_t room) {
  if (!json.is_structured() || json.empty())
    return scalar(json);
  const bool isObject = json.is_object();
  std::string text(1, isObject ? '{' : '[');
  for (auto it = json.begin(); it != json.end() && text.size() <= room; ++it) {
    if (text.size() > 1)
      text += ", ";
    if (isObject)
      text += scalar(Json(it.key())) + ": ";
    text += oneLine(*it, room);
  }
  return text + (isObject ? '}' : ']');
}

/// Appends `json`; `used` columns of its first line are taken already.
static void append(const Json &json, size_t depth, size_t used, std::string &text) {
  constexpr size_t width = 100;
  const size_t room = used < width ? width - used : 0;
  // One column is left for a comma.
  if (std::string line = oneLine(json, room); !json.is_structured() || line.size() < room) {
    text += line;
    return;
  }
  const bool isObject = json.is_object();
  const std::string indent(depth + 1, ' ');
  text += isObject ? "{\n" : "[\n";
  for (auto it = json.begin(); it != json.end(); ++it) {
    if (it != json.begin())
      text += ",\n";
    text += indent;
    std::string key = isObject ? scalar(Json(it.key())) + ": " : "";
    text += key;
    append(*it, depth + 1, indent.size() + key.size(), text);
  }
  text += "\n" + std::string(depth, ' ') + (isObject ? "}" : "]");
}

std::string jsonText(const Json &json) {
  std::string text;
  append(json, 0, 0, text);
  return text + "\n";
}

} // namespace tbc::planner
