//===- Defaults.cpp - The best known model of each family ----------------------===//

#include "tools/new/Architecture.h"

#include <cassert>
#include <map>

namespace tbc::newmodel {

namespace {

/// Sizes common to all transformers.
Architecture transformer(int64_t layers, int64_t hidden, int64_t heads, int64_t keyHeads,
                         int64_t ffn, int64_t vocabulary) {
  Architecture a;
  a.layers = layers;
  a.hidden = hidden;
  a.heads = heads;
  a.keyHeads = keyHeads;
  a.ffn = ffn;
  a.vocabulary = vocabulary;
  return a;
}

Architecture gpt2() { // openai-community/gpt2
  Architecture a = transformer(12, 768, 12, 12, 3072, 50257);
  a.positions = 1024;
  a.isTied = true;
  a.activation = "gelu_new";
  return a;
}

/// A decoder with rotary positions, RMS norms and a gated MLP.
Architecture gated(int64_t layers, int64_t hidden, int64_t heads, int64_t keyHeads, int64_t ffn,
                   int64_t vocabulary) {
  Architecture a = transformer(layers, hidden, heads, keyHeads, ffn, vocabulary);
  a.isGated = true;
  a.activation = "silu";
  return a;
}

Architecture llama() { // meta-llama/Meta-Llama-3-8B
  Architecture a = gated(32, 4096, 32, 8, 14336, 128256);
  a.rotaryBase = 500000;
  a.expertModule = "block_sparse_moe";
  return a;
}

Architecture mixtral() { // mistralai/Mixtral-8x7B-v0.1
  Architecture a = gated(32, 4096, 32, 8, 14336, 32000);
  a.rotaryBase = 1e6;
  a.experts = 8;
  a.expertsPerToken = 2;
  a.expertModule = "block_sparse_moe";
  return a;
}

Architecture qwen2() { // Qwen/Qwen2-7B
  Architecture a = gated(28, 3584, 28, 4, 18944, 152064);
  a.rotaryBase = 1e6;
  a.epsilon = 1e-6;
  a.hasAttentionBias = true;
  return a;
}

Architecture qwen2Moe() { // Qwen/Qwen1.5-MoE-A2.7B
  Architecture a = gated(24, 2048, 16, 16, 1408, 151936);
  a.rotaryBase = 1e6;
  a.epsilon = 1e-6;
  a.hasAttentionBias = a.hasSharedGate = true;
  a.normalizesWeights = false;
  a.experts = 60;
  a.expertsPerToken = 4;
  a.sharedFfn = 5632;
  return a;
}

Architecture qwen3() { // Qwen/Qwen3-8B
  Architecture a = gated(36, 4096, 32, 8, 12288, 151936);
  a.headDim = 128;
  a.rotaryBase = 1e6;
  a.epsilon = 1e-6;
  a.headNorm = HeadNorm::Each;
  return a;
}

Architecture qwen3Moe() { // Qwen/Qwen3-30B-A3B
  Architecture a = gated(48, 2048, 32, 4, 768, 151936);
  a.headDim = 128;
  a.rotaryBase = 1e6;
  a.epsilon = 1e-6;
  a.headNorm = HeadNorm::Each;
  a.experts = 128;
  a.expertsPerToken = 8;
  return a;
}

Architecture gemma2() { // google/gemma-2-9b
  Architecture a = gated(42, 3584, 16, 8, 14336, 256000);
  a.headDim = 256;
  a.epsilon = 1e-6;
  a.activation = "gelu_new";
  a.norm = Norm::RmsPlus1;
  a.normPlaces = NormPlaces::Both;
  a.isTied = a.scalesEmbedding = true;
  a.softcap = 50;
  a.logitSoftcap = 30;
  a.queryScale = 1.0 / 16; // 1 / sqrt(256)
  a.window = 4096;
  a.globalEvery = 2;
  return a;
}

Architecture gemma3() { // google/gemma-3-1b-pt
  Architecture a = gemma2();
  a.layers = 26, a.hidden = 1152, a.heads = 4, a.keyHeads = 1, a.ffn = 6912;
  a.vocabulary = 262144;
  a.softcap = a.logitSoftcap = 0;
  a.headNorm = HeadNorm::Each;
  a.window = 512;
  a.globalEvery = 6;
  a.rotaryBase = 1e6;
  a.localRotaryBase = 10000;
  return a;
}

Architecture phi() { // microsoft/phi-2
  Architecture a = transformer(32, 2560, 32, 32, 10240, 51200);
  a.rotaryFraction = 0.4;
  a.activation = "gelu_new";
  return a;
}

Architecture phi3() { // microsoft/Phi-3-mini-4k-instruct
  Architecture a = gated(32, 3072, 32, 32, 8192, 32064);
  a.isFused = true;
  a.window = 2047;
  return a;
}

Architecture olmo() { // allenai/OLMo-7B-hf
  Architecture a = gated(32, 4096, 32, 32, 11008, 50304);
  a.norm = Norm::LayerWithoutWeights;
  return a;
}

Architecture olmo2() { // allenai/OLMo-2-1124-7B
  Architecture a = gated(32, 4096, 32, 32, 11008, 100352);
  a.rotaryBase = 500000;
  a.epsilon = 1e-6;
  a.headNorm = HeadNorm::All;
  a.normPlaces = NormPlaces::After;
  return a;
}

Architecture olmoe() { // allenai/OLMoE-1B-7B-0924
  Architecture a = gated(16, 2048, 16, 16, 1024, 50304);
  a.headNorm = HeadNorm::All;
  a.normalizesWeights = false;
  a.experts = 64;
  a.expertsPerToken = 8;
  return a;
}

Architecture deepseekV3() { // deepseek-ai/DeepSeek-V3, without its layer for the token after next
  Architecture a = gated(61, 7168, 128, 128, 2048, 129280);
  a.epsilon = 1e-6;
  a.headDim = a.valueDim = 128;
  a.ropeDim = 64;
  a.queryRank = 1536;
  a.keyRank = 512;
  a.denseLayers = 3;
  a.denseFfn = 18432;
  a.experts = 256;
  a.expertsPerToken = 8;
  a.sharedFfn = 2048;
  a.groups = 8;
  a.topGroups = 4;
  a.routesBySigmoid = true;
  a.routedScale = 2.5;
  return a;
}

Architecture mpt() { // mosaicml/mpt-7b
  Architecture a = transformer(32, 4096, 32, 32, 16384, 50432);
  a.isTied = a.hasAlibi = true;
  return a;
}

Architecture neox() { // EleutherAI/gpt-neox-20b
  Architecture a = transformer(44, 6144, 64, 64, 24576, 50432);
  a.isParallel = true;
  a.rotaryFraction = 0.25;
  return a;
}

Architecture bloom() { // bigscience/bloom
  Architecture a = transformer(70, 14336, 112, 112, 57344, 250880);
  a.isTied = a.hasAlibi = true;
  a.activation = "gelu_new";
  return a;
}

Architecture nemotron() { // Nemotron-4 15B
  Architecture a = transformer(32, 6144, 48, 8, 24576, 256000);
  a.activation = "relu2";
  a.rotaryFraction = 0.5;
  a.norm = Norm::LayerPlus1;
  return a;
}

Architecture grok() { // xai-org/grok-1
  Architecture a = transformer(64, 6144, 48, 8, 32768, 131072);
  a.experts = 8;
  a.expertsPerToken = 2;
  a.expertModule = "moe_block";
  a.normPlaces = NormPlaces::Both;
  a.isGated = a.isTied = true;
  return a;
}

Architecture t5() { // google-t5/t5-base
  Architecture a = transformer(12, 768, 12, 12, 3072, 32128);
  a.isTied = true;
  a.activation = "relu";
  a.epsilon = 1e-6;
  return a;
}

Architecture bert() { // google-bert/bert-base-uncased
  Architecture a = transformer(12, 768, 12, 12, 3072, 30522);
  a.positions = 512;
  a.tokenTypes = 2;
  a.isTied = true;
  a.epsilon = 1e-12;
  return a;
}

Architecture modernBert() { // answerdotai/ModernBERT-base
  Architecture a = transformer(22, 768, 12, 12, 1152, 50368);
  a.isTied = a.isGated = true;
  a.window = 128;
  a.globalEvery = 3;
  a.rotaryBase = 160000;
  a.localRotaryBase = 10000;
  return a;
}

Architecture vit() { // google/vit-base-patch16-224
  Architecture a = transformer(12, 768, 12, 12, 3072, 0);
  a.imageSize = 224;
  a.patchSize = 16;
  a.channels = 3;
  a.classes = 1000;
  a.epsilon = 1e-12;
  return a;
}

Architecture dit() { // facebook/DiT-XL-2-256: latents of 32 x 32
  Architecture a = transformer(28, 1152, 16, 16, 4608, 0);
  a.imageSize = 32;
  a.patchSize = 2;
  a.channels = 4;
  a.classes = 1000;
  a.activation = "gelu_new";
  a.norm = Norm::LayerWithoutWeights;
  a.epsilon = 1e-6;
  return a;
}

} // namespace

Architecture defaultsOf(const std::string &kind) {
  static const std::map<std::string, Architecture (*)()> makers = {{"gpt2", gpt2},
                                                                   {"llama", llama},
                                                                   {"mixtral", mixtral},
                                                                   {"qwen2", qwen2},
                                                                   {"qwen2_moe", qwen2Moe},
                                                                   {"qwen3", qwen3},
                                                                   {"qwen3_moe", qwen3Moe},
                                                                   {"gemma2", gemma2},
                                                                   {"gemma3", gemma3},
                                                                   {"phi", phi},
                                                                   {"phi3", phi3},
                                                                   {"olmo", olmo},
                                                                   {"olmo2", olmo2},
                                                                   {"olmoe", olmoe},
                                                                   {"deepseek_v3", deepseekV3},
                                                                   {"nemotron", nemotron},
                                                                   {"grok", grok},
                                                                   {"mpt", mpt},
                                                                   {"neox", neox},
                                                                   {"bloom", bloom},
                                                                   {"t5", t5},
                                                                   {"bert", bert},
                                                                   {"modernbert", modernBert},
                                                                   {"vit", vit},
                                                                   {"dit", dit}};
  auto found = makers.find(kind);
  assert(found != makers.end() && "a kind of kinds()");
  Architecture a = found->second();
  a.kind = kind;
  return a;
}

} // namespace tbc::newmodel
