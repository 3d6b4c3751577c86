//===- ConfigFile.cpp - config.json of Hugging Face's transformers -------------===//

#include "planner/devices/Cluster.h"
#include "runtime/abi/ClosestWord.h"
#include "tools/new/Architecture.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <map>

namespace tbc::newmodel {

using Json = nlohmann::json;

namespace {

/// Reads the keys of a config and keeps the first error.
class Config {
public:
  Config(const Json &json, std::string source) : json(json), source(std::move(source)) {}

  /// Returns the value of the first present key, or `otherwise`; it is an error if both are
  /// missing.
  int64_t integer(const std::vector<std::string> &keys, int64_t otherwise = -1) {
    for (const std::string &key : keys) {
      auto found = json.find(key);
      if (found == json.end() || found->is_null())
        continue;
      if (found->is_number_integer())
        return found->get<int64_t>();
      fail("key \"" + key + "\" must be an integer");
      return 1;
    }
    if (otherwise < 0)
      fail("key \"" + keys[0] + "\" is missing");
    return otherwise;
  }
  double number(const std::string &key, double otherwise) {
    auto found = json.find(key);
    if (found == json.end() || found->is_null())
      return otherwise;
    if (!found->is_number())
      fail("key \"" + key + "\" must be a number");
    return found->is_number() ? found->get<double>() : otherwise;
  }
  bool flag(const std::string &key, bool otherwise) {
    auto found = json.find(key);
    if (found == json.end() || found->is_null())
      return otherwise;
    if (!found->is_boolean())
      fail("key \"" + key + "\" must be true or false");
    return found->is_boolean() ? found->get<bool>() : otherwise;
  }
  std::string text(const std::string &key, const std::string &otherwise) {
    auto found = json.find(key);
    if (found == json.end() || found->is_null())
      return otherwise;
    if (!found->is_string())
      fail("key \"" + key + "\" must be a string");
    return found->is_string() ? found->get<std::string>() : otherwise;
  }
  /// Returns an activation, given by its name in transformers.
  std::string activation(const std::string &key, const std::string &otherwise) {
    static const std::map<std::string, std::string> known = {
        {"gelu", "gelu"},          {"gelu_python", "gelu"}, {"gelu_new", "gelu_new"},
        {"gelu_fast", "gelu_new"}, {"silu", "silu"},        {"swish", "silu"},
        {"relu", "relu"},          {"relu2", "relu2"},      {"gelu_pytorch_tanh", "gelu_new"}};
    std::string name = text(key, otherwise);
    auto found = known.find(name);
    if (found != known.end())
      return found->second;
    fail("key \"" + key + "\" is \"" + name + "\", which tbc new does not write");
    return "gelu";
  }
  /// Refuses a setting that would change the graph.
  void require(const std::string &key, const Json &value) {
    auto found = json.find(key);
    if (found != json.end() && !found->is_null() && *found != value)
      fail("key \"" + key + "\" is " + found->dump().substr(0, 40) + ", and tbc new writes " +
           value.dump() + " only; export the model instead");
  }
  /// Returns N if `layer_types` has full attention in every Nth layer, 0 if in none; `otherwise`
  /// without that key. It is an error if they are not regular.
  int64_t globalEvery(int64_t otherwise) {
    auto found = json.find("layer_types");
    if (found == json.end() || !found->is_array())
      return otherwise;
    int64_t every = 0;
    for (size_t i = 0; i < found->size() && every == 0; ++i)
      if ((*found)[i] == "full_attention")
        every = int64_t(i) + 1;
    for (size_t i = 0; i < found->size(); ++i)
      if (bool isGlobal = every > 0 && (int64_t(i) + 1) % every == 0;
          (*found)[i] != (isGlobal ? "full_attention" : "sliding_attention"))
        fail("key \"layer_types\" is irregular, and tbc new writes full attention in every Nth "
             "layer only; export the model instead");
    return every;
  }
  bool has(const std::string &key) const {
    auto found = json.find(key);
    return found != json.end() && !found->is_null();
  }
  Config inside(const std::string &key) const {
    static const Json none = Json::object();
    auto found = json.find(key);
    return Config(found != json.end() && found->is_object() ? *found : none, source);
  }

  void fail(const std::string &message) {
    if (error.empty())
      error = source + ": " + message;
  }

