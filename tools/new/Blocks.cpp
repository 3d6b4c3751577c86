//===- Blocks.cpp - Parts common to several model families ---------------------===//

#include "tools/new/Blocks.h"

#include <cmath>

namespace tbc::newmodel {

using Module = GraphWriter::Module;
using Attribute = GraphWriter::Attribute;

std::string inputIds(GraphWriter &w, bool hasTable, int64_t positions) {
  std::string seq = !hasTable && positions > 0 ? std::to_string(positions) : "seq";
  return w.input("input_ids", {"batch", seq}, false);
}

std::string attend(GraphWriter &w, const Architecture &a, const std::string &q,
                   const std::string &k, const std::string &v, const Scores &scores) {
  std::vector<Attribute> attributes = {{"is_causal", int64_t(scores.isCausal)},
                                       {"q_num_heads", a.heads},
                                       {"kv_num_heads", a.keyHeads}};
  if (a.softcap > 0)
    attributes.push_back({"softcap", float(a.softcap)});
  if (scores.scale > 0)
    attributes.push_back({"scale", float(scores.scale)});
  std::vector<std::string> inputs{q, k, v};
  if (!scores.bias.empty())
    inputs.push_back(scores.bias);
  return w.op("Attention", inputs, attributes);
}

/// Returns the slopes of ALiBi by head: powers of 2^(-8/n) for n heads if n is a power of two.
/// Otherwise: the slopes of the next smaller power of two, then every other slope of the next
/// larger one. Example: 2 heads have slopes 1/16 and 1/256. Source: Press et al., "Train short,
/// test long" (2021), and its published code.
static std::vector<float> alibiSlopes(int64_t heads) {
  int64_t power = 1;
  while (power * 2 <= heads)
    power *= 2;
  std::vector<float> slopes;
  for (int64_t i = 1; i <= power; ++i)
    slopes.push_back(float(std::pow(2.0, -8.0 * double(i) / double(power))));
  for (int64_t i = 0; int64_t(slopes.size()) < heads; ++i)
    slopes.push_back(float(std::pow(2.0, -4.0 * double(2 * i + 1) / double(power))));
  return slopes;
}

std::string alibi(GraphWriter &w, const Architecture &a, const std::string &ids) {
  if (!a.hasAlibi)
    return "";
  std::string at = w.op("Cast", {w.positionsOf(ids, 1)}, {{"to", int64_t(1)}});
  return w.op("Mul", {at, w.constant({a.heads, 1, 1}, alibiSlopes(a.heads))});
}

std::string windowMask(GraphWriter &w, const std::string &ids, int64_t keys, bool isCausal) {
  std::string at = w.positionsOf(ids, 1);
  std::string distance =
      w.op("Sub", {w.op("Unsqueeze", {at, w.ints({1})}), w.op("Unsqueeze", {at, w.ints({0})})});
  return isCausal ? w.op("Less", {distance, w.scalar(keys)})
                  : w.op("LessOrEqual", {w.op("Abs", {distance}), w.scalar(keys)});
}

int64_t rotaryWidth(const Architecture &a) {
  return int64_t(double(a.headWidth()) * a.rotaryFraction) / 2 * 2;
}

Rotary rotaryOf(GraphWriter &w, const std::string &name, int64_t width, double base,
                const std::string &ids) {
  Module module(w, name);
  std::vector<float> frequencies;
  for (int64_t i = 0; i < width / 2; ++i)
    frequencies.push_back(float(std::pow(base, -2.0 * double(i) / double(width))));
  std::string at = w.positionsOf(ids, 1);
  std::string row = w.op("Cast", {w.op("Unsqueeze", {at, w.ints({1})})}, {{"to", int64_t(1)}});
  std::string angles = w.op("Mul", {row, w.constant({1, width / 2}, frequencies)});
  Rotary rotary;
  rotary.width = width;
  rotary.cos = w.op("Cos", {angles});
  rotary.sin = w.op("Sin", {angles});
  rotary.positions = w.op("Expand", {w.op("Unsqueeze", {at, w.ints({0})}), w.op("Shape", {ids})});
  return rotary;
}

std::string rotate(GraphWriter &w, const Rotary &rotary, const std::string &x, int64_t heads,
                   int64_t headWidth, bool isInterleaved) {
  std::vector<Attribute> attributes{{"num_heads", heads}};
  if (isInterleaved)
    attributes.push_back({"interleaved", int64_t(1)});
  if (rotary.width != headWidth)
    attributes.push_back({"rotary_embedding_dim", rotary.width});
  return w.op("RotaryEmbedding", {x, rotary.cos, rotary.sin, rotary.positions}, attributes);
}

std::vector<std::string> splitInto(GraphWriter &w, const std::string &x, const Ints &sizes) {
  return w.ops("Split", {x, w.ints(sizes)}, sizes.size(), {{"axis", int64_t(-1)}});
}

std::vector<std::string> splitInThree(GraphWriter &w, const std::string &x) {
  return w.ops("Split", {x}, 3, {{"axis", int64_t(-1)}, {"num_outputs", int64_t(3)}});
}

std::vector<std::string> splitPerHead(GraphWriter &w, const Architecture &a, const std::string &x) {
  std::string heads = w.op("Reshape", {x, w.ints({0, 0, a.heads, 3 * a.headWidth()})});
  std::vector<std::string> parts = splitInThree(w, heads);
  for (std::string &part : parts)
    part = w.op("Reshape", {part, w.ints({0, 0, a.heads * a.headWidth()})});
  return parts;
}

void finish(GraphWriter &w, const Architecture &a, const std::string &x, const std::string &table,
            const std::string &head) {
  std::string logits;
  if (a.isTied) {
    Module module(w, head);
    logits = w.tiedLinear(x, table);
  } else {
    logits = w.linear(x, head, a.hidden, a.vocabulary, false);
  }
  if (a.logitSoftcap > 0) {
    Module module(w, head);
    std::string cap = w.constant({}, {float(a.logitSoftcap)});
    logits = w.op("Mul", {w.op("Tanh", {w.op("Div", {logits, cap})}), cap});
  }
  w.output(logits, "logits");
}

std::string normalize(GraphWriter &w, const std::string &x, const std::string &name, int64_t width,
                      const Architecture &a) {
  if (a.norm == Norm::Rms)
    return w.rmsNorm(x, name, width, a.epsilon);
  Module module(w, name);
  const GraphWriter::Attribute epsilon{"epsilon", float(a.epsilon)};
  if (a.norm == Norm::LayerWithoutWeights) {
    std::vector<float> ones(size_t(width), 1);
    return w.op("LayerNormalization", {x, w.constant({width}, ones)}, {epsilon});
  }
  std::string scale = w.op("Add", {w.weight("weight", {width}), w.constant({}, {1})});
  if (a.norm == Norm::RmsPlus1)
    return w.op("RMSNormalization", {x, scale}, {epsilon});
  return w.op("LayerNormalization", {x, scale, w.weight("bias", {width})}, {epsilon});
}

std::string mlpLayers(GraphWriter &w, const Architecture &a, const std::string &x, int64_t ffn) {
  std::string y;
  if (a.isGated && a.isFused) {
    auto halves =
        splitInto(w, w.linear(x, "gate_up_proj", a.hidden, 2 * ffn, a.hasMlpBias), {ffn, ffn});
    y = w.op("Mul", {w.activation(a.activation, halves[0]), halves[1]});
  } else if (a.isGated) {
    std::string gate =
        w.activation(a.activation, w.linear(x, "gate_proj", a.hidden, ffn, a.hasMlpBias));
    y = w.op("Mul", {gate, w.linear(x, "up_proj", a.hidden, ffn, a.hasMlpBias)});
  } else {
    y = w.activation(a.activation, w.linear(x, "up_proj", a.hidden, ffn, a.hasMlpBias));
  }
  return w.linear(y, "down_proj", ffn, a.hidden, a.hasMlpBias);
}

} // namespace tbc::newmodel
