//===- Selection.h - Rows that data selects --------------------------------===//
//
// A mixture of experts is often exported as a loop over experts: NonZero finds the tokens that
// chose an expert, Gather takes their rows, the expert maps each row by itself, and ScatterND or
// ScatterElements adds the results to the rows of the tokens. How many rows there are depends on
// data. But each row is computed by itself, so the same follows if the expert maps the rows of all
// tokens, and those that were not selected are added with the weight 0; a later pass finds the
// experts in that form and computes only the selected rows again.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_SELECTION_H
#define TBC_FRONTEND_ONNX_SELECTION_H

#include "frontend/onnx/NodeContext.h"

#include <map>
#include <memory>
#include <optional>
#include <string>

namespace tbc::frontend {

/// Which values of the graph hold selected rows. Such a value is imported as if every token were
/// selected. Only nodes that treat each row by itself may read it; anything else is an ImportError.
class Selections {
public:
  /// Whether the node selects rows by data or reads selected ones.
  bool concerns(const onnx::NodeProto &node, const NodeContext &context) const;
  /// Imports such a node. ImportError if its result would depend on which rows were selected.
  void import(const GraphNode &node, NodeContext &context, const OpImporter &importer);
  /// Forgets what a node of this name made in an earlier run of its body.
  void forget(const std::string &name) { selected.erase(name); }
  /// ImportError if the value is made of selected rows.
  void requireWhole(const std::string &name) const;

private:
  /// The nonzero elements of one mask: token t in its choice k.
  struct Selection {
    std::string node;
    /// Booleans [tokens, choices].
    Value mask;
    int64_t tokens() const { return mask.shape[0]; }
    int64_t choices() const { return mask.shape[1]; }
  };
  enum class Kind {
    /// Integers that are linear in the coordinates of the row; see `tokenCode`.
    Indices,
    /// What is made of the row of the token alone, times `scale` of the token and choice.
    Rows,
    /// Sizes of such values.
    Sizes,
  };
  struct Selected {
    std::shared_ptr<const Selection> from;
    Kind kind = Kind::Rows;
    /// The dim along which the rows lie.
    unsigned dim = 0;
    /// [tokens, choices]
    std::optional<Value> scale;
    /// Rows: the value they were gathered from, if nothing has happened to them since; or, if
    /// `isSum`, the value whose rows were added to these.
    std::string origin;
    bool isSum = false;
  };

  Selected start(NodeContext &context) const;
  Selected gather(const onnx::NodeProto &node, NodeContext &context) const;
  void scatter(const onnx::NodeProto &node, NodeContext &context) const;
  Selected importRowwise(const onnx::NodeProto &node, NodeContext &context,
                         const OpImporter &importer) const;
  const Selected *find(const onnx::NodeProto &node, int input) const;

  std::map<std::string, Selected> selected;
};

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_SELECTION_H
