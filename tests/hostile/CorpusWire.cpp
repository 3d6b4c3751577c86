//===- CorpusWire.cpp - Files with wrong bytes ----------------------------===//

#include "tests/hostile/Corpus.h"

#include "frontend/onnx/Wire.h"

#include <set>

using tbc::frontend::putTag;
using tbc::frontend::putVarint;
using tbc::frontend::Wire;
using tbc::frontend::WireField;
using tbc::frontend::WireType;

namespace tbc::test {

RawMessage &RawMessage::varint(unsigned field, uint64_t value) {
  putTag(text, field, WireType::Varint);
  putVarint(text, value);
  return *this;
}

RawMessage &RawMessage::bytes(unsigned field, const std::string &value) {
  putTag(text, field, WireType::Bytes);
  putVarint(text, value.size());
  text += value;
  return *this;
}

RawMessage &RawMessage::tag(unsigned field, unsigned wireType) {
  putVarint(text, uint64_t(field) << 3 | wireType);
  return *this;
}

ModelBuilder reluModel() {
  ModelBuilder model;
  model.input("x", {"batch", "4"});
  model.node("Relu", {"x"}, {"y"}, "the_relu");
  model.output("y");
  return model;
}

namespace {

/// Adds the offsets at which each field of the message in [begin, end), and its content, begins.
/// Does the same for fields inside it; a field counts as a message if it parses as one.
void addBoundaries(const std::string &bytes, uint64_t begin, uint64_t end,
                   std::set<uint64_t> &boundaries) {
  Wire wire(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size());
  for (uint64_t at = begin; at < end;) {
    WireField field = wire.field(at, end);
    boundaries.insert(field.begin);
    boundaries.insert(field.data);
    if (field.type == WireType::Bytes && field.bytes > 1) {
      std::set<uint64_t> inner;
      try {
        addBoundaries(bytes, field.data, field.data + field.bytes, inner);
        boundaries.insert(inner.begin(), inner.end());
      } catch (const frontend::WireError &) { // a text
      }
    }
    at = field.next;
  }
  boundaries.insert(end);
}

/// Adds the model truncated at every boundary.
void addTruncated(std::vector<HostileFile> &files) {
  ModelBuilder model = reluModel();
  model.floats("w", {4}, {1, 2, 3, 4});
  ModelBuilder::attr(model.node("Softmax", {"y"}, {"z"}, "soft"), "axis", int64_t(-1));
  model.node("Add", {"z", "w"}, {"sum"}, "add");
  std::string whole = model.bytes();
  std::set<uint64_t> boundaries, top;
  addBoundaries(whole, 0, whole.size(), boundaries);
  Wire wire(reinterpret_cast<const uint8_t *>(whole.data()), whole.size());
  for (uint64_t at = 0; at < whole.size(); at = wire.field(at, whole.size()).next)
    top.insert(at);
  for (uint64_t at : boundaries) {
    // A cut between two fields of the model itself shows only as missing fields.
    const char *expected = at == 0               ? "the file is empty"
                           : at == whole.size()  ? ""
                           : at == *top.rbegin() ? "uses operator set 0"
                           : top.count(at)       ? "at byte 0: not an ONNX model: it has no graph"
                                                 : "the file is truncated";
    files.push_back({"truncated-" + std::to_string(at), whole.substr(0, at), expected});
  }
}

/// Returns ModelProto {ir_version, graph, opset_import}.
RawMessage rawModel(const RawMessage &graph) {
  return RawMessage().varint(1, 8).message(7, graph).message(8, RawMessage().varint(2, 18));
}

RawMessage rawNode() {
  return RawMessage().bytes(1, "x").bytes(2, "y").bytes(3, "the_relu").bytes(4, "Relu");
}

/// Returns GraphProto.input "x" with the given tensor type.
RawMessage rawInput(const RawMessage &tensorType) {
  return RawMessage().bytes(1, "x").message(2, RawMessage().message(1, tensorType));
}

RawMessage rawType() {
  RawMessage shape;
  shape.message(1, RawMessage().bytes(2, "batch")).message(1, RawMessage().varint(1, 4));
  return RawMessage().varint(1, 1).message(2, shape);
}

/// Returns a graph around `node`, followed by `more`.
RawMessage rawGraph(const RawMessage &node, const RawMessage &more = {}) {
  return RawMessage()
      .message(1, node)
      .bytes(2, "g")
      .message(11, rawInput(rawType()))
      .message(12, RawMessage().bytes(1, "y"))
      .append(more.text);
}

RawMessage rawTensor(const RawMessage &content) {
  return RawMessage().message(5, RawMessage().append(content.text).bytes(8, "w"));
}

} // namespace

std::vector<HostileFile> wireFiles() {
  std::vector<HostileFile> files;
  addTruncated(files);
  auto add = [&](const std::string &name, const RawMessage &model, const std::string &expected) {
    files.push_back({name, model.text, expected});
  };
  auto addGraph = [&](const std::string &name, const RawMessage &more,
                      const std::string &expected) {
    add(name, rawModel(rawGraph(rawNode(), more)), expected);
  };
  auto addNode = [&](const std::string &name, const RawMessage &more, const std::string &expected) {
    add(name, rawModel(rawGraph(rawNode().append(more.text))), expected);
  };

  add("raw-model-is-right", rawModel(rawGraph(rawNode())), "");
  add("text", RawMessage().append("this is a text file, not a model\n"), "not an ONNX model");
  add("zeros", RawMessage().append(std::string(100, '\0')), "at byte 0: not an ONNX model");
  add("elf",
      RawMessage().append("\x7f"
                          "ELF\x02\x01\x01"),
      "at byte 0");
  add("ones", RawMessage().append(std::string(100, '\xff')), "at byte 0: not an ONNX model");

  // Invalid wire types, at every level; groups are gone since protobuf 2.
  for (unsigned wireType : {3u, 4u, 6u, 7u}) {
    std::string expected = "wire type " + std::to_string(wireType);
    RawMessage group = RawMessage().tag(15, wireType);
    std::string suffix = "-wire-type-" + std::to_string(wireType);
    add("model" + suffix, rawModel(rawGraph(rawNode())).append(group.text), expected);
    addGraph("graph" + suffix, group, expected);
    addNode("node" + suffix, group, expected);
  }
  addNode("field-number-zero", RawMessage().append(std::string("\x00\x01", 2)), "field number 0");
  addNode("field-number-huge", RawMessage().append("\xf8\xff\xff\xff\xff\xff\x01\x01"),
          "field number");
  addNode("varint-of-70-bits", RawMessage().tag(15, 0).append(std::string(10, '\xff') + "\x01"),
          "a number of more than 64 bits");
  addNode("varint-overruns-node", RawMessage().tag(15, 0).append("\xff"),
          "a number runs over its message");
  addNode("unknown-fields",
          RawMessage()
              .varint(999, 1)
              .bytes(998, "?")
              .tag(997, 1)
              .append(std::string(8, 'f'))
              .tag(996, 5)
              .append(std::string(4, 'f')),
          "");
  addNode("length-2^63", RawMessage().tag(15, 2).append(std::string(8, '\x80') + "\x80\x01"),
          "runs over the end of its message");
  addNode("length-2^64-1", RawMessage().tag(15, 2).append(std::string(9, '\xff') + "\x01"),
          "runs over the end of its message");
  addNode("fixed64-overruns", RawMessage().tag(15, 1).append("1234567"), "runs over the end");
  addNode("fixed32-overruns", RawMessage().tag(15, 5).append("123"), "runs over the end");
  add("last-length-over-the-file", rawModel(rawGraph(rawNode())).tag(20, 2).append("\x7f"),
      "the file is truncated: field 20 has 127 bytes, but only 0 are left");

  // Numbers in place of messages, and messages in place of numbers.
  add("graph-is-a-number", rawModel(RawMessage()).varint(7, 1),
      "field 7 of a model has wire type 0");
  addGraph("node-is-a-number", RawMessage().varint(1, 1), "field 1 of a graph has wire type 0");
  addGraph("initializer-is-fixed", RawMessage().tag(5, 1).append("12345678"),
           "field 5 of a graph has wire type 1");
  addNode("name-is-a-number", RawMessage().varint(3, 1), "field 3 of a node has wire type 0");
  addNode("op-type-is-fixed", RawMessage().tag(4, 5).append("Relu"),
          "field 4 of a node has wire type 5");
  addNode("attribute-is-a-number", RawMessage().varint(5, 1), "field 5 of a node has wire type 0");
  addNode("attribute-int-is-text",
          RawMessage().message(5, RawMessage().bytes(1, "axis").bytes(3, "1")),
          "field 3 of a attribute has wire type 2");
  add("version-is-text",
      RawMessage()
          .varint(1, 8)
          .message(7, rawGraph(rawNode()))
          .message(8, RawMessage().bytes(2, "18")),
      "field 2 of a operator set has wire type 2");
  addGraph("data-type-is-text", rawTensor(RawMessage().bytes(2, "1")),
           "field 2 of a tensor has wire type 2");

  // Packed lists.
  addGraph("dims-end-inside-a-number", rawTensor(RawMessage().bytes(1, "\x84").varint(2, 1)),
           "ends inside a number");
  addGraph("dims-of-70-bits", rawTensor(RawMessage().bytes(1, std::string(10, '\xff') + "\x01")),
           "more than 64 bits");
  addGraph("packed-dims-of-rank-17",
           rawTensor(RawMessage().bytes(1, std::string(17, '\x01')).varint(2, 1)),
           "tensor of rank 17; at most 16");
  addNode("ints-end-inside-a-number",
          RawMessage().message(5, RawMessage().bytes(1, "axes").bytes(8, "\x01\x80")),
          "ends inside a number");
  addNode("floats-of-five-bytes",
          RawMessage().message(5, RawMessage().bytes(1, "values").bytes(7, "12345")), "5 bytes");
  addGraph("int64-data-ends-inside-a-number",
           rawTensor(RawMessage().varint(1, 1).varint(2, 7).bytes(7, "\x80")),
           "ends inside a number");
  addGraph("float-data-of-five-bytes",
           rawTensor(RawMessage().varint(1, 1).varint(2, 1).bytes(4, "12345")), "5 bytes");
  addGraph("two-runs-of-data",
           rawTensor(RawMessage().varint(1, 1).varint(2, 1).bytes(9, "1234").bytes(9, "1234")),
           "tensor with more than one run of data");
  addGraph("two-kinds-of-data",
           rawTensor(RawMessage().varint(1, 1).varint(2, 1).bytes(4, "1234").bytes(9, "1234")),
           "tensor with more than one run of data");
  addGraph("segments", rawTensor(RawMessage().message(3, RawMessage().varint(1, 0).varint(2, 4))),
           "tensor stored in segments");

  add("node-without-op-type", rawModel(rawGraph(RawMessage().bytes(1, "x").bytes(2, "y"))),
      "node without an op type");
  add("op-type-empty", rawModel(rawGraph(RawMessage().bytes(2, "y").bytes(4, ""))),
      "node without an op type");
  add("no-nodes", rawModel(RawMessage().bytes(2, "g")), "its graph has no nodes");
  add("graph-twice", rawModel(rawGraph(rawNode())).message(7, rawGraph(rawNode())),
      "graph input 'x' has no name or is there twice");
  return files;
}

std::vector<HostileFile> hostileFiles() {
  std::vector<HostileFile> all;
  for (auto *family : {wireFiles, graphFiles, valueFiles, bombFiles})
    for (HostileFile &file : family())
      all.push_back(std::move(file));
  return all;
}

} // namespace tbc::test
