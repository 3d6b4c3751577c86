//===- ClusterTest.cpp - Presets and hostile cluster files -----------------===//

#include "planner/core/Cluster.h"
#include "planner/core/ClusterPresets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

using namespace tbc;
using namespace tbc::planner;
using testing::HasSubstr;

static std::string presetText(const std::string &name) {
  for (const auto &[preset, text] : clusterPresetTexts())
    if (preset == name)
      return text;
  return "";
}

static std::string replaced(std::string text, const std::string &from, const std::string &to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

static std::string errorOf(const std::string &text) {
  Result<Cluster> cluster = parseCluster(text, "my.toml");
  if (cluster)
    return "no error";
  EXPECT_EQ(cluster.error().code, ErrorCode::Usage);
  return cluster.error().message;
}

TEST(Cluster, EveryPresetLoads) {
  EXPECT_EQ(clusterPresets(), (std::vector<std::string>{"a100-80gb-sxm", "cpu-local", "h100-sxm"}));
  for (const std::string &name : clusterPresets()) {
    Result<Cluster> cluster = loadCluster(name);
    ASSERT_TRUE(cluster) << cluster.error().message;
    EXPECT_EQ(cluster->name, name);
    EXPECT_GT(cluster->usableBytes(), cluster->contextBytes);
    EXPECT_LT(cluster->usableBytes(), cluster->memoryBytes);
    EXPECT_GE(cluster->intraNode.bytesPerSecond, cluster->interNode.bytesPerSecond);
  }
}

TEST(Cluster, UnknownNameGetsASuggestion) {
  Result<Cluster> cluster = loadCluster("h100sxm");
  ASSERT_FALSE(cluster);
  EXPECT_EQ(cluster.error().code, ErrorCode::Usage);
  EXPECT_THAT(cluster.error().message, HasSubstr("did you mean h100-sxm?"));
  EXPECT_FALSE(loadCluster("/"));
  EXPECT_FALSE(loadCluster(""));
}

TEST(Cluster, ErrorsNameFileLineAndKey) {
  std::string good = presetText("h100-sxm");
  EXPECT_THAT(errorOf(replaced(good, "launch_seconds", "lanch_seconds")),
              testing::AllOf(HasSubstr("my.toml:"), HasSubstr("unknown key device.lanch_seconds"),
                             HasSubstr("did you mean device.launch_seconds?")));
  EXPECT_THAT(errorOf(replaced(good, "devices_per_node = 8", "devices_per_node = 0")),
              HasSubstr("my.toml:5: devices_per_node must be between"));
  EXPECT_THAT(errorOf(replaced(good, "devices_per_node = 8", "devices_per_node = \"8\"")),
              HasSubstr("must be an integer"));
  EXPECT_THAT(errorOf(replaced(good, "devices_per_node = 8", "")),
              HasSubstr("key devices_per_node is missing"));
  EXPECT_THAT(errorOf(replaced(good, "fraction = 0.80\n\n[uncert", "fraction = 1.80\n\n[uncert")),
              HasSubstr("overlap.fraction must be between 0 and 1"));
  EXPECT_THAT(errorOf(replaced(good, "launch_seconds = 5e-6", "launch_seconds = nan")),
              HasSubstr("device.launch_seconds"));
  EXPECT_THAT(errorOf(replaced(good, "[kernel.matmul]", "[kernel.matmull]")),
              HasSubstr("did you mean kernel.matmul?"));
  EXPECT_THAT(errorOf(replaced(good, "[kernel.default]", "[kernel.gather2]")), HasSubstr("kernel"));
}

TEST(Cluster, HostileTextIsAnErrorAndNothingElse) {
  std::string good = presetText("h100-sxm");
  for (size_t length = 0; length < good.size(); length += 37)
    EXPECT_NE(errorOf(good.substr(0, length)), "no error") << length;
  for (const char *text : {"", "\0", "[", "a = ", "name = 3", "[[device]]", "device = 1",
                           "\xff\xfe", "[network]\nintra_node = []"})
    EXPECT_NE(errorOf(text), "no error") << text;
  EXPECT_NE(errorOf(std::string(100000, '[')), "no error");
}

TEST(Cluster, MalformedHeadersNameTheirLine) {
  for (const char *text :
       {"\n[[[", "\n[(]", "\n[ ", "\n[\n", "\n[]", "\n[a.]", "\n[.a]", "\n[[a.(]]"})
    EXPECT_THAT(errorOf(text), HasSubstr("my.toml:2: not valid TOML")) << text;
}

TEST(Cluster, RandomEditsNeverCrash) {
  std::string good = presetText("h100-sxm");
  std::mt19937_64 random(3);
  const std::string letters = "[]{}.=\"'#_-+eE0123456789abtfin \n\t\r\\,:\x01\x80";
  int readable = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = good;
    for (size_t edit = 0; edit < 1 + random() % 3; ++edit) {
      size_t at = random() % text.size();
      char letter = letters[random() % letters.size()];
      switch (random() % 3) {
      case 0:
        text[at] = letter;
        break;
      case 1:
        text.insert(at, 1 + random() % 3, letter);
        break;
      default:
        text.erase(at, 1 + random() % 20);
      }
    }
    readable += errorOf(text) == "no error";
  }
  EXPECT_GT(readable, 100); // most of the text is comments
}

TEST(ClosestWord, SuggestsOnlyWhatIsClose) {
  EXPECT_EQ(closestWord("fdsp", {"dp", "fsdp", "tp"}), "");
  EXPECT_EQ(closestWord("shard-gradop", {"shard-grad-op", "fsdp"}), "shard-grad-op");
  EXPECT_EQ(closestWord("banana", {"dp", "fsdp"}), "");
}
