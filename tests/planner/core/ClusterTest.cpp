//===- ClusterTest.cpp - Presets and hostile cluster files -----------------===//

#include "planner/devices/Cluster.h"
#include "planner/devices/ClusterPresets.h"
#include "runtime/abi/ClosestWord.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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
  EXPECT_EQ(clusterPresets(),
            (std::vector<std::string>{
                "a100-40gb-sxm", "a100-80gb-pcie", "a100-80gb-sxm", "a800-80gb-sxm", "b200",
                "cpu-local",     "gaudi3",         "gb200-nvl72",   "gb300-nvl72",   "h100-pcie",
                "h100-sxm",      "h20-sxm",        "h200-sxm",      "h800-sxm",      "l4",
                "l40s",          "mi300x",         "rtx4090",       "tpu-v5e",       "tpu-v5p",
                "v100-16gb",     "v100-32gb"}));
  for (const std::string &name : clusterPresets()) {
    Result<Cluster> cluster = loadCluster(name);
    ASSERT_TRUE(cluster) << cluster.error().message;
    EXPECT_EQ(cluster->name, name);
    EXPECT_GT(cluster->usableBytes(), cluster->contextBytes);
    EXPECT_LT(cluster->usableBytes(), cluster->memoryBytes);
    EXPECT_GE(cluster->intraNode.bytesPerSecond, cluster->interNode.bytesPerSecond);
    EXPECT_FALSE(cluster->description.empty());
    for (const auto &[devices, bytesPerSecond] : cluster->intraNode.groupBytesPerSecond) {
      EXPECT_LT(devices, cluster->devicesPerNode) << name;
      EXPECT_GE(bytesPerSecond, cluster->interNode.bytesPerSecond) << name << " " << devices;
    }
  }
  EXPECT_TRUE(loadCluster(defaultClusterName));
}

// Catches slips of a factor of two or 1.024, from marketing and units.
TEST(Cluster, KernelClassesHaveWordsAndBroaderTables) {
  for (KernelClass kernelClass : reshard::kernelClasses())
    EXPECT_EQ(reshard::parseKernelClass(name(kernelClass)), kernelClass);
  KernelKey key;
  for (const std::string &word : kernelWords()) {
    EXPECT_TRUE(parseKernelKey(word, key)) << word;
    EXPECT_EQ(kernelWord(key), word);
  }
  EXPECT_FALSE(parseKernelKey("none", key)) << "views have no kernel";
  EXPECT_FALSE(parseKernelKey("gemm", key));
  Cluster cluster = *loadCluster("h100-sxm");
  cluster.kernels.erase(KernelClass::CausalAttention);
  EXPECT_EQ(cluster.kernel(KernelClass::CausalAttention), cluster.kernel(KernelClass::Attention));
  cluster.kernels.erase(KernelClass::Attention);
  EXPECT_EQ(cluster.kernel(KernelClass::CausalAttention), cluster.kernel(std::nullopt));
}

TEST(Cluster, PresetsAreWithinPhysics) {
  for (const std::string &name : clusterPresets()) {
    Cluster cluster = *loadCluster(name);
    double bf16 = cluster.peakFlopsPerSecond.at("bf16"), f32 = cluster.peakFlopsPerSecond.at("f32");
    EXPECT_GE(bf16, f32) << name;
    EXPECT_GE(f32, cluster.vectorFlopsPerSecond * 0.99) << name;
    EXPECT_LT(bf16, 2.6e15) << name << ": with sparsity?";
    EXPECT_LT(cluster.memoryBytesPerSecond, 8.1e12) << name;
    EXPECT_LT(cluster.intraNode.bytesPerSecond, 9e11) << name << ": both directions?";
    EXPECT_LT(cluster.interNode.bytesPerSecond, 7.5e10) << name << ": bits?";
    for (const auto &[key, kernel] : cluster.kernels)
      EXPECT_LT(kernel.flopsFraction, 0.95) << name << " " << kernelWord(key);
  }
}

