//===- Selection.h - Import of rows selected by data -----------------------===//
//
// A mixture of experts is often exported as a loop over experts. NonZero finds the tokens of an
// expert, Gather takes their rows, the expert maps each row by itself, and ScatterND or
// ScatterElements adds the results to the rows of the tokens. The number of rows depends on data.
// But rows are independent: mapping the rows of all tokens gives the same result if unselected rows
// have weight 0. A later pass finds experts in this form and computes only the selected rows.
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

/// The values of the graph with selected rows. Such a value is imported as if every token were
/// selected. Only row-wise nodes may read it; other nodes are an ImportError.
class Selections {
public:
  /// Whether the node selects rows by data or reads selected ones.
  bool concerns(const onnx::NodeProto &node, const NodeContext &context) const;
  /// Imports such a node. ImportError if its result would depend on the selection of rows.
  void import(const GraphNode &node, NodeContext &context, const OpImporter &importer);
  /// Forgets the results of node `name` from an earlier run of its body.
  void forget(const std::string &name) { selected.erase(name); }
  /// ImportError if the value has selected rows.
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
    /// A function of the token's row alone, times `scale` of the token and choice.
    Rows,
    /// Sizes of such values.
    Sizes,
  };
  struct Selected {
    std::shared_ptr<const Selection> from;
    Kind kind = Kind::Rows;
    /// The dim of the rows.
    unsigned dim = 0;
    /// [tokens, choices]
    std::optional<Value> scale;
    /// Rows: the value they were gathered from, if unchanged. With `isSum`: the value to which
    /// these rows were added.
    std::string origin;
    bool isSum = false;
  };

  struct Rowwise; // Rowwise.cpp

  Selected start(NodeContext &context) const;
  Selected gather(const onnx::NodeProto &node, NodeContext &context) const;
  bool splitsAll(const onnx::NodeProto &node, NodeContext &context,
                 const OpImporter &importer) const;
  void scatter(const onnx::NodeProto &node, NodeContext &context) const;
  /// Imports a node that treats each row by itself.
  Selected importRowwise(const onnx::NodeProto &node, NodeContext &context,
                         const OpImporter &importer) const;
  const Selected *find(const onnx::NodeProto &node, int input) const;

  std::map<std::string, Selected> selected;
};

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_SELECTION_H
