//===- Architectures.cpp - Published architectures without weights ---------===//

#include "tests/frontend/Architectures.h"

#include <cmath>

namespace tbc::test {

namespace {

using Ints = std::vector<int64_t>;

/// Writes one node after the other and names its results.
class Writer {
public:
  explicit Writer(int64_t opset) : model(opset) {}

  std::string op(const std::string &type, const std::vector<std::string> &inputs) {
    last = &model.node(type, inputs, {}, "");
    std::string result = type + "_" + std::to_string(++count);
    last->set_name(result);
    last->add_output(result);
    return result;
  }
  std::string weight(const std::string &name, const Ints &dims) {
    int64_t bytes = 4;
    for (int64_t dim : dims)
      bytes *= dim;
    model.external(name, dims, "weights.data", std::to_string(end), std::to_string(bytes));
    end += bytes;
    return name;
  }
  std::string ints(const Ints &values) {
    std::string name = "ints_" + std::to_string(++count);
    model.ints(name, {int64_t(values.size())}, values);
    return name;
  }
  std::string number(float value) {
    std::string name = "number_" + std::to_string(++count);
    model.floats(name, {}, {value});
    return name;
  }
  /// x times a weight [in, out]; with a bias if `hasBias`.
  std::string linear(const std::string &x, const std::string &name, int64_t in, int64_t out,
                     bool hasBias) {
    std::string y = op("MatMul", {x, weight(name + ".weight", {in, out})});
    return hasBias ? op("Add", {y, weight(name + ".bias", {out})}) : y;
  }
  std::string layerNorm(const std::string &x, const std::string &name, int64_t width) {
    return op("LayerNormalization",
              {x, weight(name + ".weight", {width}), weight(name + ".bias", {width})});
  }
  /// [b, s, heads * d] -> [b, heads, s, d] (or [b, heads, d, s]).
  std::string split(const std::string &x, int64_t heads, int64_t d, bool transposed = false) {
    std::string y = op("Transpose", {op("Reshape", {x, ints({0, 0, heads, d})})});
    ModelBuilder::attr(*last, "perm", transposed ? Ints{0, 2, 3, 1} : Ints{0, 2, 1, 3});
    return y;
  }
  std::string merge(const std::string &x, int64_t width) {
    std::string y = op("Transpose", {x});
    ModelBuilder::attr(*last, "perm", Ints{0, 2, 1, 3});
    return op("Reshape", {y, ints({0, 0, width})});
  }
  ModelBuilder finish(const std::string &result) {
    op("Identity", {result});
    last->set_output(0, "logits");
    model.output("logits");
    return std::move(model);
  }

