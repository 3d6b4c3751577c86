//===- Decode.h - From a statement of PTX to an instruction ----------------===//
//
// Internal to the parser. A table maps the first word of an opcode to a function that fills in the
// instruction. Unread modifiers are refused, never skipped in silence.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_PTX_DECODE_H
#define TBC_TESTS_PTX_DECODE_H

#include "tests/ptx/Program.h"

#include <optional>
#include <tuple>

namespace tbc::ptx {

/// Fundamental types, and types of a few instructions only.
enum class Type : uint8_t {
  Pred,
  B8,
  B16,
  B32,
  B64,
  B128,
  U8,
  U16,
  U32,
  U64,
  S8,
  S16,
  S32,
  S64,
  F16,
  BF16,
  F32,
  F64,
  F16x2,
  BF16x2,
  E4M3x2,
  E5M2x2,
  TF32,
};

/// Returns the bytes of a value; 0 for a predicate.
int bytesOf(Type type);
bool isSigned(Type type);
bool isFloat(Type type);

struct Operand {
  enum class Kind { Register, Immediate, Address, Vector, Label, Special, Sink };
  Kind kind = Kind::Register;
  int at = -1;                        // place of a register, or of an address's base (-1: no base)
  int width = 0;                      // bytes of that register; 0: a predicate
  uint64_t bits = 0;                  // immediate: an integer or the bit pattern of a float
  int64_t offset = 0;                 // of an address
  Space space = Space::Generic;       // of an address without base: its memory
  bool isNegated = false;             // !%p
  std::string text;                   // of a label, or the source text
  std::vector<Operand> elements = {}; // of a vector
  int second = -1;                    // of d|p: the predicate
};

/// The state of a kernel while it is read.
struct Frame {
  Kernel kernel;
  int add(int bytesPerLane);
  int constant(uint64_t bits, int bytes, bool isGlobal = false);
  int special(Special which);

private:
  std::map<std::tuple<uint64_t, int, bool>, int> known;
};

class Decoder {
public:
  Decoder(Frame &frame, std::vector<std::string> words, std::vector<Operand> operands, int line);

  /// Removes a modifier. Returns whether it was present.
  bool take(const std::string &word);
  /// Removes the first modifier if it is one of `words`. Without `otherwise` it must be one of
  /// them.
  std::string oneOf(const std::vector<std::string> &words, const std::string &otherwise = "");
  /// Removes the next modifier, a type.
  Type type();
  std::optional<Type> maybeType();
  /// Returns whether the last remaining type is a float type.
  bool hasFloatType() const;
  /// Ends the statement and refuses unread modifiers.
  void finish();

  [[noreturn]] void fail(const std::string &why) const;

  size_t numOperands() const { return operands.size(); }
  const Operand &operand(size_t index) const;
  /// Returns the place of a source operand with `bytes` bytes per lane (0: a predicate).
  int read(size_t index, int bytes);
  int read(const Operand &operand, int bytes);
  /// Returns the place of a destination register. The sink `_` also has one.
  int write(size_t index, int bytes);
  int write(const Operand &operand, int bytes);

  Instruction instruction;
  Frame &frame;
  const std::string opcode;

private:
  std::vector<std::string> words; // unread modifiers
  std::vector<Operand> operands;
};

using DecodeFn = void (*)(Decoder &);
using DecodeTable = std::map<std::string, DecodeFn>;

/// Reads the modifiers of order, scope and caching. They have no effect, because the executor is
/// sequential and has no caches.
void takeOrder(Decoder &decoder);
/// Reads the memory space and the address into `space`, `offset` and at[0]. Bit 0 of the variant is
/// set for a 32-bit address.
void takeAddress(Decoder &decoder, size_t index);

/// Decodes add, sub, mul, … on floats; integer forms have the same names.
void decodeFloat(Decoder &decoder);

const DecodeTable &integerInstructions();
const DecodeTable &bitInstructions();
const DecodeTable &floatInstructions();
const DecodeTable &compareInstructions();
const DecodeTable &moveInstructions();
const DecodeTable &conversionInstructions();
const DecodeTable &accessInstructions();
const DecodeTable &atomicInstructions();
const DecodeTable &warpInstructions();
const DecodeTable &matrixInstructions();

/// Finds the reconvergence point of each branch: its immediate post-dominator.
void findReconvergence(std::vector<Instruction> &code);

} // namespace tbc::ptx

#endif // TBC_TESTS_PTX_DECODE_H
