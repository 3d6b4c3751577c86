//===- Users.h - Readers and producers of values ---------------------------===//

#ifndef TBC_FRONTEND_ONNX_USERS_H
#define TBC_FRONTEND_ONNX_USERS_H

#include "frontend/onnx/Model.h"

#include <optional>
#include <unordered_map>
#include <unordered_set>

namespace tbc::frontend {

/// One read of a value: the node and its input; -1 if a body of the node has the value as an
/// output.
struct Use {
  const GraphNode *node = nullptr;
  int input = 0;
};

/// The use of an initializer by its reader.
enum class UseKind {
  /// An operand with weights (see OperandUse).
  Weight,
  /// A factor of a normalized tensor.
  Affine,
  /// One number per channel: a factor of a tensor made with weights, or a term of one.
  Scale,
  Bias,
  Other
};

/// The edges of a model's graph, bodies included. The model must outlive it and stay unchanged.
class Users {
public:
  explicit Users(const Model &model);

  const std::vector<Use> &of(const std::string &value) const;
  /// The node that makes `value`, or nullptr.
  const GraphNode *producer(const std::string &value) const;
  bool isOutput(const std::string &value) const { return outputs.count(value) != 0; }

  /// Returns the reads of `value` behind ops that only rearrange or convert it, without these ops,
  /// and in bodies of loops that carry it unchanged or take its slices; nullopt if there are more
  /// than a few hundred.
  std::optional<std::vector<Use>> readsOf(const std::string &value) const;

  /// Whether every read of `value`, behind the same ops, compares it or takes it as a condition, so
  /// that no gradient reaches it. Example: tril[:T, :T] == 0, the table of a causal mask.
  bool isOnlyCompared(const std::string &value) const;

  /// The use of a tensor of `shape` in `use`.
  UseKind kindOf(const Use &use, const Shape &shape) const;

private:
  const GraphNode *producerBehindViews(std::string value) const;
  const std::string *insideLoop(const Use &use) const;
  bool isRoot(const std::string &value) const;
  bool isNormalized(const std::string &value) const;
  bool isMadeWithWeights(const std::string &value) const;

  std::unordered_map<std::string, std::vector<Use>> uses;
  std::unordered_map<std::string, const GraphNode *> producers;
  std::unordered_set<std::string> outputs;
};

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_USERS_H
