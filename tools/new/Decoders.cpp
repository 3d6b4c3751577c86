//===- Decoders.cpp - gpt2, mpt, bloom, neox; llama, grok, nemotron ------------===//
//
// Module and parameter names follow Hugging Face's transformers.
//
//===----------------------------------------------------------------------===//

#include "tools/new/Families.h"

#include <cmath>

namespace tbc::newmodel {

using Module = GraphWriter::Module;
using Attribute = GraphWriter::Attribute;

static std::string inputIds(GraphWriter &w, bool hasTable, int64_t positions) {
  // Without a position table, a requested length becomes the input length.
  std::string seq = !hasTable && positions > 0 ? std::to_string(positions) : "seq";
  return w.input("input_ids", {"batch", seq}, false);
}

/// q, k, v are [b, s, heads * d]; the result is [b, s, heads * dv]. `bias` may be empty.
static std::string attend(GraphWriter &w, const Architecture &a, const std::string &q,
                          const std::string &k, const std::string &v, const std::string &bias) {
  std::vector<Attribute> attributes = {
      {"is_causal", int64_t(1)}, {"q_num_heads", a.heads}, {"kv_num_heads", a.keyHeads}};
  if (a.softcap > 0)
    attributes.push_back({"softcap", float(a.softcap)});
  std::vector<std::string> inputs{q, k, v};
  if (!bias.empty())
    inputs.push_back(bias);
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

/// Returns the ALiBi term of the scores, [heads, 1, s]: slope times the key's position. Terms equal
/// for all keys of a query cancel in softmax and are left out. Empty without ALiBi.
static std::string alibi(GraphWriter &w, const Architecture &a, const std::string &ids) {
  if (!a.hasAlibi)
    return "";
  std::string at = w.op("Cast", {w.positionsOf(ids, 1)}, {{"to", int64_t(1)}});
  return w.op("Mul", {at, w.constant({a.heads, 1, 1}, alibiSlopes(a.heads))});
}

/// cos and sin of the rotary angles, [s, width / 2], and the positions, [b, s]. Source: Su et al.,
/// "RoFormer" (2021).
struct Rotary {
  std::string cos, sin, positions;
};

static int64_t rotaryWidth(const Architecture &a) {
  return int64_t(double(a.headWidth()) * a.rotaryFraction) / 2 * 2;
}

static Rotary rotaryOf(GraphWriter &w, const Architecture &a, const std::string &ids) {
  Module module(w, "rotary_emb");
  int64_t width = rotaryWidth(a);
  std::vector<float> frequencies;
  for (int64_t i = 0; i < width / 2; ++i)
    frequencies.push_back(float(std::pow(a.rotaryBase, -2.0 * double(i) / double(width))));
  std::string at = w.positionsOf(ids, 1);
  std::string row = w.op("Cast", {w.op("Unsqueeze", {at, w.ints({1})})}, {{"to", int64_t(1)}});
  std::string angles = w.op("Mul", {row, w.constant({1, width / 2}, frequencies)});
  Rotary rotary;
  rotary.cos = w.op("Cos", {angles});
  rotary.sin = w.op("Sin", {angles});
  rotary.positions = w.op("Expand", {w.op("Unsqueeze", {at, w.ints({0})}), w.op("Shape", {ids})});
  return rotary;
}

static std::string rotate(GraphWriter &w, const Architecture &a, const Rotary &rotary,
                          const std::string &x, int64_t heads) {
  std::vector<Attribute> attributes{{"num_heads", heads}};
  if (rotaryWidth(a) != a.headWidth())
    attributes.push_back({"rotary_embedding_dim", rotaryWidth(a)});
  return w.op("RotaryEmbedding", {x, rotary.cos, rotary.sin, rotary.positions}, attributes);
}

/// Splits [b, s, 3 * n] into three consecutive parts.
static std::vector<std::string> splitInThree(GraphWriter &w, const std::string &x) {
  return w.ops("Split", {x}, 3, {{"axis", int64_t(-1)}, {"num_outputs", int64_t(3)}});
}

/// Splits [b, s, heads * (3 * d)] into q, k and v; the three are interleaved by head.
static std::vector<std::string> splitPerHead(GraphWriter &w, const Architecture &a,
                                             const std::string &x) {
  std::string heads = w.op("Reshape", {x, w.ints({0, 0, a.heads, 3 * a.headWidth()})});
  std::vector<std::string> parts = splitInThree(w, heads);
  for (std::string &part : parts)
    part = w.op("Reshape", {part, w.ints({0, 0, a.heads * a.headWidth()})});
  return parts;
}

static void finish(GraphWriter &w, const Architecture &a, const std::string &x,
                   const std::string &table, const std::string &head) {
  std::string logits;
  if (a.isTied) {
    Module module(w, head);
    logits = w.tiedLinear(x, table);
  } else {
    logits = w.linear(x, head, a.hidden, a.vocabulary, false);
  }
  w.output(logits, "logits");
}

/// GPT-2's linear layer stores its weight as [in, out].
static std::string conv1d(GraphWriter &w, const std::string &x, const std::string &name, int64_t in,
                          int64_t out) {
  Module module(w, name);
  return w.op("Add", {w.op("MatMul", {x, w.weight("weight", {in, out})}), w.weight("bias", {out})});
}

void writeGpt2(GraphWriter &w, const Architecture &a) {
  std::string ids = inputIds(w, true, a.positions), x;
  const std::string table = "transformer.wte.weight";
  {
    Module transformer(w, "transformer");
    std::string tokens = w.embedding("wte", a.vocabulary, a.hidden, ids);
    x = w.op("Add", {tokens, w.embedding("wpe", a.positions, a.hidden, w.positionsOf(ids, 1))});
    for (int64_t layer = 0; layer < a.layers; ++layer) {
      Module list(w, "h." + std::to_string(layer));
      std::string y = w.layerNorm(x, "ln_1", a.hidden, true, a.epsilon);
      {
        Module attention(w, "attn");
        auto parts = splitInThree(w, conv1d(w, y, "c_attn", a.hidden, 3 * a.hidden));
        y = attend(w, a, parts[0], parts[1], parts[2], "");
        y = conv1d(w, y, "c_proj", a.hidden, a.hidden);
      }
      x = w.op("Add", {x, y});
      y = w.layerNorm(x, "ln_2", a.hidden, true, a.epsilon);
      {
        Module mlp(w, "mlp");
        y = w.activation(a.activation, conv1d(w, y, "c_fc", a.hidden, a.ffn));
        y = conv1d(w, y, "c_proj", a.ffn, a.hidden);
      }
      x = w.op("Add", {x, y});
    }
    x = w.layerNorm(x, "ln_f", a.hidden, true, a.epsilon);
  }
  finish(w, a, x, table, "lm_head");
}

void writeMpt(GraphWriter &w, const Architecture &a) {
  std::string ids = inputIds(w, false, a.positions), x;
  {
    Module transformer(w, "transformer");
    std::string bias = alibi(w, a, ids);
    x = w.embedding("wte", a.vocabulary, a.hidden, ids);
    for (int64_t layer = 0; layer < a.layers; ++layer) {
      Module block(w, "blocks." + std::to_string(layer));
      std::string y = w.layerNorm(x, "norm_1", a.hidden, a.hasMlpBias, a.epsilon);
      {
        Module attention(w, "attn");
        auto parts =
            splitInThree(w, w.linear(y, "Wqkv", a.hidden, 3 * a.hidden, a.hasAttentionBias));
        y = attend(w, a, parts[0], parts[1], parts[2], bias);
        y = w.linear(y, "out_proj", a.hidden, a.hidden, a.hasOutputBias);
      }
      x = w.op("Add", {x, y});
      y = w.layerNorm(x, "norm_2", a.hidden, a.hasMlpBias, a.epsilon);
      {
        Module mlp(w, "ffn");
        y = w.activation(a.activation, w.linear(y, "up_proj", a.hidden, a.ffn, a.hasMlpBias));
        y = w.linear(y, "down_proj", a.ffn, a.hidden, a.hasMlpBias);
      }
      x = w.op("Add", {x, y});
    }
    x = w.layerNorm(x, "norm_f", a.hidden, a.hasMlpBias, a.epsilon);
  }
  finish(w, a, x, "transformer.wte.weight", "lm_head");
}

void writeBloom(GraphWriter &w, const Architecture &a) {
  std::string ids = inputIds(w, false, a.positions), x;
  {
    Module transformer(w, "transformer");
    std::string bias = alibi(w, a, ids);
    x = w.embedding("word_embeddings", a.vocabulary, a.hidden, ids);
    x = w.layerNorm(x, "word_embeddings_layernorm", a.hidden, true, a.epsilon);
    for (int64_t layer = 0; layer < a.layers; ++layer) {
      Module block(w, "h." + std::to_string(layer));
      std::string y = w.layerNorm(x, "input_layernorm", a.hidden, true, a.epsilon);
      {
        Module attention(w, "self_attention");
        auto parts =
            splitPerHead(w, a, w.linear(y, "query_key_value", a.hidden, 3 * a.hidden, true));
        y = attend(w, a, parts[0], parts[1], parts[2], bias);
        y = w.linear(y, "dense", a.hidden, a.hidden, true);
      }
      x = w.op("Add", {x, y});
      y = w.layerNorm(x, "post_attention_layernorm", a.hidden, true, a.epsilon);
      {
        Module mlp(w, "mlp");
        y = w.activation(a.activation, w.linear(y, "dense_h_to_4h", a.hidden, a.ffn, true));
        y = w.linear(y, "dense_4h_to_h", a.ffn, a.hidden, true);
      }
      x = w.op("Add", {x, y});
    }
    x = w.layerNorm(x, "ln_f", a.hidden, true, a.epsilon);
  }
  finish(w, a, x, "transformer.word_embeddings.weight", "lm_head");
}

void writeNeox(GraphWriter &w, const Architecture &a) {
  std::string ids = inputIds(w, false, a.positions), x;
  {
    Module model(w, "gpt_neox");
    Rotary rotary = rotaryOf(w, a, ids);
    x = w.embedding("embed_in", a.vocabulary, a.hidden, ids);
    for (int64_t layer = 0; layer < a.layers; ++layer) {
      Module block(w, "layers." + std::to_string(layer));
      std::string y = w.layerNorm(x, "input_layernorm", a.hidden, true, a.epsilon);
      {
        Module attention(w, "attention");
        auto parts =
            splitPerHead(w, a, w.linear(y, "query_key_value", a.hidden, 3 * a.hidden, true));
        y = attend(w, a, rotate(w, a, rotary, parts[0], a.heads),
                   rotate(w, a, rotary, parts[1], a.heads), parts[2], "");
        y = w.linear(y, "dense", a.hidden, a.hidden, true);
      }
      std::string between = a.isParallel ? x : w.op("Add", {x, y});
      std::string z = w.layerNorm(between, "post_attention_layernorm", a.hidden, true, a.epsilon);
      {
        Module mlp(w, "mlp");
        z = w.activation(a.activation, w.linear(z, "dense_h_to_4h", a.hidden, a.ffn, true));
        z = w.linear(z, "dense_4h_to_h", a.ffn, a.hidden, true);
      }
      x = a.isParallel ? w.op("Add", {x, w.op("Add", {y, z})}) : w.op("Add", {between, z});
    }
    x = w.layerNorm(x, "final_layer_norm", a.hidden, true, a.epsilon);
  }
  finish(w, a, x, "gpt_neox.embed_in.weight", "embed_out");
}

/// Layer normalization scaled by 1 + weight ("1p").
static std::string layerNorm1p(GraphWriter &w, const std::string &x, const std::string &name,
                               const Architecture &a) {
  Module module(w, name);
  std::string scale = w.op("Add", {w.weight("weight", {a.hidden}), w.constant({}, {1})});
  return w.op("LayerNormalization", {x, scale, w.weight("bias", {a.hidden})},
              {{"epsilon", float(a.epsilon)}});
}

static std::string norm(GraphWriter &w, const std::string &x, const std::string &name,
                        const Architecture &a) {
  return a.kind == "nemotron" ? layerNorm1p(w, x, name, a)
                              : w.rmsNorm(x, name, a.hidden, a.epsilon);
}

/// Experts written densely with stacked weights: every expert computes every token, with weight 0
/// if it is not chosen. The importer turns this into one routed op, which computes only the chosen
/// ones. Source: Jiang et al., "Mixtral of experts" (2024), section 2.1.
static std::string experts(GraphWriter &w, const Architecture &a, const std::string &x) {
  const std::string name = a.kind == "grok" ? "moe_block" : "block_sparse_moe";
  Module module(w, name);
  std::string tokens = w.op("Reshape", {x, w.ints({-1, a.hidden})});
  std::string likes = w.op("Softmax", {w.linear(tokens, "gate", a.hidden, a.experts, false)},
                           {{"axis", int64_t(-1)}});
  auto chosen = w.ops("TopK", {likes, w.ints({a.expertsPerToken})}, 2, {{"axis", int64_t(-1)}});
  std::string sum = w.op("ReduceSum", {chosen[0], w.ints({-1})}, {{"keepdims", int64_t(1)}});
  std::string weights = w.op("Unsqueeze", {w.op("Div", {chosen[0], sum}), w.ints({-1})});
  Ints numbers;
  for (int64_t expert = 0; expert < a.experts; ++expert)
    numbers.push_back(expert);
  std::string equal =
      w.op("Equal", {w.op("Unsqueeze", {chosen[1], w.ints({-1})}), w.ints(numbers)});
  std::string isChosen = w.op("Cast", {equal}, {{"to", int64_t(1)}});
  std::string routed = w.op("ReduceSum", {w.op("Mul", {isChosen, weights}), w.ints({1})},
                            {{"keepdims", int64_t(0)}});
  Module each(w, "experts");
  const int64_t inner = a.isGated ? 2 * a.ffn : a.ffn;
  std::string up = w.weight(a.isGated ? "gate_up_proj" : "up_proj", {a.experts, inner, a.hidden});
  std::string y = w.op("Einsum", {tokens, up}, {{"equation", std::string("nd,efd->enf")}});
  if (a.isGated) {
    auto halves = w.ops("Split", {y}, 2, {{"axis", int64_t(-1)}, {"num_outputs", int64_t(2)}});
    y = w.op("Mul", {w.activation(a.activation, halves[0]), halves[1]});
  } else {
    y = w.activation(a.activation, y);
  }
  y = w.op("Einsum", {y, w.weight("down_proj", {a.experts, a.hidden, a.ffn})},
           {{"equation", std::string("enf,edf->end")}});
  y = w.op("Einsum", {y, routed}, {{"equation", std::string("end,ne->nd")}});
  return w.op("Reshape", {y, w.op("Shape", {x})});
}

static std::string mlp(GraphWriter &w, const Architecture &a, const std::string &x) {
  Module module(w, "mlp");
  std::string y;
  if (a.isGated) {
    std::string gate =
        w.activation(a.activation, w.linear(x, "gate_proj", a.hidden, a.ffn, a.hasMlpBias));
    y = w.op("Mul", {gate, w.linear(x, "up_proj", a.hidden, a.ffn, a.hasMlpBias)});
  } else {
    y = w.activation(a.activation, w.linear(x, "up_proj", a.hidden, a.ffn, a.hasMlpBias));
  }
  return w.linear(y, "down_proj", a.ffn, a.hidden, a.hasMlpBias);
}

void writeLlama(GraphWriter &w, const Architecture &a) {
  std::string ids = inputIds(w, false, a.positions), x;
  const bool hasFourNorms = a.kind == "grok"; // before and after attention and MLP
  {
    Module model(w, "model");
    Rotary rotary = rotaryOf(w, a, ids);
    x = w.embedding("embed_tokens", a.vocabulary, a.hidden, ids);
    for (int64_t layer = 0; layer < a.layers; ++layer) {
      Module block(w, "layers." + std::to_string(layer));
      const int64_t queries = a.heads * a.headWidth(), keys = a.keyHeads * a.headWidth();
      std::string y = norm(w, x, hasFourNorms ? "pre_attn_norm" : "input_layernorm", a);
      {
        Module attention(w, "self_attn");
        auto project = [&](const char *name, int64_t columns) {
          return w.linear(y, name, a.hidden, columns, a.hasAttentionBias);
        };
        std::string q = rotate(w, a, rotary, project("q_proj", queries), a.heads);
        std::string k = rotate(w, a, rotary, project("k_proj", keys), a.keyHeads);
        std::string v = project("v_proj", keys);
        y = attend(w, a, q, k, v, "");
        y = w.linear(y, "o_proj", queries, a.hidden, a.hasOutputBias);
      }
      if (hasFourNorms)
        y = norm(w, y, "post_attn_norm", a);
      x = w.op("Add", {x, y});
      y = norm(w, x, hasFourNorms ? "pre_moe_norm" : "post_attention_layernorm", a);
      y = a.experts > 0 ? experts(w, a, y) : mlp(w, a, y);
      if (hasFourNorms)
        y = norm(w, y, "post_moe_norm", a);
      x = w.op("Add", {x, y});
    }
    x = norm(w, x, "norm", a);
  }
  finish(w, a, x, "model.embed_tokens.weight", "lm_head");
}

} // namespace tbc::newmodel
