//===- Architecture.h - Model families and their hyper-parameters --------------===//

#ifndef TBC_TOOLS_NEW_ARCHITECTURE_H
#define TBC_TOOLS_NEW_ARCHITECTURE_H

#include "runtime/abi/Status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tbc::newmodel {

/// How a decoder normalizes: by the root mean square, times the weight or 1 + weight; or as layer
/// norm, times 1 + weight (nemotron), or without weights (olmo, dit).
enum class Norm { Rms, RmsPlus1, LayerPlus1, LayerWithoutWeights };
/// Norms of queries and keys: of each head, or of all heads together.
enum class HeadNorm { None, Each, All };
/// Norms in front of attention and MLP, behind them, or both.
enum class NormPlaces { Before, After, Both };

/// The hyper-parameters of one model. A count of 0 means that the family lacks the part.
struct Architecture {
  std::string kind; // one of kinds()
  int64_t layers = 0, hidden = 0, heads = 0;
  int64_t keyHeads = 0; // key and value heads
  int64_t headDim = 0;  // 0: hidden / heads
  int64_t ffn = 0;      // inner width of the MLP, or of one expert
  int64_t vocabulary = 0;
  /// Rows of the position table of gpt2 and bert; in other families the input length, if not 0.
  int64_t positions = 0;
  int64_t tokenTypes = 0; // bert
  int64_t experts = 0, expertsPerToken = 0;
  int64_t imageSize = 0, patchSize = 0, channels = 0, classes = 0; // vit, dit
  /// Experts. The first `denseLayers` layers have a MLP of inner width `denseFfn` instead, and an
  /// expert of inner width `sharedFfn` computes every token.
  int64_t denseLayers = 0, denseFfn = 0, sharedFfn = 0;
  /// A router that chooses in the best `topGroups` of `groups` groups of experts; 0: in all.
  int64_t groups = 0, topGroups = 0;
  double routedScale = 1;
  std::string expertModule = "mlp";
  bool hasSharedGate = false, routesBySigmoid = false, normalizesWeights = true;
  /// Latent attention (keyRank > 0): ranks of the queries, and of keys with values; rotated width
  /// of a head beside `headDim`, and its width of values.
  int64_t queryRank = 0, keyRank = 0, ropeDim = 0, valueDim = 0;
  /// Keys that a local layer sees; 0: all layers see all. Every `globalEvery`th layer sees all
  /// (0: none); with `localRotaryBase`, local layers rotate by it.
  int64_t window = 0, globalEvery = 0;
  double localRotaryBase = 0;
  bool isTied = false;           // the output uses the input's table
  bool hasAttentionBias = false; // of the q, k and v projections
  bool hasOutputBias = false;    // of attention's output projection
  bool hasMlpBias = false;
  bool isGated = false;    // the MLP multiplies two projections
  bool isParallel = false; // attention and MLP read the same input (neox)
  bool hasAlibi = false;
  bool isFused = false;         // one weight for q, k and v, and one for gate and up
  bool scalesEmbedding = false; // by the root of `hidden`
  Norm norm = Norm::Rms;
  HeadNorm headNorm = HeadNorm::None;
  NormPlaces normPlaces = NormPlaces::Before;
  std::string activation = "gelu"; // gelu, gelu_new, silu, relu, relu2
  double rotaryFraction = 1, rotaryBase = 10000;
  double epsilon = 1e-5;
  double softcap = 0;      // of attention scores: x -> c tanh(x / c)
  double logitSoftcap = 0; // of logits
  double queryScale = 0;   // of attention scores; 0: 1 / sqrt(headWidth())

  int64_t headWidth() const { return headDim > 0 ? headDim : hidden / heads; }
};

/// Returns the kinds known to `tbc new`.
const std::vector<std::string> &kinds();
/// Returns true if a model of `kind` may have fewer heads of keys than of queries.
bool hasKeyHeads(const std::string &kind);
/// Returns true if a model of `kind` may have experts.
bool mayHaveExperts(const std::string &kind);

/// Returns the best known model of `kind`; docs/commands/new.md lists them. Asserts that `kind` is
/// one of kinds().
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
