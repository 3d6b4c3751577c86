//===- program_test.cpp - The text of a Program ----------------------------===//

#include "runtime/abi/Program.h"
#include "runtime/abi/ProgramFile.h"
#include "runtime/abi/Sha256.h"
#include "tests/runtime/support/MlpProgram.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <random>

namespace tbc::program {
namespace {

using ::testing::HasSubstr;

Program annotated(Program program) {
  program.metadata = {{"model", "mlp \"quoted\" \xc3\xa4.onnx"}, {"empty", ""}};
  for (Stage &stage : program.stages) { // every kernel is a region of its own
    Block &block = stage.chunks[0].forward;
    for (int i = 0; i < int(block.instructions.size()); ++i)
      if (block.instructions[i].kind == InstructionKind::Kernel)
        block.regions.push_back({i, 1, "kernel_" + std::to_string(i), 24});
  }
  return program;
}

Program example() {
  MlpOptions options;
  options.numLayers = 4, options.pp = options.dp = options.tp = 2, options.zero = 3;
  options.microBatches = 3, options.hasSkip = true;
  return annotated(mlpProgram(options));
}

/// The same, and the first stage reduces gradients in its last backward.
Program exampleWithLastBackward() {
  MlpOptions options;
  options.numLayers = 4, options.pp = options.dp = 2, options.zero = 1;
  options.microBatches = 3, options.reducesLast = true;
  return annotated(mlpProgram(options));
}

/// Returns the file with this payload and the right hash.
std::string framed(const std::string &payload) {
  std::string text(fileBegin);
  text += std::to_string(fileVersion);
  text += fileHash;
  text += sha256Hex(payload);
  text += filePayload;
  text += payload;
  text += fileEnd;
  return text;
}
std::string payloadOf(const Program &program) {
  std::string text = writeProgram(program);
  size_t begin = text.find(filePayload) + filePayload.size();
  return text.substr(begin, text.size() - begin - fileEnd.size());
}

void expectRejected(const std::string &text, const std::string &why = "") {
  Result<Program> program = readProgram(text);
  ASSERT_FALSE(program) << text.substr(0, 200);
  EXPECT_EQ(program.error().code, ErrorCode::Usage);
  EXPECT_THAT(program.error().message, HasSubstr(why));
}

TEST(ProgramText, RoundTripKeepsEveryByte) {
  std::string text = writeProgram(example());
  Result<Program> read = readProgram(text);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(writeProgram(*read), text);
  EXPECT_EQ(show(*read), show(example()));
  EXPECT_EQ(read->metadata, example().metadata);
}

TEST(ProgramText, RoundTripKeepsLastBackwards) {
  const Program program = exampleWithLastBackward();
  std::string text = writeProgram(program);
  EXPECT_THAT(text, HasSubstr("\"last_backward\":"));
  EXPECT_THAT(writeProgram(example()), testing::Not(HasSubstr("last_backward")));
  Result<Program> read = readProgram(text);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(writeProgram(*read), text);
  EXPECT_THAT(show(*read), HasSubstr("  last_backward\n"));
  EXPECT_THAT(show(*read), HasSubstr("  schedule: F0 F1 B0 F2 B1 L2 U\n"));
  EXPECT_THAT(show(*read), HasSubstr("  schedule: F0 B0 F1 B1 F2 B2 U\n"));
}

TEST(ProgramText, RoundTripKeepsAttributesOfEveryKind) {
  double infinity = std::numeric_limits<double>::infinity();
  kernels::Attrs attrs = {{"bool", true},
                          {"int", int64_t(-9223372036854775807)},
                          {"whole", 1.0},
                          {"minusZero", -0.0},
                          {"third", 1.0 / 3},
                          {"tiny", 5e-324},
                          {"inf", infinity},
                          {"text", std::string("line\nbreak \"\\")},
                          {"ints", std::vector<int64_t>{1, -2}},
                          {"noInts", std::vector<int64_t>{}},
                          {"doubles", std::vector<double>{1.0, 0.1, -infinity}},
                          {"noDoubles", std::vector<double>{}},
                          {"texts", std::vector<std::string>{"a", ""}},
                          {"noTexts", std::vector<std::string>{}}};
  Program program = example();
  program.stages[0].chunks[0].forward.instructions[1].attrs = attrs;
  ASSERT_EQ(program.stages[0].chunks[0].forward.instructions[1].kind, InstructionKind::Kernel);
  Result<Program> read = readProgram(writeProgram(program));
  ASSERT_TRUE(read) << read.error().message;
  const kernels::Attrs &got = read->stages[0].chunks[0].forward.instructions[1].attrs;
  EXPECT_TRUE(got == attrs);
  EXPECT_TRUE(std::signbit(got.getDouble("minusZero")));

  program.stages[0].chunks[0].forward.instructions[1].attrs = {{"nan", std::nan("")}};
  read = readProgram(writeProgram(program));
  ASSERT_TRUE(read);
  EXPECT_TRUE(std::isnan(read->stages[0].chunks[0].forward.instructions[1].attrs.getDouble("nan")));
}

TEST(ProgramText, RoundTripKeepsWhatATensorStartsAt) {
  Program program = example();
  int buffer = program.tensorIndex("W0.buf");
  ASSERT_GE(buffer, 0);
  program.tensors[buffer].fill = 65536;
  Result<Program> read = readProgram(writeProgram(program));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->tensors[buffer].fill, 65536);
  EXPECT_EQ(writeProgram(*read), writeProgram(program));
  EXPECT_THAT(show(*read), testing::HasSubstr(" from 65536\n"));
}

TEST(ProgramText, RoundTripKeepsTablesSubAxesAndEveryCollective) {
  Program program;
  program.mesh.axes = {{"pp", 1}, {"dp", 4}};
  program.microBatches = 2;
  using Kind = schedule::Action::Kind;
  program.schedule = {"table",
                      {{{Kind::Forward, 0},
                        {Kind::Forward, 1},
                        {Kind::Backward, 1},
                        {Kind::Backward, 0},
                        {Kind::Update, 0}}},
                      {}};
  Stage &stage = program.stages.emplace_back();
  auto value = [&](kernels::Shape shape) {
    stage.values.push_back({kernels::DType::BF16, shape});
    return ValueId(stage.values.size() - 1);
  };
  ValueId a = value({4, 8}), b = value({2, 8}), c = value({4, 4}), d = value({4, 8});
  Communication half;
  half.axes = {{1, 2, 2}};
  half.dim = 0, half.segments = {{1, 2, 1}};
  stage.chunks[0].forward.instructions.push_back(
      {"c", InstructionKind::Kernel, "constant", {}, {}, {}, {a}});
  stage.chunks[0].forward.instructions.push_back(
      {"s", InstructionKind::ShardSlice, "", {}, half, {a}, {b}});
  Communication exchange = half;
  exchange.splitDim = 1, exchange.splitSegments = {{1, 1, 2}, {1, 2, 1}};
  stage.chunks[0].forward.instructions.push_back(
      {"x", InstructionKind::AllToAll, "", {}, exchange, {b}, {c}});
  Communication most;
  most.axes = half.axes, most.reduce = ReduceKind::Max;
  stage.chunks[0].forward.instructions.push_back(
      {"m", InstructionKind::AllReduce, "", {}, most, {a}, {d}});
  Communication ring;
  ring.axes = half.axes;
  stage.chunks[0].forward.instructions.push_back(
      {"r", InstructionKind::Permute, "", {}, ring, {d}, {value({4, 8})}});
  GlobalTensor tokens;
  tokens.name = "tokens", tokens.role = Role::Input;
  tokens.type = {kernels::DType::I64, {16}};
  tokens.piece.dims = {{{{16, {{1, 1, 4}}, 4}}}};
  program.tensors.push_back(tokens);
  ASSERT_TRUE(checkWellFormed(program)) << checkWellFormed(program).error().message;
  EXPECT_THAT(show(program), testing::HasSubstr("permute"));
  EXPECT_THAT(show(program), testing::HasSubstr("16~4@dp"));

  Result<Program> read = readProgram(writeProgram(program));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(writeProgram(*read), writeProgram(program));
  EXPECT_EQ(read->tensors[0].piece, tokens.piece);
  const auto &instructions = read->stages[0].chunks[0].forward.instructions;
  EXPECT_EQ(instructions[1].comm.axes, half.axes);
  EXPECT_EQ(instructions[2].comm.splitSegments, exchange.splitSegments);
  EXPECT_EQ(instructions[3].comm.reduce, ReduceKind::Max);
  EXPECT_EQ(instructions[4].kind, InstructionKind::Permute);
  EXPECT_EQ(read->schedule.table, program.schedule.table);
}

TEST(ProgramText, DamageOfAnyByteIsDetected) {
  std::string text = writeProgram(example());
  std::mt19937 random(7);
  // Changes every byte of the frame and a thousand others, each to a random other value.
  std::vector<size_t> places;
  for (size_t i = 0; i < 150; ++i)
    places.push_back(i);
  for (int i = 0; i < 1000; ++i)
    places.push_back(random() % text.size());
  places.push_back(text.size() - 1);
  places.push_back(text.size() - 2);
  for (size_t place : places) {
    std::string damaged = text;
    damaged[place] = char(damaged[place] ^ (1 + random() % 255));
    EXPECT_FALSE(readProgram(damaged)) << "byte " << place;
  }
}

/// Changes every byte to every other value, cuts the file to every length, drops and doubles every
/// byte.
TEST(ProgramText, AnyDamageOfASmallProgramIsDetected) {
  Program program;
  program.mesh.axes = {{"dp", 2}};
  program.stages.resize(1);
  program.stages[0].values = {{kernels::DType::F32, {3}}};
  program.stages[0].chunks[0].forward.instructions = {
      {"c", InstructionKind::Kernel, "constant", {{"value", 0.5}}, {}, {}, {0}}};
  const std::string text = writeProgram(program);
  ASSERT_TRUE(readProgram(text));
  for (size_t place = 0; place < text.size(); ++place) {
    std::string damaged = text;
    for (int change = 1; change < 256; ++change) {
      damaged[place] = char(text[place] ^ change);
      ASSERT_FALSE(readProgram(damaged)) << "byte " << place << " changed by " << change;
    }
    ASSERT_FALSE(readProgram(text.substr(0, place))) << "cut at " << place;
    ASSERT_FALSE(readProgram(std::string(text).erase(place, 1))) << "without byte " << place;
    ASSERT_FALSE(readProgram(std::string(text).insert(place, 1, text[place]))) << place;
  }
}

TEST(ProgramText, TruncationAndExtensionAreDetected) {
  std::string text = writeProgram(example());
  for (size_t length = 0; length < text.size(); length += 1 + length / 10)
    EXPECT_FALSE(readProgram(std::string_view(text).substr(0, length))) << length;
  EXPECT_FALSE(readProgram(std::string_view(text).substr(0, text.size() - 1)));
  EXPECT_FALSE(readProgram(text + "\n"));
  EXPECT_FALSE(readProgram(text + text));
}

TEST(ProgramText, ErrorsSayWhatTheFileIs) {
  expectRejected("", "does not begin as a tbc program");
  expectRejected("{}", "does not begin as a tbc program");
  std::string text = writeProgram(example());
  std::string other = text;
  other.replace(other.find("\"version\":6"), 11, "\"version\":3");
  expectRejected(other, "version \"3\"");
  other = text;
  other[other.size() / 2] ^= 1;
  expectRejected(other, "damaged");
}

/// Payloads with a right hash and invalid content.
TEST(ProgramText, HostilePayloadsAreRefused) {
  expectRejected(framed(""), "not JSON");
  expectRejected(framed("[1, 2"), "not JSON");
  expectRejected(framed("null"), "\"metadata\" is missing");
  expectRejected(framed("{}"), "\"metadata\" is missing");
  expectRejected(framed(std::string(100000, '[')), "nested too deeply");
  expectRejected(framed("{\"a\":" + std::string(1000, '[') + std::string(1000, ']') + "}"),
                 "nested too deeply");
  expectRejected(framed("{\"micro_batches\": 1e999}"));
  expectRejected(framed("\"\xff\xfe\""));
}

TEST(ProgramText, EveryFieldIsChecked) {
  std::string payload = payloadOf(example());
  ASSERT_TRUE(readProgram(framed(payload)));
  struct Case {
    const char *from, *to, *why;
  };
  const Case cases[] = {
      {"[\"dp\",2]", "[\"dp\",-2]", "mesh"},
      {"[\"dp\",2]", "[\"dp\",99999999999]", "mesh"},
      {"[\"dp\",2]", "[\"dp\",18446744073709551615]", "an integer is expected"},
      {"[\"dp\",2]", "[\"dp\"]", "a list of 2"},
      {"[\"dp\",2]", "[\"tp\",2]", "\"dp\" is no axis"},
      {"\"pipeline_axis\":\"pp\"", "\"pipeline_axis\":\"qq\"", "pipeline axis"},
      {"\"pipeline_axis\":\"pp\"", "\"pipeline_axis\":null", "1 stages"},
      {"\"micro_batches\":3", "\"micro_batches\":0", "micro-batches"},
      {"\"micro_batches\":3", "\"micro_batches\":\"3\"", "an integer is expected"},
      {"\"micro_batches\":3", "\"micro_batches\":3.5", "an integer is expected"},
      {"\"generator\":\"1f1b\"", "\"generator\":\"2f2b\"", "unknown schedule"},
      {"\"generator\":\"1f1b\"", "\"generator\":\"table\"", "0 stages"},
      {"\"role\":\"parameter\"", "\"role\":\"parametre\"", "\"parametre\" is unknown"},
      {"\"type\":\"8x6xf32\"", "\"type\":\"8x6xf33\"", "no tensor type"},
      {"\"type\":\"8x6xf32\"", "\"type\":\"8x6xf8e4m3\"", "no tensor type"},
      {"\"type\":\"8x6xf32\"", "\"type\":\"8x-6xf32\"", "no tensor type"},
      {"\"type\":\"8x6xf32\"", "\"type\":\"99999999999999999999xf32\"", "no tensor type"},
      {"\"type\":\"8x6xf32\"", "\"type\":\"9999999999x9999999999xf32\"", "2^48"},
      {"[8,\"dp\"]", "[8,\"ep\"]", "\"ep\" is no axis"},
      {"[8,\"dp\"]", "[8,\"dp:(1)\"]", "no part of a mesh axis"},
      {"[8,\"dp\"]", "[8,\"dp:(0)2\"]", "does not divide"},
      {"[8,\"dp\"]", "[8,\"pp\"]", "pipeline axis"},
      {"[8,\"dp\"]", "[]", "a factor needs a size"},
      {"\"kind\":\"all_gather\"", "\"kind\":\"all_father\"", "\"all_father\" is unknown"},
      {"\"dim\":-1", "\"dim\":-2", "dim -2"},
      {"\"dim\":-1", "\"dim\":3000000000", "out of bounds"},
      {"\"segments\":[]", "\"segments\":[1,2]", "three numbers"},
      {"\"segments\":[]", "\"segments\":[1,-2,3]", "no segments"},
      {"\"axes\":[\"dp\"]", "\"axes\":[]", "at least one mesh axis"},
      {"\"axes\":[\"dp\"]", "\"axes\":[\"dp\",\"dp\"]", "used twice"},
      {"\"reduce\":\"sum\"", "\"reduce\":\"avg\"", "no reduction"},
      {"\"peer\":1", "\"peer\":2", "no peer"},
      {"\"peer\":1", "\"peer\":0", "no peer"},
      {"\"channel\":2", "\"channel\":-2", "channel"},
      {"\"channel\":2", "\"chanel\":2", "\"channel\" is missing"},
      {"\"in\":[0]", "\"in\":[]", "takes 1 operands"},
      {"\"out\":[]}", "\"out\":[0]}", "gives 0 results"},
      {",\"write\"]", ",\"overwrite\"]", "not to \"overwrite\""},
      {"\"arguments\":[[0,", "\"arguments\":[[99999,", "no value %99999"},
      {"\"arguments\":[[0,", "\"arguments\":[[-1,", "no value %-1"},
      {"\"tensor\":0", "\"tensor\":77", "no tensor number 77"},
      {"\"tensor\":0", "\"tensor\":1.0", "an integer is expected"},
      {"\"op\":\"einsum\"", "\"op\":\"\"", "needs an op"},
      {"\"op\":\"einsum\"", "\"op\":7", "a text is expected"},
      {"\"attrs\":{", "\"attrs\":{\"a\":{\"q\":1},", "\"f\" is missing"},
      {"\"attrs\":{", "\"attrs\":{\"a\":{\"f\":\"big\"},", "\"big\" is no number"},
      {"\"attrs\":{", "\"attrs\":{\"a\":[1],", "\"f\" is missing"},
      {"\"stages\":[\n", "\"stages\":[[],", "\"values\" is missing"},
  };
  for (const Case &test : cases) {
    SCOPED_TRACE(test.to);
    std::string changed = payload;
    size_t at = changed.find(test.from);
    ASSERT_NE(at, std::string::npos) << test.from;
    changed.replace(at, strlen(test.from), test.to);
    expectRejected(framed(changed), test.why);
  }
}

/// Random edits with a right hash: each is read or refused without a crash (see the asan preset).
TEST(ProgramText, RandomEditsNeverCrash) {
  std::string payload = payloadOf(example());
  const std::string alphabet = "0123456789[]{},:\"-.eaxfpdt";
  std::mt19937 random(11);
  int numRefused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string changed = payload;
    for (unsigned edits = 1 + random() % 3; edits-- > 0;) {
      size_t at = random() % changed.size();
      if (random() % 3 == 0)
        changed.erase(at, 1 + random() % 20);
      else
        changed[at] = alphabet[random() % alphabet.size()];
    }
    Result<Program> read = readProgram(framed(changed));
    if (read)
      EXPECT_FALSE(show(*read).empty());
    else
      ++numRefused;
  }
  EXPECT_GT(numRefused, 1000);
}

