//===- Detach.h - Values without a gradient --------------------------------===//
//
// ONNX has no op for torch.Tensor.detach, so files of PyTorch lose it. ImportOptions::detached
// names the values again.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_DETACH_H
#define TBC_FRONTEND_ONNX_DETACH_H

#include "frontend/onnx/DetachedReads.h"
#include "frontend/onnx/Emitter.h"

#include "llvm/Support/GlobPattern.h"

#include <list>
#include <optional>
#include <set>

namespace tbc::frontend {

/// Returns `value` behind ops tbc.detach. Values that have no gradient anyway, such as integers and
/// numbers known at import, are returned as they are. A sequence is detached tensor by tensor.
Value detach(Emitter &emitter, const Value &value);

/// The values of one import that are detached.
class Detached {
public:
  /// `texts`: "VALUE", detached for all readers, or "VALUE@NODE", for one reader; both parts are
  /// globs. The last '@' counts; `?` stands for one inside a name. UsageError if a glob is
  /// malformed. Example: "/quantize/Sub_output_0", "codes@/loss/Sub".
  /// `noGrad`: the nodes under torch.no_grad().
  Detached(const std::vector<std::string> &texts, const Model &model,
           std::set<const onnx::NodeProto *> noGrad);
  Detached(const Detached &) = delete;
  Detached &operator=(const Detached &) = delete;

  bool isEmpty() const { return entries.empty(); }

  /// Detaches `value`, just defined, if an entry "VALUE" matches its name or `displayName`.
  Value defined(Emitter &emitter, const std::string &name, const std::string &displayName,
                const Value &value);
  /// Whether an input of `node` may be detached.
  bool mayRead(const GraphNode &node) const { return !isEmpty() || reads.concerns(node); }
  /// Detaches the inputs that an entry "VALUE@NODE" matches, and those that PyTorch detaches.
  /// `made` holds their values.
  void read(Emitter &emitter, const GraphNode &node, std::vector<const Value *> &inputs,
            std::list<Value> &made);
  std::vector<std::string> warnings() const { return reads.warnings(); }

  /// UsageError for an entry that has detached no value, with similar names.
  void requireAllMatched() const;

private:
  struct Entry {
    std::string valueText, nodeText;
    /// These refer to the texts.
    llvm::GlobPattern value;
    std::optional<llvm::GlobPattern> node;
    bool isMatched = false;
  };

  DetachedReads reads;
  std::list<Entry> entries;
  /// All values that a gradient could pass, for suggestions.
  std::set<std::string> names;
};

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_DETACH_H
