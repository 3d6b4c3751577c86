//===- Decoders.cpp - gpt2, mpt, bloom, neox, phi ------------------------------===//
//
// Module and parameter names follow Hugging Face's transformers.
//
//===----------------------------------------------------------------------===//

#include "tools/new/Blocks.h"
#include "tools/new/Families.h"

namespace tbc::newmodel {

using Module = GraphWriter::Module;

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
        y = attend(w, a, parts[0], parts[1], parts[2]);
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
        y = attend(w, a, parts[0], parts[1], parts[2], {bias});
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
        y = attend(w, a, parts[0], parts[1], parts[2], {bias});
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
    Rotary rotary = rotaryOf(w, "rotary_emb", rotaryWidth(a), a.rotaryBase, ids);
    x = w.embedding("embed_in", a.vocabulary, a.hidden, ids);
    for (int64_t layer = 0; layer < a.layers; ++layer) {
      Module block(w, "layers." + std::to_string(layer));
      std::string y = w.layerNorm(x, "input_layernorm", a.hidden, true, a.epsilon);
      {
        Module attention(w, "attention");
        auto parts =
            splitPerHead(w, a, w.linear(y, "query_key_value", a.hidden, 3 * a.hidden, true));
        y = attend(w, a, rotate(w, rotary, parts[0], a.heads, a.headWidth()),
                   rotate(w, rotary, parts[1], a.heads, a.headWidth()), parts[2]);
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

/// Phi 1 to 2: attention and MLP read the same norm. Source: transformers, modeling_phi.py.
void writePhi(GraphWriter &w, const Architecture &a) {
  std::string ids = inputIds(w, false, a.positions), x;
  {
    Module model(w, "model");
    Rotary rotary = rotaryOf(w, "rotary_emb", rotaryWidth(a), a.rotaryBase, ids);
    x = w.embedding("embed_tokens", a.vocabulary, a.hidden, ids);
    for (int64_t layer = 0; layer < a.layers; ++layer) {
      Module block(w, "layers." + std::to_string(layer));
      const int64_t keys = a.keyHeads * a.headWidth();
      std::string normed = w.layerNorm(x, "input_layernorm", a.hidden, true, a.epsilon), y, z;
      {
        Module attention(w, "self_attn");
        std::string q = w.linear(normed, "q_proj", a.hidden, a.hidden, true);
        std::string k = w.linear(normed, "k_proj", a.hidden, keys, true);
        std::string v = w.linear(normed, "v_proj", a.hidden, keys, true);
        y = attend(w, a, rotate(w, rotary, q, a.heads, a.headWidth()),
                   rotate(w, rotary, k, a.keyHeads, a.headWidth()), v);
        y = w.linear(y, "dense", a.hidden, a.hidden, true);
      }
      {
        Module mlp(w, "mlp");
        z = w.activation(a.activation, w.linear(normed, "fc1", a.hidden, a.ffn, true));
        z = w.linear(z, "fc2", a.ffn, a.hidden, true);
      }
      x = w.op("Add", {x, w.op("Add", {y, z})});
    }
    x = w.layerNorm(x, "final_layernorm", a.hidden, true, a.epsilon);
  }
  w.output(w.linear(x, "lm_head", a.hidden, a.vocabulary, true), "logits");
}

} // namespace tbc::newmodel
