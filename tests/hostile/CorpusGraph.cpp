//===- CorpusGraph.cpp - Files with wrong names and edges -----------------===//

#include "tests/hostile/Corpus.h"

namespace tbc::test {

namespace {

using Files = std::vector<HostileFile>;

void add(Files &files, const std::string &name, const ModelBuilder &model,
         const std::string &expected) {
  files.push_back({name, model.bytes(), expected});
}

onnx::GraphProto &graphOf(ModelBuilder &model) { return *model.proto.mutable_graph(); }

onnx::GraphProto &addSubgraph(onnx::NodeProto &node, const std::string &name) {
  onnx::AttributeProto &attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::GRAPH);
  attribute.mutable_g()->set_name(name);
  return *attribute.mutable_g();
}

void addNames(Files &files) {
  auto named = [&](const std::string &name, const std::string &text, const std::string &expected) {
    ModelBuilder model = reluModel();
    graphOf(model).mutable_node(0)->set_name(text);
    add(files, "node-name-" + name, model, expected);
  };
  named("long", std::string(5000, 'n'), "a text of 5000 bytes in a node; at most 4096");
  named("not-utf8", "\xff\xfe",
        "a name in a node is not valid UTF-8 text: \"\\xff\\xfe\", in model.graph.node[0]; change "
        "it in Python and save the model again");
  named("latin-1", "caf\xe9", "not valid UTF-8 text: \"caf\\xe9\", in model.graph.node[0]");
  named("combining", "e\xcc\x81/\xe2\x80\x8f", "");
  named("overlong", "\xc0\xaf", "not valid UTF-8");
  named("surrogate", "\xed\xa0\x80", "not valid UTF-8");
  named("cut-utf8", "\xe2\x82", "not valid UTF-8");
  named("nul", std::string("a\0b", 3), "has the control character \\x00: \"a\\x00b\"");
  named("escape", "\x1b[2J",
        "a name in a node has the control character \\x1b: \"\\x1b[2J\", in model.graph.node[0];");
  named("newline", "a\nb", "has the control character \\x0a: \"a\\x0ab\"");
  named("quotes", "' or \"1\"=\"1", "");
  named("unicode", "\xe2\x82\xac/\xf0\x9f\x98\x80", "");

  ModelBuilder value = reluModel();
  graphOf(value).mutable_node(0)->set_output(0, std::string("y\0", 2));
  add(files, "value-name-nul", value, "has the control character \\x00: \"y\\x00\"");
  ModelBuilder initializer = reluModel();
  initializer.floats("w\x7f", {1}, {1});
  add(files, "initializer-name-control", initializer,
      "a name in a tensor has the control character \\x7f: \"w\\x7f\", in "
      "model.graph.initializer[0]");
  ModelBuilder symbol;
  symbol.input("x", {"batch", "s\xff"});
  symbol.node("Relu", {"x"}, {"y"}, "r");
  symbol.output("y");
  add(files, "dim-name-not-utf8", symbol,
      "a name in a dim is not valid UTF-8 text: \"s\\xff\", in model.graph.input[0]");
  ModelBuilder type = reluModel();
  graphOf(type).mutable_node(0)->set_op_type("Relu\n");
  add(files, "op-type-newline", type, "has the control character \\x0a: \"Relu\\x0a\"");

  ModelBuilder twice = reluModel();
  twice.node("Neg", {"x"}, {"y"}, "again");
  add(files, "value-twice", twice, "node 'again' (Neg) defines 'y', which is already defined");
  ModelBuilder own = reluModel();
  own.node("Split", {"x"}, {"a", "a"}, "the_split");
  add(files, "value-twice-by-one-node", own, "node 'the_split' (Split) defines 'a'");
  ModelBuilder input = reluModel();
  input.node("Neg", {"y"}, {"x"}, "over");
  add(files, "value-is-an-input", input, "node 'over' (Neg) defines 'x'");
  ModelBuilder weight = reluModel();
  weight.floats("w", {1}, {1});
  weight.node("Neg", {"y"}, {"w"}, "over");
  add(files, "value-is-an-initializer", weight, "node 'over' (Neg) defines 'w'");
  ModelBuilder weights = reluModel();
  weights.floats("w", {1}, {1});
  weights.floats("w", {1}, {2});
  add(files, "initializer-twice", weights, "initializer 'w' is defined twice");
  ModelBuilder unnamed = reluModel();
  unnamed.floats("", {1}, {1});
  add(files, "initializer-unnamed", unnamed, "an initializer has no name");
  ModelBuilder inputs = reluModel();
  inputs.input("x", {"batch", "4"});
  add(files, "input-twice", inputs, "graph input 'x' has no name or is there twice");
  ModelBuilder noName = reluModel();
  noName.input("", {"batch", "4"});
  add(files, "input-unnamed", noName, "graph input '' has no name");
  ModelBuilder missing = reluModel();
  missing.node("Neg", {"nowhere"}, {"z"}, "reader");
  add(files, "value-missing", missing, "node 'reader' (Neg) reads 'nowhere'");
  ModelBuilder noInput = reluModel();
  noInput.node("Neg", {""}, {"z"}, "reader");
  noInput.output("z");
  add(files, "input-left-out", noInput, "node 'reader' (Neg): input 0 is missing");
  ModelBuilder noInputs = reluModel();
  noInputs.node("Neg", {}, {"z"}, "reader");
  noInputs.output("z");
  add(files, "inputs-none", noInputs, "node 'reader' (Neg): input 0 is missing");
  ModelBuilder manyInputs = reluModel();
  manyInputs.node("Add", {"x", "x", "x"}, {"z"}, "adder");
  manyInputs.output("z");
  add(files, "inputs-too-many", manyInputs, "node 'adder' (Add): has 3 inputs");
  ModelBuilder manyOutputs = reluModel();
  manyOutputs.node("Neg", {"x"}, {"z", "z2"}, "neg");
  manyOutputs.output("z2");
  add(files, "outputs-too-many", manyOutputs, "node 'neg' (Neg)");
  ModelBuilder output = reluModel();
  output.output("nothing");
  add(files, "output-missing", output, "graph output 'nothing' is not defined");
  ModelBuilder outputs = reluModel();
  graphOf(outputs).clear_output();
  add(files, "outputs-none", outputs, "the graph has no outputs");
  ModelBuilder again = reluModel();
  again.output("y");
  add(files, "output-twice", again, "");
  ModelBuilder emptyOutput = reluModel();
  emptyOutput.output("");
  add(files, "output-unnamed", emptyOutput, "graph output '' is not defined");
}

void addCycles(Files &files) {
  ModelBuilder cycle = reluModel();
  cycle.node("Add", {"x", "c"}, {"a"}, "first");
  cycle.node("Relu", {"a"}, {"b"}, "second");
  cycle.node("Relu", {"b"}, {"c"}, "third");
  add(files, "cycle-of-three", cycle, "the graph has a cycle through node '");
  ModelBuilder self = reluModel();
  self.node("Add", {"x", "a"}, {"a"}, "self");
  add(files, "cycle-of-one", self, "the graph has a cycle through node 'self' (Add)");
  ModelBuilder large = reluModel();
  std::string last = "end";
  for (int i = 0; i < 20000; ++i) {
    std::string next = i == 19999 ? "end" : "v" + std::to_string(i);
    large.node("Relu", {last}, {next}, "n" + std::to_string(i));
    last = next;
  }
  add(files, "cycle-of-20000", large, "the graph has a cycle through node 'n");
  ModelBuilder backwards;
  backwards.input("x", {"batch", "4"});
  for (int i = 20000; i > 0; --i)
    backwards.node("Relu", {i == 1 ? "x" : "v" + std::to_string(i - 1)}, {"v" + std::to_string(i)});
  backwards.output("v20000");
  add(files, "nodes-backwards", backwards, "");
}

void addSubgraphs(Files &files) {
  auto nested = [&](unsigned depth, const std::string &expected) {
    ModelBuilder model = reluModel();
    onnx::GraphProto *graph = &graphOf(model);
    for (unsigned i = 0; i < depth; ++i) {
      onnx::NodeProto &node = *graph->add_node();
      node.set_op_type("If");
      node.set_name("if" + std::to_string(i));
      graph = &addSubgraph(node, "then_branch");
    }
    add(files, "graphs-nested-" + std::to_string(depth), model, expected);
  };
  nested(14, "if0");
  nested(16, "graphs are nested more than 16 deep");
  nested(2000, "graphs are nested more than 16 deep");

  // Nested by hand: protobuf's own recursion limit does not apply to raw bytes.
  RawMessage graph;
  for (int i = 0; i < 5000; ++i)
    graph = RawMessage().message(
        1, RawMessage().bytes(4, "If").message(5, RawMessage().bytes(1, "b").message(6, graph)));
  files.push_back({"graphs-nested-5000", RawMessage().varint(1, 8).message(7, graph).text,
                   "graphs are nested more than 16 deep"});
  RawMessage type;
  for (int i = 0; i < 5000; ++i) // sequence(sequence(...))
    type = RawMessage().message(4, RawMessage().message(1, type));
  ModelBuilder sequence = reluModel();
  files.push_back(
      {"types-nested-5000",
       RawMessage()
           .message(7, RawMessage().message(11, RawMessage().bytes(1, "s").message(2, type)))
           .append(sequence.bytes())
           .text,
       "input 's' is not a tensor of known rank"});

  ModelBuilder ifModel = reluModel();
  ifModel.node("If", {"y"}, {"z"}, "the_if");
  ifModel.output("z");
  add(files, "if-without-branches", ifModel, "the_if");
  ModelBuilder loop = reluModel();
  loop.ints("trips", {}, {INT64_MAX});
  onnx::NodeProto &loopNode = loop.node("Loop", {"trips", "", "x"}, {"z"}, "the_loop");
  onnx::GraphProto &body = addSubgraph(loopNode, "body");
  for (const char *name : {"i", "c", "v"})
    body.add_input()->set_name(name);
  onnx::NodeProto &step = *body.add_node();
  step.set_op_type("Add");
  step.add_input("v");
  step.add_input("v");
  step.add_output("v2");
  body.add_output()->set_name("c");
  body.add_output()->set_name("v2");
  loop.output("z");
  add(files, "loop-2^63-times", loop, "the_loop");
  ModelBuilder nestedLoop = reluModel();
  nestedLoop.ints("trips", {}, {1000});
  onnx::GraphProto *at = &graphOf(nestedLoop);
  for (int depth = 0; depth < 10; ++depth) { // 1000^10 steps
    onnx::NodeProto &node = *at->add_node();
    node.set_op_type("Loop");
    node.set_name("loop" + std::to_string(depth));
    node.add_input("trips");
    node.add_input("");
    node.add_input(depth == 0 ? "x" : "v" + std::to_string(depth - 1));
    node.add_output("out" + std::to_string(depth));
    at = &addSubgraph(node, "body");
    for (const char *name : {"i", "c", "v"})
      at->add_input()->set_name(name + std::to_string(depth));
    at->add_output()->set_name("c" + std::to_string(depth));
    at->add_output()->set_name(depth == 9 ? "v9" : "out" + std::to_string(depth + 1));
  }
  nestedLoop.output("out0");
  add(files, "loops-1000^10-times", nestedLoop, "loop0");
  ModelBuilder scan = reluModel();
  ModelBuilder::attr(scan.node("Scan", {"x", "x"}, {"z"}, "the_scan"), "num_scan_inputs",
                     INT64_MIN);
  scan.output("z");
  add(files, "scan-without-body", scan, "the_scan");
}

onnx::FunctionProto &addFunction(ModelBuilder &model, const std::string &name,
                                 const std::string &calls) {
  onnx::FunctionProto &function = *model.proto.add_functions();
  function.set_domain("local");
  function.set_name(name);
  function.add_input("a");
  function.add_output("b");
  onnx::OperatorSetIdProto &set = *function.add_opset_import();
  set.set_version(18);
  if (!calls.empty()) {
    onnx::NodeProto &node = *function.add_node();
    node.set_op_type(calls);
    node.set_domain("local");
    node.set_name("calls_" + calls);
    node.add_input("a");
    node.add_output("b");
  }
  return function;
}

ModelBuilder callerOf(const std::string &function) {
  ModelBuilder model = reluModel();
  onnx::OperatorSetIdProto &set = *model.proto.add_opset_import();
  set.set_domain("local");
  set.set_version(1);
  model.node(function, {"y"}, {"z"}, "the_call").set_domain("local");
  model.output("z");
  return model;
}

void addFunctions(Files &files) {
  ModelBuilder self = callerOf("f");
  addFunction(self, "f", "f");
  add(files, "function-calls-itself", self, "function 'local.f' calls itself");
  ModelBuilder ring = callerOf("f0");
  for (int i = 0; i < 50; ++i)
    addFunction(ring, "f" + std::to_string(i), "f" + std::to_string((i + 1) % 50));
  add(files, "functions-in-a-ring", ring, "function 'local.f0' calls itself");
  ModelBuilder chain = callerOf("f0");
  for (int i = 0; i < 5000; ++i)
    addFunction(chain, "f" + std::to_string(i),
                i == 4999 ? "missing" : "f" + std::to_string(i + 1));
  add(files, "functions-nested-5000", chain, "calls functions more than 64 deep");
  // Each calls the next one twice: 2^40 nodes.
  ModelBuilder doubling = callerOf("f0");
  for (int i = 0; i < 40; ++i) {
    onnx::FunctionProto &function = addFunction(doubling, "f" + std::to_string(i), "");
    for (int half = 0; half < 2; ++half) {
      onnx::NodeProto &node = *function.add_node();
      node.set_op_type(i == 39 ? "Relu" : "f" + std::to_string(i + 1));
      node.set_domain(i == 39 ? "" : "local");
      node.add_input(half == 0 ? "a" : "m");
      node.add_output(half == 0 ? "m" : "b");
    }
  }
  add(files, "functions-doubling", doubling, "the local functions expand to more than");
  ModelBuilder twice = callerOf("f");
  addFunction(twice, "f", "g");
  addFunction(twice, "f", "h");
  add(files, "function-twice", twice, "function 'local.f' is defined twice");
  ModelBuilder absent = callerOf("absent");
  add(files, "function-missing", absent, "local");
  ModelBuilder hollow = callerOf("f");
  addFunction(hollow, "f", "");
  add(files, "function-without-nodes", hollow, "local");
  ModelBuilder unused = reluModel();
  addFunction(unused, "f", "f");
  add(files, "function-unused-and-cyclic", unused, "");
}

void addDomains(Files &files) {
  auto opset = [&](const std::string &name, int64_t version) {
    ModelBuilder model(version);
    model.input("x", {"batch", "4"});
    model.node("Relu", {"x"}, {"y"}, "r");
    model.output("y");
    add(files, "opset-" + name, model, "uses operator set " + std::to_string(version));
  };
  opset("0", 0);
  opset("-1", -1);
  opset("1", 1);
  opset("5", 5);
  opset("9999", 9999);
  opset("min", INT64_MIN);
  opset("max", INT64_MAX);
  ModelBuilder none = reluModel();
  none.proto.clear_opset_import();
  add(files, "opset-none", none, "uses operator set 0");
  ModelBuilder other = reluModel();
  other.proto.mutable_opset_import(0)->set_domain("com.example");
  add(files, "opset-of-another-domain", other, "uses operator set 0");
  ModelBuilder several = reluModel();
  several.proto.add_opset_import()->set_version(13);
  add(files, "opset-twice", several, "two versions of the standard operator set, 18 and 13");
  ModelBuilder domain = reluModel();
  domain.node("Relu", {"x"}, {"z"}, "theirs").set_domain("com.example");
  add(files, "domain-unknown", domain, "com.example.Relu: theirs");
  ModelBuilder type = reluModel();
  type.node("Mystery", {"x"}, {"z"}, "what");
  add(files, "op-unknown", type, "Mystery: what");
  ModelBuilder all = reluModel();
  all.node("Unique", {"x"}, {"a"}, "first");
  all.node("Unique", {"x"}, {"b"}, "second");
  add(files, "op-unknown-twice", all, "first second");
}

} // namespace

std::vector<HostileFile> graphFiles() {
  Files files;
  addNames(files);
  addCycles(files);
  addSubgraphs(files);
  addFunctions(files);
  addDomains(files);
  return files;
}

} // namespace tbc::test
