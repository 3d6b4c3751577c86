//===- Cluster.cpp - Reading cluster files ---------------------------------===//

#include "planner/devices/Cluster.h"
#include "planner/devices/ClusterPresets.h"
#include "planner/devices/TomlReader.h"
#include "runtime/abi/ClosestWord.h"

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

std::string kernelWord(KernelKey key) { return key ? name(*key) : "default"; }

const std::vector<std::string> &kernelWords() {
  static const std::vector<std::string> words = [] {
    std::vector<std::string> all;
    for (KernelClass kernelClass : reshard::kernelClasses())
      if (kernelClass != KernelClass::None)
        all.push_back(kernelWord(kernelClass));
    all.push_back(kernelWord(std::nullopt));
    return all;
  }();
  return words;
}

bool parseKernelKey(const std::string &word, KernelKey &key) {
  const std::vector<std::string> &words = kernelWords();
  key = reshard::parseKernelClass(word);
  return std::find(words.begin(), words.end(), word) != words.end();
}

const KernelEfficiency &Cluster::kernel(KernelKey key) const {
  if (key && isOwnClass(*key) && !executor.isOwn())
    key = broaderClass(*key);
  auto found = kernels.find(key);
  while (found == kernels.end() && key) {
    key = broaderClass(*key);
    found = kernels.find(key);
  }
  assert(found != kernels.end() && "a cluster without [kernel.default]");
  return found->second;
}

double Cluster::peakFlops(KernelClass kernelClass, DType dtype) const {
  if (!isMatrixClass(kernelClass))
    return vectorFlopsPerSecond;
  auto found = peakFlopsPerSecond.find(rateKey(dtype));
  assert(found != peakFlopsPerSecond.end() && "missingRate() is checked before prices");
  return found->second;
}

std::string Cluster::missingRate(DType dtype) const {
  const std::string key = rateKey(dtype);
  bool isMissing = peakFlopsPerSecond.count(key) == 0;
  for (const Cluster &group : groups)
    isMissing |= group.peakFlopsPerSecond.count(key) == 0;
  return isMissing ? "device.peak_flops_per_second." + key : "";
}

static int64_t withoutReserve(int64_t bytes, double fraction) {
  return bytes - static_cast<int64_t>(std::ceil(fraction * double(bytes)));
}

int64_t Cluster::usableBytes() const { return withoutReserve(memoryBytes, reservedFraction); }

int64_t Cluster::usableHostBytes() const {
  return withoutReserve(hostMemoryBytes, reservedFraction);
}

double Cluster::exposedSeconds(double seconds, double room) const {
  double hidden = std::min(seconds, room);
  return seconds - hidden + overlapSlowdown * hidden;
}

double Cluster::hostCopySeconds(double bytes) const {
  return launchSeconds + bytes / hostBytesPerSecond;
}

bool Cluster::operator==(const Cluster &o) const {
  return devicesPerNode == o.devicesPerNode && numNodes == o.numNodes && haveSameDevices(*this, o);
}

bool haveSameDevices(const Cluster &a, const Cluster &b) {
  return a.name == b.name && a.description == b.description && a.memoryBytes == b.memoryBytes &&
         a.memoryBytesPerSecond == b.memoryBytesPerSecond &&
         a.peakFlopsPerSecond == b.peakFlopsPerSecond &&
         a.vectorFlopsPerSecond == b.vectorFlopsPerSecond && a.launchSeconds == b.launchSeconds &&
         a.floorSeconds == b.floorSeconds && a.kernels == b.kernels && a.intraNode == b.intraNode &&
         a.interNode == b.interNode && a.hostMemoryBytes == b.hostMemoryBytes &&
         a.hostBytesPerSecond == b.hostBytesPerSecond && a.overlapFraction == b.overlapFraction &&
         a.overlapSlowdown == b.overlapSlowdown && a.executor == b.executor &&
         a.timeUncertainty == b.timeUncertainty && a.timeFactor == b.timeFactor &&
         a.measured == b.measured && a.contextUncertaintyBytes == b.contextUncertaintyBytes &&
         a.allocatorUncertainty == b.allocatorUncertainty &&
         a.hasKernelWorkspace == b.hasKernelWorkspace && a.contextBytes == b.contextBytes &&
         a.allocatorFraction == b.allocatorFraction && a.reservedFraction == b.reservedFraction &&
         a.betweenGroups == b.betweenGroups && a.groups == b.groups;
}

