//===- environment_test.cpp - The rank of this process ---------------------===//

#include "runtime/launch/Environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace tbc::launch {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Result<std::optional<RankPlace>> place(const Variables &variables) {
  return placeFromEnvironment([&](const std::string &name) -> std::optional<std::string> {
    auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
}

TEST(Environment, NobodyStartedUs) {
  auto none = place({});
  ASSERT_TRUE(bool(none));
  EXPECT_FALSE(*none);
  // A shell in a Slurm allocation is not a rank.
  EXPECT_FALSE(*place({{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}}));
}

TEST(Environment, Torchrun) {
  Variables variables = {{"RANK", "3"},         {"WORLD_SIZE", "4"},
                         {"LOCAL_RANK", "1"},   {"LOCAL_WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "29500"}};
  auto found = place(variables);
  ASSERT_TRUE(found && *found);
  EXPECT_EQ((*found)->launcher, "torchrun");
  EXPECT_EQ((*found)->rank, 3);
  EXPECT_EQ((*found)->numRanks, 4);
  EXPECT_EQ((*found)->localRank, 1);
  EXPECT_FALSE((*found)->isOneHost);
  EXPECT_EQ(toString(*(*found)->meeting), "tcp://n1:29500");
  // The agent's store already uses the port.
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(toString(*(*place(variables))->meeting), "tcp://n1:29501");
}

TEST(Environment, SlurmOnSeveralHosts) {
  auto found = place({{"SLURM_PROCID", "1"},
                      {"SLURM_NTASKS", "8"},
                      {"SLURM_LOCALID", "1"},
                      {"SLURM_JOB_ID", "10123"},
                      {"SLURM_STEP_ID", "2"},
                      {"SLURM_STEP_NUM_NODES", "2"},
                      {"SLURM_STEP_NODELIST", "gpu[007-008]"}});
  ASSERT_TRUE(found && *found);
  EXPECT_EQ((*found)->launcher, "Slurm");
  EXPECT_EQ((*found)->rank, 1);
  EXPECT_EQ(toString(*(*found)->meeting), "tcp://gpu007:20123");
}

TEST(Environment, SlurmOnOneHostMeetsInAFolder) {
  auto found = place({{"SLURM_PROCID", "1"},
                      {"SLURM_NTASKS", "2"},
                      {"SLURM_JOB_ID", "5"},
                      {"SLURM_STEP_ID", "2"},
                      {"SLURM_STEP_NUM_NODES", "1"},
                      {"TMPDIR", "/scratch"},
                      {"SLURM_STEP_NODELIST", "gpu7"}});
  ASSERT_TRUE(found && *found && (*found)->meeting);
  EXPECT_TRUE((*found)->meeting->isOurs);
  EXPECT_THAT(toString(*(*found)->meeting), HasSubstr("file:///scratch/tbc-"));
  EXPECT_THAT(toString(*(*found)->meeting), HasSubstr("-5.2"));
}

TEST(Environment, Kubeflow) {
  auto found = place({{"RANK", "1"},
                      {"WORLD_SIZE", "3"},
                      {"MASTER_ADDR", "job-master-0"},
                      {"MASTER_PORT", "23456"},
                      {"KUBERNETES_PORT", "tcp://10.0.0.1:443"}});
  ASSERT_TRUE(found && *found);
  EXPECT_EQ((*found)->launcher, "Kubeflow");
  EXPECT_EQ((*found)->localRank, 0);
  EXPECT_FALSE((*found)->isOneHost);
  EXPECT_EQ(toString(*(*found)->meeting), "tcp://job-master-0:23456");
}

TEST(Environment, Lsf) {
  Variables variables = {{"JSM_NAMESPACE_RANK", "5"},
                         {"JSM_NAMESPACE_SIZE", "8"},
                         {"JSM_NAMESPACE_LOCAL_RANK", "1"},
                         {"LSB_JOBID", "77"},
                         {"LSB_MCPU_HOSTS", "a01 4 a02 4"}};
  auto found = place(variables);
  ASSERT_TRUE(found && *found);
  EXPECT_EQ((*found)->launcher, "LSF");
  EXPECT_EQ((*found)->rank, 5);
  EXPECT_EQ((*found)->localRank, 1);
  // The host of rank 0 is not given.
  EXPECT_FALSE((*found)->meeting);
  variables["MASTER_ADDR"] = "a01";
  variables["MASTER_PORT"] = "29400";
  EXPECT_EQ(toString(*(*place(variables))->meeting), "tcp://a01:29400");
  auto one = place({{"JSM_NAMESPACE_RANK", "1"},
                    {"JSM_NAMESPACE_SIZE", "2"},
                    {"LSB_JOBID", "77"},
                    {"LSB_MCPU_HOSTS", "a01 2"}});
  ASSERT_TRUE(one && *one && (*one)->meeting);
  EXPECT_THAT(toString(*(*one)->meeting), HasSubstr("-77"));
}

TEST(Environment, OpenMpiAndPmi) {
  auto open = place({{"OMPI_COMM_WORLD_RANK", "1"},
                     {"OMPI_COMM_WORLD_SIZE", "2"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                     {"PMIX_NAMESPACE", "4711@x"}});
  ASSERT_TRUE(open && *open && (*open)->meeting);
  EXPECT_EQ((*open)->launcher, "Open MPI");
  EXPECT_THAT(toString(*(*open)->meeting), HasSubstr("-4711_x"));
  auto pmi = place({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}});
  ASSERT_TRUE(pmi && *pmi);
  EXPECT_FALSE((*pmi)->meeting);
}

TEST(Environment, MpichOnOneHostMeetsInAFolder) {
  auto ofRank = [](const std::string &rank, const std::string &local) {
    return *place({{"PMI_RANK", rank},
                   {"PMI_SIZE", "4"},
                   {"MPI_LOCALRANKID", rank},
                   {"MPI_LOCALNRANKS", local},
                   {"TMPDIR", "/scratch"}});
  };
  auto first = ofRank("0", "4"), second = ofRank("1", "4");
  ASSERT_TRUE(first && first->meeting && second && second->meeting);
  EXPECT_TRUE(first->isOneHost && first->meeting->isOurs);
  EXPECT_EQ(second->localRank, 1);
  // Named by the id and the start time of the process that started both.
  EXPECT_EQ(toString(*first->meeting), toString(*second->meeting));
  EXPECT_THAT(toString(*first->meeting),
              testing::ContainsRegex("file:///scratch/tbc-[0-9]+-[0-9]+-[0-9]+$"));
  // Two of four ranks are here; MPICH does not give the hosts of the others.
  EXPECT_FALSE(ofRank("0", "2")->meeting);
}

TEST(Environment, NonsenseIsRefused) {
  EXPECT_THAT(place({{"RANK", "x"}, {"WORLD_SIZE", "2"}}).error().message, HasSubstr("RANK=x"));
  EXPECT_THAT(place({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).error().message,
              HasSubstr("below WORLD_SIZE=2"));
  EXPECT_THAT(place({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}).error().message,
              HasSubstr("MASTER_PORT"));
  EXPECT_THAT(
      place({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "99999"}})
          .error()
          .message,
      HasSubstr("99999"));
}

TEST(MeetingPoints, AreParsed) {
  EXPECT_FALSE(*parseMeetingPoint("env://"));
  EXPECT_EQ(toString(**parseMeetingPoint("tcp://localhost:4711")), "tcp://localhost:4711");
  EXPECT_EQ(toString(**parseMeetingPoint("tcp://[::1]:4711")), "tcp://[::1]:4711");
  EXPECT_EQ(toString(**parseMeetingPoint("file:///tmp/x")), "file:///tmp/x");
  for (const char *wrong : {"", "tcp://host", "tcp://:1", "tcp://host:0", "tcp://host:99999",
                            "file://", "file://relative", "udp://x:1"})
    EXPECT_EQ(parseMeetingPoint(wrong).error().code, ErrorCode::Usage) << wrong;
}

TEST(HostLists, BeginWithAHost) {
  for (auto [list, host] :
       {std::pair("a", "a"), std::pair("a,b", "a"), std::pair("n[03-05,9],b", "n03"),
        std::pair("n[7]", "n7"), std::pair("x,n[1-2]", "x"), std::pair("n[1-2]-ib,c", "n1-ib"),
        std::pair("", "")})
    EXPECT_EQ(firstHost(list), host) << list;
}

TEST(Addresses, OfThisMachine) {
  for (const char *host : {"localhost", "127.0.0.1", "127.1.2.3", "::1"})
    EXPECT_TRUE(isLoopback(host));
  for (const char *host : {"node1", "10.0.0.1", "0.0.0.0"})
    EXPECT_FALSE(isLoopback(host));
}

} // namespace
} // namespace tbc::launch
