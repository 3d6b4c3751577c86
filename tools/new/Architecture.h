//===- Architecture.h - Model families and their hyper-parameters --------------===//

#ifndef TBC_TOOLS_NEW_ARCHITECTURE_H
#define TBC_TOOLS_NEW_ARCHITECTURE_H

#include "runtime/abi/Status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tbc::newmodel {

/// The hyper-parameters of one model. A count of 0 means that the family lacks the part.
struct Architecture {
  std::string kind; // gpt2, llama, mpt, neox, bloom, nemotron, grok, bert, vit
  int64_t layers = 0, hidden = 0, heads = 0;
  int64_t keyHeads = 0; // key and value heads
  int64_t headDim = 0;  // 0: hidden / heads
  int64_t ffn = 0;      // inner width of the MLP, or of one expert
  int64_t vocabulary = 0;
  /// Rows of the position table of gpt2 and bert; in other families the input length, if not 0.
  int64_t positions = 0;
  int64_t tokenTypes = 0; // bert
  int64_t experts = 0, expertsPerToken = 0;
  int64_t imageSize = 0, patchSize = 0, channels = 0, classes = 0; // vit
  bool isTied = false;           // the output uses the input's table
  bool hasAttentionBias = false; // of the q, k and v projections
  bool hasOutputBias = false;    // of attention's output projection
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

/// Returns the kinds known to `tbc new`.
const std::vector<std::string> &kinds();

/// Returns the best known model of `kind`: GPT-2 small, Llama 3 8B, MPT-7B, GPT-NeoX-20B, BLOOM
/// 176B, Nemotron-4 15B, Grok-1, BERT base, ViT-B/16. Asserts that `kind` is one of them.
Architecture defaultsOf(const std::string &kind);

/// Returns the architecture of a config.json of Hugging Face's transformers; its model_type selects
/// the family. `source` names the file in messages. Errors: Usage for another model_type, for a key
/// that is missing or of the wrong type, and for settings of a graph that is not supported here.
Result<Architecture> readConfig(const std::string &text, const std::string &source);

/// Checks that sizes are positive and divide each other. Errors: Usage, naming the flag.
Status check(const Architecture &architecture);

struct NewModel {
  std::string bytes; // of the ONNX file
  int64_t parameters = 0;
};

/// Returns the model as an ONNX file with its weights in `dataFile`, which is not written.
NewModel writeModel(const Architecture &architecture, const std::string &dataFile);

} // namespace tbc::newmodel

#endif // TBC_TOOLS_NEW_ARCHITECTURE_H
