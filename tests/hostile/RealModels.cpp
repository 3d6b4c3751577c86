//===- RealModels.cpp - Mutations of the project's models -----------------===//

#include "tests/hostile/RealModels.h"

#include "tests/hostile/WireMutator.h"

#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

namespace tbc::test {

const std::vector<std::string> &realModels() {
  static const std::vector<std::string> models = {
      "tiny-mlp", "tiny-gpt2", "tiny-llama", "tiny-resnet", "resnet-8b",
      "gpt2-8l",  "llama-8l",  "moe-8l",     "unet-8l",     "gpt2"};
  return models;
}

static const std::string &bytesOf(size_t which) {
  static std::map<size_t, std::string> read;
  std::string &bytes = read[which];
  if (bytes.empty()) {
    std::string path = TBC_SOURCE_DIR "/models/" + realModels()[which] + ".onnx";
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    bytes = text.str();
  }
  if (bytes.size() < 10000)
    throw std::runtime_error("cannot read " + realModels()[which]);
  return bytes;
}

std::string mutatedModel(size_t which, int i, std::string &what) {
  std::string mutated = bytesOf(which);
  const std::string &other = bytesOf((which + 1) % realModels().size());
  Random random(uint64_t(which) << 32 | uint64_t(i));
  what.clear();
  for (uint64_t changes = 1 + random.below(3); changes > 0 && !mutated.empty(); --changes) {
    std::string change;
    try {
      mutated = mutate(mutated, other, random, change);
    } catch (const std::runtime_error &) { // no longer a message: changed enough
      break;
    }
    what += (what.empty() ? "" : "; ") + change;
  }
  return mutated;
}

} // namespace tbc::test
