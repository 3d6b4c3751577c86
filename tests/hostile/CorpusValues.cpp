//===- CorpusValues.cpp - Files with wrong numbers ------------------------===//

#include "tests/hostile/Corpus.h"

#include <cmath>
#include <functional>
#include <limits>

namespace tbc::test {

namespace {

using Files = std::vector<HostileFile>;
using Attribute = onnx::AttributeProto;

void add(Files &files, const std::string &name, const ModelBuilder &model,
         const std::string &expected) {
  files.push_back({name, model.bytes(), expected});
}

Attribute &addAttribute(onnx::NodeProto &node, const std::string &name,
                        Attribute::AttributeType type) {
  Attribute &attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(type);
  return attribute;
}

void floatAttribute(onnx::NodeProto &node, const std::string &name, float value) {
  addAttribute(node, name, Attribute::FLOAT).set_f(value);
}

//===- dims ----------------------------------------------------------------===//

void addDims(Files &files) {
  auto input = [&](const std::string &name, std::vector<int64_t> dims,
                   const std::string &expected) {
    ModelBuilder model;
    model.input("x", {});
    auto &shape = *model.proto.mutable_graph()
                       ->mutable_input(0)
                       ->mutable_type()
                       ->mutable_tensor_type()
                       ->mutable_shape();
    for (int64_t size : dims)
      shape.add_dim()->set_dim_value(size);
    model.node("Relu", {"x"}, {"y"}, "the_relu");
    model.output("y");
    add(files, "input-" + name, model, expected);
  };
  input("dim-max", {2, INT64_MAX}, "dim 1 of input 'x' is 9223372036854775807");
  input("dim-min", {2, INT64_MIN}, "dim 1 of input 'x' is -9223372036854775808");
  input("dim-zero", {2, 0}, "dim 1 of input 'x' is 0; expected 1 to 2^40");
  input("dim-negative", {2, -1}, "dim 1 of input 'x' is -1");
  // Some exporters write a dynamic batch as 0 or -1.
  input("batch-negative", {-1, 4}, "");
  input("batch-zero", {0, 4}, "");
  input("batch-max", {INT64_MAX, 4}, "the batch is 9223372036854775807");
  input("product-2^80", {2, int64_t(1) << 40, int64_t(1) << 40}, "input 'x'");
  input("product-2^64", {2, int64_t(1) << 32, int64_t(1) << 31}, "input 'x'");
  input("rank-17", std::vector<int64_t>(17, 1), "input 'x' has rank 17");
  input("rank-100000", std::vector<int64_t>(100000, 1), "input 'x' has rank 100000");
  input("rank-16", std::vector<int64_t>(16, 1), "");
  input("scalar", {}, "");

  ModelBuilder noSize = reluModel();
  noSize.input("z", {"batch", "width"});
  add(files, "input-dim-unbound", noSize, "give --dim width=SIZE");
  ModelBuilder noDim;
  noDim.input("x", {"batch", "4"});
  noDim.proto.mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(1)
      ->clear_value();
  noDim.node("Relu", {"x"}, {"y"}, "the_relu");
  noDim.output("y");
  add(files, "input-dim-without-size", noDim, "dim 1 of input 'x' has no size");

  auto weight = [&](const std::string &name, std::vector<int64_t> dims,
                    const std::string &expected) {
    ModelBuilder model = reluModel();
    model.external("w", dims, "w.bin", "", "");
    model.node("Add", {"y", "w"}, {"z"}, "the_add");
    model.output("z");
    add(files, "weight-" + name, model, expected);
  };
  weight("dim-negative", {-1, 4}, "tensor 'w' has a dim of size -1");
  weight("dim-min", {INT64_MIN}, "tensor 'w' has a dim of size -9223372036854775808");
  weight("dim-max", {INT64_MAX}, "tensor 'w' has more than 2^56 elements");
  weight("product-2^80", {int64_t(1) << 40, int64_t(1) << 40},
         "tensor 'w' has more than 2^56 elements");
  weight("product-2^64", {int64_t(1) << 32, int64_t(1) << 32},
         "tensor 'w' has more than 2^56 elements");
  weight("product-hidden-by-zero", {int64_t(1) << 40, int64_t(1) << 40, 0},
         "tensor 'w' has more than 2^56 elements");
  weight("dim-zero", {0, 4}, "'w'");
  weight("2^56-elements", {int64_t(1) << 54, 4}, "the_add");
  weight("does-not-broadcast", {5}, "node 'the_add' (Add): shapes [batch, 4] and [5]");
}

//===- tensors -------------------------------------------------------------===//

void addTensors(Files &files) {
  // w has dims [4]; `fill` gives it data.
  auto tensor = [&](const std::string &name, int type,
                    const std::function<void(onnx::TensorProto &)> &fill,
                    const std::string &expected) {
    ModelBuilder model = reluModel();
    onnx::TensorProto &w = *model.proto.mutable_graph()->add_initializer();
    w.set_name("w");
    w.set_data_type(type);
    w.add_dims(4);
    fill(w);
    model.node("Add", {"y", "w"}, {"z"}, "the_add");
    model.output("z");
    add(files, "tensor-" + name, model, expected);
  };
  auto raw = [](size_t bytes) {
    return [bytes](onnx::TensorProto &w) { w.set_raw_data(std::string(bytes, 'w')); };
  };
  using T = onnx::TensorProto;
  tensor("too-short", T::FLOAT, raw(15), "initializer 'w' has 15 bytes of data for shape");
  tensor("too-long", T::FLOAT, raw(17), "initializer 'w' has 17 bytes of data for shape");
  tensor("empty-raw", T::FLOAT, raw(0), "initializer 'w' has 0 bytes of data for shape");
  tensor("no-data", T::FLOAT, [](T &) {}, "initializer 'w' has no data");
  tensor("right", T::FLOAT, raw(16), "");
  tensor("of-another-type", T::DOUBLE, raw(32), "node 'the_add' (Add)");
  tensor(
      "data-of-another-type", T::FLOAT,
      [](T &w) {
        for (int i = 0; i < 4; ++i)
          w.add_int64_data(i);
      },
      "initializer 'w' has data in a field that is not for its element type");
  tensor(
      "f16-too-few", T::FLOAT16,
      [](T &w) {
        for (int i = 0; i < 3; ++i)
          w.add_int32_data(i);
      },
      "initializer 'w' has data for 3 elements");
  for (int type : {int(T::UNDEFINED), int(T::STRING), int(T::COMPLEX64), 17, 23, 99, INT32_MAX, -1})
    tensor("of-type-" + std::to_string(type), type, raw(16), "initializer 'w' has element type");
  tensor(
      "string-data", T::STRING, [](T &w) { w.add_string_data(std::string(1000, 's')); },
      "initializer 'w' has element type 8, which is not supported");
  tensor(
      "data-location-unknown", T::FLOAT,
      [](T &w) {
        w.set_raw_data(std::string(16, 'w'));
        w.mutable_external_data()->Add()->set_key("location");
      },
      "");
  ModelBuilder location = reluModel();
  files.push_back({"tensor-data-location-7",
                   location.bytes() +
                       RawMessage()
                           .message(7, RawMessage().message(5, RawMessage()
                                                                   .varint(1, 4)
                                                                   .varint(2, 1)
                                                                   .bytes(8, "w")
                                                                   .bytes(9, std::string(16, 'w'))
                                                                   .varint(14, 7)))
                           .text,
                   ""});

  // Integers and other constants that the import reads.
  auto constant = [&](const std::string &name, int type, std::vector<int64_t> dims,
                      const std::function<void(T &)> &fill, const std::string &expected) {
    ModelBuilder model = reluModel();
    T &c = *model.proto.mutable_graph()->add_initializer();
    c.set_name("c");
    c.set_data_type(type);
    for (int64_t size : dims)
      c.add_dims(size);
    fill(c);
    model.node("Reshape", {"y", "c"}, {"z"}, "the_reshape");
    model.output("z");
    add(files, "constant-" + name, model, expected);
  };
  constant(
      "too-few", T::INT64, {2}, [](T &c) { c.add_int64_data(4); },
      "tensor 'c' has data for 1 elements, but shape");
  constant(
      "too-many", T::INT64, {1},
      [](T &c) {
        c.add_int64_data(4);
        c.add_int64_data(4);
      },
      "tensor 'c' has data for 2 elements, but shape");
  constant("raw-of-seven-bytes", T::INT64, {1}, raw(7), "tensor 'c' has 7 bytes of data for shape");
  constant("raw-of-none", T::INT64, {1}, raw(0), "'c'");
  constant("of-2^40-elements", T::INT64, {int64_t(1) << 40}, [](T &) {}, "too many for a constant");
  constant("negative-dim", T::INT64, {-4}, [](T &) {}, "tensor 'c' has a dim of size -4");
  constant(
      "of-floats", T::FLOAT, {}, [](T &c) { c.add_float_data(4); },
      "node 'the_reshape' (Reshape): input 1 ('c') must be integers");
  constant(
      "strings", T::STRING, {1}, [](T &c) { c.add_string_data("4"); },
      "initializer 'c' has element type 8");
  constant(
      "external", T::INT64, {1},
      [](T &c) {
        c.set_data_location(T::EXTERNAL);
        onnx::StringStringEntryProto &entry = *c.add_external_data();
        entry.set_key("location");
        entry.set_value("c.bin");
      },
      "tensor 'c' is needed at import, but its data in");
}

//===- types of values -----------------------------------------------------===//

void addTypes(Files &files) {
  auto typed = [&](const std::string &name, const RawMessage &type, const std::string &expected) {
    RawMessage input = RawMessage().bytes(1, "extra").message(2, type);
    files.push_back(
        {"input-" + name,
         reluModel().bytes() + RawMessage().message(7, RawMessage().message(11, input)).text,
         expected});
  };
  RawMessage tensor = RawMessage().varint(1, 1).message(2, RawMessage());
  std::string notTensor = "input 'extra' is not a tensor of known rank";
  typed("sequence",
        RawMessage().message(4, RawMessage().message(1, RawMessage().message(1, tensor))),
        notTensor);
  typed("map", RawMessage().message(5, RawMessage().varint(1, 7)), notTensor);
  typed("optional", RawMessage().message(9, RawMessage()), notTensor);
  typed("sparse", RawMessage().message(8, tensor), notTensor);
  typed("without-type", RawMessage(), notTensor);
  typed("without-shape", RawMessage().message(1, RawMessage().varint(1, 1)), notTensor);
  typed("of-strings", RawMessage().message(1, RawMessage().varint(1, 8).message(2, RawMessage())),
        "input 'extra' has element type 8");
  typed("of-no-type", RawMessage().message(1, RawMessage().message(2, RawMessage())),
        "input 'extra' has element type 0");
  typed("of-type-max",
        RawMessage().message(1, RawMessage().varint(1, INT32_MAX).message(2, RawMessage())),
        "input 'extra' has element type 2147483647");
  // The import does not read GraphProto.sparse_initializer, so its name is undefined.
  ModelBuilder sparse = reluModel();
  sparse.proto.mutable_graph()->add_sparse_initializer()->mutable_values()->set_name("w");
  sparse.node("Add", {"y", "w"}, {"z"}, "the_add");
  add(files, "sparse-initializer", sparse, "node 'the_add' (Add) reads 'w', which nothing defines");
}

//===- attributes ----------------------------------------------------------===//

/// Adds models with one node. It reads y, [batch, 4], and more; its result is an output.
class Nodes {
public:
  explicit Nodes(Files &files) : files(files) {}

