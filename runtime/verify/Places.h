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
using program::BlockId;

inline Status rejected(const std::string &place, const std::string &why) {
  return Error{ErrorCode::VerificationFailed, place + ": " + why};
}

inline std::string slotPlace(const program::Program &program, int stage, BlockId block, int slot) {
  const program::Slot &it = program.stages[stage].slots[slot];
  return describe(program, stage, block) + ", " + std::string(name(it.role)) + " slot \"" +
         it.name + "\"";
}

inline std::string actionName(const schedule::Action &action) {
  std::string text(name(action.kind));
  if (action.kind == Kind::Update)
    return text;
  // The common case of one chunk per stage needs no chunk in the message.
  if (action.chunk > 0)
    text += " of chunk " + std::to_string(action.chunk);
  return text + " of micro-batch " + std::to_string(action.microBatch);
}

} // namespace tbc::verify

#endif // TBC_RUNTIME_VERIFY_PLACES_H
