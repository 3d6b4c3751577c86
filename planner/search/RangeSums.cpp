//===- RangeSums.cpp - Sums and maxima over ranges of forward ops ----------===//

#include "planner/search/RangeSums.h"

#include <algorithm>

namespace tbc::planner {

void ParameterSums::add(const ParameterSums &o, double sign) {
  using Sums = ParameterSums;
  for (auto part : {&Sums::gathersForward, &Sums::gatherForwardBytes, &Sums::gathersBackward,
                    &Sums::gatherBackwardBytes, &Sums::bytes, &Sums::trained, &Sums::trainedBytes,
                    &Sums::gradientBytes, &Sums::stateBytes, &Sums::matrices, &Sums::matrixBytes,
                    &Sums::matrixSeconds, &Sums::wholeStateBytes, &Sums::totals, &Sums::updateBytes,
                    &Sums::updateTensors, &Sums::masterBytes})
    this->*part += sign * o.*part;
}

void RangeSums::add(const RangeSums &o, double sign) {
  using Sums = RangeSums;
  for (auto part :
       {&Sums::forward, &Sums::backward, &Sums::recompute, &Sums::operandsForward,
        &Sums::operandsBackward, &Sums::launchForward, &Sums::launchBackward, &Sums::residualBytes,
        &Sums::weight, &Sums::recomputeWeight, &Sums::operandsWeight, &Sums::launchWeight,
        &Sums::weightResidualBytes, &Sums::cotangentBytes})
    this->*part += sign * o.*part;
  for (size_t kind = 0; kind < parameters.size(); ++kind)
    parameters[kind].add(o.parameters[kind], sign);
}

Folding::Folding(const std::vector<int> &likeOf) {
  for (int op = 0; op < int(likeOf.size()); ++op) {
    const int like = likeOf[size_t(op)];
    if (runs.empty() || runs.back().end != like)
      runs.push_back({op, like, like});
    places.push_back({int(runs.size()) - 1, like});
    runs.back().end = like + 1;
  }
  if (runs.empty())
    runs.push_back({});
  places.push_back({int(runs.size()) - 1, runs.back().end});
}

FoldedSums::FoldedSums(std::shared_ptr<const Folding> of, const std::vector<RangeSums> &at)
    : folding(std::move(of)), prefix(at.size() + 1) {
  for (size_t i = 0; i < at.size(); ++i) {
    prefix[i + 1] = prefix[i];
    prefix[i + 1].add(at[i], 1);
  }
  RangeSums whole; // of the runs so far
  for (const Folding::Run &run : folding->allRuns()) {
    RangeSums &here = before.emplace_back(whole);
    here.add(prefix[size_t(run.begin)], -1);
    whole = here;
    whole.add(prefix[size_t(run.end)], 1);
  }
}

RangeSums FoldedSums::operator()(int first, int last) const {
  const Range of = range(first, last);
  RangeSums sums = *of.last;
  sums.add(*of.first, -1);
  if (of.firstRun != of.lastRun) {
    RangeSums between = *of.lastRun;
    between.add(*of.firstRun, -1);
    sums.add(between, 1);
  }
  return sums;
}

RangeMaximum::RangeMaximum(std::vector<double> values) {
  size_t n = values.size();
  levels.push_back(std::move(values));
  for (size_t length = 2; length <= n; length *= 2) {
    const std::vector<double> &half = levels.back();
    std::vector<double> level(n - length + 1);
    for (size_t i = 0; i < level.size(); ++i)
      level[i] = std::max(half[i], half[i + length / 2]);
    levels.push_back(std::move(level));
  }
}

double RangeMaximum::operator()(int first, int last) const {
  if (first >= last)
    return 0;
  const int level = 31 - __builtin_clz(unsigned(last - first)); // of the longest that fits
  const std::vector<double> &values = levels[size_t(level)];
  return std::max(values[size_t(first)], values[size_t(last - (1 << level))]);
}

FoldedMaximum::FoldedMaximum(std::shared_ptr<const Folding> of, std::vector<double> values)
    : folding(std::move(of)), within(std::move(values)) {
  std::vector<double> most;
  for (const Folding::Run &run : folding->allRuns())
    most.push_back(within(run.begin, run.end));
  ofRuns = RangeMaximum(std::move(most));
}

double FoldedMaximum::operator()(int first, int last) const {
  if (first >= last)
    return 0;
  const Folding::Place begin = folding->place(first), end = folding->place(last - 1);
  if (begin.run == end.run)
    return within(begin.at, end.at + 1);
  return std::max({within(begin.at, folding->run(begin.run).end), ofRuns(begin.run + 1, end.run),
                   within(folding->run(end.run).begin, end.at + 1)});
}

} // namespace tbc::planner
