//===- JsonObject.h - An object of a JSON text, read and checked -----------===//

#ifndef TBC_PLANNER_CORE_JSONOBJECT_H
#define TBC_PLANNER_CORE_JSONOBJECT_H

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

/// One object being read: every key must be asked for, and every key asked for must be there. What
/// is wrong is reported, and read as a default.
class JsonObject {
public:
  using Json = nlohmann::json;

  /// `path`: of its key; "" is the whole text.
  JsonObject(const Json &json, std::string path, KeyProblem &problem);
  /// Reports a key that nobody asked for.
  ~JsonObject();
  JsonObject(const JsonObject &) = delete;
  JsonObject &operator=(const JsonObject &) = delete;

  std::string at(const std::string &key) const { return path.empty() ? key : path + "." + key; }

  const Json &get(const std::string &key);
  /// Whether a key is there that need not be.
  bool has(const std::string &key) const;

  std::string text(const std::string &key);
  std::string word(const std::string &key, const std::vector<std::string> &words);
  int64_t integer(const std::string &key, int64_t low, int64_t high);
  /// Between 0 and `high`.
  double number(const std::string &key, double high = 1e30);
  /// One that need not be there.
  double numberOr(const std::string &key, double otherwise, double high = 1e30);
  double positive(const std::string &key, double high = 1e30);
  bool flag(const std::string &key);
  std::vector<std::string> texts(const std::string &key);
  /// As IdList.h writes them.
  std::vector<std::string> ids(const std::string &key);

  /// Calls `function` with every item of an array and its path.
  void forEach(const std::string &key,
               const std::function<void(const Json &item, const std::string &path)> &function);

private:
  const Json &json;
  std::string path;
  KeyProblem &problem;
  std::set<std::string> asked;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_JSONOBJECT_H
