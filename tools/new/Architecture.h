//===- Architecture.h - Model families and their hyper-parameters --------------===//

#ifndef TBC_TOOLS_NEW_ARCHITECTURE_H
#define TBC_TOOLS_NEW_ARCHITECTURE_H

#include "runtime/abi/Status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tbc::newmodel {

/// The hyper-parameters of one model. Counts of 0 stand for what a family does not have.
struct Architecture {
  std::string kind; // gpt2, llama, mpt, neox, bloom, nemotron, grok, bert, vit
  int64_t layers = 0, hidden = 0, heads = 0;
  int64_t keyHeads = 0; // heads of keys and values
  int64_t headDim = 0;  // 0: hidden / heads
  int64_t ffn = 0;      // inner width, of one expert if there are several
  int64_t vocabulary = 0;
  /// Rows of the position table of gpt2 and bert; elsewhere, if not 0, the length of the input.
  int64_t positions = 0;
  int64_t tokenTypes = 0; // bert
  int64_t experts = 0, expertsPerToken = 0;
  int64_t imageSize = 0, patchSize = 0, channels = 0, classes = 0; // vit
  bool isTied = false;           // the output's table is the input's
  bool hasAttentionBias = false; // of queries, keys and values
  bool hasOutputBias = false;    // of what follows them
  bool hasMlpBias = false;
  bool isGated = false;    // the MLP multiplies two projections
  bool isParallel = false; // attention and MLP read the same input (neox)
  bool hasAlibi = false;
  std::string activation = "gelu"; // gelu, gelu_new, silu, relu, relu2
  double rotaryFraction = 1, rotaryBase = 10000;
  double epsilon = 1e-5;
  double softcap = 0; // of attention scores: x -> c tanh(x / c)

  int64_t headWidth() const { return headDim > 0 ? headDim : hidden / heads; }
};

/// The kinds that `tbc new` knows.
const std::vector<std::string> &kinds();

/// The model of `kind` that it is best known by: GPT-2 small, Llama 3 8B, MPT-7B, GPT-NeoX-20B,
/// BLOOM 176B, Nemotron-4 15B, Grok-1, BERT base, ViT-B/16. Asserts that `kind` is one.
Architecture defaultsOf(const std::string &kind);

/// The architecture that a config.json of Hugging Face's transformers describes; model_type decides
/// of which family it is. `source` names it in messages.
/// Errors: Usage for another model_type, a key that is missing or of the wrong type, and for
/// settings that would make another graph than is written here.
Result<Architecture> readConfig(const std::string &text, const std::string &source);

/// Errors: Usage, naming the flag: sizes that are not positive, or do not divide each other.
Status check(const Architecture &architecture);

struct NewModel {
  std::string bytes; // of the ONNX file
  int64_t parameters = 0;
};

/// The model as an ONNX file whose weights are in `dataFile`, which is not there.
NewModel writeModel(const Architecture &architecture, const std::string &dataFile);

} // namespace tbc::newmodel

#endif // TBC_TOOLS_NEW_ARCHITECTURE_H
