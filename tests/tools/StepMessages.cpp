//===- StepMessages.cpp - Sums up the collectives of a step ---------------===//

#include "tests/tools/StepMessages.h"

using namespace tbc::reshard;

namespace tbc::test {

void StepMessages::add(CollectiveKind kind, const std::vector<int> &axes, int stage, int64_t bytes,
                       int64_t count) {
  lines[{kind, axesText(axes), stage, bytes}] += count;
}

void StepMessages::move(int value, const Placement &from, const Placement &to, int stage,
                        int64_t count) {
  if (from == to)
    return;
  const std::vector<Messages> &possible = waysOf(value, from, to);
  size_t number = possible.size();
  for (size_t way = 0; way < number; ++way)
    for (const Message &message : possible[way]) {
      auto &list =
          number == 1 ? lines : ties[changeText(value, from, to)].try_emplace(way).first->second;
      list[{message.kind, axesText(message.axes), stage, message.bytes}] += count;
    }
  explain(value, from, to, stage, possible);
}

const std::vector<Messages> &StepMessages::waysOf(int value, const Placement &from,
                                                  const Placement &to) {
  std::string change = changeText(value, from, to);
  auto known = ways.find(change);
  if (known == ways.end())
    known = ways.emplace(change, moves.cheapest(graph.values[value].layout, from, to)).first;
  return known->second;
}

void StepMessages::explain(int value, const Placement &from, const Placement &to, int stage,
                           const std::vector<Messages> &possible) {
  std::string text = "\"" + graph.values[value].name + "\" on stage " + std::to_string(stage) +
                     " from " + describe(from) + " to " + describe(to) + ":";
  for (const Message &message : possible.front())
    text += std::string(" ") + name(message.kind) + "(" + axesText(message.axes) + ", " +
            std::to_string(message.bytes) + ")";
  explained.push_back(text + (possible.size() > 1 ? " or equally cheap" : ""));
}

void StepMessages::addTo(StepSignature &signature) const {
  signature.collectives = asList(lines);
  for (const auto &[change, possible] : ties) {
    signature.ties.emplace_back();
    for (const auto &[way, list] : possible)
      signature.ties.back().push_back(asList(list));
  }
  signature.moves = explained;
}

std::vector<CollectiveCount> StepMessages::asList(const Lines &lines) {
  std::vector<CollectiveCount> result;
  for (const auto &[key, count] : lines) {
    CollectiveCount line{};
    std::tie(line.kind, line.axes, line.stage, line.bytes) = key;
    line.count = count;
    result.push_back(line);
  }
  return result;
}

std::string StepMessages::layoutText(const TensorLayout &layout) {
  std::string text = std::to_string(layout.elementBytes);
  for (const DimLayout &dim : layout.dims) {
    text += " |";
    for (const Segment &segment : dim.segments) {
      text += " +";
      for (const Factor &factor : segment.factors)
        text += std::to_string(factor.id) + ":" + std::to_string(factor.size) + " ";
    }
  }
  return text;
}

std::string StepMessages::axesText(const std::vector<int> &axes) const {
  std::string text;
  for (int axis : axes)
    text += (text.empty() ? "" : "+") + mesh.axes[axis].name;
  return text;
}

std::string StepMessages::describe(const Placement &placement) const {
  std::string text;
  for (const auto &[place, axes] : placement.split)
    text += "[d" + std::to_string(place.first) + "." + std::to_string(place.second) + "@" +
            axesText(axes) + "]";
  for (const auto &[axis, kind] : placement.partial)
    text += " partial{" + axesText({axis}) + "}";
  if (!placement.flat.empty())
    text += " flat{" + axesText(placement.flat) + "}";
  return text.empty() ? "[]" : text;
}

std::string StepMessages::changeText(int value, const Placement &from, const Placement &to) const {
  return layoutText(graph.values[value].layout) + describe(from) + " to " + describe(to);
}

} // namespace tbc::test
