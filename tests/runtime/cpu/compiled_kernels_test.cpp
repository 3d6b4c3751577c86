//===- compiled_kernels_test.cpp - CPU features needed by a shared object ------===//

#include "runtime/cpu/CompiledKernels.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

using tbc::cpu::CompiledKernels;

namespace {

TEST(CompiledKernels, MissingFeaturesAreNamed) {
  EXPECT_EQ(CompiledKernels::missingFeatures("avx2 fma", "sse2 fma avx2 bmi2"), "");
  EXPECT_EQ(CompiledKernels::missingFeatures("avx2 avx512f fma avx512bw", "fma avx2 avx512fp16"),
            "avx512f avx512bw");
  EXPECT_EQ(CompiledKernels::missingFeatures("", ""), "");
}

TEST(CompiledKernels, AFileThatIsNoSharedObjectIsAnErrorWithItsName) {
  std::string path = testing::TempDir() + "/kernels.so";
  std::ofstream(path) << "no shared object";
  auto file = tbc::program::OpenFile::open(path);
  ASSERT_TRUE(file);
  auto opened = CompiledKernels::open(*file, "hash");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, tbc::ErrorCode::Usage);
  EXPECT_NE(opened.error().message.find(path + " cannot be loaded"), std::string::npos);
  std::remove(path.c_str());
}

} // namespace
