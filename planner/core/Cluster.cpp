//===- Cluster.cpp - Reading cluster files ---------------------------------===//

#include "planner/core/Cluster.h"
#include "planner/core/ClusterPresets.h"

#include <stdexcept>

// The parser states what it expects of its input as assertions, which a release build turns into
// assumptions: undefined behaviour where a table header is malformed. Here they stay checks.
#undef NDEBUG
#define TOML_ASSERT(condition)                                                                     \
  ((condition) ? void(0) : throw std::logic_error("malformed name of a table or key"))
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

namespace tbc::planner {

double NetworkLevel::bandwidth(int64_t devices) const {
  auto found = groupBytesPerSecond.lower_bound(devices);
  return found == groupBytesPerSecond.end() ? bytesPerSecond : found->second;
}

const KernelEfficiency &Cluster::kernel(const std::string &kernelClass) const {
  auto found = kernels.find(kernelClass);
  if (found == kernels.end())
    found = kernels.find("default");
  assert(found != kernels.end() && "a cluster without [kernel.default]");
  return found->second;
}

double Cluster::peakFlops(const std::string &kernelClass, int64_t elementBytes) const {
  bool tensor = kernelClass == "matmul" || kernelClass == "conv" || kernelClass == "attention";
  if (!tensor)
    return vectorFlopsPerSecond;
  auto found = peakFlopsPerSecond.find(elementBytes <= 2 ? "bf16" : "f32");
  assert(found != peakFlopsPerSecond.end() && "a cluster without peak FLOP/s for f32 and bf16");
  return found->second;
}

int64_t Cluster::usableBytes() const {
  return memoryBytes - static_cast<int64_t>(std::ceil(reservedFraction * double(memoryBytes)));
}

bool Cluster::operator==(const Cluster &o) const {
  return name == o.name && description == o.description && devicesPerNode == o.devicesPerNode &&
         memoryBytes == o.memoryBytes && memoryBytesPerSecond == o.memoryBytesPerSecond &&
         peakFlopsPerSecond == o.peakFlopsPerSecond &&
         vectorFlopsPerSecond == o.vectorFlopsPerSecond && launchSeconds == o.launchSeconds &&
         kernels == o.kernels && intraNode == o.intraNode && interNode == o.interNode &&
         overlapFraction == o.overlapFraction && timeUncertainty == o.timeUncertainty &&
         contextBytes == o.contextBytes && allocatorFraction == o.allocatorFraction &&
         reservedFraction == o.reservedFraction;
}

namespace {

/// What a number in a cluster file may be.
enum class Range { Positive, NotNegative, Fraction };

/// Reads one file; remembers the first error, and the keys that were asked for, so that every other
/// key is unknown.
class ClusterReader {
public:
  explicit ClusterReader(const std::string &source) : source(source) {}

  std::string text(const toml::table &table, const std::string &path, const std::string &key) {
    const toml::node *node = lookUp(table, path, key);
    if (!node)
      return "";
    if (!node->is_string())
      fail(*node, qualified(path, key) + " must be a string");
    return node->value_or(std::string());
  }

  double number(const toml::table &table, const std::string &path, const std::string &key,
                Range range, bool required = true, double otherwise = 0) {
    const toml::node *node = lookUp(table, path, key, required);
    if (!node)
      return otherwise;
    if (!node->is_number()) {
      fail(*node, qualified(path, key) + " must be a number");
      return otherwise;
    }
    double value = node->value_or(0.0);
    bool good = std::isfinite(value) && (range == Range::Positive ? value > 0 : value >= 0) &&
                (range != Range::Fraction || value <= 1);
    if (!good)
      fail(*node, qualified(path, key) + " must be " +
                      (range == Range::Positive      ? "positive"
                       : range == Range::NotNegative ? "zero or more"
                                                     : "between 0 and 1"));
    return value;
  }

