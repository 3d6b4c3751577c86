//===- BlockNames.cpp - Display names for pieces of the graph -------------===//

#include "planner/report/BlockNames.h"
#include "planner/graph/Recompute.h"

#include <algorithm>
#include <optional>

using namespace tbc::reshard;

namespace tbc::planner {

using Path = std::vector<std::string>;

static Path componentsOf(const std::string &module) {
  Path path;
  for (size_t begin = 0; begin < module.size();) {
    size_t end = std::min(module.find('.', begin), module.size());
    path.push_back(module.substr(begin, end - begin));
    begin = end + 1;
  }
  return path;
}

static std::string join(const Path &path, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i)
    text += (i ? "." : "") + path[i];
  return text;
}

std::string BlockNames::common(const std::string &a, const std::string &b) {
  if (a == b)
    return a;
  size_t prefix = 0, suffix = 0, shorter = std::min(a.size(), b.size());
  while (prefix < shorter && a[prefix] == b[prefix])
    ++prefix;
  while (suffix < shorter - prefix && a[a.size() - 1 - suffix] == b[b.size() - 1 - suffix])
    ++suffix;
  return a.substr(0, prefix) + "*" + a.substr(a.size() - suffix);
}

/// Returns "layer" for "layer12", "" for "12", nullopt for a word without a number at its end.
static std::optional<std::string> stemOf(const std::string &word) {
  size_t end = word.find_last_not_of("0123456789*") + 1; // npos + 1 is 0
  if (end == word.size())
    return std::nullopt;
  return word.substr(0, end);
}

/// Returns the common components of two paths. At a differing number it puts a star and keeps an
/// equal rest; at any other difference it ends. Example: h.0.mlp and h.1.mlp give h.*.mlp.
static Path commonPath(const Path &a, const Path &b) {
  Path path;
  size_t shorter = std::min(a.size(), b.size()), at = 0;
  while (at < shorter && a[at] == b[at])
    path.push_back(a[at++]);
  if (at == shorter)
    return path;
  std::optional<std::string> stem = stemOf(a[at]);
  if (!stem || stem != stemOf(b[at]))
    return path;
  path.push_back(*stem + "*");
  if (std::equal(a.begin() + at + 1, a.end(), b.begin() + at + 1, b.end()))
    path.insert(path.end(), a.begin() + at + 1, a.end());
  return path;
}

static size_t starOf(const Path &path) {
  for (size_t i = 0; i < path.size(); ++i)
    if (path[i].find('*') != std::string::npos)
      return i;
  return path.size();
}

BlockNames::BlockNames(const Graph &graph, const Job &job, ModuleOfOp moduleOfOp) {
  for (int op = 0; op < numForwardOps(graph); ++op) {
    modules.push_back(componentsOf(moduleOfOp(job, graph, op)));
    for (size_t depth = 1; depth <= modules.back().size(); ++depth) {
      auto [found, isNew] = extent.try_emplace(join(modules.back(), depth), op, op);
      found->second.second = op;
    }
  }
}

std::string BlockNames::repeated(const Block &block) const {
  Path name;
  for (int op = block.first; op < block.first + block.length; ++op) {
    Path path = modules[op];
    for (int repeat = 1; repeat < block.count; ++repeat)
      path = commonPath(path, modules[op + repeat * block.length]);
    if (starOf(path) == path.size())
      continue; // the same in all repeats, or without a module
    if (name.empty()) {
      name = path;
      continue;
    }
    size_t equal = 0;
    while (equal < std::min(name.size(), path.size()) && name[equal] == path[equal])
      ++equal;
    if (equal > starOf(name))
      name.resize(equal);
  }
  return join(name, name.size());
}

std::string BlockNames::listed(const Block &block) const {
  int last = block.first + block.length * block.count - 1;
  std::vector<std::string> names;
  for (int op = block.first; op <= last; ++op) {
    const Path &path = modules[op];
    if (path.empty())
      continue;
    size_t depth = 1;
    auto isWhole = [&] {
      auto [begin, end] = extent.at(join(path, depth));
      return begin >= block.first && end <= last;
    };
    while (depth < path.size() && !isWhole())
      ++depth;
    std::string name = join(path, depth);
    if (std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  }
  std::string text;
  for (const std::string &name : names) {
    // A surrounding module is listed only if no inner module is.
    bool isAround = std::any_of(names.begin(), names.end(), [&](const std::string &other) {
      return other.rfind(name + ".", 0) == 0;
    });
    if (!isAround)
      text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

std::string BlockNames::modulesOf(const Block &block) const {
  std::string name = block.count > 1 ? repeated(block) : "";
  return name.empty() ? listed(block) : name;
}

std::vector<std::string> stageNames(const Graph &graph, const Job &job,
                                    const std::vector<std::string> &ids) {
  std::map<std::string, int> byId;
  for (int op = 0; op < numForwardOps(graph); ++op)
    byId.emplace(graph.ops[op].id, op);
  std::vector<std::string> names;
  for (const std::string &id : ids) {
    auto found = byId.find(id);
    std::string module = found == byId.end() ? "" : shownModuleOf(job, graph, found->second);
    names.push_back(module.empty() ? id : module);
  }
  std::vector<std::string> unique = names;
  for (size_t i = 0; i < names.size(); ++i)
    if (std::count(names.begin(), names.end(), names[i]) > 1 && names[i] != ids[i])
      unique[i] += " (" + ids[i] + ")";
  return unique;
}

} // namespace tbc::planner
