//===- Axes.cpp - The axes of a plan's mesh --------------------------------===//

#include "runtime/mesh/Axes.h"

#include <cassert>

namespace tbc::mesh {

static std::optional<AxisRow> findRow(Axis axis) {
  switch (axis) {
  case Axis::Pipeline:
    return AxisRow{"pp", Divides::Layers, false};
  case Axis::Data:
    return AxisRow{"dp", Divides::Samples, false};
  case Axis::ShardedData:
    return AxisRow{"fsdp", Divides::Samples, false};
  case Axis::Expert:
    return AxisRow{"ep", Divides::Experts, false};
  case Axis::Context:
    return AxisRow{"cp", Divides::Sequence, true};
  case Axis::Tensor:
    return AxisRow{"tp", Divides::Tensors, true};
  }
  return std::nullopt;
}

const std::vector<Axis> &allAxes() {
  static const std::vector<Axis> all = [] {
    std::vector<Axis> axes;
    for (int i = 0; findRow(Axis(i)); ++i)
      axes.push_back(Axis(i));
    return axes;
  }();
  return all;
}

AxisRow row(Axis axis) {
  std::optional<AxisRow> row = findRow(axis);
  assert(row && "every axis has a row");
  return *row;
}

std::optional<Axis> parseAxis(std::string_view name) {
  for (Axis axis : allAxes())
    if (row(axis).name == name)
      return axis;
  return std::nullopt;
}

/// Returns the names of the axes for which `matches` is true of what they divide.
template <typename Matches> static std::vector<std::string> namesWhere(Matches matches) {
  std::vector<std::string> names;
  for (Axis axis : allAxes())
    if (matches(row(axis).divides))
      names.push_back(row(axis).name);
  return names;
}

static bool dividesSamples(Divides divides) {
  switch (divides) {
  case Divides::Samples:
  case Divides::Experts:
    return true;
  case Divides::Layers:
  case Divides::Sequence:
  case Divides::Tensors:
    return false;
  }
  return false;
}

const std::vector<std::string> &axisNames() {
  static const std::vector<std::string> names = namesWhere([](Divides) { return true; });
  return names;
}

const std::vector<std::string> &dataAxisNames() {
  static const std::vector<std::string> names = namesWhere(dividesSamples);
  return names;
}

const std::vector<std::string> &tokenAxisNames() {
  static const std::vector<std::string> names = namesWhere(
      [](Divides divides) { return dividesSamples(divides) || divides == Divides::Sequence; });
  return names;
}

std::vector<std::string> axisNames(Divides wanted) {
  return namesWhere([&](Divides divides) { return divides == wanted; });
}

} // namespace tbc::mesh
