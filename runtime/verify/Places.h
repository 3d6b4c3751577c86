//===- Places.h - How checkers name places ---------------------------------===//
//
// Part of tbc. Internal to runtime/verify.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_VERIFY_PLACES_H
#define TBC_RUNTIME_VERIFY_PLACES_H

#include "runtime/abi/Program.h"

namespace tbc::verify {

using Kind = schedule::Action::Kind;
inline constexpr Kind allKinds[] = {Kind::Forward, Kind::Backward, Kind::Update};

inline Status rejected(const std::string &place, const std::string &why) {
  return Error{ErrorCode::VerificationFailed, place + ": " + why};
}

inline std::string blockPlace(int stage, Kind kind) {
  return "stage " + std::to_string(stage) + ", " + std::string(name(kind)) + " block";
}

inline std::string slotPlace(const program::Program &program, int stage, Kind kind, int slot) {
  const program::Slot &it = program.stages[stage].slots[slot];
  return blockPlace(stage, kind) + ", " + std::string(name(it.role)) + " slot \"" + it.name + "\"";
}

inline std::string actionName(const schedule::Action &action) {
  std::string text(name(action.kind));
  return action.kind == Kind::Update
             ? text
             : text + " of micro-batch " + std::to_string(action.microBatch);
}

} // namespace tbc::verify

#endif // TBC_RUNTIME_VERIFY_PLACES_H
