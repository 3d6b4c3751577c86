//===- UpdatedBuffers.cpp - Buffers that a module updates -----------------===//

#include "frontend/onnx/UpdatedBuffers.h"

#include "frontend/onnx/Folded.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <set>

namespace tbc::frontend {

/// Returns the targets of lines such as "add: BUFFER_MUTATION target='center'".
static std::set<std::string> updatedBuffers(const std::string &signature) {
  std::set<std::string> names;
  llvm::SmallVector<llvm::StringRef> lines;
  llvm::StringRef(signature).split(lines, '\n');
  for (llvm::StringRef line : lines)
    if (auto [value, target] = line.split(": BUFFER_MUTATION target='"); !target.empty())
      names.insert(target.split('\'').first.str());
  return names;
}

/// Whether a batch norm has these statistics, or has them no more because training does not read
/// them.
static bool isOfBatchNorm(const Model &model, const std::string &name) {
  const std::string own = splitName(name).second;
  if (own == "num_batches_tracked")
    return true;
  if ((own == "running_mean" || own == "running_var") && !model.initializers.count(name))
    return true;
  return std::any_of(model.nodes.begin(), model.nodes.end(), [&](const GraphNode &node) {
    const auto &inputs = node.proto->input();
    return node.proto->op_type() == "BatchNormalization" &&
           std::count(inputs.begin(), inputs.end(), name) > 0;
  });
}

std::optional<std::string> updatedBuffersWarning(const Model &model) {
  std::set<std::string> names = updatedBuffers(model.scanned.signature);
  for (auto name = names.begin(); name != names.end();)
    name = isOfBatchNorm(model, *name) ? names.erase(name) : std::next(name);
  if (names.empty())
    return std::nullopt;
  const bool several = names.size() > 1;
  return "forward of the module updates " + std::to_string(names.size()) +
         (several ? " buffers" : " buffer") + " ('" + *names.begin() +
         (several ? "' and others" : "'") +
         "), and the file has the values of the export alone: they stay as they are, so training "
         "differs from the module's if it reads them";
}

} // namespace tbc::frontend
