//===- Parser.cpp - The text of PTX ----------------------------------------===//

#include "tests/ptx/Decode.h"
#include "tests/ptx/Tokens.h"

#include <cstdlib>
#include <cstring>

namespace tbc::ptx {
namespace {

const std::map<std::string, Special> &specials() {
  static const std::map<std::string, Special> all = {
      {"%tid.x", Special::ThreadX},
      {"%tid.y", Special::ThreadY},
      {"%tid.z", Special::ThreadZ},
      {"%ntid.x", Special::ThreadsX},
      {"%ntid.y", Special::ThreadsY},
      {"%ntid.z", Special::ThreadsZ},
      {"%ctaid.x", Special::BlockX},
      {"%ctaid.y", Special::BlockY},
      {"%ctaid.z", Special::BlockZ},
      {"%nctaid.x", Special::BlocksX},
      {"%nctaid.y", Special::BlocksY},
      {"%nctaid.z", Special::BlocksZ},
      {"%laneid", Special::Lane},
      {"%warpid", Special::WarpIndex},
      {"%nwarpid", Special::Warps},
      {"%lanemask_eq", Special::LanesEqual},
      {"%lanemask_lt", Special::LanesBelow},
      {"%lanemask_le", Special::LanesUpTo},
      {"%lanemask_gt", Special::LanesAbove},
      {"%lanemask_ge", Special::LanesFrom},
      {"%dynamic_smem_size", Special::DynamicSharedBytes},
      {"%clock", Special::Clock},
      {"%clock64", Special::Clock64},
  };
  return all;
}

struct Register {
  int at, width;
};

struct Symbol {
  Space space;
  int offset;
};

class Parser {
public:
  explicit Parser(const std::string &text) : tokens(split(text)) {
    for (size_t begin = 0; begin <= text.size();) {
      size_t end = std::min(text.find('\n', begin), text.size());
      module.lines.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }

  Module parse() {
    while (next < tokens.size()) {
      if (accept(".version") || accept(".address_size")) {
        ++next;
      } else if (accept(".target")) {
        target();
      } else if (peek() == ".file" || peek() == ".section") {
        fail("debug information");
      } else {
        bool isEntry = false;
        while (accept(".visible") || accept(".extern") || accept(".weak") || accept(".common"))
          ;
        if ((isEntry = accept(".entry")))
          kernel();
        else if (!variable(nullptr))
          fail("'" + peek() + "' at the level of the module");
      }
    }
    return std::move(module);
  }

private:
  [[noreturn]] void fail(const std::string &what) const {
    int line = next < tokens.size() ? tokens[next].line : 0;
    throw Fault("PTX line " + std::to_string(line) + ": the executor does not know " + what);
  }
  const std::string &peek(size_t ahead = 0) const {
    static const std::string end;
    return next + ahead < tokens.size() ? tokens[next + ahead].text : end;
  }
  bool accept(const std::string &text) {
    if (peek() != text)
      return false;
    ++next;
    return true;
  }
  std::string take() {
    if (next >= tokens.size())
      fail("a text that ends here");
    return tokens[next++].text;
  }
  void expect(const std::string &text) {
    if (!accept(text))
      fail("'" + peek() + "' in the place of '" + text + "'");
  }
  int64_t integer() {
    bool isNegative = accept("-");
    std::string text = take();
    char *end = nullptr;
    auto value = int64_t(std::strtoull(text.c_str(), &end, 0));
    if (*end == 'U')
      ++end;
    if (*end != 0 || text.empty())
      fail("the number '" + text + "'");
    return isNegative ? -value : value;
  }

  void target() {
    std::string name = take();
    module.architecture = std::atoi(name.c_str() + std::strlen("sm_"));
    while (accept(","))
      take();
  }

  static std::optional<Type> typeOf(const std::string &name) {
    static const std::map<std::string, Type> types = {
        {".pred", Type::Pred}, {".b8", Type::B8},    {".b16", Type::B16}, {".b32", Type::B32},
        {".b64", Type::B64},   {".u8", Type::U8},    {".u16", Type::U16}, {".u32", Type::U32},
        {".u64", Type::U64},   {".s8", Type::S8},    {".s16", Type::S16}, {".s32", Type::S32},
        {".s64", Type::S64},   {".f16", Type::F16},  {".f32", Type::F32}, {".f64", Type::F64},
        {".f16x2", Type::B32}, {".bf16", Type::BF16}};
    auto found = types.find(name);
    return found == types.end() ? std::nullopt : std::optional(found->second);
  }

  /// .space .align n .type name[count] = {...};
  bool variable(Frame *frame) {
    static const std::map<std::string, Space> spaces = {{".global", Space::Global},
                                                        {".const", Space::Const},
                                                        {".shared", Space::Shared},
                                                        {".local", Space::Local}};
    auto space = spaces.find(peek());
    if (space == spaces.end())
      return false;
    ++next;
    int alignment = 1;
    if (accept(".align"))
      alignment = int(integer());
    auto type = typeOf(take());
    if (!type || *type == Type::Pred)
      fail("the type of a variable");
    Variable made{take(), space->second, std::max(alignment, bytesOf(*type)), 0, {}};
    int64_t count = 1;
    bool isOpen = false; // of dynamic shared memory
    while (accept("[")) {
      if (peek() == "]")
        isOpen = true;
      else
        count *= integer();
      expect("]");
    }
    made.bytes.resize(isOpen ? 0 : size_t(count) * size_t(bytesOf(*type)));
    if (accept("=")) {
      bool isList = accept("{");
      size_t at = 0;
      do {
        uint64_t bits = immediate();
        if (at + size_t(bytesOf(*type)) > made.bytes.size())
          fail("an initializer that is longer than its variable");
        std::memcpy(made.bytes.data() + at, &bits, size_t(bytesOf(*type)));
        at += size_t(bytesOf(*type));
      } while (isList && accept(","));
      if (isList)
        expect("}");
    }
    expect(";");
    place(made, isOpen, frame);
    return true;
  }

  void place(Variable &made, bool isOpen, Frame *frame) {
    auto aligned = [&](int offset) {
      return (offset + made.alignment - 1) / made.alignment * made.alignment;
    };
    if (made.space == Space::Shared && !frame) {
      // Declared in the module: all kernels share it.
      moduleShared.push_back({made, isOpen});
      return;
    }
    int &size = made.space == Space::Shared  ? frame->kernel.sharedBytes
                : made.space == Space::Local ? localSize(frame)
                : made.space == Space::Const ? module.constBytes
                                             : module.globalBytes;
    made.offset = aligned(size);
    if (!isOpen)
      size = made.offset + int(made.bytes.size());
    symbols[made.name] = {made.space, isOpen ? dynamicSharedBegin : made.offset};
    if (made.space == Space::Global || made.space == Space::Const)
      module.variables.push_back(made);
  }
  int &localSize(Frame *frame) {
    if (!frame)
      fail("local memory of a module");
    return frame->kernel.localBytes;
  }

  uint64_t immediate() {
    bool isNegative = accept("-");
    std::string text = take();
    char *end = nullptr;
    uint64_t value = 0;
    if (text.size() > 2 && text[0] == '0' && (text[1] == 'f' || text[1] == 'F') &&
        text.size() == 10) {
      value = std::strtoull(text.c_str() + 2, &end, 16);
    } else if (text.size() == 18 && text[0] == '0' && (text[1] == 'd' || text[1] == 'D')) {
      value = std::strtoull(text.c_str() + 2, &end, 16);
    } else if (text == "WARP_SZ") {
      return warpLanes;
    } else {
      value = std::strtoull(text.c_str(), &end, 0);
      if (*end == 'U')
        ++end;
    }
    if (*end != 0)
      fail("the operand '" + text + "'");
    return isNegative ? uint64_t(-int64_t(value)) : value;
  }

  void kernel();
  void parameters(Frame &frame);
  void body(Frame &frame);
  void registers(Frame &frame);
  void statement(Frame &frame);
  Operand operand(Frame &frame);
  Operand address();

  std::vector<Token> tokens;
  size_t next = 0;
  Module module;
  std::map<std::string, Register> names;
  std::map<std::string, Symbol> symbols;
  std::vector<std::pair<Variable, bool>> moduleShared;
  std::map<std::string, int> labels;
  std::vector<std::pair<size_t, std::string>> jumps; // branch instructions and their targets
};

void Parser::kernel() {
  Frame frame;
  frame.kernel.name = take();
  std::map<std::string, Symbol> outer = symbols;
  names.clear(), labels.clear(), jumps.clear();
  parameters(frame);
  while (peek() != "{") {
    if (accept(".maxntid") || accept(".reqntid")) {
      int64_t threads = integer();
      while (accept(","))
        threads *= integer();
      frame.kernel.maxThreads = int(threads);
    } else if (accept(".minnctapersm") || accept(".maxnreg")) {
      integer();
    } else {
      fail("'" + peek() + "' of a kernel");
    }
  }
  for (auto &[shared, isOpen] : moduleShared)
    place(shared, isOpen, &frame);
  body(frame);
  for (auto &[index, label] : jumps) {
    auto found = labels.find(label);
    if (found == labels.end())
      throw Fault("kernel " + frame.kernel.name + " branches to " + label + ", which is nowhere");
    frame.kernel.code[index].target = found->second;
  }
  findReconvergence(frame.kernel.code);
  symbols = std::move(outer);
  module.kernels[frame.kernel.name] = std::move(frame.kernel);
}

/// (.param .u64 .ptr .global .align 16 name, .param .align 4 .b8 name[12])
void Parser::parameters(Frame &frame) {
  Kernel &kernel = frame.kernel;
  if (!accept("("))
    return;
  while (!accept(")")) {
    accept(",");
    expect(".param");
    int alignment = 1;
    std::optional<Type> type;
    while (peek()[0] == '.') {
      std::string word = take();
      if (word == ".align")
        alignment = int(integer());
      else if (auto found = typeOf(word))
        type = found;
      else if (word != ".ptr" && word != ".global" && word != ".shared" && word != ".const")
        fail("'" + word + "' of a parameter");
    }
    if (!type)
      fail("a parameter without a type");
    Parameter made{take(), 0, bytesOf(*type)};
    if (accept("[")) {
      made.bytes *= int(integer());
      expect("]");
    }
    alignment = std::max(alignment, bytesOf(*type));
    made.offset = (kernel.parameterBytes + alignment - 1) / alignment * alignment;
    kernel.parameterBytes = made.offset + made.bytes;
    symbols[made.name] = {Space::Param, made.offset};
    kernel.parameters.push_back(made);
  }
  constexpr int mostBytes = 4352; // PTX ISA, kernel function parameters, before 8.1
  if (kernel.parameterBytes > mostBytes)
    fail(std::to_string(kernel.parameterBytes) + " bytes of parameters of kernel " + kernel.name +
         ", more than " + std::to_string(mostBytes));
}

/// Scopes nest; an inner name hides an outer one.
void Parser::body(Frame &frame) {
  expect("{");
  std::map<std::string, Register> outer = names;
  while (!accept("}")) {
    if (peek() == "{")
      body(frame);
    else if (peek() == ".reg")
      registers(frame);
    else if (peek()[0] == '.' && variable(&frame))
      continue;
    else if (accept(".pragma"))
      next += 2;
    else if (peek(1) == ":") {
      labels[take()] = int(frame.kernel.code.size());
      ++next;
    } else {
      statement(frame);
    }
  }
  names = std::move(outer);
}

void Parser::registers(Frame &frame) {
  ++next;
  auto type = typeOf(take());
  if (!type)
    fail("the type of a register");
  int width = bytesOf(*type);
  do {
    std::string name = take();
    if (accept("<")) {
      int64_t count = integer();
      expect(">");
      for (int64_t i = 0; i < count; ++i)
        names[name + std::to_string(i)] = {frame.add(width), width};
    } else {
      names[name] = {frame.add(width), width};
    }
  } while (accept(","));
  expect(";");
}

Operand Parser::address() {
  Operand result;
  result.kind = Operand::Kind::Address;
  std::string name = take();
  if (auto found = names.find(name); found != names.end()) {
    result.at = found->second.at, result.width = found->second.width;
  } else if (auto symbol = symbols.find(name); symbol != symbols.end()) {
    result.space = symbol->second.space;
    result.offset = symbol->second.offset;
  } else {
    --next;
    result.offset = int64_t(immediate());
  }
  if (accept("+"))
    result.offset += integer();
  else if (peek() == "-")
    result.offset += integer();
  expect("]");
  return result;
}

Operand Parser::operand(Frame &frame) {
  Operand result;
  result.text = peek();
  if (accept("["))
    return address();
  if (accept("{")) {
    result.kind = Operand::Kind::Vector;
    do
      result.elements.push_back(operand(frame));
    while (accept(","));
    expect("}");
    return result;
  }
  if (accept("_")) {
    result.kind = Operand::Kind::Sink;
    return result;
  }
  result.isNegated = accept("!");
  if (auto found = names.find(peek()); found != names.end()) {
    ++next;
    result.at = found->second.at, result.width = found->second.width;
    if (accept("|")) {
      auto second = names.find(take());
      if (second == names.end())
        fail("the predicate after '|'");
      result.second = second->second.at;
    }
    return result;
  }
  if (auto special = specials().find(peek()); special != specials().end()) {
    ++next;
    result.kind = Operand::Kind::Special;
    result.at = frame.special(special->second);
    result.width = special->second == Special::Clock64 ? 8 : 4;
    return result;
  }
  if (auto symbol = symbols.find(peek()); symbol != symbols.end()) {
    ++next;
    result.kind = Operand::Kind::Immediate;
    result.bits = uint64_t(symbol->second.offset);
    if (accept("+"))
      result.bits += uint64_t(integer());
    result.space = symbol->second.space;
    return result;
  }
  if (peek()[0] == '$' || std::isalpha(static_cast<unsigned char>(peek()[0]))) {
    result.kind = Operand::Kind::Label;
    result.text = take();
    return result;
  }
  result.kind = Operand::Kind::Immediate;
  result.bits = immediate();
  return result;
}

/// @p opcode.modifiers operand, ...;
void Parser::statement(Frame &frame) {
  int guard = -1;
  bool isNegated = false;
  int line = tokens[next].line;
  if (accept("@")) {
    isNegated = accept("!");
    auto found = names.find(take());
    if (found == names.end() || found->second.width != 0)
      fail("a guard that is no predicate");
    guard = found->second.at;
  }
  std::vector<std::string> words = {""};
  std::string opcode = take();
  for (size_t i = 0; i < opcode.size(); ++i)
    if (opcode[i] == '.')
      words.emplace_back();
    else
      words.back() += opcode[i];
  std::vector<Operand> operands;
  while (!accept(";")) {
    accept(",");
    operands.push_back(operand(frame));
  }
  if (operands.size() == 1 && operands[0].kind == Operand::Kind::Label)
    jumps.emplace_back(frame.kernel.code.size(), operands[0].text);
  static const std::vector<const DecodeTable *> tables = {
      &integerInstructions(), &bitInstructions(),    &floatInstructions(),
      &compareInstructions(), &moveInstructions(),   &conversionInstructions(),
      &accessInstructions(),  &atomicInstructions(), &warpInstructions(),
      &matrixInstructions()};
  Decoder decoder(frame, words, operands, line);
  for (const DecodeTable *table : tables)
    if (auto found = table->find(decoder.opcode); found != table->end()) {
      decoder.instruction.guard = guard;
      decoder.instruction.isGuardNegated = isNegated;
      found->second(decoder);
      decoder.finish();
      frame.kernel.hasBarrier |= decoder.instruction.control == Control::Barrier;
      frame.kernel.code.push_back(decoder.instruction);
      return;
    }
  decoder.fail("instruction " + opcode);
}

} // namespace

Module parse(const std::string &text) { return Parser(text).parse(); }

std::string Module::line(int number) const {
  if (number < 1 || number > int(lines.size()))
    return "";
  const std::string &text = lines[size_t(number) - 1];
  size_t begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t\r");
  std::string found = begin == std::string::npos ? "" : text.substr(begin, end + 1 - begin);
  for (char &c : found)
    if (c == '\t')
      c = ' ';
  return found;
}

} // namespace tbc::ptx
