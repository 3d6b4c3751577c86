//===- Llama.cpp - llama and its relatives, and latent attention ---------------===//
//
// Module and parameter names follow Hugging Face's transformers.
//
//===----------------------------------------------------------------------===//

#include "tools/new/Blocks.h"
#include "tools/new/Families.h"

#include <cmath>

namespace tbc::newmodel {

using Module = GraphWriter::Module;

namespace {

/// Inputs of all attentions of a model: of those that see all keys, and of those with a window.
struct Positions {
  Rotary rotary, localRotary;
  std::string window;
};

} // namespace

static bool isLocal(const Architecture &a, int64_t layer) {
  return a.window > 0 && (a.globalEvery == 0 || (layer + 1) % a.globalEvery != 0);
}

/// Normalizes the queries or keys, [b, s, heads * width], each head alone or all together.
static std::string normalizeHeads(GraphWriter &w, const Architecture &a, const std::string &x,
                                  const std::string &name, int64_t heads) {
  if (a.headNorm == HeadNorm::None)
    return x;
  if (a.headNorm == HeadNorm::All)
    return normalize(w, x, name, heads * a.headWidth(), a);
  std::string each = w.op("Reshape", {x, w.ints({0, 0, heads, a.headWidth()})});
  each = normalize(w, each, name, a.headWidth(), a);
  return w.op("Reshape", {each, w.ints({0, 0, heads * a.headWidth()})});
}

static std::string selfAttention(GraphWriter &w, const Architecture &a, const Positions &positions,
                                 const std::string &x, int64_t layer) {
  Module attention(w, "self_attn");
  const int64_t width = a.headWidth(), queries = a.heads * width, keys = a.keyHeads * width;
  const bool local = isLocal(a, layer);
  const Rotary &rotary = local && a.localRotaryBase > 0 ? positions.localRotary : positions.rotary;
  auto project = [&](const char *name, int64_t columns) {
    return w.linear(x, name, a.hidden, columns, a.hasAttentionBias);
  };
  std::vector<std::string> parts =
      a.isFused ? splitInto(w, project("qkv_proj", queries + 2 * keys), {queries, keys, keys})
                : std::vector<std::string>{project("q_proj", queries), project("k_proj", keys),
                                           project("v_proj", keys)};
  std::string q = normalizeHeads(w, a, parts[0], "q_norm", a.heads);
  std::string k = normalizeHeads(w, a, parts[1], "k_norm", a.keyHeads);
  Scores scores;
  scores.scale = a.queryScale;
  if (local)
    scores.bias = positions.window;
  std::string y = attend(w, a, rotate(w, rotary, q, a.heads, width),
                         rotate(w, rotary, k, a.keyHeads, width), parts[2], scores);
  return w.linear(y, "o_proj", queries, a.hidden, a.hasOutputBias);
}

/// Latent attention: queries, and keys with values, go through narrow layers; a part of each head
/// is rotated, and all heads of keys share that part. Source: DeepSeek-V2 (2024), section 2.1.
static std::string latentAttention(GraphWriter &w, const Architecture &a, const Rotary &rotary,
                                   const std::string &x) {
  Module attention(w, "self_attn");
  const int64_t plain = a.headDim, turned = a.ropeDim, width = plain + turned;
  auto perHead = [&](const std::string &value, int64_t columns) {
    return w.op("Reshape", {value, w.ints({0, 0, a.heads, columns})});
  };
  auto flat = [&](const std::string &value, int64_t columns) {
    return w.op("Reshape", {value, w.ints({0, 0, a.heads * columns})});
  };
  std::string q;
  if (a.queryRank > 0) {
    q = w.linear(x, "q_a_proj", a.hidden, a.queryRank, a.hasAttentionBias);
    q = w.rmsNorm(q, "q_a_layernorm", a.queryRank, a.epsilon);
    q = w.linear(q, "q_b_proj", a.queryRank, a.heads * width, false);
  } else {
    q = w.linear(x, "q_proj", a.hidden, a.heads * width, false);
  }
  auto qs = splitInto(w, perHead(q, width), {plain, turned});
  std::string qTurned = rotate(w, rotary, flat(qs[1], turned), a.heads, turned, true);
  q = flat(w.op("Concat", {qs[0], perHead(qTurned, turned)}, {{"axis", int64_t(-1)}}), width);

  auto low = splitInto(
      w, w.linear(x, "kv_a_proj_with_mqa", a.hidden, a.keyRank + turned, a.hasAttentionBias),
      {a.keyRank, turned});
  std::string kv = w.rmsNorm(low[0], "kv_a_layernorm", a.keyRank, a.epsilon);
  kv = w.linear(kv, "kv_b_proj", a.keyRank, a.heads * (plain + a.valueDim), false);
  auto parts = splitInto(w, perHead(kv, plain + a.valueDim), {plain, a.valueDim});
  std::string kTurned = rotate(w, rotary, low[1], 1, turned, true);
  kTurned = w.op("Expand", {w.op("Unsqueeze", {kTurned, w.ints({2})}), w.ints({1, 1, a.heads, 1})});
  std::string k = flat(w.op("Concat", {parts[0], kTurned}, {{"axis", int64_t(-1)}}), width);
  std::string y = attend(w, a, q, k, flat(parts[1], a.valueDim));
  return w.linear(y, "o_proj", a.heads * a.valueDim, a.hidden, a.hasOutputBias);
}

namespace {

/// Names of the norms of a layer; an empty one is left out.
struct NormNames {
  std::string beforeAttention, afterAttention, beforeMlp, afterMlp;
};

} // namespace

static NormNames normNames(const Architecture &a) {
  if (a.kind == "grok")
    return {"pre_attn_norm", "post_attn_norm", "pre_moe_norm", "post_moe_norm"};
  switch (a.normPlaces) {
  case NormPlaces::Before:
    return {"input_layernorm", "", "post_attention_layernorm", ""};
  case NormPlaces::After:
    return {"", "post_attention_layernorm", "", "post_feedforward_layernorm"};
  case NormPlaces::Both:
    break;
  }
  return {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
          "post_feedforward_layernorm"};
}

static Positions positionsOf(GraphWriter &w, const Architecture &a, const std::string &ids) {
  Positions positions;
  const int64_t width = a.keyRank > 0 ? a.ropeDim : rotaryWidth(a);
  positions.rotary = rotaryOf(w, "rotary_emb", width, a.rotaryBase, ids);
  if (a.window > 0)
    positions.window = windowMask(w, ids, a.window, /*isCausal=*/true);
  if (a.window > 0 && a.localRotaryBase > 0)
    positions.localRotary = rotaryOf(w, "rotary_emb_local", width, a.localRotaryBase, ids);
  return positions;
}

void writeLlama(GraphWriter &w, const Architecture &a) {
  std::string ids = inputIds(w, false, a.positions), x;
  const NormNames names = normNames(a);
  {
    Module model(w, "model");
    Positions positions = positionsOf(w, a, ids);
    x = w.embedding("embed_tokens", a.vocabulary, a.hidden, ids);
    if (a.scalesEmbedding)
      x = w.op("Mul", {x, w.constant({}, {float(std::sqrt(double(a.hidden)))})});
    auto normed = [&](const std::string &value, const std::string &name) {
      return name.empty() ? value : normalize(w, value, name, a.hidden, a);
    };
    for (int64_t layer = 0; layer < a.layers; ++layer) {
      Module block(w, "layers." + std::to_string(layer));
      std::string y = normed(x, names.beforeAttention);
      y = a.keyRank > 0 ? latentAttention(w, a, positions.rotary, y)
                        : selfAttention(w, a, positions, y, layer);
      x = w.op("Add", {x, normed(y, names.afterAttention)});
      y = normed(x, names.beforeMlp);
      if (a.experts > 0 && layer >= a.denseLayers) {
        y = mixtureOfExperts(w, a, y);
      } else {
        Module mlp(w, "mlp");
        y = mlpLayers(w, a, y, a.experts > 0 ? a.denseFfn : a.ffn);
      }
      x = w.op("Add", {x, normed(y, names.afterMlp)});
    }
    x = normalize(w, x, "norm", a.hidden, a);
  }
  finish(w, a, x, "model.embed_tokens.weight", "lm_head");
}

} // namespace tbc::newmodel
