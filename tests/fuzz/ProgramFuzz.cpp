//===- ProgramFuzz.cpp - Any bytes as the payload of a Program ------------===//
//
// Wraps the input in the frame with the hash. Without it only the hash check would be tested.
//
//===----------------------------------------------------------------------===//

#include "tests/fuzz/Fuzz.h"

#include "runtime/abi/Program.h"
#include "runtime/abi/ProgramFile.h"
#include "runtime/abi/Sha256.h"
#include "runtime/verify/Verify.h"

#include <string>

using namespace tbc;

static std::string framed(const std::string &payload) {
  return std::string(program::fileBegin) + std::to_string(program::fileVersion) +
         std::string(program::fileHash) + sha256Hex(payload) + std::string(program::filePayload) +
         payload + std::string(program::fileEnd);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string payload(reinterpret_cast<const char *>(data), size);
  Result<program::Program> bare = program::readProgram(payload);
  fuzz::require(bare || bare.error().code == ErrorCode::Usage, "a bad Program is a usage error");
  Result<program::Program> read = program::readProgram(framed(payload));
  if (!read) {
    fuzz::require(read.error().code == ErrorCode::Usage, "a bad Program is a usage error");
    return 0;
  }
  fuzz::require(!program::show(*read).empty(), "a Program can be shown");
  std::string written = program::writeProgram(*read);
  Result<program::Program> again = program::readProgram(written);
  fuzz::require(bool(again), "a Program that was written can be read");
  fuzz::require(program::writeProgram(*again) == written, "it is the same bytes again");
  if (Status status = verify::verifyProgram(*read); !status)
    fuzz::require(!status.error().message.empty(), "the checkers say what is wrong");
  return 0;
}
