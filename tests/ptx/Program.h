//===- Program.h - PTX in the executor's form ------------------------------===//
//
// A kernel is a list of instructions with resolved operands. An operand is an offset (a place) in
// the register file of a warp. A value of b bytes takes 32 b bytes there, one value per lane.
// Immediates and special registers have places too, so an instruction treats all operands alike. A
// predicate is one 32-bit mask, with a bit per lane. Example: an f32 register takes 128 bytes.
//
// Source of the semantics: NVIDIA's "PTX ISA", version 8.0 to 8.8.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_PTX_PROGRAM_H
#define TBC_TESTS_PTX_PROGRAM_H

#include <array>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace tbc::ptx {

inline constexpr int warpLanes = 32;
inline constexpr uint32_t allLanes = 0xffffffff;

class Warp;
struct Instruction;

/// Executes an instruction for the lanes of `Warp::lanes`.
using Action = void (*)(Warp &, const Instruction &);

/// Instructions that change the control flow of a warp; all others are `None`.
enum class Control : uint8_t { None, Branch, Exit, Barrier };

/// The memory of an address. Shared, Local, Param and Const addresses count from the start of their
/// memory. The value of a Generic address tells its memory (see the windows below).
enum class Space : uint8_t { Generic, Global, Shared, Local, Param, Const };

/// A generic address of shared, local or constant memory is its window plus the offset there.
inline constexpr uint64_t sharedWindow = 0x7e00000000000000, localWindow = 0x7d00000000000000,
                          constWindow = 0x7c00000000000000, windowBytes = uint64_t(1) << 40;

/// Dynamic shared memory has offsets from here on, out of reach of static shared memory.
inline constexpr int dynamicSharedBegin = 1 << 24;

/// The global memory traffic of an instruction.
enum class Traffic : uint8_t { None, Load, Store };

struct Instruction {
  Action action = nullptr;
  Control control = Control::None;
  Traffic traffic = Traffic::None;
  Space space = Space::Generic;
  bool isGuardNegated = false;
  uint8_t bytes = 0;        // of an element in memory
  uint8_t count = 1;        // of elements
  uint8_t variant = 0;      // a small enumeration or flags of the action
  int guard = -1;           // predicate that enables lanes; -1: all
  int target = -1;          // of a branch: an index of Kernel::code
  int reconvergence = -1;   // of a branch: its reconvergence point; -1: the end
  int64_t offset = 0;       // of an address
  std::array<int, 16> at{}; // offsets in the register file, results first
  int line = 0;             // in the text, from 1
  /// Places read and written, without the guard, for Flight.
  std::vector<int> reads = {}, writes = {};
};

/// A value set in the register file before the first instruction.
struct Constant {
  int at = 0;
  int bytes = 0; // of a lane; 0: a predicate
  uint64_t bits = 0;
  bool isGlobal = false; // relative to the module's global variables
};

enum class Special : uint8_t {
  ThreadX,
  ThreadY,
  ThreadZ,
  ThreadsX,
  ThreadsY,
  ThreadsZ,
  BlockX,
  BlockY,
  BlockZ,
  BlocksX,
  BlocksY,
  BlocksZ,
  Lane,
  WarpIndex,
  Warps,
  LanesEqual,
  LanesBelow,
  LanesUpTo,
  LanesAbove,
  LanesFrom,
  DynamicSharedBytes,
  Clock,
  Clock64,
};

struct Parameter {
  std::string name;
  int offset = 0, bytes = 0;
};

struct Kernel {
  std::string name;
  std::vector<Parameter> parameters;
  int parameterBytes = 0;
  int maxThreads = 1024;
  std::vector<Instruction> code;
  std::vector<Constant> constants;
  std::map<Special, int> specials; // their places in the register file
  int fileBytes = 0;               // of the register file
  int sharedBytes = 0;             // static
  int localBytes = 0;              // of a lane
  bool hasBarrier = false;
};

/// A variable of a module in global or constant memory.
struct Variable {
  std::string name;
  Space space = Space::Global;
  int alignment = 1;
  int offset = 0; // in the bytes of its space
  std::vector<unsigned char> bytes;
};

struct Module {
  std::map<std::string, Kernel> kernels;
  std::vector<Variable> variables;
  int globalBytes = 0, constBytes = 0;
  int architecture = 0;           // 90 for sm_90
  std::vector<std::string> lines; // of the text, for messages

  /// Returns line `number`, from 1, without surrounding blanks.
  std::string line(int number) const;
};

/// Any fault of a text or an execution.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Parses a text. Throws Fault with the line and the unsupported instruction.
Module parse(const std::string &text);

} // namespace tbc::ptx

#endif // TBC_TESTS_PTX_PROGRAM_H