/// Programs that seed the fuzzer. A corpus of an older version would always be refused.
TEST(Fuzz, KeptProgramsAreReadable) {
  int count = 0;
  for (const auto &entry :
       std::filesystem::directory_iterator(TBC_SOURCE_DIR "/tests/fuzz/corpus/program")) {
    std::ifstream file(entry.path(), std::ios::binary);
    std::string payload((std::istreambuf_iterator<char>(file)), {});
    Result<Program> read = readProgram(framed(payload));
    EXPECT_TRUE(read) << entry.path() << ": " << read.error().message;
    ++count;
  }
  EXPECT_GE(count, 3);
}

TEST(Show, NamesWhatAReaderLooksFor) {
  std::string text = show(example());
  for (const char *part :
       {"program of 8 ranks, mesh pp=2 dp=2 tp=2, 2 stages, 3 micro-batches, schedule 1f1b",
        "parameter W0: 6x6xf32 [6, 6@tp] flat{dp} from \"W0\"", "residual h0: 4x6xf32",
        "of 24 does 1:", "    | %", "= all_gather %", "over dp flat 72 bytes  // W0.gather.fwd",
        "to stage 1 channel 2 96 bytes", "loss += %", "schedule: F0 F1 B0 F2 B1 B2 U",
        "schedule: F0 B0 F1 B1 F2 B2 U"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(Groups, OfSomeStages) {
  Program program;
  program.mesh.axes = {{"pp", 4}, {"dp", 2}};
  program.pipelineAxis = 0;
  program.stages.resize(4);
  Communication comm;
  comm.axes = {wholeAxis(program.mesh, 0)};
  EXPECT_THAT(groupOf(program, comm, {1, 1}), ::testing::ElementsAre(1, 3, 5, 7));
  comm.stages = {0, 3};
  EXPECT_THAT(groupOf(program, comm, {3, 1}), ::testing::ElementsAre(1, 7));
  EXPECT_EQ(groupSizeOf(comm, 0), 2);
  comm.axes.push_back(wholeAxis(program.mesh, 1));
  EXPECT_THAT(groupOf(program, comm, {3, 1}), ::testing::ElementsAre(0, 1, 6, 7));
  EXPECT_EQ(groupSizeOf(comm, 0), 4);
}

} // namespace
} // namespace tbc::program