TEST(Cluster, BetterPartsHaveNoWorseNumber) {
  for (auto [worse, better] :
       {std::pair("h100-sxm", "h200-sxm"), std::pair("a100-40gb-sxm", "a100-80gb-sxm"),
        std::pair("v100-16gb", "v100-32gb"), std::pair("l4", "l40s"),
        std::pair("a800-80gb-sxm", "a100-80gb-sxm"), std::pair("h800-sxm", "h100-sxm"),
        std::pair("gb200-nvl72", "gb300-nvl72")}) {
    Cluster a = *loadCluster(worse), b = *loadCluster(better);
    EXPECT_GE(b.memoryBytes, a.memoryBytes) << better;
    EXPECT_GE(b.intraNode.bytesPerSecond, a.intraNode.bytesPerSecond) << better;
    EXPECT_GE(b.interNode.bytesPerSecond, a.interNode.bytesPerSecond) << better;
    EXPECT_LE(b.launchSeconds, a.launchSeconds) << better;
    for (const auto &[key, kernel] : a.kernels) {
      const KernelClass kernelClass = key.value_or(KernelClass::Elementwise);
      EXPECT_GE(b.memoryBytesPerSecond * b.kernel(key).memoryFraction,
                a.memoryBytesPerSecond * kernel.memoryFraction)
          << better << " " << kernelWord(key);
      for (DType dtype : {DType::BF16, DType::F32})
        EXPECT_GE(b.peakFlops(kernelClass, dtype) * b.kernel(key).flopsFraction,
                  a.peakFlops(kernelClass, dtype) * kernel.flopsFraction)
            << better << " " << kernelWord(key);
    }
  }
}

TEST(Cluster, SmallGroupsOfAMeshGetFewLinks) {
  Cluster cluster = *loadCluster("mi300x");
  double pair = cluster.intraNode.groupBytesPerSecond.at(2);
  EXPECT_EQ(cluster.intraNode.bandwidth(2), pair);
  EXPECT_EQ(cluster.intraNode.bandwidth(3), cluster.intraNode.groupBytesPerSecond.at(4));
  EXPECT_EQ(cluster.intraNode.bandwidth(5), cluster.intraNode.bytesPerSecond);
  EXPECT_EQ(cluster.intraNode.bandwidth(8), cluster.intraNode.bytesPerSecond);
  EXPECT_EQ(loadCluster("h100-sxm")->intraNode.bandwidth(2),
            loadCluster("h100-sxm")->intraNode.bytesPerSecond);
}

TEST(Cluster, UnknownNameGetsASuggestion) {
  Result<Cluster> cluster = loadCluster("h100sxm");
  ASSERT_FALSE(cluster);
  EXPECT_EQ(cluster.error().code, ErrorCode::Usage);
  EXPECT_THAT(cluster.error().message, HasSubstr("did you mean h100-sxm?"));
  EXPECT_THAT(cluster.error().message, HasSubstr("`tbc cluster` lists the presets"));
  EXPECT_THAT(loadCluster("H200-SXM").error().message, HasSubstr("did you mean h200-sxm?"));
  EXPECT_THAT(loadCluster("v100").error().message,
              HasSubstr("did you mean v100-16gb or v100-32gb?"));
  EXPECT_THAT(loadCluster("abacus").error().message, testing::Not(HasSubstr("did you mean")));
  EXPECT_FALSE(loadCluster("/"));
  EXPECT_FALSE(loadCluster(""));
}

TEST(Cluster, ErrorsNameFileLineAndKey) {
  std::string good = presetText("h100-sxm");
  EXPECT_THAT(errorOf(replaced(good, "launch_seconds", "lanch_seconds")),
              testing::AllOf(HasSubstr("my.toml:"), HasSubstr("unknown key device.lanch_seconds"),
                             HasSubstr("did you mean device.launch_seconds?")));
  EXPECT_THAT(errorOf(replaced(good, "devices_per_node = 8", "devices_per_node = 0")),
              HasSubstr("my.toml:6: devices_per_node must be between"));
  EXPECT_THAT(errorOf(replaced(good, "devices_per_node = 8", "devices_per_node = \"8\"")),
              HasSubstr("must be an integer"));
  EXPECT_THAT(errorOf(replaced(good, "devices_per_node = 8", "")),
              HasSubstr("key devices_per_node is missing"));
  EXPECT_THAT(errorOf(replaced(good, "fraction = 0.80\n\n[uncert", "fraction = 1.80\n\n[uncert")),
              HasSubstr("overlap.fraction must be between 0 and 1"));
  for (auto [right, wrong, key] :
       {std::tuple{"[overlap]\n", "[overlap]\nslowdown = 1.2\n", "overlap.slowdown"},
        {"executed_fraction = 0.53", "executed_fraction = 0", "kernel.causal_attention.executed_"},
        {"half_depth = 128", "half_depth = -1", "kernel.matmul.half_depth"},
        {"small_fraction = 0.4", "small_fraction = 0", "network.intra_node.small_fraction"},
        {"ring_step_seconds = 1.9e-6", "ring_step_seconds = -1", "intra_node.ring_step_seconds"},
        {"allocator_fraction = 0.03", "allocator_fraction = 2", "uncertainty.allocator_fraction"}})
    EXPECT_THAT(errorOf(replaced(good, right, wrong)), HasSubstr(key));
  EXPECT_THAT(errorOf(replaced(good, "launch_seconds = 5e-6", "launch_seconds = nan")),
              HasSubstr("device.launch_seconds"));
  EXPECT_THAT(errorOf(replaced(good, "[kernel.matmul]", "[kernel.matmull]")),
              HasSubstr("did you mean kernel.matmul?"));
  EXPECT_THAT(errorOf(replaced(good, "[kernel.default]", "[kernel.gather2]")), HasSubstr("kernel"));
  const std::string groups = "[network.intra_node.group_bytes_per_second]\n";
  EXPECT_EQ(errorOf(good + groups + "2 = 1e9\n"), "no error");
  for (const char *devices : {"0", "two", "-2", "02", "9999999"})
    EXPECT_THAT(errorOf(good + groups + devices + " = 1e9\n"), HasSubstr("number of devices"))
        << devices;
  EXPECT_THAT(errorOf(good + groups + "2 = 0\n"), HasSubstr("must be positive"));
  EXPECT_THAT(errorOf(good + "[network.inter_node.group_bytes_per_second]\n2 = 1e9\n"),
              HasSubstr("unknown key network.inter_node.group_bytes_per_second"));
}