static KernelEfficiency readKernel(TomlReader &reader, const toml::table &table,
                                   const std::string &path) {
  KernelEfficiency kernel;
  kernel.flopsFraction = reader.number(table, path, "flops_fraction", Range::Divisor);
  kernel.memoryFraction = reader.number(table, path, "memory_fraction", Range::Divisor);
  kernel.rampSeconds = reader.number(table, path, "ramp_seconds", Range::Seconds, false);
  kernel.halfDepth = reader.number(table, path, "half_depth", Range::NotNegative, false);
  kernel.executedFraction =
      reader.number(table, path, "executed_fraction", Range::Divisor, false, 1);
  kernel.bytesPerFlop = reader.number(table, path, "bytes_per_flop", Range::NotNegative, false);
  reader.closeTable(table, path);
  return kernel;
}

/// Returns the number in a key such as "4", or 0 if it is not a number from 1 to 2^20.
static int64_t deviceCount(const std::string &key) {
  bool digits = !key.empty() && key.size() <= 7 && key[0] != '0' &&
                std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
  int64_t count = digits ? std::stoll(key) : 0;
  return count <= (1 << 20) ? count : 0;
}

static void readGroups(TomlReader &reader, const toml::table &table, const std::string &path,
                       NetworkLevel &level) {
  for (auto &&[key, node] : table) {
    std::string word(key.str());
    if (int64_t devices = deviceCount(word))
      level.groupBytesPerSecond[devices] = reader.number(table, path, word, Range::BytesPerSecond);
    else
      reader.fail(node, path + "." + word + " must be a number of devices from 1 to 1048576");
  }
}

static NetworkLevel readNetwork(TomlReader &reader, const toml::table &table,
                                const std::string &path, bool isInNode) {
  NetworkLevel level;
  level.latencySeconds = reader.number(table, path, "latency_seconds", Range::Seconds);
  level.bytesPerSecond = reader.number(table, path, "bytes_per_second", Range::BytesPerSecond);
  level.startSeconds = reader.number(table, path, "start_seconds", Range::Seconds);
  level.ringStepSeconds = reader.number(table, path, "ring_step_seconds", Range::Seconds, false);
  level.smallFraction = reader.number(table, path, "small_fraction", Range::Divisor, false, 1);
  if (isInNode)
    level.switchBytesPerSecond =
        reader.number(table, path, "switch_bytes_per_second", Range::BytesPerSecond, false);
  if (isInNode)
    readGroups(reader, reader.section(table, path, "group_bytes_per_second", false),
               path + ".group_bytes_per_second", level);
  reader.closeTable(table, path);
  return level;
}

static void readDevice(TomlReader &reader, const toml::table &device, Cluster &cluster) {
  cluster.memoryBytes = reader.memory(device, "device", "memory_bytes", /*mayBeZero=*/false);
  cluster.memoryBytesPerSecond =
      reader.number(device, "device", "memory_bytes_per_second", Range::BytesPerSecond);
  cluster.vectorFlopsPerSecond =
      reader.number(device, "device", "vector_flops_per_second", Range::FlopsPerSecond);
  cluster.launchSeconds = reader.number(device, "device", "launch_seconds", Range::Seconds);
  cluster.floorSeconds = reader.number(device, "device", "floor_seconds", Range::Seconds, false);
  const toml::table &peaks = reader.section(device, "device", "peak_flops_per_second");
  for (const Rate &rate : rates())
    if (double peak = reader.number(peaks, "device.peak_flops_per_second", rate.key,
                                    Range::FlopsPerSecond, rate.isRequired);
        peak > 0)
      cluster.peakFlopsPerSecond[rate.key] = peak;
  reader.closeTable(peaks, "device.peak_flops_per_second");
  reader.closeTable(device, "device");
}

/// Returns the text of preset `name`, or nullptr.
static const std::string *presetText(const std::string &name) {
  for (const auto &[preset, text] : clusterPresetTexts())
    if (preset == name)
      return &text;
  return nullptr;
}

static Result<Cluster> loadPreset(const std::string &name, const std::string &text);

/// Reads a file. A file with kinds of nodes is allowed only if `mayHaveGroups`.
static Result<Cluster> loadFile(const std::string &path, bool mayHaveGroups);

/// Returns the cluster of one [[nodes]] table: a preset, or a file relative to `folder`, the folder
/// of the file with the table.
static Result<Cluster> readNodes(TomlReader &reader, const toml::table &table,
                                 const std::filesystem::path &folder) {
  std::string name = reader.text(table, "nodes", "cluster");
  int64_t count = reader.integer(table, "nodes", "count", 1, 1 << 20), perNode = 0;
  if (table.get("devices_per_node"))
    perNode = reader.integer(table, "nodes", "devices_per_node", 1, 1 << 20);
  reader.ask("nodes", "devices_per_node");
  reader.closeTable(table, "nodes");
  if (!reader.error.empty() || !reader.missing.empty())
    return Error{ErrorCode::Usage, ""}; // the reader has the message
  const std::string *preset = presetText(name);
  Result<Cluster> cluster =
      preset ? loadPreset(name, *preset)
             : loadFile((folder / name).lexically_normal().string(), /*mayHaveGroups=*/false);
  if (!cluster)
    return cluster;
  cluster->numNodes = count;
  if (perNode > 0)
    cluster->devicesPerNode = perNode;
  return cluster;
}

