//===- StepLog.cpp - What a run says about its steps -----------------------===//

#include "runtime/train/StepLog.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

namespace tbc::train {

using kernels::Residue;

static std::string formatted(const char *format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

static std::string number(double value) {
  return std::isfinite(value) ? formatted("%.17g", value) : "null";
}

std::string lineOf(const StepReport &report, int64_t steps, bool hasTokens) {
  std::string text = "step " + std::to_string(report.step) + "/" + std::to_string(steps);
  if (report.loss && report.loss.holds<Residue>())
    text += "  loss residue " + std::to_string(report.loss.data<Residue>()[0].v);
  else if (report.loss)
    text += "  loss " + formatted("%.6f", report.loss.toDoubles()[0]);
  return text + "  lr " + formatted("%g", report.learningRate) + "  " +
         formatted("%.3f", report.seconds) + " s  " + formatted("%.0f", report.tokensPerSecond) +
         (hasTokens ? " tokens/s" : " samples/s");
}

std::string jsonOf(const StepReport &report, bool hasTokens) {
  std::string text = "{\"step\":" + std::to_string(report.step);
  if (report.loss && report.loss.holds<Residue>())
    text += ",\"loss_residue\":" + std::to_string(report.loss.data<Residue>()[0].v);
  else
    text += ",\"loss\":" + (report.loss ? number(report.loss.toDoubles()[0]) : "null");
  return text + ",\"lr\":" + number(report.learningRate) +
         ",\"seconds\":" + formatted("%.6f", report.seconds) + ",\"" +
         (hasTokens ? "tokens" : "samples") +
         "_per_second\":" + formatted("%.1f", report.tokensPerSecond) +
         ",\"epoch\":" + std::to_string(report.epoch) + "}\n";
}

/// The complete lines of a log about steps up to `done`.
static std::string keptLines(const std::string &path, int64_t done) {
  std::ifstream file(path, std::ios::binary);
  std::string kept, line;
  while (std::getline(file, line) && !file.eof()) {
    static const std::string begin = "{\"step\":";
    if (line.rfind(begin, 0) == 0 && std::strtoll(line.c_str() + begin.size(), nullptr, 10) <= done)
      kept += line + "\n";
  }
  return kept;
}

Result<JsonLog> JsonLog::open(const std::string &path, int64_t done) {
  auto failed = [&] {
    return Error{ErrorCode::Other, "cannot write --log " + path + ": " + strerror(errno)};
  };
  std::string kept = done > 0 ? keptLines(path, done) : "";
  JsonLog log;
  std::string temporary = path + ".tmp";
  log.file = std::fopen(temporary.c_str(), "we");
  if (!log.file || !log.write(kept) || std::rename(temporary.c_str(), path.c_str()) != 0)
    return failed();
  return log;
}

JsonLog::~JsonLog() {
  if (file)
    std::fclose(file);
}

bool JsonLog::write(const std::string &line) {
  return std::fwrite(line.data(), 1, line.size(), file) == line.size() && std::fflush(file) == 0;
}

} // namespace tbc::train
