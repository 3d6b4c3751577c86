//===- StepLog.cpp - The log of a run's steps -----------------------------===//

#include "runtime/train/StepLog.h"
#include "runtime/abi/OutputFile.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/file.h>
#include <unistd.h>

namespace tbc::train {

static std::string formatted(const char *format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

static std::string number(double value) {
  return std::isfinite(value) ? formatted("%.17g", value) : "null";
}

static std::string mebibytes(int64_t bytes) {
  return formatted("%.1f MiB", double(bytes) / (1 << 20));
}

/// Ends every line of a log. It begins with the step.
static const char *const header = ",\"format\":\"tbc-run\",\"version\":1}\n";

static std::string rateName(bool hasTokens) { return hasTokens ? "tokens" : "samples"; }

static bool isResidue(const StepReport &report) {
  return report.loss && report.loss.holdsResidues();
}

std::string lineOf(const StepReport &report, int64_t steps, bool hasTokens) {
  std::string text = "step " + std::to_string(report.step) + "/" + std::to_string(steps);
  if (isResidue(report))
    text += "  loss residue " + std::to_string(report.loss.toResidues()[0]);
  else if (report.loss)
    text += "  loss " + formatted("%.6f", report.loss.toDoubles()[0]);
  if (report.isSkipped)
    text += " skipped";
  text += "  lr " + formatted("%g", report.learningRate);
  if (report.gradientNorm)
    text += "  gradient " + formatted("%.4g", *report.gradientNorm);
  text += "  " + formatted("%.3f", report.seconds) + " s  " +
          formatted("%.0f", report.tokensPerSecond) + " " + rateName(hasTokens) + "/s";
  if (report.mfu > 0)
    text += "  MFU " + formatted("%.1f", 100 * report.mfu) + " %";
  return text + "  process " + mebibytes(report.residentBytes) + ", of it arena " +
         mebibytes(report.plannedBytes);
}

std::string jsonOf(const StepReport &report, bool hasTokens) {
  std::string text = "{\"step\":" + std::to_string(report.step);
  if (isResidue(report))
    text += ",\"loss_residue\":" + std::to_string(report.loss.toResidues()[0]);
  else
    text += ",\"loss\":" + (report.loss ? number(report.loss.toDoubles()[0]) : "null");
  text += ",\"lr\":" + number(report.learningRate) + ",\"epoch\":" + std::to_string(report.epoch);
  if (report.gradientNorm)
    text += ",\"gradient_norm\":" + number(*report.gradientNorm);
  text += ",\"seconds\":" + formatted("%.6f", report.seconds) + ",\"" + rateName(hasTokens) +
          "_per_second\":" + formatted("%.1f", report.tokensPerSecond);
  if (report.mfu > 0)
    text += ",\"mfu\":" + number(report.mfu);
  if (report.isSkipped)
    text += ",\"skipped\":true";
  return text + ",\"resident_bytes\":" + std::to_string(report.residentBytes) +
         ",\"planned_bytes\":" + std::to_string(report.plannedBytes) + header;
}

std::vector<Scalar> scalarsOf(const StepReport &report, bool hasTokens) {
  std::vector<Scalar> scalars;
  auto add = [&](const std::string &tag, double value) { scalars.push_back({tag, float(value)}); };
  if (report.loss && !isResidue(report))
    add("loss", report.loss.toDoubles()[0]);
  add("learning_rate", report.learningRate);
  add("epoch", double(report.epoch));
  if (report.gradientNorm)
    add("gradient_norm", *report.gradientNorm);
  add("seconds", report.seconds);
  add(rateName(hasTokens) + "_per_second", report.tokensPerSecond);
  if (report.mfu > 0)
    add("mfu", report.mfu);
  add("resident_bytes", double(report.residentBytes));
  return scalars;
}

std::string lineOf(const EvaluationReport &report, int64_t steps) {
  return "step " + std::to_string(report.step) + "/" + std::to_string(steps) +
         "  evaluation loss " + formatted("%.6f", report.loss) + "  " +
         std::to_string(report.batches) + " batches  " + formatted("%.3f", report.seconds) + " s";
}

std::string jsonOf(const EvaluationReport &report) {
  return "{\"step\":" + std::to_string(report.step) +
         ",\"evaluation_loss\":" + number(report.loss) +
         ",\"batches\":" + std::to_string(report.batches) +
         ",\"seconds\":" + formatted("%.6f", report.seconds) + header;
}

std::vector<Scalar> scalarsOf(const EvaluationReport &report) {
  return {{"evaluation/loss", float(report.loss)}};
}

/// Returns the complete lines of a log for steps up to `done`.
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

bool isLogInUse(const std::string &path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored))
    return false;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    return false;
  // File systems without locks fail with another error.
  const bool isLocked = flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(descriptor);
  return isLocked;
}

Result<JsonLog> JsonLog::open(const std::string &path, int64_t done) {
  auto failed = [&] {
    return Error{ErrorCode::Other, "cannot write --log " + path + ": " + strerror(errno)};
  };
  std::string kept = done > 0 ? keptLines(path, done) : "";
  JsonLog log;
  const bool replaces = !isStream(path);
  const std::string target = behindLinks(path);
  const std::string temporary = replaces ? temporaryFor(target) : path;
  log.file = std::fopen(temporary.c_str(), "we");
  if (log.file && replaces)
    flock(fileno(log.file), LOCK_EX | LOCK_NB); // see isLogInUse; some file systems have no locks
  if (!log.file || !log.write(kept) ||
      (replaces && std::rename(temporary.c_str(), target.c_str()) != 0))
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
