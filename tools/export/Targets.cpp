//===- Targets.cpp - The table of targets -----------------------------------===//

#include "tools/export/Targets.h"

#include "tools/export/Accelerate.h"
#include "tools/export/DeepSpeed.h"
#include "tools/export/Dot.h"
#include "tools/export/Jax.h"
#include "tools/export/Lightning.h"
#include "tools/export/Megatron.h"
#include "tools/export/PyTorch.h"
#include "tools/export/Torchtitan.h"

namespace tbc::exporter {

const std::vector<Target> &targets() {
  static const std::vector<Target> table = {
      {"pytorch", "torch 2.11", Program::PythonScript, "#", writePyTorch},
      {"megatron", "megatron-core 0.16", Program::Megatron, "#", writeMegatron},
      {"torchtitan", "torchtitan 0.3", Program::Torchtitan, "#", writeTorchtitan},
      {"deepspeed", "deepspeed 0.19", Program::DeepSpeedConfig, "", writeDeepSpeed},
      {"accelerate", "accelerate 1.15", Program::AccelerateConfig, "#", writeAccelerate},
      {"lightning", "lightning 2.6", Program::TrainAsModule, "#", writeLightning},
      {"jax", "jax 0.10", Program::Jax, "#", writeJax},
      {"dot", "Graphviz", Program::None, "//", writeDot}};
  return table;
}

const Target *findTarget(const std::string &word) {
  for (const Target &target : targets())
    if (word == target.word)
      return &target;
  return nullptr;
}

} // namespace tbc::exporter