  /// Adds a node of `type` over `inputs` (default: y), completed by `fill`.
  void add(const std::string &name, const std::string &type, std::vector<std::string> inputs,
           const std::function<void(ModelBuilder &, onnx::NodeProto &)> &fill,
           const std::string &expected) {
    ModelBuilder model = reluModel();
    model.input("image", {"batch", "3", "8", "8"});
    model.floats("w", {6, 3, 3, 3}, std::vector<float>(162, 1));
    model.floats("matrix", {4, 4}, std::vector<float>(16, 1));
    model.floats("vector", {4}, {1, 2, 3, 4});
    model.ints("one", {1}, {1});
    model.ints("none", {0}, {});
    onnx::NodeProto &node = model.node(type, inputs, {"z"}, "bad");
    fill(model, node);
    model.output("z");
    files.push_back({"node-" + name, model.bytes(), expected});
  }
  /// Adds a node with one integer attribute.
  void integer(const std::string &type, const std::string &attribute, int64_t value,
               const std::string &expected, std::vector<std::string> inputs = {"y"}) {
    add(
        type + "-" + attribute + "-" + std::to_string(value), type, inputs,
        [&](ModelBuilder &, onnx::NodeProto &node) { ModelBuilder::attr(node, attribute, value); },
        expected);
  }
  void list(const std::string &name, const std::string &type, const std::string &attribute,
            const std::vector<int64_t> &values, const std::string &expected,
            std::vector<std::string> inputs = {"y"}) {
    add(
        name, type, inputs,
        [&](ModelBuilder &, onnx::NodeProto &node) { ModelBuilder::attr(node, attribute, values); },
        expected);
  }
  void real(const std::string &name, const std::string &type, const std::string &attribute,
            float value, const std::string &expected, std::vector<std::string> inputs = {"y"}) {
    add(
        name, type, inputs,
        [&](ModelBuilder &, onnx::NodeProto &node) { floatAttribute(node, attribute, value); },
        expected);
  }
  /// Adds a node with a constant list as the second input.
  void ints(const std::string &name, const std::string &type, const std::vector<int64_t> &values,
            const std::string &expected, const std::string &data = "y") {
    add(
        name, type, {data, "list"},
        [&](ModelBuilder &model, onnx::NodeProto &) {
          model.ints("list", {int64_t(values.size())}, values);
        },
        expected);
  }

private:
  Files &files;
};

void addAttributes(Files &files) {
  Nodes nodes(files);
  const std::string bad = "node 'bad' (";
  for (int64_t axis : {int64_t(2), int64_t(-3), INT64_MAX, INT64_MIN}) {
    std::string text = "axis " + std::to_string(axis);
    nodes.integer("Softmax", "axis", axis, bad + "Softmax): " + text);
    nodes.integer("Concat", "axis", axis, bad + "Concat): " + text, {"y", "y"});
    nodes.integer("Gather", "axis", axis, bad + "Gather): " + text, {"y", "one"});
    nodes.integer("LayerNormalization", "axis", axis, bad + "LayerNormalization): " + text,
                  {"y", "vector"});
  }
  nodes.integer("Flatten", "axis", INT64_MIN, bad + "Flatten): axis");
  nodes.integer("Split", "axis", 7, bad + "Split): axis 7");
  nodes.integer("Cast", "to", 99, bad + "Cast): the target of Cast has element type 99");
  nodes.integer("Cast", "to", int64_t(1) << 32, bad + "Cast): the target of Cast");
  nodes.integer("Shape", "start", INT64_MIN, "node 'z' computes with the batch size");
  nodes.integer("Shape", "end", INT64_MAX, "node 'z' computes with the batch size");
  nodes.integer("Conv", "group", 0, bad + "Conv)", {"image", "w"});
  nodes.integer("Conv", "group", -1, bad + "Conv)", {"image", "w"});
  nodes.integer("Conv", "group", INT64_MIN, bad + "Conv)", {"image", "w"});
  nodes.integer("Trilu", "upper", INT64_MAX, "", {"matrix"});
  nodes.list("transpose-twice", "Transpose", "perm", {0, 0}, bad + "Transpose)");
  nodes.list("transpose-short", "Transpose", "perm", {0}, bad + "Transpose): perm does not list");
  nodes.list("transpose-outside", "Transpose", "perm", {0, INT64_MAX}, bad + "Transpose)");
  nodes.list("conv-strides-zero", "Conv", "strides", {0, 0}, bad + "Conv)", {"image", "w"});
  nodes.list("conv-strides-max", "Conv", "strides", {INT64_MAX, 1}, bad + "Conv)", {"image", "w"});
  nodes.list("conv-dilations", "Conv", "dilations", {-1, 1}, bad + "Conv)", {"image", "w"});
  nodes.list("conv-pads-negative", "Conv", "pads", {-1, 0, 0, 0}, bad + "Conv): negative pads",
             {"image", "w"});
  nodes.list("conv-pads-min", "Conv", "pads", {INT64_MIN, 0, 0, 0}, bad + "Conv): negative pads",
             {"image", "w"});
  nodes.list("conv-pads-max", "Conv", "pads", {INT64_MAX, 0, 0, 0}, bad + "Conv)", {"image", "w"});
  nodes.list("conv-pads-three", "Conv", "pads", {0, 0, 0}, bad + "Conv)", {"image", "w"});
  nodes.list("conv-kernel", "Conv", "kernel_shape", {5, 5}, bad + "Conv): kernel_shape",
             {"image", "w"});
  nodes.list("pool-kernel-zero", "MaxPool", "kernel_shape", {0, 0}, bad + "MaxPool)", {"image"});
  nodes.list("pool-kernel-none", "MaxPool", "kernel_shape", {}, bad + "MaxPool)", {"image"});
  nodes.list("pool-kernel-large", "MaxPool", "kernel_shape", {2147483647, 1}, bad + "MaxPool)",
             {"image"});
  nodes.list("pool-of-a-matrix", "MaxPool", "kernel_shape", {2}, bad + "MaxPool): needs a float",
             {"y"});

  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  nodes.real("epsilon-nan", "LayerNormalization", "epsilon", nan,
             "attribute 'epsilon' is not finite", {"y", "vector"});
  nodes.real("epsilon-inf", "LayerNormalization", "epsilon", infinity,
             "attribute 'epsilon' is not finite", {"y", "vector"});
  nodes.real("alpha-nan", "Gemm", "alpha", nan, "attribute 'alpha' is not finite", {"y", "matrix"});
  nodes.real("beta-inf", "Gemm", "beta", -infinity, "attribute 'beta' is not finite",
             {"y", "matrix", "vector"});
  nodes.real("leak-nan", "LeakyRelu", "alpha", nan, "attribute 'alpha' is not finite");
  nodes.real("constant-nan", "Constant", "value_float", nan, "", {});
  nodes.add(
      "batch-norm-epsilon", "BatchNormalization", {"y", "vector", "vector", "vector", "vector"},
      [&](ModelBuilder &, onnx::NodeProto &node) { floatAttribute(node, "epsilon", nan); },
      "attribute 'epsilon' is not finite");

  // The wrong kind of attribute.
  nodes.real("axis-is-a-float", "Softmax", "axis", 1, "attribute 'axis' is of the wrong type");
  nodes.list("axis-is-a-list", "Softmax", "axis", {1}, "attribute 'axis' is of the wrong type");
  nodes.integer("LeakyRelu", "alpha", 1, "attribute 'alpha' is of the wrong type");
  nodes.integer("Transpose", "perm", 1, "attribute 'perm' is of the wrong type");
  nodes.integer("Gelu", "approximate", 1, "attribute 'approximate' is of the wrong type");
  nodes.add(
      "approximation-unknown", "Gelu", {"y"},
      [](ModelBuilder &, onnx::NodeProto &node) {
        ModelBuilder::attr(node, "approximate", std::string("\xff\x00?", 3));
      },
      bad + "Gelu)");
  nodes.add(
      "constant-of-nothing", "Constant", {}, [](ModelBuilder &, onnx::NodeProto &) {},
      bad + "Constant): holds neither a tensor nor numbers");
  nodes.add(
      "constant-of-text", "Constant", {},
      [](ModelBuilder &, onnx::NodeProto &node) {
        ModelBuilder::attr(node, "value_string", std::string("text"));
      },
      bad + "Constant)");
  nodes.add(
      "constant-without-tensor", "Constant", {},
      [](ModelBuilder &, onnx::NodeProto &node) { addAttribute(node, "value", Attribute::TENSOR); },
      bad + "Constant): attribute 'value'");
  nodes.add(
      "constant-floats-claimed", "Constant", {},
      [](ModelBuilder &, onnx::NodeProto &node) {
        addAttribute(node, "value_floats", Attribute::INTS).add_ints(1);
      },
      bad + "Constant): attribute 'value_floats' is of the wrong type");
  nodes.add(
      "constant-sparse", "Constant", {},
      [](ModelBuilder &, onnx::NodeProto &node) {
        addAttribute(node, "sparse_value", Attribute::SPARSE_TENSOR)
            .mutable_sparse_tensor()
            ->add_dims(4);
      },
      bad + "Constant)");
  nodes.add(
      "attribute-by-reference", "Softmax", {"y"},
      [](ModelBuilder &, onnx::NodeProto &node) {
        addAttribute(node, "axis", Attribute::INT).set_ref_attr_name("axis");
      },
      bad + "Softmax): attribute 'axis' refers to an attribute of a function");
  nodes.add(
      "attribute-twice", "Softmax", {"y"},
      [](ModelBuilder &, onnx::NodeProto &node) {
        ModelBuilder::attr(node, "axis", int64_t(1));
        ModelBuilder::attr(node, "axis", int64_t(0));
      },
      bad + "Softmax): attribute 'axis' is given twice");
}

//===- operands ------------------------------------------------------------===//

void addOperands(Files &files) {
  Nodes nodes(files);
  const std::string bad = "node 'bad' (";
  nodes.ints("reshape-two-open", "Reshape", {-1, -1}, bad + "Reshape): leaves two dims open");
  nodes.ints("reshape-negative", "Reshape", {-2, 4}, bad + "Reshape): asks for a dim of size -2");
  nodes.ints("reshape-min", "Reshape", {INT64_MIN}, bad + "Reshape): asks for a dim");
  nodes.ints("reshape-max", "Reshape", {INT64_MAX, INT64_MAX}, bad + "Reshape): asks for more");
  nodes.ints("reshape-copies-nothing", "Reshape", {-1, 4, 0}, bad + "Reshape): copies dim 2");
  nodes.ints("reshape-mismatch", "Reshape", {-1, 3}, bad + "Reshape): reshapes [batch, 4]");
  nodes.ints("reshape-rank-17", "Reshape", std::vector<int64_t>(17, 1), bad + "Reshape)");
  nodes.ints("expand-negative", "Expand", {-1, 4}, bad + "Expand): asks for a dim of size -1");
  nodes.ints("expand-mismatch", "Expand", {1, 5}, "do not broadcast");
  nodes.ints("tile-short", "Tile", {2}, bad + "Tile): has 1 repeats");
  nodes.ints("tile-max", "Tile", {1, INT64_MAX}, bad + "Tile)");
  nodes.ints("gather-outside", "Gather", {INT64_MAX}, bad + "Gather): index 9223372036854775807");
  nodes.ints("gather-min", "Gather", {INT64_MIN}, bad + "Gather): index -9223372036854775808");
  nodes.ints("squeeze-other", "Squeeze", {1}, bad + "Squeeze): squeezes dim 1");
  nodes.ints("unsqueeze-twice", "Unsqueeze", {0, 0}, bad + "Unsqueeze): an axis is given twice");
  nodes.ints(
      "unsqueeze-many", "Unsqueeze",
      [] {
        std::vector<int64_t> axes(100000);
        for (size_t i = 0; i < axes.size(); ++i)
          axes[i] = int64_t(i);
        return axes;
      }(),
      bad + "Unsqueeze)");
  nodes.ints("reduce-outside", "ReduceSum", {2}, bad + "ReduceSum): axis 2");
  nodes.ints("pad-short", "Pad", {1, 1}, bad + "Pad): has 2 pads");
  nodes.ints("pad-min", "Pad", {0, INT64_MIN, 0, 0}, bad + "Pad)");
  nodes.ints("pad-max", "Pad", {0, INT64_MAX, 0, INT64_MAX}, bad + "Pad)");
  nodes.ints("split-negative", "Split", {-4}, bad + "Split): splits into parts of negative");
  nodes.ints("split-overflow", "Split", {INT64_MAX, INT64_MAX}, bad + "Split)");
  nodes.ints("trilu-max", "Trilu", {INT64_MAX}, bad + "Trilu)");
  nodes.ints("trilu-of-none", "Trilu", {}, bad + "Trilu)");
  nodes.ints("cumsum-of-none", "CumSum", {}, bad + "CumSum)", "one");
  nodes.ints("constant-of-shape-negative", "ConstantOfShape", {-1}, bad + "ConstantOfShape)",
             "list");
  auto slice = [&](const std::string &name, std::vector<int64_t> starts, std::vector<int64_t> ends,
                   std::vector<int64_t> axes, std::vector<int64_t> steps,
                   const std::string &expected) {
    nodes.add(
        "slice-" + name, "Slice", {"y", "starts", "ends", "axes", "steps"},
        [&](ModelBuilder &model, onnx::NodeProto &) {
          model.ints("starts", {int64_t(starts.size())}, starts);
          model.ints("ends", {int64_t(ends.size())}, ends);
          model.ints("axes", {int64_t(axes.size())}, axes);
          model.ints("steps", {int64_t(steps.size())}, steps);
        },
        expected);
  };
  slice("step-zero", {0}, {4}, {1}, {0}, bad + "Slice): slices in steps of 0");
  slice("everything-max", {0}, {INT64_MAX}, {1}, {1}, "");
  slice("backwards-min", {INT64_MAX}, {INT64_MIN}, {1}, {-1}, "");
  slice("step-max", {0}, {INT64_MAX}, {1}, {INT64_MAX}, "");
  slice("step-min", {INT64_MAX}, {INT64_MIN}, {1}, {INT64_MIN}, "");
  slice("to-nothing", {3}, {1}, {1}, {1}, "has no elements");
  slice("axis-outside", {0}, {1}, {2}, {1}, bad + "Slice): axis 2");
  slice("lengths", {0, 0}, {1}, {1}, {1}, bad + "Slice): starts, ends, axes and steps");
  auto range = [&](const std::string &name, int64_t start, int64_t limit, int64_t step,
                   const std::string &expected) {
    nodes.add(
        "range-" + name, "Range", {"start", "limit", "step"},
        [&](ModelBuilder &model, onnx::NodeProto &) {
          model.ints("start", {}, {start});
          model.ints("limit", {}, {limit});
          model.ints("step", {}, {step});
        },
        expected);
  };
  range("step-zero", 0, 4, 0, bad + "Range): counts in steps of 0");
  range("endless", 0, INT64_MAX, 1, bad + "Range): counts through too many steps");
  range("whole", INT64_MIN, INT64_MAX, INT64_MAX, bad + "Range): integer arithmetic");
  range("backwards", INT64_MAX, INT64_MIN, INT64_MIN, "");
  range("empty", 4, 0, 1, "has no elements");
  nodes.add(
      "range-of-lists", "Range", {"none", "one", "one"}, [](ModelBuilder &, onnx::NodeProto &) {},
      bad + "Range)");
  nodes.add(
      "range-of-nan", "Range", {"start", "limit", "step"},
      [](ModelBuilder &model, onnx::NodeProto &) {
        model.floats("start", {}, {0});
        model.floats("limit", {}, {std::nanf("")});
        model.floats("step", {}, {1});
      },
      bad + "Range)");
  nodes.add(
      "where-of-floats", "Where", {"y", "y", "y"}, [](ModelBuilder &, onnx::NodeProto &) {},
      bad + "Where)");
  nodes.add(
      "gather-by-floats", "Gather", {"y", "y"}, [](ModelBuilder &, onnx::NodeProto &) {},
      bad + "Gather): needs integer indices");
  nodes.add(
      "shape-from-data", "Reshape", {"y", "y"}, [](ModelBuilder &, onnx::NodeProto &) {},
      bad + "Reshape): input 1 ('y') must be integers");
  nodes.add(
      "integers-by-zero", "Div", {"one", "zero"},
      [](ModelBuilder &model, onnx::NodeProto &) { model.ints("zero", {1}, {0}); },
      bad + "Div): integer division by zero");
  nodes.add(
      "integer-overflow", "Add", {"one", "max"},
      [](ModelBuilder &model, onnx::NodeProto &) { model.ints("max", {1}, {INT64_MAX}); },
      bad + "Add): integer arithmetic on shapes overflows");
  nodes.add(
      "integer-sum-overflow", "ReduceSum", {"list"},
      [](ModelBuilder &model, onnx::NodeProto &) {
        model.ints("list", {3}, {INT64_MAX, INT64_MAX, 5});
      },
      bad + "ReduceSum): integer arithmetic on shapes overflows");
  nodes.add(
      "integer-running-sum-overflow", "CumSum", {"list", "axis"},
      [](ModelBuilder &model, onnx::NodeProto &) {
        model.ints("list", {3}, {INT64_MAX, INT64_MAX, 5});
        model.ints("axis", {}, {0});
      },
      bad + "CumSum): integer arithmetic on shapes overflows");
  nodes.add(
      "cast-nan-to-narrow-integer", "Cast", {"nan"},
      [](ModelBuilder &model, onnx::NodeProto &node) {
        model.floats("nan", {}, {std::nanf("")});
        ModelBuilder::attr(node, "to", int64_t(onnx::TensorProto::INT16));
      },
      bad + "Cast): a number that is not finite");
  nodes.add(
      "gemm-mismatch", "Gemm", {"y", "w"}, [](ModelBuilder &, onnx::NodeProto &) {},
      bad + "Gemm): needs matrices");
  nodes.add(
      "matmul-mismatch", "MatMul", {"y", "w"}, [](ModelBuilder &, onnx::NodeProto &) {},
      bad + "MatMul): multiplies matrices of shapes");
}

} // namespace

std::vector<HostileFile> valueFiles() {
  Files files;
  addDims(files);
  addTensors(files);
  addTypes(files);
  addAttributes(files);
  addOperands(files);
  return files;
}

} // namespace tbc::test
