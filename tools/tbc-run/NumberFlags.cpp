//===- NumberFlags.cpp - Validators of numeric flags --------------------------===//

#include "tools/tbc-run/NumberFlags.h"

#include <charconv>
#include <cmath>
#include <optional>

namespace tbc::cli {

/// Parses `text` as a number; null if it has other characters.
template <typename Number> static std::optional<Number> numberIn(const std::string &text) {
  Number value = 0;
  const char *last = text.data() + text.size();
  auto [end, code] = std::from_chars(text.data(), last, value);
  if (code != std::errc() || end != last)
    return std::nullopt;
  return value;
}

static CLI::Validator wholeNumber(int64_t least, int64_t most, const std::string &allowed,
                                  const std::string &shown) {
  return CLI::Validator(
      [=](const std::string &text) {
        std::optional<int64_t> value = numberIn<int64_t>(text);
        bool fits = value && *value >= least && *value <= most;
        return fits ? std::string() : "\"" + text + "\" is not a whole number " + allowed;
      },
      shown);
}

CLI::Validator between(int64_t least, int64_t most) {
  std::string from = std::to_string(least), to = std::to_string(most);
  return wholeNumber(least, most, "from " + from + " to " + to, from + ".." + to);
}

CLI::Validator atLeast(int64_t least) {
  constexpr int64_t most = int64_t(1) << 40;
  return wholeNumber(least, most, "from " + std::to_string(least) + " to 2^40", "");
}

/// Accepts a finite number that `isAllowed`. CLI11's own ranges let "nan" pass.
static CLI::Validator realNumber(bool (*isAllowed)(double), const std::string &allowed,
                                 const std::string &shown) {
  return CLI::Validator(
      [=](const std::string &text) {
        std::optional<double> value = numberIn<double>(text);
        bool fits = value && std::isfinite(*value) && isAllowed(*value);
        return fits ? std::string() : "\"" + text + "\" is not a number " + allowed;
      },
      shown);
}

CLI::Validator factor() {
  return realNumber([](double value) { return value >= 1; }, "of at least 1", "");
}

CLI::Validator notNegative() {
  return realNumber([](double value) { return value >= 0; }, "of at least 0", "");
}

CLI::Validator positive() {
  return realNumber([](double value) { return value > 0; }, "above 0", "");
}

CLI::Validator percentage() {
  return realNumber([](double value) { return value >= 0 && value <= 100; }, "from 0 to 100",
                    "0..100");
}

} // namespace tbc::cli
