//===- Launch.cpp - Scripts that start an exported plan ---------------------===//

#include "tools/export/Launch.h"

#include "planner/plan/Describe.h"
#include "planner/support/Format.h"
#include "tools/export/Slurm.h"

#include <algorithm>

namespace tbc::exporter {

using planner::format;

static const std::pair<const char *, Launcher> launchers[] = {
    {"torchrun", Launcher::Torchrun}, {"slurm", Launcher::Slurm}, {"mpirun", Launcher::MpiRun}};

const std::vector<std::string> &launcherNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const auto &[word, launcher] : launchers)
      result.push_back(word);
    return result;
  }();
  return names;
}

std::optional<Launcher> parseLauncher(const std::string &word) {
  for (const auto &[name, launcher] : launchers)
    if (word == name)
      return launcher;
  return std::nullopt;
}

/// Returns what each process runs, as arguments of Python.
static std::string program(const Target &target, const std::string &file) {
  std::string stem = file.substr(0, file.rfind('.'));
  switch (target.program) {
  case Program::PythonScript:
    return file + " \"$@\"";
  case Program::DeepSpeedConfig:
    return "train.py --deepspeed --deepspeed_config " + file + " \"$@\"";
  case Program::AccelerateConfig:
  case Program::TrainAsModule:
    return "train.py \"$@\"";
  case Program::Megatron:
    return "pretrain_gpt.py $(grep -v '^#' " + file + ") \"$@\"";
  case Program::Torchtitan:
    return "-m torchtitan.train --module " + stem + " --config planned \"$@\"";
  case Program::Jax:
    return "train.py \"$@\"";
  case Program::None:
    break;
  }
  return "";
}

/// Returns why `launcher` cannot start `target`, or "".
static std::string whyNot(const Target &target, Launcher launcher) {
  if (target.program == Program::None)
    return std::string("--to ") + target.word + " writes nothing that runs";
  if (target.program == Program::Jax && launcher == Launcher::Torchrun)
    return "JAX finds its processes by Slurm or MPI, not by torchrun: take --launcher slurm or "
           "mpirun";
  if (target.program == Program::AccelerateConfig && launcher == Launcher::MpiRun)
    return "accelerate launch starts the processes of a node itself: take --launcher torchrun or "
           "slurm";
  return "";
}

static std::string environment(const PlanFacts &facts, const Target &target) {
  std::string text = ncclSettings(facts.plan->cluster);
  if (target.program == Program::Megatron && (facts.mesh().tp > 1 || facts.mesh().cp > 1))
    text += "# Megatron overlaps collectives of tp and cp with kernels in the order of issue.\n"
            "export CUDA_DEVICE_MAX_CONNECTIONS=1\n";
  return text;
}

/// Returns the lines that start `run` by Open MPI. `HOSTS` has the nodes, "a,b", and each has as
/// many slots as a node has ranks: a host of --host has one slot, unless it says how many,
/// "a:8,b:8".
static std::string mpirunLines(const PlanFacts &facts, const std::string &run,
                               bool hasConnections) {
  const std::string slots = ":" + std::to_string(facts.perNode());
  const bool isOne = facts.nodes() == 1;
  std::string text = "cd \"$(dirname \"${BASH_SOURCE[0]}\")\"\n";
  text += isOne ? "export MASTER_ADDR=localhost\n" : "export MASTER_ADDR=${HOSTS%%,*}\n";
  text += "export MASTER_PORT=${MASTER_PORT:-29500}\n";
  text += format("exec mpirun -np %lld --map-by ppr:%lld:node --rank-by slot",
                 (long long)facts.mesh().numRanks(), (long long)facts.perNode());
  text += isOne ? "" : " --host \"${HOSTS//,/" + slots + ",}" + slots + "\"";
  text += " -x MASTER_ADDR -x MASTER_PORT -x NCCL_NVLS_ENABLE";
  text += hasConnections ? " -x CUDA_DEVICE_MAX_CONNECTIONS" : "";
  return text + " bash -c " +
         shellWord("RANK=$OMPI_COMM_WORLD_RANK LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK "
                   "WORLD_SIZE=$OMPI_COMM_WORLD_SIZE exec python " +
                   run) +
         " bash \"$@\"\n";
}

Result<std::string> launchScript(const PlanFacts &facts, const Target &target, Launcher launcher,
                                 const std::string &file) {
  if (std::string why = whyNot(target, launcher); !why.empty())
    return Error{ErrorCode::Usage, "--launcher: " + why};
  int64_t perNode = facts.perNode(), nodes = facts.nodes();
  if (Status status = checkFullNodes(*facts.plan, "--launcher"); !status)
    return status.error();
  bool isAccelerate = target.program == Program::AccelerateConfig;
  std::string text = "#!/usr/bin/env bash\n# " + planner::describe(*facts.plan) + "\n";
  if (launcher == Launcher::Slurm)
    text += slurmHeader({nodes, isAccelerate ? 1 : perNode, perNode, "", false});
  if (launcher == Launcher::Torchrun)
    text += nodes == 1 ? std::string("# Start it on the node.\n")
                       : format("# Start it on each of %lld nodes, with NODE_RANK=0 to %lld and "
                                "MASTER_ADDR of the first.\n",
                                (long long)nodes, (long long)nodes - 1);
  if (launcher == Launcher::MpiRun && nodes > 1)
    text += "# HOSTS: the nodes, the first one first. Example: HOSTS=a,b\n";
  text += "# Ranks are consecutive on each node, as the plan has them.\nset -euo pipefail\n";
  text += environment(facts, target);
  std::string run = program(target, file);
  if (launcher == Launcher::Torchrun) {
    text += "cd \"$(dirname \"${BASH_SOURCE[0]}\")\"\n";
    text +=
        isAccelerate
            ? "exec accelerate launch --config_file " + file +
                  " --machine_rank \"${NODE_RANK:-0}\" --main_process_ip "
                  "\"${MASTER_ADDR:-localhost}\" --main_process_port "
                  "\"${MASTER_PORT:-29500}\" " +
                  run + "\n"
            : format("exec torchrun --nnodes=%lld --nproc-per-node=%lld "
                     "--node-rank=\"${NODE_RANK:-0}\" --master-addr=\"${MASTER_ADDR:-localhost}\" "
                     "--master-port=\"${MASTER_PORT:-29500}\" ",
                     (long long)nodes, (long long)perNode) +
                  run + "\n";
    return text;
  }
  if (launcher == Launcher::Slurm) {
    text += "export MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
            "export MASTER_PORT=${MASTER_PORT:-29500}\n";
    if (isAccelerate) {
      text += "srun --kill-on-bad-exit=1 bash -c 'accelerate launch --config_file " + file +
              " --machine_rank $SLURM_NODEID --main_process_ip $MASTER_ADDR --main_process_port "
              "$MASTER_PORT " +
              run + "' bash \"$@\"\n";
      return text;
    }
    text += "export WORLD_SIZE=$SLURM_NTASKS\n"
            "srun --kill-on-bad-exit=1 --distribution=block bash -c " +
            shellWord("RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID exec python " + run) +
            " bash \"$@\"\n";
    return text;
  }
  return text + mpirunLines(facts, run, text.find("CUDA_DEVICE_MAX_CONNECTIONS") != text.npos);
}

} // namespace tbc::exporter
