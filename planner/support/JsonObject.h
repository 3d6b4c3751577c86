//===- JsonObject.h - Checked reading of a JSON object --------------------===//

#ifndef TBC_PLANNER_SUPPORT_JSONOBJECT_H
#define TBC_PLANNER_SUPPORT_JSONOBJECT_H

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace tbc::planner {

/// The first error found, with the path of its key.
struct KeyProblem {
  std::string text;
  void report(const std::string &path, const std::string &message) {
    if (text.empty())
      text = "key \"" + path + "\" " + message;
  }
};

/// Reads one object: every key must be requested, and every requested key must exist. An invalid
/// value is reported and read as a default.
class JsonObject {
public:
  using Json = nlohmann::json;

  /// `path`: of the object's key; "" is the whole text.
  JsonObject(const Json &json, std::string path, KeyProblem &problem);
  /// Reports keys that were never requested.
  ~JsonObject();
  JsonObject(const JsonObject &) = delete;
  JsonObject &operator=(const JsonObject &) = delete;

  std::string at(const std::string &key) const { return path.empty() ? key : path + "." + key; }

  const Json &get(const std::string &key);
  /// Whether an optional key exists.
  bool has(const std::string &key) const;

  std::string text(const std::string &key);
  std::string word(const std::string &key, const std::vector<std::string> &words);
  int64_t integer(const std::string &key, int64_t low, int64_t high);
  /// Returns a number between 0 and `high`.
  double number(const std::string &key, double high = 1e30);
  /// Returns an optional number.
  double numberOr(const std::string &key, double otherwise, double high = 1e30);
  double positive(const std::string &key, double high = 1e30);
  bool flag(const std::string &key);
  std::vector<std::string> texts(const std::string &key);
  /// Returns ids in the format of IdList.h.
  std::vector<std::string> ids(const std::string &key);

  /// Calls `function` for every item of an array and its path.
  void forEach(const std::string &key,
               const std::function<void(const Json &item, const std::string &path)> &function);

private:
  const Json &json;
  std::string path;
  KeyProblem &problem;
  std::set<std::string> asked;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_SUPPORT_JSONOBJECT_H
