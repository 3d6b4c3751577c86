//===- Measured.h - Measured times of a cluster and executor --------------===//
//
// Plain C++. The time factor of a cluster and an executor: how much longer steps take than the
// constants say. A run of one's own job updates it.
//
// The model: ln(measured / predicted) of a run = f + e, with
//   f ~ N(0, s²)  the error of this cluster and executor, in every plan;
//   e ~ N(0, t²)  the error of this plan, and of this run.
// Its posterior is that of a normal mean with known variances (Gelman et al., Bayesian Data
// Analysis, 3rd ed., section 2.5): mean s² / (s² + t²) · ln(measured / predicted), and variance
// s² t² / (s² + t²).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_DEVICES_MEASURED_H
#define TBC_PLANNER_DEVICES_MEASURED_H

#include <string>
#include <vector>

namespace tbc::planner {

struct Cluster;

/// The times of an executor on a cluster, relative to its constants.
struct Measured {
  double timeFactor = 1;      // of all times
  double timeUncertainty = 0; // relative half-width of the interval around a scaled time
  bool operator==(const Measured &o) const {
    return timeFactor == o.timeFactor && timeUncertainty == o.timeUncertainty;
  }
};

/// The standard deviation `t` of e above. Without its bias, the error of a source in the table of
/// times of docs/accuracy.md has a mean of sqrt(mean² - bias²); the median of the ten sources is
/// 5.7 %. A normal error with that mean has a standard deviation of 5.7 % · sqrt(pi / 2) = 7 %.
inline constexpr double planSpread = 0.07;

/// Standard deviations from the middle to the ends of an interval: it holds nine of ten.
inline constexpr double intervalDeviations = 1.645;

/// Returns the standard deviation of the logarithm for a half-width, and its inverse.
/// ln(1 + halfWidth) / 1.645. Example: 0.35 and 0.182.
double deviationOf(double halfWidth);
double halfWidthOf(double deviation);

/// Returns the posterior after a run whose steps took `seconds`, where `predicted` seconds were
/// expected with the relative half-width `timeUncertainty`. The run counts as one measurement: the
/// median of its steps, with t² + (variance of ln seconds) / steps.
///
/// If the measurement is outside of the interval, s is too small; the s that makes the measurement
/// most likely is used: s² = ln(measured / predicted)² - t² (type II maximum likelihood).
///
/// Example: 1.2 s predicted, ± 35 %, and 1.5 s measured in one step: s = 0.182, so 0.87 of
/// ln 1.25 counts: a factor of 1.21, ± 11 %.
Measured afterRun(const std::vector<double> &seconds, double predicted, double timeUncertainty);

/// Returns the median; `values` is not empty.
double medianOf(std::vector<double> values);

/// Multiplies all times on `cluster`, which has no groups, by `measured.timeFactor`, and sets its
/// uncertainty. Peaks and the bandwidth of memory stay; the part of them that kernels reach changes
/// instead, and may exceed 1.
void applyMeasured(Cluster &cluster, const Measured &measured);

/// Returns the text of a cluster file with `measured` of `executor`, in place of an earlier one.
/// `comments` are lines of its source, without "# ".
std::string withMeasured(const std::string &clusterText, const std::string &executor,
                         const Measured &measured, const std::vector<std::string> &comments);

} // namespace tbc::planner

#endif // TBC_PLANNER_DEVICES_MEASURED_H
