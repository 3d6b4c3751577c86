//===- event_file_test.cpp - Scalars for TensorBoard -----------------------===//

#include "runtime/train/EventFile.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace tbc::train {
namespace {

/// Values of RFC 3720, appendix B.4, and the check value of CRC catalogues for "123456789".
TEST(EventFile, Crc32c) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

/// The bytes of torch.utils.tensorboard's add_scalar("loss", 1.5, 3).
TEST(EventFile, AnEventIsProtobuf) {
  std::string event = scalarEvent(2.0, 3, {{"loss", 1.5f}});
  std::string wanted("\x09\x00\x00\x00\x00\x00\x00\x00\x40" // 1: 2.0
                     "\x10\x03"                             // 2: 3
                     "\x2a\x0d"                             // 5: 13 bytes
                     "\x0a\x0b"                             //   1: 11 bytes
                     "\x0a\x04loss"                         //     1: "loss"
                     "\x15\x00\x00\xc0\x3f",                //     2: 1.5
                     9 + 2 + 2 + 2 + 6 + 5);
  EXPECT_EQ(event, wanted);
}

TEST(EventFile, AFolderThatCannotBeIsNamed) {
  auto made = EventFile::create("/dev/null/events", 0);
  ASSERT_FALSE(bool(made));
  EXPECT_NE(made.error().message.find("/dev/null/events"), std::string::npos);
}

} // namespace
} // namespace tbc::train
