//===- T5.cpp - t5: an encoder and a decoder -----------------------------------===//
//
// Source: Raffel et al., "Exploring the limits of transfer learning" (2019), and transformers'
// modeling_t5.py, whose names the modules have.
//
//===----------------------------------------------------------------------===//

#include "tools/new/Blocks.h"
#include "tools/new/Families.h"

#include <cmath>

namespace tbc::newmodel {

using Module = GraphWriter::Module;

/// Buckets of distances between a query and a key, and the distance from which on all are one.
constexpr int64_t kBuckets = 32, kFarthest = 128;

static std::string real(GraphWriter &w, const std::string &x) {
  return w.op("Cast", {x}, {{"to", int64_t(1)}});
}
static std::string integer(GraphWriter &w, const std::string &x) {
  return w.op("Cast", {x}, {{"to", int64_t(7)}});
}

/// Returns the bucket of each key for each query, [s, s]. The first half of the buckets of a side
/// is for one distance each; the others grow by a factor up to kFarthest. An encoder has half of
/// the buckets for keys behind the query, and half for keys in front of it.
static std::string bucketsOf(GraphWriter &w, const std::string &ids, bool isDecoder) {
  const int64_t side = isDecoder ? kBuckets : kBuckets / 2, exact = side / 2;
  std::string at = w.positionsOf(ids, 1);
  std::string forward =
      w.op("Sub", {w.op("Unsqueeze", {at, w.ints({0})}), w.op("Unsqueeze", {at, w.ints({1})})});
  std::string distance =
      isDecoder ? w.op("Max", {w.op("Neg", {forward}), w.scalar(0)}) : w.op("Abs", {forward});
  std::string ratio =
      w.op("Div", {real(w, w.op("Max", {distance, w.scalar(1)})), w.constant({}, {float(exact)})});
  const float perFactor = float(double(side - exact) / std::log(double(kFarthest) / double(exact)));
  std::string step = integer(w, w.op("Mul", {w.op("Log", {ratio}), w.constant({}, {perFactor})}));
  std::string far = w.op("Min", {w.op("Add", {step, w.scalar(exact)}), w.scalar(side - 1)});
  std::string bucket = w.op("Where", {w.op("Less", {distance, w.scalar(exact)}), distance, far});
  if (isDecoder)
    return bucket;
  std::string isAhead = integer(w, w.op("Greater", {forward, w.scalar(0)}));
  return w.op("Add", {bucket, w.op("Mul", {isAhead, w.scalar(side)})});
}

/// Returns attention from `x` to `source`. `bias`: [1, heads, s, s], or empty.
static std::string attention(GraphWriter &w, const Architecture &a, const char *name,
                             const std::string &x, const std::string &source,
                             const Scores &scores) {
  Module module(w, name);
  const int64_t width = a.heads * a.headWidth();
  std::string y = attend(w, a, w.linear(x, "q", a.hidden, width, false),
                         w.linear(source, "k", a.hidden, width, false),
                         w.linear(source, "v", a.hidden, width, false), scores);
  return w.linear(y, "o", width, a.hidden, false);
}

static std::string feedForward(GraphWriter &w, const Architecture &a, const std::string &x) {
  Module module(w, "DenseReluDense");
  std::string y;
  if (a.isGated)
    y = w.op("Mul", {w.activation(a.activation, w.linear(x, "wi_0", a.hidden, a.ffn, false)),
                     w.linear(x, "wi_1", a.hidden, a.ffn, false)});
  else
    y = w.activation(a.activation, w.linear(x, "wi", a.hidden, a.ffn, false));
  return w.linear(y, "wo", a.ffn, a.hidden, false);
}

/// Writes one of the two stacks; `memory` is the encoder's output, empty in the encoder itself.
static std::string stack(GraphWriter &w, const Architecture &a, const std::string &table,
                         const std::string &ids, const std::string &memory) {
  const bool isDecoder = !memory.empty();
  Module module(w, isDecoder ? "decoder" : "encoder");
  std::string x = w.op("Gather", {table, ids});
  Scores scores{"", isDecoder, 1}, toMemory{"", false, 1};
  for (int64_t layer = 0; layer < a.layers; ++layer) {
    Module block(w, "block." + std::to_string(layer));
    int part = 0;
    auto sublayer = [&](auto write) {
      Module list(w, "layer." + std::to_string(part++));
      std::string y = write(w.rmsNorm(x, "layer_norm", a.hidden, a.epsilon));
      x = w.op("Add", {x, y});
    };
    sublayer([&](const std::string &y) {
      if (layer == 0) { // all layers share the bias of the first
        Module first(w, "SelfAttention.relative_attention_bias");
        std::string rows =
            w.op("Gather", {w.weight("weight", {kBuckets, a.heads}), bucketsOf(w, ids, isDecoder)});
        rows = w.op("Transpose", {rows}, {{"perm", Ints{2, 0, 1}}});
        scores.bias = w.op("Unsqueeze", {rows, w.ints({0})});
      }
      return attention(w, a, "SelfAttention", y, y, scores);
    });
    if (isDecoder)
      sublayer([&](const std::string &y) {
        return attention(w, a, "EncDecAttention", y, memory, toMemory);
      });
    sublayer([&](const std::string &y) { return feedForward(w, a, y); });
  }
  return w.rmsNorm(x, "final_layer_norm", a.hidden, a.epsilon);
}

void writeT5(GraphWriter &w, const Architecture &a) {
  std::string ids = inputIds(w, false, a.positions);
  std::string target = w.input("decoder_input_ids", {"batch", "target_seq"}, false);
  std::string table;
  {
    Module shared(w, "shared");
    table = w.weight("weight", {a.vocabulary, a.hidden});
  }
  std::string memory = stack(w, a, table, ids, "");
  std::string x = stack(w, a, table, target, memory);
  if (a.isTied)
    x = w.op("Mul", {x, w.constant({}, {float(1 / std::sqrt(double(a.hidden)))})});
  finish(w, a, x, table, "lm_head");
}

} // namespace tbc::newmodel