/// Reads a file with [[nodes]].
static Result<Cluster> readGroups(TomlReader &reader, const toml::table &root,
                                  const std::filesystem::path &folder) {
  std::string name = reader.text(root, "", "name"),
              description = reader.text(root, "", "description");
  const toml::array *nodes = root.get("nodes")->as_array();
  reader.ask("", "nodes");
  std::vector<Cluster> groups;
  if (!nodes || nodes->empty() || int64_t(nodes->size()) > mostGroups ||
      !nodes->is_array_of_tables())
    reader.fail(*root.get("nodes"), "nodes must be 1 to 64 tables, each under [[nodes]]");
  else
    for (const toml::node &node : *nodes) {
      Result<Cluster> group = readNodes(reader, *node.as_table(), folder);
      if (!group) {
        if (!group.error().message.empty())
          reader.fail(node, group.error().message);
        break;
      }
      groups.push_back(std::move(*group));
    }
  std::optional<NetworkLevel> between;
  const toml::table &network = reader.section(root, "", "network", false);
  if (network.get("between_groups"))
    between = readNetwork(reader, reader.section(network, "network", "between_groups"),
                          "network.between_groups", false);
  reader.ask("network", "between_groups");
  reader.closeTable(network, "network");
  reader.closeTable(root, "");
  if (!reader.error.empty() || !reader.missing.empty())
    return Cluster();
  Result<Cluster> cluster =
      clusterOfGroups(name, description, std::move(groups), std::move(between));
  if (!cluster)
    reader.fail(*root.get("nodes"), cluster.error().message);
  return cluster;
}

/// Reads the tables [measured.EXECUTOR].
static void readMeasured(TomlReader &reader, const toml::table &root, Cluster &cluster) {
  const std::vector<std::string> executors = executorNames();
  const toml::table &all = reader.section(root, "", "measured", false);
  for (auto &&[key, node] : all) {
    const std::string executor(key.str()), path = "measured." + executor;
    if (std::find(executors.begin(), executors.end(), executor) == executors.end()) {
      const std::string closest = closestWord(executor, executors);
      reader.fail(node, "unknown executor " + path +
                            (closest.empty() ? "" : "; did you mean measured." + closest + "?"));
      continue;
    }
    const toml::table &table = reader.section(all, "measured", executor);
    cluster.measured[executor] = {reader.number(table, path, "time_factor", Range::Positive),
                                  reader.number(table, path, "time_uncertainty", Range::Fraction)};
    reader.closeTable(table, path);
  }
}

static Cluster readAll(TomlReader &reader, const toml::table &root) {
  Cluster cluster;
  cluster.name = reader.text(root, "", "name");
  cluster.description = reader.text(root, "", "description");
  cluster.devicesPerNode = reader.integer(root, "", "devices_per_node", 1, 1 << 20);
  readDevice(reader, reader.section(root, "", "device"), cluster);

  const toml::table &kernels = reader.section(root, "", "kernel");
  for (auto &&[key, node] : kernels) {
    const std::string word(key.str());
    KernelKey kernelKey;
    if (!parseKernelKey(word, kernelKey)) {
      std::string closest = closestWord(word, kernelWords());
      reader.fail(node, "unknown kernel class kernel." + word +
                            (closest.empty() ? "" : "; did you mean kernel." + closest + "?"));
      continue;
    }
    const toml::table &kernel = reader.section(kernels, "kernel", word);
    cluster.kernels[kernelKey] = readKernel(reader, kernel, "kernel." + word);
  }
  if (!cluster.kernels.count(std::nullopt))
    reader.section(kernels, "kernel", kernelWord(std::nullopt)); // reports that it is missing

  const toml::table &network = reader.section(root, "", "network");
  cluster.intraNode = readNetwork(reader, reader.section(network, "network", "intra_node"),
                                  "network.intra_node", true);
  cluster.interNode = readNetwork(reader, reader.section(network, "network", "inter_node"),
                                  "network.inter_node", false);
  reader.closeTable(network, "network");

  const toml::table &host = reader.section(root, "", "host");
  cluster.hostMemoryBytes = reader.memory(host, "host", "memory_bytes", /*mayBeZero=*/true);
  cluster.hostBytesPerSecond =
      reader.number(host, "host", "bytes_per_second", Range::BytesPerSecond);
  reader.closeTable(host, "host");

  const toml::table &overlap = reader.section(root, "", "overlap");
  cluster.overlapFraction = reader.number(overlap, "overlap", "fraction", Range::Fraction);
  cluster.overlapSlowdown = reader.number(overlap, "overlap", "slowdown", Range::Fraction, false);
  reader.closeTable(overlap, "overlap");
  const toml::table &uncertainty = reader.section(root, "", "uncertainty");
  cluster.timeUncertainty = reader.number(uncertainty, "uncertainty", "time", Range::Fraction);
  cluster.contextUncertaintyBytes =
      int64_t(reader.number(uncertainty, "uncertainty", "context_bytes", Range::Bytes, false));
  cluster.allocatorUncertainty =
      reader.number(uncertainty, "uncertainty", "allocator_fraction", Range::Fraction, false);
  reader.closeTable(uncertainty, "uncertainty");

  const toml::table &memory = reader.section(root, "", "memory");
  cluster.contextBytes = reader.memory(memory, "memory", "context_bytes", /*mayBeZero=*/true);
  cluster.allocatorFraction =
      reader.number(memory, "memory", "allocator_fraction", Range::Fraction);
  cluster.reservedFraction = reader.number(memory, "memory", "reserved_fraction", Range::Fraction);
  if (memory.contains("kernel_workspace"))
    cluster.hasKernelWorkspace = reader.flag(memory, "memory", "kernel_workspace");
  reader.closeTable(memory, "memory");
  readMeasured(reader, root, cluster);
  reader.closeTable(root, "");
  return cluster;
}