  int64_t integer(const toml::table &table, const std::string &path, const std::string &key,
                  int64_t low, int64_t high) {
    const toml::node *node = lookUp(table, path, key);
    if (!node)
      return low;
    if (!node->is_integer()) {
      fail(*node, qualified(path, key) + " must be an integer");
      return low;
    }
    int64_t value = node->value_or(int64_t(0));
    if (value < low || value > high)
      fail(*node, qualified(path, key) + " must be between " + std::to_string(low) + " and " +
                      std::to_string(high));
    return value;
  }

  const toml::table &section(const toml::table &table, const std::string &path,
                             const std::string &key, bool required = true) {
    static const toml::table empty;
    const toml::node *node = lookUp(table, path, key, required);
    if (!node)
      return empty;
    if (!node->is_table()) {
      fail(*node, qualified(path, key) + " must be a table, [" + qualified(path, key) + "]");
      return empty;
    }
    return *node->as_table();
  }

  /// Every key of `table` must have been asked for under `path`.
  void closeTable(const toml::table &table, const std::string &path) {
    std::vector<std::string> known;
    for (const auto &[knownPath, key] : asked)
      if (knownPath == path)
        known.push_back(key);
    for (auto &&[key, node] : table) {
      std::string word(key.str());
      if (asked.count({path, word}))
        continue;
      std::string closest = closestWord(word, known);
      fail(node, "unknown key " + qualified(path, word) +
                     (closest.empty() ? "" : "; did you mean " + qualified(path, closest) + "?"));
    }
  }

  void fail(const toml::node &node, const std::string &message) {
    if (error.empty())
      error = source + ":" + std::to_string(node.source().begin.line) + ": " + message;
  }

  static std::string qualified(const std::string &path, const std::string &key) {
    return path.empty() ? key : path + "." + key;
  }

  std::string error;

private:
  const toml::node *lookUp(const toml::table &table, const std::string &path,
                           const std::string &key, bool required = true) {
    asked.insert({path, key});
    const toml::node *node = table.get(key);
    if (!node && required && missing.empty())
      missing = source + ": key " + qualified(path, key) + " is missing";
    return node;
  }

