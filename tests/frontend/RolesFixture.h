//===- RolesFixture.h - Models with one open initializer -------------------===//

#ifndef TBC_TESTS_FRONTEND_ROLESFIXTURE_H
#define TBC_TESTS_FRONTEND_ROLESFIXTURE_H

#include "tests/frontend/ModelRunner.h"

namespace tbc::test {

/// The roles of a model's initializers after import.
struct Roles {
  std::vector<std::string> parameters, states, constants, warnings, notes;
  std::map<std::string, std::string> reasons;
};

inline Roles rolesOf(const ModelBuilder &b, const frontend::ImportOptions &options = {}) {
  ModelRunner runner;
  runner.options = options;
  runner.run(b);
  Roles roles;
  for (const frontend::ParameterSource &source : runner.model->parameters)
    (source.isState ? roles.states : roles.parameters).push_back(source.displayName);
  for (const frontend::ConstantTensor &tensor : runner.model->constants) {
    roles.constants.push_back(tensor.displayName);
    roles.reasons[tensor.displayName] = tensor.reason;
  }
  roles.warnings = runner.model->warnings;
  roles.notes = runner.model->notes;
  return roles;
}

/// Writes the metadata of a value as torch's exporter does.
inline void record(ModelBuilder &b, const std::string &name, const std::string &key,
                   const std::string &text) {
  onnx::ValueInfoProto &info = *b.proto.mutable_graph()->add_value_info();
  info.set_name(name);
  onnx::StringStringEntryProto &entry = *info.add_metadata_props();
  entry.set_key(key);
  entry.set_value(text);
}
inline void declare(ModelBuilder &b, const std::string &name, const std::string &kind) {
  record(b, name, "pkg.torch.export.graph_signature.InputSpec.kind", kind);
}
inline void foldedFrom(ModelBuilder &b, const std::string &name, const std::string &list) {
  record(b, name, "pkg.onnxscript.optimizer.folded_from", list);
}

inline std::vector<float> numbers(int64_t count) {
  std::vector<float> result(size_t(count), 0);
  for (size_t i = 0; i < result.size(); ++i)
    result[i] = float((i * 7 + 3) % 11) / 8 - 0.6f;
  return result;
}

inline constexpr int64_t kLength = 6, kWidth = 8;

/// x[batch, 6, 8], a matmul with "w.weight", and `type` of its result and `table`.
inline ModelBuilder combined(const std::string &type, const std::string &table,
                             const std::vector<int64_t> &dims, const std::vector<float> &values,
                             bool hasProduct = true) {
  ModelBuilder b;
  b.input("x", {"batch", "6", "8"});
  b.output("y");
  if (hasProduct) {
    b.floats("w.weight", {kWidth, kWidth}, numbers(kWidth * kWidth));
    b.node("MatMul", {"x", "w.weight"}, {"h"}, "product");
  }
  b.floats(table, dims, values);
  b.node(type, {hasProduct ? "h" : "x", table}, {"y"}, "combine");
  return b;
}

} // namespace tbc::test

#endif // TBC_TESTS_FRONTEND_ROLESFIXTURE_H
