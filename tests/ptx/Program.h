//===- Program.h - PTX as the executor holds it ----------------------------===//
//
// A kernel is a list of instructions with their operands resolved: each names an offset in the
// register file of a warp, where a value of b bytes takes 32 b bytes, one per lane. Immediates and
// special registers have places there too, so an instruction needs no case for its operands.
// Predicates are one 32-bit mask, a bit per lane.
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

/// Instructions that change where a warp goes on; all others are `None`.
enum class Control : uint8_t { None, Branch, Exit, Barrier };

/// Where an address points. Addresses of Shared, Local, Param and Const count from the begin of
/// that memory; a Generic one says by its value which it is (the windows below).
enum class Space : uint8_t { Generic, Global, Shared, Local, Param, Const };

/// Generic addresses of shared, local and constant memory are these, plus the offset there.
inline constexpr uint64_t sharedWindow = 0x7e00000000000000, localWindow = 0x7d00000000000000,
                          constWindow = 0x7c00000000000000, windowBytes = uint64_t(1) << 40;

/// Dynamic shared memory has offsets from here on, so that nothing static runs into it.
inline constexpr int dynamicSharedBegin = 1 << 24;

/// What an instruction does with global memory.
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
  int guard = -1;           // the predicate that allows lanes; -1: all
  int target = -1;          // of a branch: an index of Kernel::code
  int reconvergence = -1;   // of a branch: where the lanes meet again; -1: at their end
  int64_t offset = 0;       // of an address
  std::array<int, 16> at{}; // offsets in the register file, the results first
  int line = 0;             // of the text, from 1
  /// The places that it reads and writes, but for its guard: for Flight.
  std::vector<int> reads = {}, writes = {};
};

/// A value that the register file holds before the first instruction.
struct Constant {
  int at = 0;
  int bytes = 0; // of a lane; 0: a predicate
  uint64_t bits = 0;
  bool isGlobal = false; // counted from the begin of the module's global variables
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

  /// Line `number`, from 1, without the blanks around it.
  std::string line(int number) const;
};

/// Everything that is wrong with a text or an execution.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Reads a text. Throws Fault: it names the line and the instruction that the executor lacks.
Module parse(const std::string &text);

} // namespace tbc::ptx

#endif // TBC_TESTS_PTX_PROGRAM_H
