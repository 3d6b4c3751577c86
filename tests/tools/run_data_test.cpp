#include "tests/ir/ParsedModule.h"
#include "tools/driver/RunManifest.h"

#include "gtest/gtest.h"

namespace tbc::driver {
namespace {

/// The bound of the input of a function with this body.
int64_t boundOf(const std::string &body) {
  ParsedModule module("func.func @f(%x: tensor<2x3xi64>, %t: tensor<5x4xf32>) {" + body +
                      " return }");
  EXPECT_TRUE(module) << module.messages;
  return inputBound(module.function("f").getArgument(0));
}

TEST(InputBound, ABooleanIsTrueForAnyInteger) {
  EXPECT_EQ(boundOf("%m = tbc.cast %x : (tensor<2x3xi64>) -> tensor<2x3xi1>"), 0);
}

TEST(InputBound, FlagsAreZeroOrOne) {
  EXPECT_EQ(boundOf("%s = tbc.slice %x {dim = 1 : i64, offset = 0 : i64, step = 1 : i64, "
                    "size = 2 : i64} : (tensor<2x3xi64>) -> tensor<2x2xi64> "
                    "%m = tbc.cast %s {tbc.flags} : (tensor<2x2xi64>) -> tensor<2x2xi1>"),
            2);
}

TEST(InputBound, JoinedIndicesAreRowsOfTheirTable) {
  EXPECT_EQ(boundOf("%j = tbc.concat %x, %x {dim = 1 : i64} : (tensor<2x3xi64>, tensor<2x3xi64>) "
                    "-> tensor<2x6xi64> "
                    "%r = tbc.gather %t, %j {dim = 0 : i64} : (tensor<5x4xf32>, tensor<2x6xi64>) "
                    "-> tensor<2x6x4xf32>"),
            5);
}

} // namespace
} // namespace tbc::driver
