//===- Slurm.cpp - Batch scripts of Slurm ------------------------------------===//

#include "tools/export/Slurm.h"

#include "planner/plan/Describe.h"
#include "planner/support/Format.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace tbc::exporter {

using planner::format;

std::string slurmHeader(const SlurmJob &job) {
  std::string text;
  if (!job.name.empty())
    text += "#SBATCH --job-name=" + job.name + "\n";
  text += format("#SBATCH --nodes=%lld\n#SBATCH --ntasks-per-node=%lld\n", (long long)job.nodes,
                 (long long)job.tasksPerNode);
  if (job.gpusPerNode > 0)
    text += format("#SBATCH --gpus-per-node=%lld\n", (long long)job.gpusPerNode);
  text += "#SBATCH --distribution=block\n#SBATCH --exclusive\n";
  if (job.isRequeued)
    text += "#SBATCH --requeue\n#SBATCH --open-mode=append\n#SBATCH --signal=USR1@300\n";
  return text;
}

std::string shellWord(const std::string &text) {
  bool isPlain = !text.empty();
  for (char c : text)
    isPlain &= std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_-./:=,+@%", c);
  if (isPlain)
    return text;
  std::string quoted = "'";
  for (char c : text)
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string ncclSettings(const planner::Cluster &cluster) {
  bool hasSwitch = cluster.intraNode.switchBytesPerSecond > 0;
  return "# The cluster file " + std::string(hasSwitch ? "has" : "has no") +
         " reductions in the switch (NVLink SHARP).\n" +
         format("export NCCL_NVLS_ENABLE=%d\n", hasSwitch ? 1 : 0);
}

int64_t devicesPerNode(const planner::Plan &plan) {
  return std::min(plan.mesh.numRanks(), plan.cluster.devicesPerNode);
}

int64_t nodesOf(const planner::Plan &plan) {
  return (plan.mesh.numRanks() + devicesPerNode(plan) - 1) / devicesPerNode(plan);
}

Status checkFullNodes(const planner::Plan &plan, const std::string &flag) {
  int64_t ranks = plan.mesh.numRanks(), perNode = devicesPerNode(plan), nodes = nodesOf(plan);
  bool hasOtherNodes =
      std::any_of(plan.cluster.groups.begin(), plan.cluster.groups.end(),
                  [&](const planner::Cluster &group) { return group.devicesPerNode != perNode; });
  if (ranks == perNode * nodes && (nodes == 1 || !hasOtherNodes))
    return Status::ok();
  return Error{ErrorCode::Usage,
               flag + format(": %lld ranks do not fill nodes of %lld devices; the launcher starts "
                             "as many processes on each node: plan with a multiple of %lld",
                             (long long)ranks, (long long)perNode, (long long)perNode)};
}

/// A job requeues itself this often; Slurm requeues it after the failure of a node at any time.
constexpr int mostRestarts = 10;

/// What follows srun, whose exit code is in $code.
static std::string requeueLines() {
  return "# 6, 7: a rank failed or did not answer; 8: warned ahead of the time limit; above 128:\n"
         "# killed. The job goes on from its latest checkpoint, unless it was cancelled.\n"
         "case $code in 6 | 7 | 8 | 137 | 143)\n" +
         format("  if ((${SLURM_RESTART_COUNT:-0} < %d)) &&\n", mostRestarts) +
         "    [[ $(squeue --noheader --jobs=\"$SLURM_JOB_ID\" --format=%T) == RUNNING ]]; then\n"
         "    scontrol requeue \"$SLURM_JOB_ID\"\n"
         "  fi ;;\n"
         "esac\n";
}

Result<std::string> batchScript(const planner::Plan &plan, const RunJob &job) {
  if (Status status = checkFullNodes(plan, "--print-sbatch"); !status)
    return status.error();
  SlurmJob shape;
  shape.nodes = nodesOf(plan);
  shape.tasksPerNode = devicesPerNode(plan);
  shape.gpusPerNode = job.isOnGpus ? shape.tasksPerNode : 0;
  shape.name = job.name;
  shape.isRequeued = job.hasCheckpoint;
  std::string text = "#!/usr/bin/env bash\n# " + planner::describe(plan) + "\n";
  text += slurmHeader(shape);
  text += "# Add --time, --partition and --account of your cluster, here or to sbatch.\n";
  if (!job.hasCheckpoint)
    text += "# Without --checkpoint a failed job begins again, so it is not requeued.\n"
            "#SBATCH --no-requeue\n";
  text += "set -euo pipefail\n";
  if (job.isOnGpus)
    text += ncclSettings(plan.cluster);
  text += "# The secret by which the ranks of this job know each other.\n"
          "TBC_JOB_TOKEN=${TBC_JOB_TOKEN:-$(od -An -N32 -tx1 /dev/urandom | tr -d ' \\n')}\n"
          "export TBC_JOB_TOKEN\n";
  if (!job.plan.empty())
    text += "tbc compile " + shellWord(job.plan) + " -o " + shellWord(job.program) +
            (job.isOnGpus ? " --target cuda" : "") + "\n";
  text += "# Ranks are consecutive on each node, as the plan has them.\n"
          "code=0\n"
          "srun --kill-on-bad-exit=1 --distribution=block tbc-run " +
          shellWord(job.program);
  for (const std::string &flag : job.flags)
    text += " " + shellWord(flag);
  text += " || code=$?\n";
  if (job.hasCheckpoint)
    text += requeueLines();
  return text + "exit \"$code\"\n";
}

} // namespace tbc::exporter
