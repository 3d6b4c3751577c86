//===- CorpusBombs.cpp - Small files with large demands -------------------===//

#include "tests/hostile/Corpus.h"

namespace tbc::test {

namespace {

using Files = std::vector<HostileFile>;

void add(Files &files, const std::string &name, const ModelBuilder &model,
         const std::string &expected) {
  files.push_back({name, model.bytes(), expected});
}

/// Objects of a few bytes each that protobuf makes a hundred times as large.
void addManyObjects(Files &files) {
  ModelBuilder nodes = reluModel();
  for (int i = 0; i < 400000; ++i)
    nodes.proto.mutable_graph()->add_node()->set_op_type("A");
  add(files, "nodes-400000", nodes, "too many objects for a file of");
  ModelBuilder initializers = reluModel();
  for (int i = 0; i < 400000; ++i)
    initializers.proto.mutable_graph()->add_initializer();
  add(files, "initializers-400000", initializers, "too many objects for a file of");
  ModelBuilder inputs = reluModel();
  for (int i = 0; i < 600000; ++i)
    inputs.proto.mutable_graph()->add_input();
  add(files, "inputs-600000", inputs, "too many objects for a file of");
  ModelBuilder attributes = reluModel();
  for (int i = 0; i < 400000; ++i)
    attributes.proto.mutable_graph()->mutable_node(0)->add_attribute();
  add(files, "attributes-400000", attributes, "too many objects for a file of");
  ModelBuilder edges = reluModel();
  onnx::NodeProto &sum = edges.node("Sum", {}, {"s"}, "the_sum");
  for (int i = 0; i < 2000000; ++i)
    sum.add_input("");
  add(files, "empty-inputs-2000000", edges, "too many objects for a file of");
  ModelBuilder functions = reluModel();
  for (int i = 0; i < 400000; ++i)
    functions.proto.add_functions();
  add(files, "functions-400000", functions, "too many objects for a file of");
  ModelBuilder sets = reluModel();
  for (int i = 0; i < 800000; ++i)
    sets.proto.add_opset_import();
  add(files, "operator-sets-800000", sets, "too many objects for a file of");
  ModelBuilder metadata = reluModel();
  for (int i = 0; i < 400000; ++i)
    metadata.proto.add_metadata_props();
  add(files, "metadata-400000", metadata, "");
  ModelBuilder ints = reluModel();
  ModelBuilder::attr(*ints.proto.mutable_graph()->mutable_node(0), "axes",
                     std::vector<int64_t>(1200000, 1));
  add(files, "attribute-list-1200000", ints, "more than 1000000 elements in lists");
  ModelBuilder text = reluModel();
  ModelBuilder::attr(*text.proto.mutable_graph()->mutable_node(0), "mode",
                     std::string((1 << 20) + 1, 'm'));
  add(files, "attribute-text-1-MiB", text, "a text of 1048577 bytes in a attribute");
  ModelBuilder data = reluModel();
  onnx::TensorProto &tensor = *data.proto.mutable_graph()->add_initializer();
  tensor.set_name("w");
  tensor.set_data_type(onnx::TensorProto::INT64);
  tensor.add_dims(3000000);
  for (int i = 0; i < 3000000; ++i)
    tensor.add_int64_data(0);
  data.node("Gather", {"w", "w"}, {"g"}, "the_gather");
  add(files, "int64-data-3000000", data, "");
}

/// Work or memory grows faster than the file.
void addAmplification(Files &files) {
  ModelBuilder names;
  names.input("x", {"batch", "4"});
  std::string last = "x";
  for (int i = 0; i < 20000; ++i) {
    std::string next = "v" + std::to_string(i);
    names.node("Relu", {last}, {next}, "same");
    last = next;
  }
  names.output(last);
  add(files, "nodes-of-one-name-20000", names, "");

  // The names `n#0`, `n#1` ... collide with those that numbering gives to the nodes called `n`.
  ModelBuilder numbered;
  numbered.input("x", {"batch", "4"});
  for (int i = 0; i < 10000; ++i) {
    numbered.node("Relu", {"x"}, {"a" + std::to_string(i)}, "n");
    numbered.node("Relu", {"x"}, {"b" + std::to_string(i)}, "n#" + std::to_string(i));
  }
  numbered.output("a0");
  add(files, "names-like-numbered-ones", numbered, "");

  auto doubling = [&](const std::string &name, int times, bool known, const std::string &expected) {
    ModelBuilder model = reluModel();
    std::string value = "y";
    if (known) {
      model.ints("c", {2}, {3, 5});
      value = "c";
    }
    for (int i = 0; i < times; ++i) {
      std::string next = "d" + std::to_string(i);
      ModelBuilder::attr(model.node("Concat", {value, value}, {next}, "concat" + std::to_string(i)),
                         "axis", int64_t(-1));
      value = next;
    }
    model.output(value);
    add(files, name, model, expected);
  };
  doubling("concat-of-constants-40", 40, true, "(Concat): a table of more than");
  doubling("concat-of-constants-100", 100, true, "(Concat): a table of more than");
  doubling("concat-of-data-70", 70, false, "too large");
  doubling("concat-of-data-500", 500, false, "too large");

  // A parameter doubled 26 times: its dim has twice as many segments after each Concat.
  std::string value;
  auto meanOf = [](ModelBuilder &model, const std::string &value) {
    ModelBuilder::attr(model.node("ReduceMean", {value}, {"mean"}, "the_mean"), "keepdims",
                       int64_t(0));
    model.node("Add", {"y", "mean"}, {"z"}, "the_add");
    model.output("z");
  };
  ModelBuilder parameter = reluModel();
  parameter.floats("w", {4}, {1, 2, 3, 4});
  value = "w";
  for (int i = 0; i < 26; ++i) {
    std::string next = "d" + std::to_string(i);
    ModelBuilder::attr(parameter.node("Concat", {value, value}, {next}, "concat" + next), "axis",
                       int64_t(0));
    value = next;
  }
  meanOf(parameter, value);
  add(files, "concat-of-a-parameter-26", parameter, "");
  auto loop = [&](const std::string &name, const std::string &type, int64_t trips,
                  const std::string &expected) {
    ModelBuilder model = reluModel();
    model.floats("w", {4}, {1, 2, 3, 4});
    model.ints("trips", {}, {trips});
    onnx::NodeProto &node = model.node("Loop", {"trips", "", "w"}, {"last"}, "the_loop");
    onnx::AttributeProto &attribute = *node.add_attribute();
    attribute.set_name("body");
    attribute.set_type(onnx::AttributeProto::GRAPH);
    onnx::GraphProto &body = *attribute.mutable_g();
    for (const char *input : {"i", "go", "v"})
      body.add_input()->set_name(input);
    onnx::NodeProto &twice = *body.add_node();
    twice.set_op_type(type);
    twice.add_input("v");
    twice.add_input("v");
    twice.add_output("vv");
    if (type == "Concat")
      ModelBuilder::attr(twice, "axis", int64_t(0));
    body.add_output()->set_name("go");
    body.add_output()->set_name("vv");
    meanOf(model, "last");
    add(files, name, model, expected);
  };
  loop("loop-of-concats-40", "Concat", 40, "");
  loop("loop-of-concats-70", "Concat", 70, "more than 2^56");
  loop("loop-of-sums-2^62", "Add", int64_t(1) << 62, "unrolls to more than 32768 nodes");

  // The reverse: a dim is split into halves again and again.
  ModelBuilder halves = reluModel();
  int64_t length = int64_t(1) << 26;
  halves.external("w", {4, length}, "w.bin", "", "");
  halves.node("MatMul", {"y", "w"}, {"h0"}, "the_product");
  halves.ints("one", {1}, {1});
  halves.ints("zero", {1}, {0});
  for (int i = 0; i < 24; ++i) {
    std::string at = std::to_string(i);
    halves.ints("end" + at, {1}, {length});
    halves.ints("middle" + at, {1}, {length /= 2});
    halves.node("Slice", {"h" + at, "zero", "middle" + at, "one"}, {"a" + at}, "first" + at);
    halves.node("Slice", {"h" + at, "middle" + at, "end" + at, "one"}, {"b" + at}, "second" + at);
    halves.node("Add", {"a" + at, "b" + at}, {"h" + std::to_string(i + 1)}, "sum" + at);
  }
  halves.output("h24");
  add(files, "halves-of-a-dim-24", halves, "");

  // Expressions that patterns examine. Each op reads the previous one twice.
  for (const char *type : {"Mul", "Add"}) {
    ModelBuilder model = reluModel();
    value = "y";
    for (int i = 0; i < 60; ++i) {
      std::string next = "t" + std::to_string(i);
      model.node(type, {value, value}, {next}, "twice" + std::to_string(i));
      value = next;
    }
    model.node("Erf", {value}, {"erf"}, "the_erf");
    model.node("Mul", {"erf", value}, {"product"}, "the_product");
    ModelBuilder::attr(model.node("Softmax", {"product"}, {"weights"}, "the_softmax"), "axis",
                       int64_t(-1));
    model.floats("v", {4, 4}, std::vector<float>(16, 0.5f));
    model.node("MatMul", {"weights", "v"}, {"z"}, "the_matmul");
    model.output("z");
    add(files, std::string("twice-60-") + type, model, "");
  }

  ModelBuilder expand = reluModel();
  expand.ints("sizes", {3}, {int64_t(1) << 62, int64_t(1) << 62, 4});
  expand.node("Expand", {"y", "sizes"}, {"huge"}, "the_expand");
  expand.node("Add", {"huge", "huge"}, {"sum"}, "the_sum");
  expand.node("Tanh", {"sum"}, {"z"}, "the_tanh");
  expand.output("z");
  add(files, "expand-2^126", expand, "[4611686018427387904, batch, 4]");
  ModelBuilder expands = reluModel();
  value = "y";
  for (int i = 0; i < 60; ++i) {
    std::string next = "e" + std::to_string(i), shape = "shape" + std::to_string(i);
    expands.ints(shape, {3}, {int64_t(2) << i, 2, 4});
    expands.node("Expand", {value, shape}, {next}, "expand" + std::to_string(i));
    value = next;
  }
  expands.output(value);
  add(files, "expand-doubling-60", expands, "do not broadcast");
  ModelBuilder tile = reluModel();
  tile.ints("repeats", {2}, {int64_t(1) << 40, int64_t(1) << 40});
  tile.node("Tile", {"y", "repeats"}, {"z"}, "the_tile");
  tile.output("z");
  add(files, "tile-2^80", tile, "the_tile");
  ModelBuilder fill = reluModel();
  fill.ints("sizes", {2}, {int64_t(1) << 31, int64_t(1) << 31});
  fill.node("ConstantOfShape", {"sizes"}, {"fill"}, "the_fill");
  fill.node("CumSum", {"fill", "axis"}, {"sums"}, "the_cumsum");
  fill.ints("axis", {}, {1});
  fill.node("ReduceSum", {"sums"}, {"z"}, "the_reduce");
  fill.output("z");
  add(files, "constant-of-2^62", fill, "node 'the_fill' (ConstantOfShape): makes a tensor");
  ModelBuilder range = reluModel();
  range.ints("zero", {}, {0});
  range.ints("limit", {}, {int64_t(1) << 39});
  range.ints("one", {}, {1});
  range.node("Range", {"zero", "limit", "one"}, {"r"}, "the_range");
  range.node("Mul", {"r", "r"}, {"squares"}, "the_square");
  range.output("squares");
  add(files, "range-2^39-squared", range, "");
  ModelBuilder power = reluModel();
  power.ints("base", {1}, {3});
  power.ints("exponent", {1}, {INT64_MAX});
  power.node("Pow", {"base", "exponent"}, {"p"}, "the_pow");
  power.output("p");
  add(files, "power-2^63", power, "the_pow");
  ModelBuilder squares = reluModel();
  squares.ints("c", {4}, {3, 5, 7, 11});
  value = "c";
  for (int i = 0; i < 70; ++i) {
    std::string next = "s" + std::to_string(i);
    squares.node("Mul", {value, value}, {next}, "square" + std::to_string(i));
    value = next;
  }
  squares.output(value);
  add(files, "squares-70", squares, "overflows");

  // Arithmetic on constants of the largest allowed size, again and again.
  ModelBuilder work = reluModel();
  std::vector<int64_t> elements(1 << 15);
  for (size_t i = 0; i < elements.size(); ++i)
    elements[i] = int64_t(i * i % 1009);
  work.ints("c", {1 << 15}, elements);
  value = "c";
  for (int i = 0; i < 20000; ++i) {
    std::string next = "w" + std::to_string(i);
    work.node("Min", {value, "c"}, {next}, "min" + std::to_string(i));
    value = next;
  }
  work.output(value);
  add(files, "constants-20000-times", work, "too much arithmetic on constants");

  ModelBuilder gather = reluModel();
  std::vector<int64_t> many(1 << 16, 1);
  many[0] = 0;
  gather.ints("indices", {1 << 16}, many);
  value = "y";
  for (int i = 0; i < 6; ++i) { // each Gather adds a dim of 2^16
    std::string next = "g" + std::to_string(i);
    ModelBuilder::attr(
        gather.node("Gather", {value, "indices"}, {next}, "gather" + std::to_string(i)), "axis",
        int64_t(1));
    value = next;
  }
  gather.output(value);
  add(files, "gather-chain", gather, "");

  // Initializer dims are multiples of the primes that represent the batch.
  ModelBuilder primes = reluModel();
  std::vector<int64_t> sizes;
  for (int64_t candidate = 10007; sizes.size() < 4000; candidate += 2) {
    bool isPrime = true;
    for (int64_t d = 3; isPrime && d * d <= candidate; d += 2)
      isPrime = candidate % d != 0;
    if (isPrime)
      sizes.push_back(candidate);
  }
  for (size_t i = 0; i < sizes.size(); ++i)
    primes.external("p" + std::to_string(i), {sizes[i]}, "p" + std::to_string(i), "", "");
  add(files, "dims-of-4000-primes", primes, "tensors are multiples of every prime");
}

} // namespace

std::vector<HostileFile> bombFiles() {
  Files files;
  addManyObjects(files);
  addAmplification(files);
  return files;
}

} // namespace tbc::test