TEST(Cluster, NumbersThatWouldOverflowAPredictionNameKeyAndLine) {
  const std::string good = presetText("h100-sxm");
  for (auto [section, key, wrong, words] :
       {std::tuple{"[device]", "launch_seconds", "1e308", "launch_seconds must be zero or more s"},
        {"[network.intra_node]", "latency_seconds", "1e5", "must be zero or more seconds, up to"},
        {"[device]", "memory_bytes_per_second", "1e-308", "must be positive, from 1e6 to 1e16 b"},
        {"[device]", "vector_flops_per_second", "1e308", "must be positive, from 1e6 to 1e19 F"},
        {"[kernel.matmul]", "flops_fraction", "1e-308", "between 0 and 1, and more than 0 by"},
        {"[kernel.matmul]", "half_depth", "1e308", "half_depth must be zero or more, up to 1e24"},
        {"[uncertainty]", "context_bytes", "1e308", "must be zero or more bytes, up to 2^50"}}) {
    const size_t at = good.find(std::string("\n") + key + " = ", good.find(section)) + 1;
    ASSERT_NE(at, 0u) << key;
    const auto line = 1 + std::count(good.begin(), good.begin() + long(at), '\n');
    std::string text = good;
    text.replace(at, good.find('\n', at) - at, std::string(key) + " = " + wrong);
    EXPECT_THAT(errorOf(text), testing::AllOf(HasSubstr("my.toml:" + std::to_string(line) + ": "),
                                              HasSubstr(key), HasSubstr(words)));
  }
}

// As people write them who think in GB, GB/s, TFLOP/s and us, and the same in the other direction.
TEST(Cluster, NumbersInOtherUnitsNameTheUnit) {
  const std::string good = presetText("h100-sxm");
  for (auto [section, key, wrong, words] :
       {std::tuple{"[device]", "memory_bytes", "80", "2^50 bytes, and is 80; write 80 GB as 80_0"},
        {"[device]", "memory_bytes", "81559", "device.memory_bytes must be from 1_000_000 to"},
        {"[device]", "memory_bytes", "80_000_000_000_000_000", "to 2^50 bytes, and is 8000000"},
        {"[device]", "memory_bytes_per_second", "3350", "write 400 GB/s as 400e9"},
        {"[device]", "memory_bytes_per_second", "3.35e21", "from 1e6 to 1e16 bytes a second"},
        {"[device]", "vector_flops_per_second", "67", "write 989 TFLOP/s as 989e12"},
        {"[device.peak_flops_per_second]", "bf16", "989e21", "from 1e6 to 1e19 FLOP a second"},
        {"[device]", "launch_seconds", "5", "up to 1; write 5 us as 5e-6"},
        {"[kernel.matmul]", "ramp_seconds", "3", "kernel.matmul.ramp_seconds must be"},
        {"[network.intra_node]", "bytes_per_second", "362", "bytes a second; write 400 GB/s"},
        {"[network.intra_node]", "switch_bytes_per_second", "480", "bytes a second; write 400"},
        {"[network.inter_node]", "bytes_per_second", "45", "network.inter_node.bytes_per_second"},
        {"[network.inter_node]", "latency_seconds", "20", "write 5 us as 5e-6"},
        {"[host]", "memory_bytes", "256", "host.memory_bytes must be 0, or from 1_000_000"},
        {"[memory]", "context_bytes", "1", "memory.context_bytes must be 0, or from 1_000_000"}}) {
    const size_t at = good.find(std::string("\n") + key + " = ", good.find(section)) + 1;
    ASSERT_NE(at, 0u) << key;
    std::string text = good;
    text.replace(at, good.find('\n', at) - at, std::string(key) + " = " + wrong);
    EXPECT_THAT(errorOf(text), testing::AllOf(HasSubstr(key), HasSubstr(words))) << wrong;
  }
}

