//===- StepTimes.cpp - Step times of a log ---------------------------------===//

#include "tools/calibrate/StepTimes.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <sstream>

namespace tbc::calibrate {

using Json = nlohmann::json;

static const std::vector<std::string> &columnNames() {
  static const std::vector<std::string> names = {"seconds", "step_seconds", "step_time"};
  return names;
}

bool isTrace(const std::string &text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos || text[begin] != '{')
    return false;
  return !Json::accept(text.substr(begin, text.find('\n', begin) - begin)) ||
         text.find("\"traceEvents\"") != std::string::npos;
}

namespace {

class TimesReader {
public:
  explicit TimesReader(const std::string &source) : source(source) {}

  Result<std::vector<double>> read(const std::string &text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      ++number;
      if (!line.empty() && line.back() == '\r')
        line.pop_back();
      if (line.find_first_not_of(" \t") == std::string::npos)
        continue;
      Status status = line.front() == '{' ? readJson(line) : readRow(line);
      if (!status)
        return status.error();
    }
    if (seconds.empty())
      return Error{ErrorCode::Usage, source + ": has no step time; give a log of tbc run --log, a "
                                              "CSV with a column seconds, or a profile"};
    if (seconds.size() > 1)
      seconds.erase(seconds.begin());
    return std::move(seconds);
  }

private:
  Error wrong(const std::string &why) const {
    return Error{ErrorCode::Usage, source + ":" + std::to_string(number) + ": " + why};
  }

  Status add(double value) {
    constexpr double day = 86400;
    if (!(value > 0 && value <= day)) // also for NaN
      return wrong("a step must take more than 0 seconds, and at most a day");
    seconds.push_back(value);
    return Status::ok();
  }

  Status readJson(const std::string &line) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object())
      return wrong("is no JSON object");
    if (json.contains("evaluation_loss"))
      return Status::ok();
    if (!json.contains("step") || !json.contains("seconds") || !json.at("seconds").is_number())
      return wrong("has no \"step\" with \"seconds\"; give a log of tbc run --log");
    return add(json.at("seconds").get<double>());
  }

  static std::vector<std::string> cellsOf(const std::string &line) {
    std::vector<std::string> cells;
    std::istringstream stream(line);
    for (std::string cell; std::getline(stream, cell, ',');) {
      const size_t begin = cell.find_first_not_of(" \t\""), end = cell.find_last_not_of(" \t\"");
      cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
    }
    return cells;
  }

  static std::optional<double> numberOf(const std::string &cell) {
    char *end = nullptr;
    const double value = std::strtod(cell.c_str(), &end);
    return cell.empty() || *end ? std::nullopt : std::optional(value);
  }

  Status readRow(const std::string &line) {
    const std::vector<std::string> cells = cellsOf(line);
    if (!column && cells.size() == 1 && numberOf(cells[0]))
      column = 0;
    if (!column) {
      for (size_t i = 0; i < cells.size() && !column; ++i)
        if (std::count(columnNames().begin(), columnNames().end(), cells[i]))
          column = i;
      return column ? Status::ok()
                    : wrong("is neither a number nor a header with a column seconds, "
                            "step_seconds or step_time");
    }
    const auto value = *column < cells.size() ? numberOf(cells[*column]) : std::nullopt;
    return value ? add(*value) : wrong("has no number in the column of step times");
  }

  const std::string &source;
  int64_t number = 0; // of the line
  std::optional<size_t> column;
  std::vector<double> seconds;
};

} // namespace

Result<std::vector<double>> readStepTimes(const std::string &text, const std::string &source) {
  return TimesReader(source).read(text);
}

} // namespace tbc::calibrate
