//===- StepMessages.h - Sums up the collectives of a step -----------------===//

#ifndef TBC_TESTS_TOOLS_STEPMESSAGES_H
#define TBC_TESTS_TOOLS_STEPMESSAGES_H

#include "tests/tools/IndependentCollectives.h"
#include "tests/tools/TensorMoves.h"

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tbc::test {

class StepMessages {
public:
  StepMessages(const reshard::Graph &graph, const reshard::Mesh &mesh)
      : graph(graph), mesh(mesh), moves(mesh) {}

  void add(reshard::CollectiveKind kind, const std::vector<int> &axes, int stage, int64_t bytes,
           int64_t count);
  /// Adds `count` times the collectives that reshard the value.
  void move(int value, const Placement &from, const Placement &to, int stage, int64_t count);
  /// Returns the alternatives for it, of equal cost and length.
  const std::vector<Messages> &waysOf(int value, const Placement &from, const Placement &to);
  /// Records a move, for messages.
  void explain(int value, const Placement &from, const Placement &to, int stage,
               const std::vector<Messages> &possible);

  /// Fills in the collectives, ties and moves.
  void addTo(StepSignature &signature) const;

private:
  /// Executions by kind, axes, stage and bytes.
  using Lines = std::map<std::tuple<reshard::CollectiveKind, std::string, int, int64_t>, int64_t>;

  static std::vector<reshard::CollectiveCount> asList(const Lines &lines);
  static std::string layoutText(const reshard::TensorLayout &layout);
  std::string axesText(const std::vector<int> &axes) const;
  std::string describe(const Placement &placement) const;
  /// Returns a key: equal texts are equal changes of sharding.
  std::string changeText(int value, const Placement &from, const Placement &to) const;

  const reshard::Graph &graph;
  const reshard::Mesh &mesh;
  TensorMoves moves;
  Lines lines;
  std::map<std::string, std::vector<Messages>> ways;   // by change of sharding
  std::map<std::string, std::map<size_t, Lines>> ties; // if there are several, by alternative
  std::vector<std::string> explained;
};

} // namespace tbc::test

#endif // TBC_TESTS_TOOLS_STEPMESSAGES_H
