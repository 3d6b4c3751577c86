//===- GraphWriter.h - Writes an ONNX graph node by node -----------------------===//

#ifndef TBC_TOOLS_NEW_GRAPHWRITER_H
#define TBC_TOOLS_NEW_GRAPHWRITER_H

#include "onnx/onnx.pb.h"

#include <map>
#include <string>
#include <vector>

namespace tbc::newmodel {

using Ints = std::vector<int64_t>;

/// A graph under construction. Strings name values. Weights are external data in a file that is not
/// written. Node names contain their module, as from torch's exporter. Example:
/// "/model/layers.0/mlp/MatMul".
class GraphWriter {
public:
  /// `dataFile`: path of the weights' file, relative to the model.
  GraphWriter(std::string name, std::string dataFile);

  /// `dims` are sizes or names ("batch").
  std::string input(const std::string &name, const std::vector<std::string> &dims, bool isFloat);
  void output(const std::string &value, const std::string &name);

  /// Opens a module until the end of its scope; modules nest.
  class Module {
  public:
    Module(GraphWriter &writer, const std::string &name);
    ~Module();
    Module(const Module &) = delete;
    Module &operator=(const Module &) = delete;

  private:
    GraphWriter &writer;
    size_t length; // of the enclosing module's path
  };

  /// A parameter of the open module, f32: "transformer.h.0.ln_1.weight".
  std::string weight(const std::string &name, const Ints &dims);
  std::string ints(const Ints &values);
  std::string scalar(int64_t value);
  /// Adds an untrained constant as a node; as an initializer it would be a parameter.
  std::string constant(const Ints &dims, const std::vector<float> &values);

  struct Attribute {
    Attribute(std::string name, int64_t value)
        : name(std::move(name)), ints{value}, isList(false) {}
    Attribute(std::string name, Ints values) : name(std::move(name)), ints(std::move(values)) {}
    Attribute(std::string name, float value)
        : name(std::move(name)), isList(false), isFloat(true), real(value) {}
    Attribute(std::string name, std::string text)
        : name(std::move(name)), isList(false), isText(true), text(std::move(text)) {}
    std::string name;
    Ints ints;
    bool isList = true, isFloat = false, isText = false;
    float real = 0;
    std::string text;
  };
  std::string op(const std::string &type, const std::vector<std::string> &inputs,
                 const std::vector<Attribute> &attributes = {});
  std::vector<std::string> ops(const std::string &type, const std::vector<std::string> &inputs,
                               size_t results, const std::vector<Attribute> &attributes = {});

  /// Returns x times a weight [out, in], stored as in torch.nn.Linear, in a module `name`.
  std::string linear(const std::string &x, const std::string &name, int64_t in, int64_t out,
                     bool hasBias);
  /// Returns x times the transpose of an existing table [rows, width].
  std::string tiedLinear(const std::string &x, const std::string &table);
  std::string layerNorm(const std::string &x, const std::string &name, int64_t width, bool hasBias,
                        double epsilon);
  std::string rmsNorm(const std::string &x, const std::string &name, int64_t width, double epsilon);
  std::string embedding(const std::string &name, int64_t rows, int64_t width,
                        const std::string &indices);
  /// gelu, gelu_new (tanh), silu, relu, relu2.
  std::string activation(const std::string &name, const std::string &x);
  /// Returns 0 .. n - 1 as an i64 vector, for n = size of dim `dim` of `x`.
  std::string positionsOf(const std::string &x, int64_t dim);

  /// Returns the total elements of all weights.
  int64_t numParameters() const { return parameters; }
  /// Returns the file's content.
  std::string bytes() const { return model.SerializeAsString(); }

private:
  std::string unique(const std::string &base);
  onnx::NodeProto &addNode(const std::string &type, size_t results);

  onnx::ModelProto model;
  std::string dataFile, path; // path: of the open module, "" or "transformer.h.0"
  std::vector<std::string> modules;
  std::map<std::string, int> used;
  int64_t parameters = 0, end = 0;
  int constants = 0;
};

} // namespace tbc::newmodel

#endif // TBC_TOOLS_NEW_GRAPHWRITER_H
