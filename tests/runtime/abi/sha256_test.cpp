//===- sha256_test.cpp - SHA-256 -------------------------------------------===//

#include "runtime/abi/Sha256.h"

#include <gtest/gtest.h>

namespace tbc {
namespace {

// Examples of FIPS 180-4 (NIST, "Secure Hashing: examples with intermediate values").
TEST(Sha256, PublishedExamples) {
  EXPECT_EQ(sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256Hex(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/// Lengths around a block and around the last block, in pieces with every end position.
TEST(Sha256, PiecesAndInstructionsChangeNothing) {
  std::string text;
  for (int i = 0; i < 1000; ++i)
    text += char(i * i % 251);
  for (size_t size : {0, 1, 55, 56, 63, 64, 65, 127, 128, 129, 1000}) {
    std::string_view bytes = std::string_view(text).substr(0, size);
    Sha256 portable(/*mayUseInstructions=*/false);
    portable.add(bytes);
    EXPECT_EQ(sha256Hex(bytes), portable.hex()) << size;
    for (size_t step : {1, 7, 64, 100}) {
      Sha256 pieces;
      for (size_t at = 0; at < size; at += step)
        pieces.add(bytes.substr(at, step));
      EXPECT_EQ(pieces.hex(), portable.hex()) << size << " in pieces of " << step;
    }
  }
}

} // namespace
} // namespace tbc
