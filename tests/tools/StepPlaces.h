//===- StepPlaces.h - The placements of a step's values -------------------===//
//
// Computes the facts that IndependentCollectives needs before it walks the step: the placements of
// ops' operands and results, the home of every value, and the placements of parameters.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_TOOLS_STEPPLACES_H
#define TBC_TESTS_TOOLS_STEPPLACES_H

#include "planner/reshard/Graph.h"
#include "tests/tools/TensorMoves.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tbc::test {

/// Aborts: the assignment is beyond this derivation.
[[noreturn]] void beyond(const std::string &what);

/// The placements of a parameter.
struct ParameterPlaces {
  Placement home, stored, accumulated, state;
  std::vector<int> zeroAxes;              // without the axes that split the home
  std::vector<int> stages;                // with a copy
  std::vector<std::pair<int, int>> parts; // of the gradient: chunk, value
  bool reducesLast = false; // the sum of all micro-batches, in the backward of the last one
};

class StepPlaces {
public:
  StepPlaces(const reshard::Graph &graph, const reshard::Assignment &assignment);

  /// Returns the placement of an operand by the op's strategy, and of a result before its
  /// reduction.
  Placement wanted(int op, int operand) const;
  Placement produced(int op, int result) const;
  /// Calls function(loop, axes) for each loop of the op that mesh axes split.
  template <typename Function> void forEachSplitLoop(int op, Function function) const {
    for (const auto &[number, axes] : assignment.strategies[op].loopAxes) {
      std::vector<int> whole = axisNumbers(axes);
      if (!whole.empty())
        function(graph.ops[op].loops[number], whole);
    }
  }

  int stageOf(int chunk) const { return assignment.stageOf(chunk); }
  bool isGenerated(int value) const;
  bool isForward(int value) const;
  /// The gradient's elements may be wider than the parameter's.
  const reshard::TensorLayout &gradientLayout(size_t parameter) const {
    return graph.values[graph.parameters[parameter].gradient].layout;
  }

  struct Use {
    int op, operand;
  };

  const reshard::Graph &graph;
  const reshard::Assignment &assignment;
  std::vector<bool> skipped;                               // sums of cotangents across stages
  std::vector<std::vector<Use>> uses;                      // by value, in the order of the ops
  std::vector<Placement> raw, home;                        // by value: as produced, as kept
  std::vector<std::map<int, reshard::ReduceKind>> takesOn; // per op: axes of partial operands
  std::vector<int> parameterOf;                            // by value; -1: no parameter
  std::vector<ParameterPlaces> parameters;

private:
  std::vector<int> axisNumbers(const std::vector<reshard::AxisRef> &axes) const;
  bool goesRound(int op, int result, int axis) const;

  std::set<int> contributors(int value) const;
  bool isCotangentSum(int op) const;
  bool isWantedWhole(int value, bool isOperand) const;
  void splitParts(int value, std::vector<std::pair<int, int>> &parts, bool isOperand = false);
  void findParts(size_t p);

  void findUsers();
  void placeInputs();
  bool sameBlock(int a, int b) const;
  std::map<int, reshard::ReduceKind> deferred(int op) const;
  void placeResults();
  Placement completed(int value) const;
  std::optional<Place> commonPlace(int value, const Placement &have, int axis) const;
  void placeParameter(size_t p);
  bool reducesLast(size_t p) const;

  std::vector<bool> isPart; // by value: of a parameter's gradient
};

/// Returns whether the tensor (index of an operand or a result) has one of the dims.
bool isAlong(const std::vector<reshard::TensorDim> &dims, int tensor);

} // namespace tbc::test

#endif // TBC_TESTS_TOOLS_STEPPLACES_H