  std::string source;
  std::set<std::pair<std::string, std::string>> asked;

public:
  std::string missing;
};

} // namespace

static KernelEfficiency readKernel(ClusterReader &reader, const toml::table &table,
                                   const std::string &path) {
  KernelEfficiency kernel;
  kernel.flopsFraction = reader.number(table, path, "flops_fraction", Range::Fraction);
  kernel.memoryFraction = reader.number(table, path, "memory_fraction", Range::Fraction);
  kernel.rampSeconds = reader.number(table, path, "ramp_seconds", Range::NotNegative, false);
  for (const char *key : {"flops_fraction", "memory_fraction"})
    if (const toml::node *node = table.get(key); node && node->value_or(1.0) <= 0)
      reader.fail(*node, path + "." + key + " must be more than 0");
  reader.closeTable(table, path);
  return kernel;
}

/// The number in a key such as "4", or 0 if it is none between 1 and 2^20.
static int64_t deviceCount(const std::string &key) {
  bool digits = !key.empty() && key.size() <= 7 && key[0] != '0' &&
                std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
  int64_t count = digits ? std::stoll(key) : 0;
  return count <= (1 << 20) ? count : 0;
}

static void readGroups(ClusterReader &reader, const toml::table &table, const std::string &path,
                       NetworkLevel &level) {
  for (auto &&[key, node] : table) {
    std::string word(key.str());
    if (int64_t devices = deviceCount(word))
      level.groupBytesPerSecond[devices] = reader.number(table, path, word, Range::Positive);
    else
      reader.fail(node, path + "." + word + " must be a number of devices from 1 to 1048576");
  }
}

static NetworkLevel readNetwork(ClusterReader &reader, const toml::table &table,
                                const std::string &path, bool hasGroups) {
  NetworkLevel level;
  level.latencySeconds = reader.number(table, path, "latency_seconds", Range::NotNegative);
  level.bytesPerSecond = reader.number(table, path, "bytes_per_second", Range::Positive);
  level.startSeconds = reader.number(table, path, "start_seconds", Range::NotNegative);
  if (hasGroups)
    readGroups(reader, reader.section(table, path, "group_bytes_per_second", false),
               path + ".group_bytes_per_second", level);
  reader.closeTable(table, path);
  return level;
}

static void readDevice(ClusterReader &reader, const toml::table &device, Cluster &cluster) {
  constexpr int64_t maxBytes = int64_t(1) << 50;
  cluster.memoryBytes = reader.integer(device, "device", "memory_bytes", 1, maxBytes);
  cluster.memoryBytesPerSecond =
      reader.number(device, "device", "memory_bytes_per_second", Range::Positive);
  cluster.vectorFlopsPerSecond =
      reader.number(device, "device", "vector_flops_per_second", Range::Positive);
  cluster.launchSeconds = reader.number(device, "device", "launch_seconds", Range::NotNegative);
  const toml::table &peaks = reader.section(device, "device", "peak_flops_per_second");
  for (const char *precision : {"bf16", "f16", "f32"})
    cluster.peakFlopsPerSecond[precision] =
        reader.number(peaks, "device.peak_flops_per_second", precision, Range::Positive);
  reader.closeTable(peaks, "device.peak_flops_per_second");
  reader.closeTable(device, "device");
}

static Cluster readAll(ClusterReader &reader, const toml::table &root) {
  constexpr int64_t maxBytes = int64_t(1) << 50;
  Cluster cluster;
  cluster.name = reader.text(root, "", "name");
  cluster.description = reader.text(root, "", "description");
  cluster.devicesPerNode = reader.integer(root, "", "devices_per_node", 1, 1 << 20);
  readDevice(reader, reader.section(root, "", "device"), cluster);

  const toml::table &kernels = reader.section(root, "", "kernel");
  static const std::vector<std::string> classes = {
      "matmul", "conv", "attention", "elementwise", "reduction", "gather", "default"};
  for (auto &&[key, node] : kernels) {
    std::string kernelClass(key.str());
    if (std::find(classes.begin(), classes.end(), kernelClass) == classes.end()) {
      std::string closest = closestWord(kernelClass, classes);
      reader.fail(node, "unknown kernel class kernel." + kernelClass +
                            (closest.empty() ? "" : "; did you mean kernel." + closest + "?"));
      continue;
    }
    const toml::table &kernel = reader.section(kernels, "kernel", kernelClass);
    cluster.kernels[kernelClass] = readKernel(reader, kernel, "kernel." + kernelClass);
  }
  if (!cluster.kernels.count("default"))
    reader.section(kernels, "kernel", "default"); // reports that it is missing

  const toml::table &network = reader.section(root, "", "network");
  cluster.intraNode = readNetwork(reader, reader.section(network, "network", "intra_node"),
                                  "network.intra_node", true);
  cluster.interNode = readNetwork(reader, reader.section(network, "network", "inter_node"),
                                  "network.inter_node", false);
  reader.closeTable(network, "network");

  const toml::table &overlap = reader.section(root, "", "overlap");
  cluster.overlapFraction = reader.number(overlap, "overlap", "fraction", Range::Fraction);
  reader.closeTable(overlap, "overlap");
  const toml::table &uncertainty = reader.section(root, "", "uncertainty");
  cluster.timeUncertainty = reader.number(uncertainty, "uncertainty", "time", Range::Fraction);
  reader.closeTable(uncertainty, "uncertainty");

  const toml::table &memory = reader.section(root, "", "memory");
  cluster.contextBytes = reader.integer(memory, "memory", "context_bytes", 0, maxBytes);
  cluster.allocatorFraction =
      reader.number(memory, "memory", "allocator_fraction", Range::Fraction);
  cluster.reservedFraction = reader.number(memory, "memory", "reserved_fraction", Range::Fraction);
  reader.closeTable(memory, "memory");
  reader.closeTable(root, "");
  return cluster;
}

/// The first line that begins like a table header but has no name in it; the last line if none
/// does.
static int64_t lineOfBadHeader(const std::string &text) {
  std::istringstream lines(text);
  std::string line;
  int64_t number = 0;
  while (std::getline(lines, line)) {
    ++number;
    size_t at = line.find_first_not_of(" \t");
    if (at == std::string::npos || line[at] != '[')
      continue;
    at = line.find_first_not_of(" \t", at + 1);
    if (at != std::string::npos && line[at] == '[')
      at = line.find_first_not_of(" \t", at + 1);
    bool named = at != std::string::npos && (std::isalnum(static_cast<unsigned char>(line[at])) ||
                                             std::strchr("_-\"'", line[at]) != nullptr);
    if (!named)
      return number;
  }
  return std::max<int64_t>(1, number);
}

Result<Cluster> parseCluster(const std::string &text, const std::string &source) {
  toml::table root;
  auto malformed = [&](auto line, std::string_view what) {
    std::ostringstream message;
    message << source << ":" << line << ": not valid TOML: " << what;
    return Error{ErrorCode::Usage, message.str()};
  };
  try {
    root = toml::parse(text, source);
  } catch (const toml::parse_error &error) {
    return malformed(error.source().begin.line, error.description());
  } catch (const std::logic_error &error) {
    return malformed(lineOfBadHeader(text), error.what());
  }
  ClusterReader reader(source);
  Cluster cluster = readAll(reader, root);
  // A misspelt key is also a missing one; its line is the better message.
  const std::string &error = reader.error.empty() ? reader.missing : reader.error;
  if (!error.empty())
    return Error{ErrorCode::Usage, error};
  return cluster;
}

std::vector<std::string> clusterPresets() {
  std::vector<std::string> names;
  for (const auto &[name, text] : clusterPresetTexts())
    names.push_back(name);
  return names;
}

/// The presets that `word` may mean: the closest by letters, else all that contain it.
static std::string nearestPresets(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return char(std::tolower(c)); });
  std::string nearest = closestWord(word, clusterPresets());
  if (!nearest.empty() || word.empty())
    return nearest;
  for (const std::string &name : clusterPresets())
    if (name.find(word) != std::string::npos)
      nearest += (nearest.empty() ? "" : " or ") + name;
  return nearest;
}