  ModelBuilder model;
  /// The node written last.
  onnx::NodeProto *last = nullptr;

private:
  int64_t count = 0, end = 0;
};

/// Convolution, batch norm, and relu if `activated`.
std::string convolve(Writer &w, const std::string &x, const std::string &name, int64_t in,
                     int64_t out, int64_t kernel, int64_t stride, bool activated) {
  std::string y = w.op("Conv", {x, w.weight(name + ".weight", {out, in, kernel, kernel})});
  int64_t pad = kernel / 2;
  ModelBuilder::attr(*w.last, "kernel_shape", Ints{kernel, kernel});
  ModelBuilder::attr(*w.last, "strides", Ints{stride, stride});
  ModelBuilder::attr(*w.last, "pads", Ints{pad, pad, pad, pad});
  std::vector<std::string> inputs{y};
  for (const char *part : {".scale", ".bias", ".running_mean", ".running_var"})
    inputs.push_back(w.weight(name + part, {out}));
  y = w.op("BatchNormalization", inputs);
  ModelBuilder::attr(*w.last, "training_mode", 1);
  for (const char *statistic : {"_mean", "_var"})
    w.last->add_output(y + statistic);
  return activated ? w.op("Relu", {y}) : y;
}

} // namespace

ModelBuilder makeResNet50() {
  Writer w(17);
  w.model.input("input", {"batch", "3", "224", "224"});
  std::string x = convolve(w, "input", "conv1", 3, 64, 7, 2, true);
  x = w.op("MaxPool", {x});
  ModelBuilder::attr(*w.last, "kernel_shape", Ints{3, 3});
  ModelBuilder::attr(*w.last, "strides", Ints{2, 2});
  ModelBuilder::attr(*w.last, "pads", Ints{1, 1, 1, 1});
  int64_t channels = 64;
  const int64_t blocks[] = {3, 4, 6, 3};
  for (int64_t stage = 0; stage < 4; ++stage)
    for (int64_t block = 0; block < blocks[stage]; ++block) {
      int64_t inner = 64 << stage, stride = stage > 0 && block == 0 ? 2 : 1;
      std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(block);
      std::string y = convolve(w, x, name + ".conv1", channels, inner, 1, 1, true);
      y = convolve(w, y, name + ".conv2", inner, inner, 3, stride, true);
      y = convolve(w, y, name + ".conv3", inner, 4 * inner, 1, 1, false);
      if (block == 0)
        x = convolve(w, x, name + ".downsample", channels, 4 * inner, 1, stride, false);
      x = w.op("Relu", {w.op("Add", {y, x})});
      channels = 4 * inner;
    }
  x = w.op("Flatten", {w.op("GlobalAveragePool", {x})});
  x = w.op("Gemm", {x, w.weight("fc.weight", {1000, 2048}), w.weight("fc.bias", {1000})});
  ModelBuilder::attr(*w.last, "transB", 1);
  return w.finish(x);
}

ModelBuilder makeBert(const TransformerSizes &n) {
  Writer w(20);
  w.model.input("input_ids", {"batch", "seq"}, false);
  int64_t d = n.width / n.heads;
  std::string table = w.weight("embeddings.weight", {n.vocabulary, n.width});
  std::string x = w.layerNorm(w.op("Gather", {table, "input_ids"}), "embeddings.norm", n.width);
  for (int64_t layer = 0; layer < n.layers; ++layer) {
    std::string name = "layer." + std::to_string(layer);
    auto project = [&](const char *part) {
      return w.linear(x, name + "." + part, n.width, n.width, true);
    };
    std::string q = w.split(project("query"), n.heads, d);
    std::string k = w.split(project("key"), n.heads, d, true);
    std::string v = w.split(project("value"), n.heads, d);
    std::string scores = w.op("Div", {w.op("MatMul", {q, k}), w.number(std::sqrt(float(d)))});
    std::string y = w.merge(w.op("MatMul", {w.op("Softmax", {scores}), v}), n.width);
    y = w.linear(y, name + ".attention", n.width, n.width, true);
    x = w.layerNorm(w.op("Add", {y, x}), name + ".norm1", n.width);
    y = w.op("Gelu", {w.linear(x, name + ".up", n.width, n.inner, true)});
    y = w.linear(y, name + ".down", n.inner, n.width, true);
    x = w.layerNorm(w.op("Add", {y, x}), name + ".norm2", n.width);
  }
  x = w.layerNorm(w.op("Gelu", {w.linear(x, "head", n.width, n.width, true)}), "head.norm",
                  n.width);
  std::string decoder = w.op("Transpose", {table});
  ModelBuilder::attr(*w.last, "perm", Ints{1, 0});
  return w.finish(w.op("MatMul", {x, decoder}));
}

ModelBuilder makeLlama(const TransformerSizes &n) {
  Writer w(23);
  w.model.input("input_ids", {"batch", "seq"}, false);
  w.model.input("position_ids", {"batch", "seq"}, false);
  int64_t d = n.width / n.heads, positions = 64;
  for (const char *cache : {"cos", "sin"})
    w.model.floats(cache, {positions, d / 2}, std::vector<float>(positions * d / 2, 0.5F));
  auto norm = [&](const std::string &x, const std::string &name) {
    return w.op("RMSNormalization", {x, w.weight(name, {n.width})});
  };
  auto rotate = [&](const std::string &x) {
    return w.op("RotaryEmbedding", {x, "cos", "sin", "position_ids"});
  };
  std::string x = w.op("Gather", {w.weight("embed", {n.vocabulary, n.width}), "input_ids"});
  for (int64_t layer = 0; layer < n.layers; ++layer) {
    std::string name = "layers." + std::to_string(layer), y = norm(x, name + ".norm1");
    auto heads = [&](const char *part, int64_t columns) {
      return w.split(w.linear(y, name + part, n.width, columns, false), columns / d, d);
    };
    std::string q = rotate(heads(".q", n.width)), k = rotate(heads(".k", n.keys));
    std::string v = heads(".v", n.keys);
    std::string attended = w.op("Attention", {q, k, v});
    ModelBuilder::attr(*w.last, "is_causal", 1);
    x = w.op("Add",
             {x, w.linear(w.merge(attended, n.width), name + ".o", n.width, n.width, false)});
    y = norm(x, name + ".norm2");
    std::string gate = w.linear(y, name + ".gate", n.width, n.inner, false);
    gate = w.op("Mul", {gate, w.op("Sigmoid", {gate})});
    y = w.op("Mul", {gate, w.linear(y, name + ".up", n.width, n.inner, false)});
    x = w.op("Add", {x, w.linear(y, name + ".down", n.inner, n.width, false)});
  }
  return w.finish(w.linear(norm(x, "norm"), "head", n.width, n.vocabulary, false));
}

} // namespace tbc::test