static Result<Cluster> parse(const std::string &text, const std::string &source,
                             bool mayHaveGroups) {
  Result<toml::table> parsed = parseToml(text, source);
  if (!parsed)
    return parsed.error();
  const toml::table &root = *parsed;
  const bool hasGroups = root.get("nodes") != nullptr;
  if (hasGroups && !mayHaveGroups)
    return Error{ErrorCode::Usage, source + ": its own nodes are of several kinds; name those "
                                            "kinds in the file that names this one"};
  TomlReader reader(source);
  Result<Cluster> cluster =
      hasGroups ? readGroups(reader, root, std::filesystem::path(source).parent_path())
                : readAll(reader, root);
  // A misspelt key is also a missing one; its line is the better message.
  const std::string &error = reader.error.empty() ? reader.missing : reader.error;
  if (!error.empty())
    return Error{ErrorCode::Usage, error};
  return cluster;
}

Result<Cluster> parseCluster(const std::string &text, const std::string &source) {
  return parse(text, source, /*mayHaveGroups=*/true);
}

std::vector<std::string> clusterPresets() {
  std::vector<std::string> names;
  for (const auto &[name, text] : clusterPresetTexts())
    names.push_back(name);
  return names;
}

/// Returns the presets similar to `word`: the closest by letters, else all that contain it.
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
  const std::string nearest = nearestPresets(name);
  return {ErrorCode::Usage, "cluster \"" + name + "\" is neither a preset nor a readable file; " +
                                (nearest.empty() ? "" : "did you mean " + nearest + "? ") +
                                "`tbc cluster` lists the presets"};
}

static Result<std::string> textOfFile(const std::string &path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored))
    return unknownCluster(path);
  if (std::filesystem::file_size(path, ignored) > (1u << 20))
    return Error{ErrorCode::Usage, path + ": larger than 1 MiB, not a cluster file"};
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file)
    return Error{ErrorCode::Usage, "cannot read cluster file " + path};
  return content.str();
}

Result<std::string> clusterText(const std::string &nameOrPath) {
  if (const std::string *preset = presetText(nameOrPath))
    return *preset;
  return textOfFile(nameOrPath);
}

static Result<Cluster> loadPreset(const std::string &name, const std::string &text) {
  return parse(text, name + ".toml", /*mayHaveGroups=*/false);
}

static Result<Cluster> loadFile(const std::string &path, bool mayHaveGroups) {
  Result<std::string> text = textOfFile(path);
  return text ? parse(*text, path, mayHaveGroups) : text.error();
}

Result<Cluster> loadCluster(const std::string &nameOrPath) {
  const std::string *preset = presetText(nameOrPath);
  return preset ? loadPreset(nameOrPath, *preset) : loadFile(nameOrPath, /*mayHaveGroups=*/true);
}

std::vector<std::string> filesOfNodes(const std::string &text) {
  std::vector<std::string> files;
  toml::table root = toml::parse(text);
  if (const toml::array *nodes = root["nodes"].as_array())
    for (const toml::node &node : *nodes)
      if (std::string name = node.as_table()->get("cluster")->value_or("");
          !presetText(name) && std::filesystem::path(name).is_relative())
        files.push_back(name);
  return files;
}

} // namespace tbc::planner
