//===- Pins.cpp - The user's decisions ------------------------------------===//

#include "planner/pins/Pins.h"

#include <algorithm>
#include <cctype>

namespace tbc::planner {

const std::vector<std::string> &strategyNames() {
  static const std::vector<std::string> names = {"auto",  "ddp",  "zero1",         "zero2",
                                                 "zero3", "fsdp", "shard-grad-op", "hybrid-shard",
                                                 "tp",    "pp",   "hybrid"};
  return names;
}

Result<int64_t> parseBytes(const std::string &text) {
  static const std::vector<std::pair<std::string, double>> units = {{"", 1},
                                                                    {"B", 1},
                                                                    {"KB", 1e3},
                                                                    {"MB", 1e6},
                                                                    {"GB", 1e9},
                                                                    {"TB", 1e12},
                                                                    {"KiB", 1024.0},
                                                                    {"MiB", 1048576.0},
                                                                    {"GiB", 1073741824.0},
                                                                    {"TiB", 1099511627776.0}};
  size_t at = 0;
  bool dot = false;
  while (at < text.size() &&
         (std::isdigit(static_cast<unsigned char>(text[at])) || (text[at] == '.' && !dot)))
    dot |= text[at++] == '.';
  std::string digits = text.substr(0, at), unit = text.substr(at);
  bool hasDigit =
      std::any_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c); });
  for (const auto &[name, scale] : units) {
    if (!hasDigit || unit != name || digits.size() > 18)
      continue;
    double bytes = std::stod(digits) * scale;
    if (bytes >= 1 && bytes < 1e18)
      return int64_t(bytes);
  }
  return Error{ErrorCode::Usage,
               "\"" + text + "\" is not an amount of memory; write it as 40GiB, 512MiB or 80GB"};
}

/// Returns the ZeRO mode of a strategy, or -1.
static int zeroOf(const std::string &strategy) {
  if (strategy == "ddp")
    return 0;
  if (strategy == "zero1")
    return 1;
  if (strategy == "zero2")
    return 2;
  if (strategy == "zero3" || strategy == "fsdp" || strategy == "shard-grad-op" ||
      strategy == "hybrid-shard")
    return 3;
  return -1;
}

std::optional<ZeroChoice> zeroOfStrategy(const std::string &strategy) {
  int zero = zeroOf(strategy);
  if (zero < 0)
    return std::nullopt;
  return ZeroChoice{zero, strategy == "shard-grad-op"};
}

} // namespace tbc::planner
