//===- ParseMesh.cpp - Meshes in the notations of users -------------------===//

#include "planner/pins/Pins.h"
#include "runtime/abi/ClosestWord.h"

#include "nlohmann/json.hpp"

#include <algorithm>
#include <charconv>
#include <map>

namespace tbc::planner {

using Axes = std::vector<std::pair<std::string, int64_t>>;

/// The largest size of an axis.
constexpr int64_t largestAxis = mostDevices;

/// Names of the axes in other frameworks: PyTorch's DeviceMesh (dp_replicate, dp_shard:
/// torchtitan's parallel_dims.py), JAX (data, fsdp, tensor, expert: MaxText), Megatron (tensor,
/// pipeline, context, expert), Lightning's ModelParallelStrategy (data_parallel, tensor_parallel).
static const std::map<std::string, std::string> &axisSpellings() {
  static const std::map<std::string, std::string> spellings = {
      {"data", "dp"},         {"data_parallel", "dp"},
      {"dp_replicate", "dp"}, {"replicate", "dp"},
      {"dp_shard", "fsdp"},   {"shard", "fsdp"},
      {"tensor", "tp"},       {"tensor_parallel", "tp"},
      {"model", "tp"},        {"mp", "tp"},
      {"pipeline", "pp"},     {"pipeline_parallel", "pp"},
      {"pipe", "pp"},         {"stage", "pp"},
      {"context", "cp"},      {"context_parallel", "cp"},
      {"expert", "ep"},       {"expert_parallel", "ep"}};
  return spellings;
}

namespace {

/// Reads one --mesh.
class MeshText {
public:
  MeshText(const std::string &text, int64_t gpus) : text(text), gpus(gpus) {}

  Result<Axes> read() {
    const bool isArray = text.find('[') != std::string::npos;
    if (Status status = isArray ? readArrays() : readPairs(); !status)
      return status.error();
    if (Status status = fillRest(); !status)
      return status.error();
    return axes;
  }

private:
  Error error(const std::string &message) const {
    return {ErrorCode::Usage, "--mesh " + text + ": " + message};
  }

  /// Reads "dp=2,tp=-1".
  Status readPairs() {
    size_t begin = 0;
    while (true) {
      const size_t comma = std::min(text.find(',', begin), text.size());
      const std::string pair = text.substr(begin, comma - begin);
      const size_t equals = pair.find('=');
      int64_t size = 0;
      if (equals == std::string::npos || !readSize(pair.substr(equals + 1), size))
        return error(begin == 0 ? "expected axis=size, as in dp=2,tp=4"
                                : "expected axis=size after the comma, not \"" + pair + "\"");
      if (Status status = add(pair.substr(0, equals), size); !status)
        return status;
      if (comma == text.size())
        return Status::ok();
      begin = comma + 1;
    }
  }

  /// Reads [[2, 4], ["dp", "fsdp"]]: sizes and names, as in init_device_mesh(device, sizes,
  /// mesh_dim_names=names). Quotes are optional, because shells remove them.
  Status readArrays() {
    nlohmann::json json = nlohmann::json::parse(withQuotes(), nullptr, /*allow_exceptions=*/false);
    const bool isPair = json.is_array() && json.size() == 2 && json[0].is_array() &&
                        json[1].is_array() && json[0].size() == json[1].size();
    if (!isPair)
      return error("expected [[sizes], [names]] of equal length, as in [[2,4],[\"dp\",\"tp\"]]");
    for (size_t i = 0; i < json[0].size(); ++i) {
      if (!json[0][i].is_number_integer() || !json[1][i].is_string())
        return error("expected [[sizes], [names]], as in [[2,4],[\"dp\",\"tp\"]]");
      if (Status status = add(json[1][i].get<std::string>(), json[0][i].get<int64_t>()); !status)
        return status;
    }
    return Status::ok();
  }

  /// Returns `text` with every bare word in quotes.
  std::string withQuotes() const {
    auto isWord = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; };
    std::string quoted;
    auto isQuote = [](char c) { return c == '"' || c == '\''; };
    for (size_t i = 0; i < text.size(); ++i) {
      auto ends = [&](size_t other) { return !isWord(text[other]) && !isQuote(text[other]); };
      const bool isFirst = isWord(text[i]) && (i == 0 || ends(i - 1));
      const bool isLast = isWord(text[i]) && (i + 1 == text.size() || ends(i + 1));
      quoted += (isFirst ? "\"" : "") + std::string(1, text[i] == '\'' ? '"' : text[i]) +
                (isLast ? "\"" : "");
    }
    return quoted;
  }

  static bool readSize(const std::string &digits, int64_t &size) {
    auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
    return code == std::errc() && end == digits.data() + digits.size();
  }

  Status add(const std::string &given, int64_t size) {
    auto spelling = axisSpellings().find(given);
    const std::string name = spelling == axisSpellings().end() ? given : spelling->second;
    if (std::find(axisNames().begin(), axisNames().end(), name) == axisNames().end()) {
      std::string listed;
      for (const std::string &axis : axisNames())
        listed += (listed.empty() ? "" : ", ") + axis;
      const std::string closest = closestWord(name, axisNames());
      return error("\"" + name + "\" is not an axis; axes are " + listed +
                   (closest.empty() ? "" : "; did you mean " + closest + "?"));
    }
    if ((size < 1 || size > largestAxis) && size != -1)
      return error("axis " + name + " must have a size between 1 and " +
                   std::to_string(largestAxis) + ", or -1 for the rest");
    for (const auto &[other, otherSize] : axes) {
      if (other == name)
        return error("axis " + name + " is given twice");
      if (size == -1 && otherSize == -1)
        return error("one axis alone can be -1, not " + other + " and " + name);
    }
    axes.push_back({name, size});
    return Status::ok();
  }

  /// Replaces -1 by the remaining number of devices.
  Status fillRest() {
    int64_t others = 1;
    std::pair<std::string, int64_t> *rest = nullptr;
    for (auto &axis : axes) {
      if (axis.second == -1)
        rest = &axis;
      else if (others <= mostDevices)
        others *= axis.second;
    }
    if (!rest)
      return Status::ok();
    if (gpus < 1)
      return error("axis " + rest->first + " is -1, the rest, which needs --gpus");
    if (gpus % others != 0)
      return error("axis " + rest->first + " is -1, the rest, but the others have " +
                   std::to_string(others) + " ranks, which do not divide --gpus " +
                   std::to_string(gpus));
    rest->second = gpus / others;
    return Status::ok();
  }

  const std::string &text;
  const int64_t gpus;
  Axes axes;
};

} // namespace

Result<Axes> parseMesh(const std::string &text, int64_t gpus) {
  return MeshText(text, gpus).read();
}

} // namespace tbc::planner
