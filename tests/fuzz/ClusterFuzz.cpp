//===- ClusterFuzz.cpp - Any bytes as a cluster.toml ----------------------===//

#include "tests/fuzz/Fuzz.h"

#include "planner/devices/Cluster.h"

using namespace tbc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string text(reinterpret_cast<const char *>(data), size);
  Result<planner::Cluster> cluster = planner::parseCluster(text, "cluster.toml");
  if (!cluster) {
    fuzz::require(cluster.error().code == ErrorCode::Usage, "a bad cluster file is a usage error");
    fuzz::require(cluster.error().message.rfind("cluster.toml:", 0) == 0,
                  "the message names the file");
    return 0;
  }
  fuzz::require(cluster->memoryBytes > 0 && cluster->usableBytes() <= cluster->memoryBytes &&
                    cluster->kernel(reshard::KernelClass::Matmul).flopsFraction > 0,
                "a cluster that was read has the numbers that planning divides by");
  return 0;
}
