//===- kernel_cache_test.cpp - Reuse of compiled objects --------------------===//

#include "codegen/cpu/CompileKernels.h"
#include "codegen/cpu/EmitKernel.h"
#include "tests/codegen/cpu/KernelCheck.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

using namespace mlir;
using namespace tbc;
namespace fs = std::filesystem;

namespace {

class KernelCacheTest : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "tbc-cache-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override { fs::remove_all(folder); }

  cpu::KernelCache cache(int64_t maxBytes = cpu::KernelCache::defaultBytes) const {
    return cpu::KernelCache(folder / "kernels", maxBytes);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> paths;
    for (const auto &entry : fs::directory_iterator(folder / "kernels"))
      paths.push_back(entry.path());
    return paths;
  }
  static std::string textOf(const fs::path &path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }

  fs::path folder;
};

TEST_F(KernelCacheTest, GivesBackWhatWasPut) {
  EXPECT_FALSE(cache().find("one"));
  cache().put("one", std::string("with\0zeros", 10));
  cache().put("none", "");
  EXPECT_EQ(cache().find("one"), std::string("with\0zeros", 10));
  EXPECT_EQ(cache().find("none"), "");
  EXPECT_EQ(files().size(), 2u); // no temporary files
}

TEST_F(KernelCacheTest, DamageIsAsGoodAsNothing) {
  cache().put("one", "an object");
  std::string whole = textOf(files()[0]);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string flipped = whole;
    flipped[i] ^= 4;
    std::ofstream(files()[0], std::ios::binary) << flipped;
    EXPECT_FALSE(cache().find("one")) << "byte " << i;
  }
  for (size_t size : {size_t(0), size_t(10), whole.size() - 1}) {
    std::ofstream(files()[0], std::ios::binary) << whole.substr(0, size);
    EXPECT_FALSE(cache().find("one")) << size << " bytes";
  }
}

TEST_F(KernelCacheTest, ForgetsWhatWasNotUsedForLong) {
  const std::string object(1000, 'x');
  auto now = fs::file_time_type::clock::now();
  for (int i = 0; i < 5; ++i) {
    cache().put(std::to_string(i), object);
    fs::last_write_time(folder / "kernels" / (std::to_string(i) + ".o"),
                        now - std::chrono::hours(10 - i));
  }
  EXPECT_TRUE(cache().find("0")); // most recently used
  cache(3500).trim();
  EXPECT_EQ(files().size(), 3u);
  for (const char *key : {"0", "3", "4"})
    EXPECT_TRUE(cache().find(key)) << key;
}

TEST_F(KernelCacheTest, AFolderThatCannotBeIsNoError) {
  std::ofstream(folder / "kernels") << "a file";
  cache().put("one", "an object");
  cache().trim();
  EXPECT_FALSE(cache().find("one"));
}

TEST_F(KernelCacheTest, ObjectsFromItLinkToTheSameBytes) {
  auto target = cpu::findCpuTarget("native"), older = cpu::findCpuTarget("x86-64-v2");
  ASSERT_TRUE(target && older);
  region::EmitFn emit = [lanes = target->lanes](func::FuncOp function,
                                                const region::Domain &domain) {
    return cpu::emitKernel(function, domain, lanes);
  };
  std::vector<region::KernelSource> sources;
  for (const OpCase &opCase : shapeCases())
    if (auto compiled = compileCase(opCase, emit, int(sources.size())))
      sources.push_back(sourceOf(*compiled));
  ASSERT_GT(sources.size(), 2u);
  EXPECT_NE(cpu::KernelCache::keyOf(sources[0].text, *target),
            cpu::KernelCache::keyOf(sources[0].text, *older));
  EXPECT_NE(cpu::KernelCache::keyOf(sources[0].text, *target),
            cpu::KernelCache::keyOf(sources[1].text, *target));

  const cpu::KernelCache known = cache();
  auto compile = [&](const std::string &name, const cpu::KernelCache *from) {
    auto numFound = cpu::compileKernels(sources, *target, "a program", folder / name, from);
    EXPECT_TRUE(numFound) << numFound.error().message;
    return numFound ? *numFound : 0;
  };
  compile("plain.so", nullptr);
  EXPECT_EQ(compile("first.so", &known), 0u);
  EXPECT_EQ(files().size(), sources.size());
  EXPECT_EQ(compile("second.so", &known), sources.size());
  EXPECT_EQ(textOf(folder / "first.so"), textOf(folder / "plain.so"));
  EXPECT_EQ(textOf(folder / "second.so"), textOf(folder / "plain.so"));
}

} // namespace
