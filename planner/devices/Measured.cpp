//===- Measured.cpp - Measured times of a cluster and executor ------------===//

#include "planner/devices/Measured.h"

#include "planner/devices/Cluster.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdio>
#include <sstream>

namespace tbc::planner {

double deviationOf(double halfWidth) { return std::log1p(halfWidth) / intervalDeviations; }
double halfWidthOf(double deviation) { return std::expm1(intervalDeviations * deviation); }

double medianOf(std::vector<double> values) {
  assert(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// Returns the variance of the mean of `values` by their spread; 0 for one value.
static double varianceOfMean(const std::vector<double> &values) {
  if (values.size() < 2)
    return 0;
  const double count = double(values.size());
  double mean = 0, sum = 0;
  for (double value : values)
    mean += value / count;
  for (double value : values)
    sum += (value - mean) * (value - mean);
  return sum / (count - 1) / count;
}

Measured afterRun(const std::vector<double> &seconds, double predicted, double timeUncertainty) {
  std::vector<double> logarithms;
  for (double one : seconds)
    logarithms.push_back(std::log(one / predicted));
  const double measured = std::log(medianOf(seconds) / predicted);
  const double ofRun = planSpread * planSpread + varianceOfMean(logarithms);
  double prior = std::pow(deviationOf(timeUncertainty), 2);
  if (std::abs(measured) > intervalDeviations * std::sqrt(prior))
    prior = std::max(prior, measured * measured - ofRun);
  const double weight = prior / (prior + ofRun);
  // A cluster file has half-widths of at most 1.
  return {std::exp(weight * measured), std::min(1.0, halfWidthOf(std::sqrt(weight * ofRun)))};
}

static void scale(NetworkLevel &level, double factor) {
  level.latencySeconds *= factor;
  level.startSeconds *= factor;
  level.ringStepSeconds *= factor;
  level.bytesPerSecond /= factor;
  level.switchBytesPerSecond /= factor;
  for (auto &[devices, bytesPerSecond] : level.groupBytesPerSecond)
    bytesPerSecond /= factor;
}

void applyMeasured(Cluster &cluster, const Measured &measured) {
  assert(cluster.groups.empty());
  const double factor = measured.timeFactor;
  for (auto &[key, kernel] : cluster.kernels) {
    kernel.flopsFraction /= factor;
    kernel.memoryFraction /= factor;
    kernel.rampSeconds *= factor;
  }
  cluster.launchSeconds *= factor;
  cluster.floorSeconds *= factor;
  cluster.executor.hostSeconds *= factor;
  cluster.executor.messageSeconds *= factor;
  cluster.executor.gatherRankSeconds *= factor;
  cluster.hostBytesPerSecond /= factor;
  scale(cluster.intraNode, factor);
  scale(cluster.interNode, factor);
  cluster.timeFactor *= factor;
  cluster.timeUncertainty = measured.timeUncertainty;
}

static bool startsTable(const std::string &line) { return line.rfind("[", 0) == 0; }

/// Returns the lines without table `header` and the comments right above it.
static std::vector<std::string> withoutTable(const std::string &text, const std::string &header) {
  std::vector<std::string> kept;
  std::istringstream lines(text);
  bool isSkipped = false;
  for (std::string line; std::getline(lines, line);) {
    if (startsTable(line))
      isSkipped = line.rfind(header, 0) == 0;
    if (startsTable(line) && isSkipped)
      while (!kept.empty() && kept.back().rfind("#", 0) == 0)
        kept.pop_back();
    if (!isSkipped)
      kept.push_back(line);
  }
  while (!kept.empty() && kept.back().empty())
    kept.pop_back();
  return kept;
}

std::string withMeasured(const std::string &clusterText, const std::string &executor,
                         const Measured &measured, const std::vector<std::string> &comments) {
  const std::string header = "[measured." + executor + "]";
  std::string text;
  for (const std::string &line : withoutTable(clusterText, header))
    text += line + "\n";
  text += "\n";
  for (const std::string &comment : comments)
    text += "# " + comment + "\n";
  char numbers[96];
  std::snprintf(numbers, sizeof numbers, "time_factor = %.6g\ntime_uncertainty = %.3g\n",
                measured.timeFactor, measured.timeUncertainty);
  return text + header + "\n" + numbers;
}

} // namespace tbc::planner