static Error unknownCluster(const std::string &name) {
  std::string presets, nearest = nearestPresets(name);
  for (const std::string &preset : clusterPresets())
    presets += (presets.empty() ? "" : ", ") + preset;
  return {ErrorCode::Usage, "cluster \"" + name + "\" is neither a preset (" + presets +
                                ") nor a readable file" +
                                (nearest.empty() ? "" : "; did you mean " + nearest + "?")};
}

Result<std::string> clusterText(const std::string &nameOrPath) {
  for (const auto &[name, text] : clusterPresetTexts())
    if (name == nameOrPath)
      return text;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(nameOrPath, ignored))
    return unknownCluster(nameOrPath);
  if (std::filesystem::file_size(nameOrPath, ignored) > (1u << 20))
    return Error{ErrorCode::Usage, nameOrPath + ": larger than 1 MiB, not a cluster file"};
  std::ifstream file(nameOrPath, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file)
    return Error{ErrorCode::Usage, "cannot read cluster file " + nameOrPath};
  return content.str();
}

Result<Cluster> loadCluster(const std::string &nameOrPath) {
  Result<std::string> text = clusterText(nameOrPath);
  if (!text)
    return text.error();
  std::vector<std::string> presets = clusterPresets();
  bool isPreset = std::find(presets.begin(), presets.end(), nameOrPath) != presets.end();
  return parseCluster(*text, isPreset ? nameOrPath + ".toml" : nameOrPath);
}

} // namespace tbc::planner
