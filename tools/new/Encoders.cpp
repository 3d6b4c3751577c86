//===- Encoders.cpp - bert, modernbert and vit ---------------------------------===//
//
// Module and parameter names follow Hugging Face's transformers.
//
//===----------------------------------------------------------------------===//

#include "tools/new/Blocks.h"
#include "tools/new/Families.h"

namespace tbc::newmodel {

using Module = GraphWriter::Module;

/// Writes q, k and v in modules of these names under "attention"; `mask` may be empty.
static std::string selfAttention(GraphWriter &w, const Architecture &a, const std::string &x,
                                 const char *module, const std::string &mask) {
  Module self(w, module);
  std::vector<std::string> inputs;
  for (const char *name : {"query", "key", "value"})
    inputs.push_back(w.linear(x, name, a.hidden, a.hidden, true));
  if (!mask.empty())
    inputs.push_back(mask);
  return w.op("Attention", inputs, {{"q_num_heads", a.heads}, {"kv_num_heads", a.heads}});
}

/// Source: Devlin et al., "BERT" (2018); the head of BertForMaskedLM.
void writeBert(GraphWriter &w, const Architecture &a) {
  std::string ids = w.input("input_ids", {"batch", "seq"}, false);
  std::string allowed = w.input("attention_mask", {"batch", "seq"}, false);
  std::string types = w.input("token_type_ids", {"batch", "seq"}, false);
  const std::string table = "bert.embeddings.word_embeddings.weight";
  std::string x;
  {
    Module bert(w, "bert");
    std::string mask = w.op("Unsqueeze", {w.op("Cast", {allowed}, {{"to", int64_t(9)}}),
                                          w.ints({1, 2})}); // [b, 1, 1, s], bool
    {
      Module embeddings(w, "embeddings");
      std::string words = w.embedding("word_embeddings", a.vocabulary, a.hidden, ids);
      std::string kinds = w.embedding("token_type_embeddings", a.tokenTypes, a.hidden, types);
      std::string places =
          w.embedding("position_embeddings", a.positions, a.hidden, w.positionsOf(ids, 1));
      x = w.op("Add", {w.op("Add", {words, kinds}), places});
      x = w.layerNorm(x, "LayerNorm", a.hidden, true, a.epsilon);
    }
    Module encoder(w, "encoder");
    for (int64_t layer = 0; layer < a.layers; ++layer) {
      Module block(w, "layer." + std::to_string(layer));
      {
        Module attention(w, "attention");
        std::string y = selfAttention(w, a, x, "self", mask);
        Module output(w, "output");
        y = w.linear(y, "dense", a.hidden, a.hidden, true);
        x = w.layerNorm(w.op("Add", {y, x}), "LayerNorm", a.hidden, true, a.epsilon);
      }
      std::string y;
      {
        Module intermediate(w, "intermediate");
        y = w.activation(a.activation, w.linear(x, "dense", a.hidden, a.ffn, true));
      }
      Module output(w, "output");
      y = w.linear(y, "dense", a.ffn, a.hidden, true);
      x = w.layerNorm(w.op("Add", {y, x}), "LayerNorm", a.hidden, true, a.epsilon);
    }
  }
  Module head(w, "cls.predictions");
  {
    Module transform(w, "transform");
    x = w.activation(a.activation, w.linear(x, "dense", a.hidden, a.hidden, true));
    x = w.layerNorm(x, "LayerNorm", a.hidden, true, a.epsilon);
  }
  if (a.isTied) {
    x = w.op("Add", {w.tiedLinear(x, table), w.weight("bias", {a.vocabulary})});
  } else {
    x = w.linear(x, "decoder", a.hidden, a.vocabulary, true);
  }
  w.output(x, "logits");
}

/// Source: Warner et al., "Smarter, better, faster, longer" (2024); the head of
/// ModernBertForMaskedLM. Every third layer sees all tokens, the others a window.
void writeModernBert(GraphWriter &w, const Architecture &a) {
  std::string ids = inputIds(w, false, a.positions), x;
  {
    Module model(w, "model");
    Rotary global = rotaryOf(w, "rotary_emb", a.headWidth(), a.rotaryBase, ids);
    Rotary local = rotaryOf(w, "rotary_emb_local", a.headWidth(), a.localRotaryBase, ids);
    std::string window = windowMask(w, ids, a.window / 2, /*isCausal=*/false);
    {
      Module embeddings(w, "embeddings");
      x = w.embedding("tok_embeddings", a.vocabulary, a.hidden, ids);
      x = w.layerNorm(x, "norm", a.hidden, false, a.epsilon);
    }
    for (int64_t layer = 0; layer < a.layers; ++layer) {
      Module block(w, "layers." + std::to_string(layer));
      const bool isGlobal = layer % a.globalEvery == 0;
      std::string y = layer == 0 ? x : w.layerNorm(x, "attn_norm", a.hidden, false, a.epsilon);
      {
        Module attention(w, "attn");
        auto parts =
            splitInThree(w, w.linear(y, "Wqkv", a.hidden, 3 * a.hidden, a.hasAttentionBias));
        const Rotary &rotary = isGlobal ? global : local;
        y = attend(w, a, rotate(w, rotary, parts[0], a.heads, a.headWidth()),
                   rotate(w, rotary, parts[1], a.heads, a.headWidth()), parts[2],
                   Scores{isGlobal ? "" : window, false, 0});
        y = w.linear(y, "Wo", a.hidden, a.hidden, a.hasOutputBias);
      }
      x = w.op("Add", {x, y});
      y = w.layerNorm(x, "mlp_norm", a.hidden, false, a.epsilon);
      Module mlp(w, "mlp");
      auto halves =
          splitInto(w, w.linear(y, "Wi", a.hidden, 2 * a.ffn, a.hasMlpBias), {a.ffn, a.ffn});
      y = w.op("Mul", {w.activation(a.activation, halves[0]), halves[1]});
      x = w.op("Add", {x, w.linear(y, "Wo", a.ffn, a.hidden, a.hasMlpBias)});
    }
    x = w.layerNorm(x, "final_norm", a.hidden, false, a.epsilon);
  }
  {
    Module head(w, "head");
    x = w.activation(a.activation, w.linear(x, "dense", a.hidden, a.hidden, false));
    x = w.layerNorm(x, "norm", a.hidden, false, a.epsilon);
  }
  Module decoder(w, "decoder");
  std::string logits = w.tiedLinear(x, "model.embeddings.tok_embeddings.weight");
  w.output(w.op("Add", {logits, w.weight("bias", {a.vocabulary})}), "logits");
}

/// Source: Dosovitskiy et al., "An image is worth 16x16 words" (2020).
void writeVit(GraphWriter &w, const Architecture &a) {
  std::string size = std::to_string(a.imageSize);
  std::string image =
      w.input("pixel_values", {"batch", std::to_string(a.channels), size, size}, true);
  const int64_t side = a.imageSize / a.patchSize, patches = side * side;
  std::string x;
  {
    Module vit(w, "vit");
    {
      Module embeddings(w, "embeddings");
      std::string token = w.weight("cls_token", {1, 1, a.hidden});
      std::string places = w.weight("position_embeddings", {1, patches + 1, a.hidden});
      {
        Module projection(w, "patch_embeddings.projection");
        x = w.op("Conv",
                 {image, w.weight("weight", {a.hidden, a.channels, a.patchSize, a.patchSize}),
                  w.weight("bias", {a.hidden})},
                 {{"kernel_shape", Ints{a.patchSize, a.patchSize}},
                  {"strides", Ints{a.patchSize, a.patchSize}}});
        x = w.op("Reshape", {x, w.ints({0, a.hidden, patches})});
        x = w.op("Transpose", {x}, {{"perm", Ints{0, 2, 1}}});
      }
      std::string batch = w.op("Shape", {x}, {{"start", int64_t(0)}, {"end", int64_t(1)}});
      std::string shape = w.op("Concat", {batch, w.ints({1, a.hidden})}, {{"axis", int64_t(0)}});
      token = w.op("Expand", {token, shape});
      x = w.op("Add", {w.op("Concat", {token, x}, {{"axis", int64_t(1)}}), places});
    }
    {
      Module encoder(w, "encoder");
      for (int64_t layer = 0; layer < a.layers; ++layer) {
        Module block(w, "layer." + std::to_string(layer));
        std::string y = w.layerNorm(x, "layernorm_before", a.hidden, true, a.epsilon);
        {
          Module attention(w, "attention");
          y = selfAttention(w, a, y, "attention", "");
          Module output(w, "output");
          y = w.linear(y, "dense", a.hidden, a.hidden, true);
        }
        x = w.op("Add", {x, y});
        y = w.layerNorm(x, "layernorm_after", a.hidden, true, a.epsilon);
        {
          Module intermediate(w, "intermediate");
          y = w.activation(a.activation, w.linear(y, "dense", a.hidden, a.ffn, true));
        }
        Module output(w, "output");
        x = w.op("Add", {x, w.linear(y, "dense", a.ffn, a.hidden, true)});
      }
    }
    x = w.layerNorm(x, "layernorm", a.hidden, true, a.epsilon);
    x = w.op("Gather", {x, w.scalar(0)}, {{"axis", int64_t(1)}}); // the class token's row
  }
  w.output(w.linear(x, "classifier", a.hidden, a.classes, true), "logits");
}

} // namespace tbc::newmodel
