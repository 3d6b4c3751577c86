//===- RankSlices.cpp - The elements of a tensor on one rank ---------------===//

#include "planner/layout/RankSlices.h"
#include "planner/plan/MeshShape.h"

#include <algorithm>
#include <charconv>

namespace tbc::planner {

RankPlace placeOf(const Layout &layout, int64_t rank) {
  RankPlace place;
  for (const LayoutAxis &axis : layout.axes) {
    place.size[axis.axis] = axis.size;
    place.stride[axis.axis] = axis.stride;
    place.coordinate[axis.axis] = rank / axis.stride % axis.size;
  }
  return place;
}

namespace {
/// The part of an axis that a name stands for. Example: "tp:(2)4" is the middle of the axis, read
/// as 2 x 4 x rest.
struct AxisPart {
  int64_t size = 1, coordinate = 0;
  int64_t stride = 0; // between ranks of the group; 0: no axis of the layout
};
} // namespace

static AxisPart partOf(const std::string &name, const RankPlace &place) {
  const size_t colon = name.find(':');
  const std::string axis = name.substr(0, colon);
  AxisPart part;
  auto found = place.size.find(axis);
  if (found == place.size.end())
    return part; // of size 1, which layouts leave out
  part.size = found->second;
  part.coordinate = place.coordinate.at(axis);
  part.stride = place.stride.at(axis);
  int64_t pre = 0, size = 0;
  const size_t close = name.find(')');
  if (colon == std::string::npos || close == std::string::npos || colon + 2 > close)
    return part;
  std::from_chars(name.data() + colon + 2, name.data() + close, pre);
  std::from_chars(name.data() + close + 1, name.data() + name.size(), size);
  if (pre < 1 || size < 1 || part.size % (pre * size) != 0)
    return part;
  const int64_t rest = part.size / (pre * size);
  return {size, part.coordinate / rest % size, part.stride * rest};
}

/// Returns the range of `count` equal things on a rank, the first axis the slowest.
static std::pair<int64_t, int64_t> partOf(int64_t count, const AxisNames &axes,
                                          const RankPlace &place) {
  int64_t first = 0;
  for (const std::string &name : axes) {
    const AxisPart part = partOf(name, place);
    count /= part.size;
    first += part.coordinate * count;
  }
  return {first, first + count};
}

static void append(Ranges &ranges, int64_t begin, int64_t end) {
  if (!ranges.empty() && ranges.back().second == begin)
    ranges.back().second = end;
  else if (begin < end)
    ranges.push_back({begin, end});
}

Ranges rangesOf(const DimSplit &dim, int64_t size, const RankPlace &place) {
  if (dim.segments.empty())
    return {partOf(size, dim.axes, place)};
  Ranges all;
  int64_t begin = 0;
  for (const std::vector<SplitFactor> &segment : dim.segments) {
    Ranges inside = {{0, 1}};
    int64_t length = 1;
    for (const SplitFactor &factor : segment) {
      const auto [first, last] = partOf(factor.size, factor.axes, place);
      Ranges next;
      for (const auto &[from, to] : inside)
        if (last - first == factor.size)
          append(next, from * factor.size, to * factor.size);
        else
          for (int64_t i = from; i < to && next.size() < mostRanges; ++i)
            append(next, i * factor.size + first, i * factor.size + last);
      inside = std::move(next);
      length *= factor.size;
    }
    for (const auto &[from, to] : inside)
      append(all, begin + from, begin + to);
    begin += length;
  }
  return all;
}

RankSlice sliceOf(const TensorPlacement &placement, const std::vector<int64_t> &shape,
                  const RankPlace &place) {
  RankSlice slice;
  slice.elements = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    const DimSplit whole;
    slice.dims.push_back(
        rangesOf(d < placement.dims.size() ? placement.dims[d] : whole, shape[d], place));
    int64_t count = 0;
    for (const auto &[from, to] : slice.dims.back())
      count += to - from;
    slice.elements *= count;
  }
  if (!placement.flat.empty()) {
    slice.isFlat = true;
    slice.flat = partOf(slice.elements + placement.padding, placement.flat, place);
    slice.elements = slice.flat.second - slice.flat.first;
  }
  return slice;
}

std::string toString(const RankSlice &slice, const std::vector<int64_t> &shape) {
  constexpr size_t mostShown = 4;
  auto range = [](int64_t from, int64_t to) {
    return std::to_string(from) + ":" + std::to_string(to);
  };
  std::string text;
  for (size_t d = 0; d < slice.dims.size(); ++d) {
    const Ranges &ranges = slice.dims[d];
    text += d == 0 ? "" : ", ";
    if (ranges.size() == 1 && ranges[0] == std::pair<int64_t, int64_t>(0, shape[d])) {
      text += ":";
      continue;
    }
    for (size_t i = 0; i < std::min(ranges.size(), mostShown); ++i)
      text += (i == 0 ? "" : "+") + range(ranges[i].first, ranges[i].second);
    if (ranges.size() > mostShown)
      text += "+… (" + std::to_string(ranges.size()) + " ranges)";
  }
  text = "[" + text + "]";
  if (slice.isFlat)
    text += " flat " + range(slice.flat.first, slice.flat.second);
  return text;
}

std::vector<int64_t> groupOf(const std::vector<std::string> &axes, const std::vector<int> &stages,
                             int64_t rank, const RankPlace &place) {
  std::vector<int64_t> group = {rank};
  for (const std::string &name : axes) {
    const AxisPart part = partOf(name, place);
    if (part.stride == 0)
      return {};
    std::vector<int64_t> next;
    for (int64_t member : group)
      for (int64_t i = 0; i < part.size; ++i)
        if (mesh::parseAxis(name) != Axis::Pipeline || stages.empty() ||
            std::find(stages.begin(), stages.end(), int(i)) != stages.end())
          next.push_back(member + (i - part.coordinate) * part.stride);
    group = std::move(next);
  }
  std::sort(group.begin(), group.end());
  return group;
}

std::string shortList(const std::vector<int64_t> &numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    const int64_t step = i + 1 < numbers.size() ? numbers[i + 1] - numbers[i] : 0;
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] - numbers[last] == step)
      ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(numbers[i]);
    if (last > i + 1) {
      text += " to " + std::to_string(numbers[last]);
      if (step != 1)
        text += " by " + std::to_string(step);
      i = last + 1;
    } else {
      ++i;
    }
  }
  return text;
}

} // namespace tbc::planner
