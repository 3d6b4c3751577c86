//===- Decode.h - From a statement of PTX to an instruction ----------------===//
//
// Internal to the parser. A family of instructions is a table from the first word of the opcode to
// a function that fills in the instruction. Whatever it does not read is refused: no modifier is
// skipped in silence.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_PTX_DECODE_H
#define TBC_TESTS_PTX_DECODE_H

#include "tests/ptx/Program.h"

#include <optional>
#include <tuple>

namespace tbc::ptx {

/// Fundamental types, and those that only some instructions have.
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

/// Bytes of a value; 0 of a predicate.
int bytesOf(Type type);
bool isSigned(Type type);
bool isFloat(Type type);

struct Operand {
  enum class Kind { Register, Immediate, Address, Vector, Label, Special, Sink };
  Kind kind = Kind::Register;
  int at = -1;                        // of a register, or of the base of an address (-1: none)
  int width = 0;                      // bytes of that register; 0: a predicate
  uint64_t bits = 0;                  // of an immediate: an integer, or the pattern of a float
  int64_t offset = 0;                 // of an address
  Space space = Space::Generic;       // of an address without base: which memory it counts from
  bool isNegated = false;             // !%p
  std::string text;                   // of a label, or as it stands there
  std::vector<Operand> elements = {}; // of a vector
  int second = -1;                    // of d|p: the predicate
};

/// What a kernel has while it is read.
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

  /// Removes a modifier; whether it was there.
  bool take(const std::string &word);
  /// Removes the first modifier, of which there has to be one, if it is one of these.
  std::string oneOf(const std::vector<std::string> &words, const std::string &otherwise = "");
  /// Removes the next modifier, a type.
  Type type();
  std::optional<Type> maybeType();
  /// Whether it computes with floats: the last type that is left says so.
  bool hasFloatType() const;
  /// Ends what is read; refuses what is left.
  void finish();

  [[noreturn]] void fail(const std::string &why) const;

  size_t numOperands() const { return operands.size(); }
  const Operand &operand(size_t index) const;
  /// The place of an operand that is read with so many bytes of a lane; 0: a predicate.
  int read(size_t index, int bytes);
  int read(const Operand &operand, int bytes);
  /// The place of a register that is written; the sink `_` has one too.
  int write(size_t index, int bytes);
  int write(const Operand &operand, int bytes);

  Instruction instruction;
  Frame &frame;
  const std::string opcode;

private:
  std::vector<std::string> words; // modifiers that are not read yet
  std::vector<Operand> operands;
};

using DecodeFn = void (*)(Decoder &);
using DecodeTable = std::map<std::string, DecodeFn>;

/// Reads the modifiers of order, scope and caching: the executor is sequential and has no caches.
void takeOrder(Decoder &decoder);
/// Reads the modifier of the kind of memory and the address, into space, offset and at[0]; bit 0 of
/// the variant: the address has 32 bits.
void takeAddress(Decoder &decoder, size_t index);

/// add, sub, mul, … of floats; the others of these names are of integers.
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

/// Finds where the lanes of each branch meet again: the immediate post-dominator.
void findReconvergence(std::vector<Instruction> &code);

} // namespace tbc::ptx

#endif // TBC_TESTS_PTX_DECODE_H
