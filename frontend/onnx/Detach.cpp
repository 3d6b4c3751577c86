//===- Detach.cpp - Values without a gradient ------------------------------===//

#include "frontend/onnx/Detach.h"

#include "frontend/onnx/Suggest.h"

namespace tbc::frontend {

/// Whether a gradient could pass `value`.
static bool hasGradient(const Value &value) {
  if (value.sequence) {
    for (const Value &part : *value.sequence)
      if (hasGradient(part))
        return true;
    return false;
  }
  return kernels::isFloat(value.dtype) && value.isDefined() && !value.isKnown();
}

Value detach(Emitter &emitter, const Value &value) {
  if (!hasGradient(value))
    return value;
  if (value.sequence) {
    std::vector<Value> parts;
    for (const Value &part : *value.sequence)
      parts.push_back(detach(emitter, part));
    return Value::ofSequence(std::move(parts));
  }
  mlir::Value core = emitter.core(value);
  return Value::ofCore(value.dtype, value.shape, value.dims,
                       emitter.createOne("detach", {core}, core.getType()));
}

static llvm::GlobPattern globOf(const std::string &text, const std::string &entry) {
  llvm::Expected<llvm::GlobPattern> glob = llvm::GlobPattern::create(text);
  if (!glob)
    throw UsageError("--detach: the glob '" + entry +
                     "' is malformed: " + llvm::toString(glob.takeError()));
  return *glob;
}

Detached::Detached(const std::vector<std::string> &texts, const Model &model,
                   std::set<const onnx::NodeProto *> noGrad)
    : reads(model, std::move(noGrad)) {
  for (const std::string &text : texts) {
    size_t at = text.rfind('@');
    Entry &entry = entries.emplace_back();
    entry.valueText = text.substr(0, at);
    entry.value = globOf(entry.valueText, text);
    if (at == std::string::npos)
      continue;
    entry.nodeText = text.substr(at + 1);
    entry.node = globOf(entry.nodeText, text);
  }
}

Value Detached::defined(Emitter &emitter, const std::string &name, const std::string &displayName,
                        const Value &value) {
  if (isEmpty() || !hasGradient(value))
    return value;
  names.insert({name, displayName});
  bool isDetached = false;
  for (Entry &entry : entries)
    if (!entry.node && (entry.value.match(name) || entry.value.match(displayName)))
      isDetached = entry.isMatched = true;
  return isDetached ? detach(emitter, value) : value;
}

void Detached::read(Emitter &emitter, const GraphNode &node, std::vector<const Value *> &inputs,
                    std::list<Value> &made) {
  auto passes = [&](unsigned i) { return inputs[i] && hasGradient(*inputs[i]); };
  std::vector<unsigned> numbers = reads.of(node, passes);
  for (unsigned i = 0; i < inputs.size(); ++i) {
    bool isDetached = llvm::is_contained(numbers, i);
    for (Entry &entry : entries)
      if (entry.node && passes(i) && entry.value.match(node.proto->input(int(i))) &&
          entry.node->match(node.name))
        isDetached = entry.isMatched = true;
    if (isDetached)
      inputs[i] = &made.emplace_back(detach(emitter, *inputs[i]));
  }
}

void Detached::requireAllMatched() const {
  for (const Entry &entry : entries) {
    if (entry.isMatched)
      continue;
    if (entry.node)
      for (const std::string &name : names)
        if (entry.value.match(name))
          throw UsageError("--detach: no node '" + entry.nodeText + "' reads the value '" +
                           entry.valueText + "'");
    throw UsageError("--detach: the model computes no float value '" + entry.valueText + "'" +
                     suggestion(entry.valueText, {names.begin(), names.end()}));
  }
}

} // namespace tbc::frontend
