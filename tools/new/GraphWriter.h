//===- GraphWriter.h - Writes an ONNX graph node by node -----------------------===//

#ifndef TBC_TOOLS_NEW_GRAPHWRITER_H
#define TBC_TOOLS_NEW_GRAPHWRITER_H

#include "onnx/onnx.pb.h"

#include <map>
#include <string>
#include <vector>

namespace tbc::newmodel {

using Ints = std::vector<int64_t>;

/// A graph under construction. Values are named by strings; weights are external data in a file
/// that is not written. Nodes are named by the module that they are in, as torch's exporter does:
/// "/model/layers.0/mlp/MatMul".
class GraphWriter {
public:
  /// `dataFile`: where the weights would be, beside the model.
  GraphWriter(std::string name, std::string dataFile);

  /// `dims` are sizes or names ("batch").
  std::string input(const std::string &name, const std::vector<std::string> &dims, bool isFloat);
  void output(const std::string &value, const std::string &name);

  /// Modules nest: what is written while one is open is in it.
  class Module {
  public:
    Module(GraphWriter &writer, const std::string &name);
    ~Module();
    Module(const Module &) = delete;
    Module &operator=(const Module &) = delete;

  private:
    GraphWriter &writer;
    size_t length; // of the path outside
  };

  /// A parameter of the open module, f32: "transformer.h.0.ln_1.weight".
  std::string weight(const std::string &name, const Ints &dims);
  std::string ints(const Ints &values);
  std::string scalar(int64_t value);
  /// Numbers that no one trains, from a node: an initializer would be a parameter.
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

  /// x times a weight [out, in] as torch.nn.Linear keeps it, in a module of this name.
  std::string linear(const std::string &x, const std::string &name, int64_t in, int64_t out,
                     bool hasBias);
  /// x times the transpose of a table [rows, width] that is there already.
  std::string tiedLinear(const std::string &x, const std::string &table);
  std::string layerNorm(const std::string &x, const std::string &name, int64_t width, bool hasBias,
                        double epsilon);
  std::string rmsNorm(const std::string &x, const std::string &name, int64_t width, double epsilon);
  std::string embedding(const std::string &name, int64_t rows, int64_t width,
                        const std::string &indices);
  /// gelu, gelu_new (tanh), silu, relu, relu2.
  std::string activation(const std::string &name, const std::string &x);
  /// The numbers 0 .. of the size of dim `dim` of `x`, an i64 vector.
  std::string positionsOf(const std::string &x, int64_t dim);

  /// The elements of all weights.
  int64_t numParameters() const { return parameters; }
  /// The file's bytes.
  std::string bytes() const { return model.SerializeAsString(); }

private:
  std::string unique(const std::string &base);
  onnx::NodeProto &addNode(const std::string &type, size_t results);

  onnx::ModelProto model;
  std::string dataFile, path; // of the open module, "" or "transformer.h.0"
  std::vector<std::string> modules;
  std::map<std::string, int> used;
  int64_t parameters = 0, end = 0;
  int constants = 0;
};

} // namespace tbc::newmodel

#endif // TBC_TOOLS_NEW_GRAPHWRITER_H