TEST(Cluster, HostileTextIsAnErrorAndNothingElse) {
  std::string good = presetText("h100-sxm");
  constexpr size_t lastNumber = 8; // cut off, it reads as another number
  for (size_t length = 0; length + lastNumber < good.size(); length += 37)
    EXPECT_NE(errorOf(good.substr(0, length)), "no error") << length;
  for (const char *text : {"", "\0", "[", "a = ", "name = 3", "[[device]]", "device = 1",
                           "\xff\xfe", "\u0100 = 1", "[a]\n\u040c", "[network]\nintra_node = []"})
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
  EXPECT_EQ(closestWord("fdsp", {"dp", "fsdp", "tp"}), "fsdp"); // a swap
  EXPECT_EQ(closestWord("fppp", {"dp", "fsdp", "tp"}), "");
  EXPECT_EQ(closestWord("shard-gradop", {"shard-grad-op", "fsdp"}), "shard-grad-op");
  EXPECT_EQ(closestWord("banana", {"dp", "fsdp"}), "");
}

// Every executor reads its file, changes the constants of all devices and keeps the rest.
TEST(Executor, RunsOnAnyCluster) {
  const Cluster cluster = *loadCluster("h100-sxm");
  EXPECT_EQ(*runBy(cluster, ownExecutor), cluster);
  const std::vector<std::string> names = executorNames();
  EXPECT_GT(names.size(), 5u);
  for (const std::string &name : names) {
    Result<Cluster> changed = runBy(cluster, name);
    ASSERT_TRUE(changed) << name << ": " << changed.error().message;
    EXPECT_EQ(changed->executor.name, name);
    EXPECT_EQ(changed->executor.isOwn(), name == "tbc");
    EXPECT_EQ(changed->memoryBytes, cluster.memoryBytes);
    EXPECT_GE(changed->launchSeconds, cluster.launchSeconds) << name;
  }
  EXPECT_EQ(runBy(cluster, "deepspeed")->overlapFraction, 0);
  EXPECT_EQ(runBy(cluster, "torchtitan")->executor.joinedGathers, 9);
  EXPECT_EQ(runBy(cluster, "deepspeed")->executor.tensorParallel, TensorParallel::Megatron);
  EXPECT_EQ(runBy(cluster, "megatron")->executor.tensorParallel, TensorParallel::MegatronTokens);
  EXPECT_EQ(runBy(cluster, "nemo")->executor.gradientWidth, 2);
  EXPECT_EQ(runBy(cluster, "torchtitan")->executor.logitBytes, 12);
  EXPECT_FALSE(runBy(cluster, "torchtitan")->executor.storesWeights);
  EXPECT_TRUE(runBy(cluster, "deepspeed")->executor.gathersAgain);
  EXPECT_THAT(
      runBy(cluster, "Megatron-LM").error().message,
      testing::AllOf(testing::HasSubstr("executor \"Megatron-LM\" is not one of deepspeed, "),
                     testing::HasSubstr("; did you mean megatron?")));

  const Cluster mixed = *parseCluster("name = \"mix\"\ndescription = \"two kinds\"\n"
                                      "[[nodes]]\ncluster = \"h100-sxm\"\ncount = 1\n"
                                      "[[nodes]]\ncluster = \"a100-80gb-sxm\"\ncount = 1\n",
                                      "mix.toml");
  EXPECT_EQ(*runBy(mixed, ownExecutor), mixed);
  const Cluster changed = *runBy(mixed, "deepspeed");
  for (const Cluster &group : changed.groups) {
    EXPECT_EQ(group.executor.name, "deepspeed");
    EXPECT_EQ(group.overlapFraction, 0);
  }
}

