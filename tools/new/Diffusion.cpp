//===- Diffusion.cpp - dit: a transformer that removes noise from latents -------===//
//
// Source: Peebles and Xie, "Scalable diffusion models with transformers" (2022), and its published
// code, whose names the modules have.
//
//===----------------------------------------------------------------------===//

#include "tools/new/Blocks.h"
#include "tools/new/Families.h"

#include <cmath>

namespace tbc::newmodel {

using Module = GraphWriter::Module;

/// Width of the sines and cosines of a time step.
constexpr int64_t kFrequencies = 256;

/// Returns a vector for each time step, [b, hidden].
static std::string embedTime(GraphWriter &w, const Architecture &a, const std::string &times) {
  Module module(w, "t_embedder");
  std::vector<float> frequencies;
  for (int64_t i = 0; i < kFrequencies / 2; ++i)
    frequencies.push_back(float(std::pow(10000.0, -2.0 * double(i) / double(kFrequencies))));
  std::string angles = w.op("Mul", {w.op("Unsqueeze", {times, w.ints({1})}),
                                    w.constant({1, kFrequencies / 2}, frequencies)});
  std::string x =
      w.op("Concat", {w.op("Cos", {angles}), w.op("Sin", {angles})}, {{"axis", int64_t(-1)}});
  x = w.activation("silu", w.linear(x, "mlp.0", kFrequencies, a.hidden, true));
  return w.linear(x, "mlp.2", a.hidden, a.hidden, true);
}

/// Returns x * (1 + scale) + shift behind a norm without weights.
static std::string modulate(GraphWriter &w, const Architecture &a, const std::string &x,
                            const std::string &name, const std::string &shift,
                            const std::string &scale) {
  std::string y = normalize(w, x, name, a.hidden, a);
  std::string factor = w.op("Add", {scale, w.constant({}, {1})});
  return w.op("Add", {w.op("Mul", {y, factor}), shift});
}

/// Returns `count` vectors for the condition c, [b, 1, hidden] each.
static std::vector<std::string> conditions(GraphWriter &w, const Architecture &a,
                                           const std::string &c, int64_t count) {
  Module module(w, "adaLN_modulation");
  std::string all = w.linear(w.activation("silu", c), "1", a.hidden, count * a.hidden, true);
  all = w.op("Unsqueeze", {all, w.ints({1})});
  return splitInto(w, all, Ints(size_t(count), a.hidden));
}

static std::string block(GraphWriter &w, const Architecture &a, std::string x,
                         const std::string &c) {
  auto parts = conditions(w, a, c, 6);
  std::string y = modulate(w, a, x, "norm1", parts[0], parts[1]);
  {
    Module attention(w, "attn");
    auto qkv = splitInThree(w, w.linear(y, "qkv", a.hidden, 3 * a.hidden, true));
    y = attend(w, a, qkv[0], qkv[1], qkv[2], Scores{"", false, 0});
    y = w.linear(y, "proj", a.hidden, a.hidden, true);
  }
  x = w.op("Add", {x, w.op("Mul", {y, parts[2]})});
  y = modulate(w, a, x, "norm2", parts[3], parts[4]);
  {
    Module mlp(w, "mlp");
    y = w.activation(a.activation, w.linear(y, "fc1", a.hidden, a.ffn, true));
    y = w.linear(y, "fc2", a.ffn, a.hidden, true);
  }
  return w.op("Add", {x, w.op("Mul", {y, parts[5]})});
}

/// Noise and its variance: twice the channels of the input.
void writeDit(GraphWriter &w, const Architecture &a) {
  const int64_t side = a.imageSize / a.patchSize, patches = side * side, out = 2 * a.channels;
  std::string size = std::to_string(a.imageSize);
  std::string latents = w.input("latents", {"batch", std::to_string(a.channels), size, size}, true);
  std::string times = w.input("timesteps", {"batch"}, true);
  std::string labels = w.input("labels", {"batch"}, false);
  std::string x;
  {
    Module embedder(w, "x_embedder.proj");
    x = w.op("Conv",
             {latents, w.weight("weight", {a.hidden, a.channels, a.patchSize, a.patchSize}),
              w.weight("bias", {a.hidden})},
             {{"kernel_shape", Ints{a.patchSize, a.patchSize}},
              {"strides", Ints{a.patchSize, a.patchSize}}});
    x = w.op("Reshape", {x, w.ints({0, a.hidden, patches})});
    x = w.op("Transpose", {x}, {{"perm", Ints{0, 2, 1}}});
  }
  x = w.op("Add", {x, w.weight("pos_embed", {1, patches, a.hidden})});
  std::string c = embedTime(w, a, times);
  {
    // One more row than classes: no label, for guidance without a classifier.
    Module embedder(w, "y_embedder");
    c = w.op("Add", {c, w.embedding("embedding_table", a.classes + 1, a.hidden, labels)});
  }
  for (int64_t layer = 0; layer < a.layers; ++layer) {
    Module list(w, "blocks." + std::to_string(layer));
    x = block(w, a, x, c);
  }
  {
    Module last(w, "final_layer");
    auto parts = conditions(w, a, c, 2);
    x = modulate(w, a, x, "norm_final", parts[0], parts[1]);
    x = w.linear(x, "linear", a.hidden, a.patchSize * a.patchSize * out, true);
  }
  x = w.op("Reshape", {x, w.ints({0, side, side, a.patchSize, a.patchSize, out})});
  x = w.op("Transpose", {x}, {{"perm", Ints{0, 5, 1, 3, 2, 4}}});
  w.output(w.op("Reshape", {x, w.ints({0, out, a.imageSize, a.imageSize})}), "noise");
}

} // namespace tbc::newmodel