  std::string error;

private:
  const Json &json;
  std::string source;
};

} // namespace

static void readGpt2(Config &c, Architecture &a) {
  a.layers = c.integer({"n_layer"});
  a.hidden = c.integer({"n_embd"});
  a.heads = a.keyHeads = c.integer({"n_head"});
  a.ffn = c.integer({"n_inner"}, 4 * a.hidden);
  a.vocabulary = c.integer({"vocab_size"});
  a.positions = c.integer({"n_positions", "n_ctx"});
  a.activation = c.activation("activation_function", "gelu_new");
  a.epsilon = c.number("layer_norm_epsilon", 1e-5);
  a.isTied = c.flag("tie_word_embeddings", true);
  c.require("scale_attn_by_inverse_layer_idx", false);
  c.require("add_cross_attention", false);
}

/// llama and its relatives.
static void readLlama(Config &c, Architecture &a) {
  a.layers = c.integer({"num_hidden_layers"});
  a.hidden = c.integer({"hidden_size"});
  a.heads = c.integer({"num_attention_heads"});
  a.keyHeads = c.integer({"num_key_value_heads"}, a.heads);
  a.headDim = c.integer({"head_dim"}, 0);
  a.ffn = c.integer({"moe_intermediate_size", "intermediate_size"});
  a.vocabulary = c.integer({"vocab_size"});
  a.experts = c.integer({"num_local_experts", "num_experts", "n_routed_experts"}, 0);
  a.expertsPerToken =
      a.experts > 0 ? c.integer({"num_experts_per_tok", "num_selected_experts"}) : 0;
  a.activation =
      c.activation(c.has("hidden_activation") ? "hidden_activation" : "hidden_act", a.activation);
  a.rotaryBase = c.number("rope_theta", c.inside("rope_parameters").number("rope_theta", 10000));
  a.epsilon = c.number("rms_norm_eps", c.number("norm_eps", a.epsilon));
  a.isTied = c.flag("tie_word_embeddings", a.isTied);
  a.hasAttentionBias = a.hasOutputBias = c.flag("attention_bias", false);
  a.hasMlpBias = c.flag("mlp_bias", false);
  a.normalizesWeights = c.flag("norm_topk_prob", a.normalizesWeights);
}

/// mistral, mixtral and phi3: all layers have the window.
static void readMistral(Config &c, Architecture &a) {
  readLlama(c, a);
  a.window = c.integer({"sliding_window"}, 0);
  a.globalEvery = 0;
  c.require("partial_rotary_factor", 1.0);
}

static void readQwen2(Config &c, Architecture &a) {
  readLlama(c, a);
  a.hasAttentionBias = true;
  c.require("use_sliding_window", false);
}

static void readQwen2Moe(Config &c, Architecture &a) {
  readQwen2(c, a);
  a.sharedFfn = c.integer({"shared_expert_intermediate_size"});
  a.normalizesWeights = c.flag("norm_topk_prob", false);
  c.require("decoder_sparse_step", 1);
  c.require("mlp_only_layers", Json::array());
}

static void readQwen3(Config &c, Architecture &a) {
  readLlama(c, a);
  c.require("use_sliding_window", false);
}

static void readQwen3Moe(Config &c, Architecture &a) {
  readQwen3(c, a);
  a.normalizesWeights = c.flag("norm_topk_prob", false);
  c.require("decoder_sparse_step", 1);
  c.require("mlp_only_layers", Json::array());
}

/// gemma2 and gemma3_text.
static void readGemma(Config &c, Architecture &a) {
  readLlama(c, a);
  a.isTied = c.flag("tie_word_embeddings", true);
  a.activation = c.activation("hidden_activation", "gelu_pytorch_tanh");
  a.window = c.integer({"sliding_window"}, a.window);
  a.globalEvery = c.globalEvery(c.integer({"sliding_window_pattern"}, a.globalEvery));
  a.queryScale = 1 / std::sqrt(c.number("query_pre_attn_scalar", 256));
  a.softcap = c.number("attn_logit_softcapping", 0);
  a.logitSoftcap = c.number("final_logit_softcapping", 0);
  if (a.localRotaryBase > 0)
    a.localRotaryBase = c.number("rope_local_base_freq", 10000);
}

static void readPhi(Config &c, Architecture &a) {
  readLlama(c, a);
  a.rotaryFraction = c.number("partial_rotary_factor", 0.5);
  a.epsilon = c.number("layer_norm_eps", 1e-5);
  c.require("qk_layernorm", false);
}

static void readOlmo(Config &c, Architecture &a) {
  readLlama(c, a);
  c.require("clip_qkv", nullptr);
}

static void readDeepseekV3(Config &c, Architecture &a) {
  readLlama(c, a);
  a.hasOutputBias = a.hasAttentionBias;
  a.headDim = c.integer({"qk_nope_head_dim"});
  a.ropeDim = c.integer({"qk_rope_head_dim"});
  a.valueDim = c.integer({"v_head_dim"});
  a.queryRank = c.integer({"q_lora_rank"}, 0);
  a.keyRank = c.integer({"kv_lora_rank"});
  a.denseLayers = c.integer({"first_k_dense_replace"}, 0);
  a.denseFfn = c.integer({"intermediate_size"});
  a.sharedFfn = a.ffn * c.integer({"n_shared_experts"}, 0);
  a.groups = c.integer({"n_group"}, 1);
  a.topGroups = c.integer({"topk_group"}, 1);
  a.routedScale = c.number("routed_scaling_factor", 1);
  c.require("scoring_func", "sigmoid");
  c.require("moe_layer_freq", 1);
}

static void readNemotron(Config &c, Architecture &a) {
  readLlama(c, a);
  a.rotaryFraction = c.number("partial_rotary_factor", c.number("rope_percent", 0.5));
}

static void readGrok(Config &c, Architecture &a) {
  readLlama(c, a);
  a.softcap = c.number("max_attn_value", 0);
}

static void readMpt(Config &c, Architecture &a) {
  a.layers = c.integer({"n_layers"});
  a.hidden = c.integer({"d_model"});
  a.heads = a.keyHeads = c.integer({"n_heads"});
  double ratio = c.number("expansion_ratio", 4);
  a.ffn = int64_t(ratio * double(a.hidden));
  a.vocabulary = c.integer({"vocab_size"});
  bool hasBias = !c.flag("no_bias", true);
  a.hasAttentionBias = a.hasOutputBias = a.hasMlpBias = hasBias;
  Config attention = c.inside("attn_config");
  a.hasAlibi = attention.flag("alibi", true);
  if (!a.hasAlibi)
    c.fail("key \"attn_config.alibi\" is false, and tbc new writes ALiBi only; export the model "
           "instead");
  attention.require("clip_qkv", nullptr);
  attention.require("qk_ln", false);
  if (!attention.error.empty())
    c.error = attention.error;
}

static void readNeox(Config &c, Architecture &a) {
  a.layers = c.integer({"num_hidden_layers"});
  a.hidden = c.integer({"hidden_size"});
  a.heads = a.keyHeads = c.integer({"num_attention_heads"});
  a.ffn = c.integer({"intermediate_size"});
  a.vocabulary = c.integer({"vocab_size"});
  a.rotaryFraction = c.number("rotary_pct", 0.25);
  a.rotaryBase = c.number("rotary_emb_base", 10000);
  a.isParallel = c.flag("use_parallel_residual", true);
  a.activation = c.activation("hidden_act", "gelu");
  a.epsilon = c.number("layer_norm_eps", 1e-5);
  a.isTied = c.flag("tie_word_embeddings", false);
  c.require("attention_bias", true);
}

static void readBloom(Config &c, Architecture &a) {
  a.layers = c.integer({"n_layer", "num_hidden_layers"});
  a.hidden = c.integer({"hidden_size", "n_embed"});
  a.heads = a.keyHeads = c.integer({"n_head", "num_attention_heads"});
  a.ffn = 4 * a.hidden;
  a.vocabulary = c.integer({"vocab_size"});
  a.epsilon = c.number("layer_norm_epsilon", 1e-5);
  c.require("apply_residual_connection_post_layernorm", false);
}

static void readBert(Config &c, Architecture &a) {
  a.layers = c.integer({"num_hidden_layers"});
  a.hidden = c.integer({"hidden_size"});
  a.heads = a.keyHeads = c.integer({"num_attention_heads"});
  a.ffn = c.integer({"intermediate_size"});
  a.vocabulary = c.integer({"vocab_size"});
  a.positions = c.integer({"max_position_embeddings"});
  a.tokenTypes = c.integer({"type_vocab_size"}, 2);
  a.activation = c.activation("hidden_act", "gelu");
  a.epsilon = c.number("layer_norm_eps", 1e-12);
  a.isTied = c.flag("tie_word_embeddings", true);
  c.require("position_embedding_type", "absolute");
}

static void readModernBert(Config &c, Architecture &a) {
  a.layers = c.integer({"num_hidden_layers"});
  a.hidden = c.integer({"hidden_size"});
  a.heads = a.keyHeads = c.integer({"num_attention_heads"});
  a.ffn = c.integer({"intermediate_size"});
  a.vocabulary = c.integer({"vocab_size"});
  a.window = c.integer({"local_attention"}, 128);
  a.globalEvery = c.integer({"global_attn_every_n_layers"}, 3);
  a.rotaryBase = c.number("global_rope_theta", 160000);
  a.localRotaryBase = c.number("local_rope_theta", 10000);
  a.activation = c.activation("hidden_activation", "gelu");
  a.epsilon = c.number("norm_eps", 1e-5);
  a.hasAttentionBias = a.hasOutputBias = c.flag("attention_bias", false);
  a.hasMlpBias = c.flag("mlp_bias", false);
  c.require("norm_bias", false);
  c.require("classifier_bias", false);
  c.require("decoder_bias", true);
  c.require("tie_word_embeddings", true);
}

static void readT5(Config &c, Architecture &a) {
  a.layers = c.integer({"num_layers"});
  a.hidden = c.integer({"d_model"});
  a.heads = a.keyHeads = c.integer({"num_heads"});
  a.headDim = c.integer({"d_kv"});
  a.ffn = c.integer({"d_ff"});
  a.vocabulary = c.integer({"vocab_size"});
  a.epsilon = c.number("layer_norm_epsilon", 1e-6);
  a.isTied = c.flag("tie_word_embeddings", true);
  std::string form = c.text("feed_forward_proj", "relu");
  a.isGated = form.rfind("gated-", 0) == 0;
  a.activation = form == "gated-gelu" ? "gelu_new" : a.isGated ? form.substr(6) : form;
  if (a.activation != "gelu_new" && a.activation != "relu" && a.activation != "silu")
    c.fail("key \"feed_forward_proj\" is \"" + form + "\", which tbc new does not write");
  c.require("num_decoder_layers", a.layers);
  c.require("relative_attention_num_buckets", 32);
  c.require("relative_attention_max_distance", 128);
}

static void readVit(Config &c, Architecture &a) {
  a.layers = c.integer({"num_hidden_layers"});
  a.hidden = c.integer({"hidden_size"});
  a.heads = a.keyHeads = c.integer({"num_attention_heads"});
  a.ffn = c.integer({"intermediate_size"});
  a.imageSize = c.integer({"image_size"}, 224);
  a.patchSize = c.integer({"patch_size"}, 16);
  a.channels = c.integer({"num_channels"}, 3);
  a.classes = c.integer({"num_labels"}, 1000);
  a.activation = c.activation("hidden_act", "gelu");
  a.epsilon = c.number("layer_norm_eps", 1e-12);
  c.require("qkv_bias", true);
}

Result<Architecture> readConfig(const std::string &text, const std::string &source) {
  struct Family {
    const char *kind;
    void (*read)(Config &, Architecture &);
  };
  static const std::map<std::string, Family> families = {
      {"gpt2", {"gpt2", readGpt2}},
      {"llama", {"llama", readLlama}},
      {"mistral", {"llama", readMistral}},
      {"mixtral", {"mixtral", readMistral}},
      {"qwen2", {"qwen2", readQwen2}},
      {"qwen2_moe", {"qwen2_moe", readQwen2Moe}},
      {"qwen3", {"qwen3", readQwen3}},
      {"qwen3_moe", {"qwen3_moe", readQwen3Moe}},
      {"gemma2", {"gemma2", readGemma}},
      {"gemma3_text", {"gemma3", readGemma}},
      {"phi", {"phi", readPhi}},
      {"phi3", {"phi3", readMistral}},
      {"olmo", {"olmo", readOlmo}},
      {"olmo2", {"olmo2", readLlama}},
      {"olmoe", {"olmoe", readOlmo}},
      {"deepseek_v3", {"deepseek_v3", readDeepseekV3}},
      {"nemotron", {"nemotron", readNemotron}},
      {"grok-1", {"grok", readGrok}},
      {"mpt", {"mpt", readMpt}},
      {"gpt_neox", {"neox", readNeox}},
      {"bloom", {"bloom", readBloom}},
      {"t5", {"t5", readT5}},
      {"bert", {"bert", readBert}},
      {"modernbert", {"modernbert", readModernBert}},
      {"vit", {"vit", readVit}}};
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  auto usage = [&](const std::string &message) {
    return Error{ErrorCode::Usage, source + ": " + message};
  };
  if (json.is_discarded() || !json.is_object())
    return usage("not a config.json: the text is no JSON object, or is cut off");
  auto type = json.find("model_type");
  if (type == json.end() || !type->is_string())
    return usage("key \"model_type\" is missing; it says of which family the model is");
  auto family = families.find(type->get<std::string>());
  if (family == families.end()) {
    std::vector<std::string> names;
    std::string all;
    for (const auto &[name, unused] : families) {
      names.push_back(name);
      all += (all.empty() ? "" : ", ") + name;
    }
    std::string closest = closestWord(type->get<std::string>(), names);
    return usage("model_type \"" + type->get<std::string>().substr(0, 40) +
                 "\" is not one that tbc new writes (" + all + ")" +
                 (closest.empty() ? "" : "; did you mean " + closest + "?") +
                 "; export the model instead");
  }
  Architecture a = defaultsOf(family->second.kind);
  Config config(json, source);
  family->second.read(config, a);
  if (!config.error.empty())
    return Error{ErrorCode::Usage, config.error};
  return a;
}

} // namespace tbc::newmodel