// Eager kernels are slower than those of the H100's file; those of the A100's are fitted on eager
// steps.
TEST(Executor, KernelsHaveTheRateOfTheCluster) {
  auto fraction = [](const Cluster &cluster) {
    return cluster.kernel(reshard::KernelClass::Matmul).flopsFraction;
  };
  for (const char *preset : {"h100-sxm", "h100-pcie", "a100-80gb-sxm"}) {
    const Cluster cluster = *loadCluster(preset);
    const double rate = preset[0] == 'h' ? 0.86 : 1;
    EXPECT_NEAR(fraction(*runBy(cluster, "nanotron")), rate * fraction(cluster), 1e-12) << preset;
    EXPECT_EQ(fraction(*runBy(cluster, "megatron")), fraction(cluster)) << preset;
  }
}

//
// Measured steps (docs/accuracy.md, "From your own runs")
//

TEST(Measured, ARunMovesTheFactorAndNarrowsTheInterval) {
  const Measured after = afterRun({1.5}, 1.2, 0.35);
  EXPECT_NEAR(after.timeFactor, 1.2147, 1e-4);
  EXPECT_NEAR(after.timeUncertainty, 0.1135, 1e-4);
  // Its steps count as one measurement, less certain the more they differ.
  EXPECT_EQ(afterRun({1.5, 1.5, 1.5}, 1.2, 0.35), after);
  EXPECT_GT(afterRun({1.2, 1.5, 1.9}, 1.2, 0.35).timeUncertainty, after.timeUncertainty);
  EXPECT_NEAR(afterRun({1.2}, 1.2, 0.35).timeFactor, 1, 1e-12);
}

TEST(Measured, AMeasurementOutsideOfTheIntervalOutweighsIt) {
  for (double ratio : {0.2, 5.0}) {
    const Measured after = afterRun({ratio}, 1, 0.1);
    EXPECT_LT(ratio, after.timeFactor * (1 + after.timeUncertainty));
    EXPECT_GT(ratio, after.timeFactor * (1 - after.timeUncertainty));
  }
}

TEST(Measured, ScalesEveryTimeButNoPeak) {
  Cluster before = *loadCluster("h100-sxm");
  before.executor.gatherRankSeconds = 1e-5;
  Cluster after = before;
  applyMeasured(after, {2, 0.1});
  EXPECT_EQ(after.executor.gatherRankSeconds, 2e-5);
  EXPECT_EQ(after.peakFlopsPerSecond, before.peakFlopsPerSecond);
  EXPECT_EQ(after.memoryBytesPerSecond, before.memoryBytesPerSecond);
  for (const auto &[key, kernel] : before.kernels) {
    EXPECT_EQ(after.kernel(key).flopsFraction * 2, kernel.flopsFraction);
    EXPECT_EQ(after.kernel(key).memoryFraction * 2, kernel.memoryFraction);
    EXPECT_EQ(after.kernel(key).rampSeconds, 2 * kernel.rampSeconds);
  }
  EXPECT_EQ(after.interNode.latencySeconds, 2 * before.interNode.latencySeconds);
  EXPECT_EQ(after.intraNode.bandwidth(8) * 2, before.intraNode.bandwidth(8));
  EXPECT_EQ(after.launchSeconds, 2 * before.launchSeconds);
  EXPECT_EQ(after.hostBytesPerSecond * 2, before.hostBytesPerSecond);
  EXPECT_EQ(after.timeFactor, 2);
  EXPECT_EQ(after.timeUncertainty, 0.1);
  EXPECT_EQ(after.overlapFraction, before.overlapFraction);
}

TEST(Measured, TakesThePlaceOfAnEarlierTable) {
  const std::string text = *clusterText("l4");
  const std::string once = withMeasured(text, "megatron", {1.5, 0.1}, {"first"});
  const std::string both = withMeasured(once, "tbc", {0.5, 0.2}, {"own"});
  const std::string again = withMeasured(both, "megatron", {1.25, 0.05}, {"second"});
  EXPECT_EQ(again.find("first"), std::string::npos);
  const Cluster cluster = *parseCluster(again, "again.toml");
  EXPECT_EQ(cluster.measured.at("megatron"), (Measured{1.25, 0.05}));
  EXPECT_EQ(cluster.measured.at("tbc"), (Measured{0.5, 0.2}));
  EXPECT_EQ(runBy(cluster, "tbc")->timeFactor, 0.5);
  EXPECT_EQ(runBy(cluster, "nemo")->timeFactor, 1);
  EXPECT_TRUE(runBy(cluster, "megatron")->measured.empty());
}
