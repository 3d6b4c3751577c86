//===- Random.cpp - Random numbers --------------------------------------------===//
//
// All are made of uniform numbers of f32 in [0, 1), drawn by `random_uniform`.
//
//===----------------------------------------------------------------------===//

#include "frontend/onnx/ops/Families.h"

#include <cmath>

namespace tbc::frontend {

namespace {

/// Draws several times for the elements of one shape.
class Draws {
public:
  explicit Draws(NodeContext &node, Value like)
      : emitter(node.emitter), like(std::move(like)), key(hashOf(node.name())) {
    if (this->like.rank() > 0)
      return;
    isScalar = true;
    this->like = Value::ofSplat(DType::F32, {1}, 0);
  }

  /// Returns one number in [0, 1) for each element. Two draws are independent.
  Value uniform() {
    mlir::Value tensor = emitter.full(like);
    mlir::Value drawn =
        emitter.createOne("random_uniform", {tensor}, emitter.type(DType::F32, like.shape),
                          {emitter.integer("key", int64_t(key++))});
    Value numbers = Value::ofTensor(DType::F32, drawn);
    return isScalar ? squeeze(emitter, numbers, {0}) : numbers;
  }

private:
  /// FNV-1a. Training draws by the ids of ops instead.
  static uint32_t hashOf(const std::string &name) {
    uint32_t hash = 2166136261U;
    for (unsigned char c : name)
      hash = (hash ^ c) * 16777619U;
    return hash;
  }

  Emitter &emitter;
  Value like;
  uint32_t key;
  bool isScalar = false;
};

/// Returns the tensor whose shape a node draws for: its input, or zeros of attribute `shape`.
Value likeOf(const NodeContext &node) {
  if (node.numInputs() > 0)
    return node.input(0);
  return Value::ofSplat(DType::F32, checkedShape(node.attrInts("shape", {})), 0);
}

/// Returns the dtype of the result: attribute `dtype`, else that of the input, else f32.
DType dtypeOfResult(const NodeContext &node) {
  if (node.hasAttr("dtype"))
    return dtypeOfOnnx(int32_t(node.attrInt("dtype", 0)), "the result");
  return node.numInputs() > 0 ? node.input(0).dtype : DType::F32;
}

DType floatOfResult(const NodeContext &node) {
  DType dtype = dtypeOfResult(node);
  if (!kernels::isFloat(dtype))
    throw ImportError("draws numbers of " + std::string(kernels::name(dtype)) +
                      "; expected a float type");
  return dtype;
}

/// low + u (high - low)
void importRandomUniform(NodeContext &node) {
  Formula f{node.emitter};
  DType dtype = floatOfResult(node);
  double low = node.attrFloat("low", 0), high = node.attrFloat("high", 1);
  Value u = Draws(node, likeOf(node)).uniform();
  Value y = f.add(f.mul(u, number(u, high - low)), number(u, low));
  node.setOutput(0, cast(node.emitter, y, dtype));
}

/// mean + scale z, with z = sqrt(-2 ln(1 - u)) cos(2 pi v).
/// Source: Box and Muller, A Note on the Generation of Random Normal Deviates (1958).
void importRandomNormal(NodeContext &node) {
  Formula f{node.emitter};
  DType dtype = floatOfResult(node);
  double mean = node.attrFloat("mean", 0), scale = node.attrFloat("scale", 1);
  Draws draws(node, likeOf(node));
  Value u = draws.uniform(), v = draws.uniform();
  Value radius = f.sqrt(f.mul(f.log(f.sub(number(u, 1), u)), number(u, -2)));
  Value z = f.mul(radius, f.cos(f.mul(v, number(v, 2 * M_PI))));
  Value y = f.add(f.mul(z, number(z, scale)), number(z, mean));
  node.setOutput(0, cast(node.emitter, y, dtype));
}

/// 1 with probability `input`, else 0.
void importBernoulli(NodeContext &node) {
  const Value &probability = node.input(0);
  Value u = Draws(node, probability).uniform();
  Value isOne = compare(node.emitter, "lt", u, cast(node.emitter, probability, DType::F32));
  node.setOutput(0, cast(node.emitter, isOne, dtypeOfResult(node)));
}

} // namespace

llvm::ArrayRef<OpImporter> randomOps() {
  // The step has a single seed.
  static const OpImporter ops[] = {
      {"", "Bernoulli", importBernoulli, "seed"},
      {"", "RandomNormal", importRandomNormal, "seed"},
      {"", "RandomNormalLike", importRandomNormal, "seed"},
      {"", "RandomUniform", importRandomUniform, "seed"},
      {"", "RandomUniformLike", importRandomUniform, "seed"},
  };
  return ops;
}

} // namespace tbc::frontend
