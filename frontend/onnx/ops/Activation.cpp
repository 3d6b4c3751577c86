//===- Activation.cpp - Activation functions -------------------------------===//
//
// Activations without a kernel are formulas of elementwise ops; their gradients follow from
// autodiff.
//
//===----------------------------------------------------------------------===//

#include "frontend/onnx/ops/Families.h"

namespace tbc::frontend {

namespace {

const Value &floatInput(NodeContext &node) {
  const Value &x = node.input(0);
  if (!kernels::isFloat(x.dtype))
    throw ImportError("needs a float tensor, not one of " + std::string(kernels::name(x.dtype)));
  return x;
}

} // namespace

Value softplus(Formula &f, const Value &x) {
  // max(x, 0) + log(1 + exp(-|x|)) by choices: at 0 the gradients are 0 and 1/2, as that of the
  // sum. A maximum and a minimum share theirs between equal operands.
  Value isPositive = f.compare("gt", x, number(x, 0));
  Value tail = f.exp(f.select(isPositive, f.neg(x), x));
  return f.add(f.select(isPositive, x, number(x, 0)), f.log(f.add(number(x, 1), tail)));
}

/// exp(min(x, 0)) - 1: the negative branch of ELU and similar functions. Its gradient stays finite
/// for large x.
static Value expm1Negative(Formula &f, const Value &x) {
  return f.sub(f.exp(f.minimum(x, number(x, 0))), number(x, 1));
}

Value elu(Formula &f, const Value &x, double alpha) {
  return f.select(f.compare("gt", x, number(x, 0)), x,
                  f.mul(number(x, alpha), expm1Negative(f, x)));
}

Value leakyRelu(Formula &f, const Value &x, double alpha) {
  return f.select(f.compare("gt", x, number(x, 0)), x, f.mul(x, number(x, alpha)));
}

Value hardSigmoid(Formula &f, const Value &x, double alpha, double beta) {
  // Flat at its bounds too, unlike a clip, which passes gradients there.
  Value line = f.add(f.mul(x, number(x, alpha)), number(x, beta));
  Value zero = number(x, 0), one = number(x, 1);
  Value above = f.select(f.compare("ge", line, one), one, line);
  return f.select(f.compare("le", line, zero), zero, above);
}

Value softsign(Formula &f, const Value &x) { return f.div(x, f.add(number(x, 1), f.abs(x))); }

Value thresholdedRelu(Formula &f, const Value &x, double alpha) {
  return f.select(f.compare("gt", x, number(x, alpha)), x, number(x, 0));
}

namespace {

void importGelu(NodeContext &node) {
  const Value &x = floatInput(node);
  std::string approximate = node.attrText("approximate", "none");
  if (approximate != "none" && approximate != "tanh")
    throw ImportError("unknown approximation '" + approximate + "'");
  node.setOutput(0, elementwise(node.emitter, "gelu", {x}, x.dtype,
                                {node.emitter.text("approximate", approximate)}));
}

void importLeakyRelu(NodeContext &node) {
  Formula f{node.emitter};
  node.setOutput(0, leakyRelu(f, floatInput(node), node.attrFloat("alpha", 0.01)));
}

/// x if x > 0, else slope * x. Before operator set 7 a slope per channel is a vector.
void importPRelu(NodeContext &node) {
  Formula f{node.emitter};
  const Value &x = node.input(0);
  Value slope = node.input(1);
  if (node.opset < 7 && slope.rank() == 1 && x.rank() > 1) {
    std::vector<unsigned> trailing;
    for (unsigned dim = 2; dim < x.rank(); ++dim)
      trailing.push_back(dim - 1);
    slope = unsqueeze(slope, trailing);
  }
  if (slope.dtype != x.dtype)
    throw ImportError("has a slope of another type than its input");
  node.setOutput(0, f.select(f.compare("gt", x, number(x, 0)), x, f.mul(slope, x)));
}

void importSoftplus(NodeContext &node) {
  Formula f{node.emitter};
  node.setOutput(0, softplus(f, floatInput(node)));
}

void importSoftsign(NodeContext &node) {
  Formula f{node.emitter};
  node.setOutput(0, softsign(f, floatInput(node)));
}

/// x * max(0, min(1, x / 6 + 1 / 2))
void importHardSwish(NodeContext &node) {
  Formula f{node.emitter};
  const Value &x = floatInput(node);
  node.setOutput(0, f.mul(x, hardSigmoid(f, x, 1.0 / 6, 0.5)));
}

void importHardSigmoid(NodeContext &node) {
  Formula f{node.emitter};
  node.setOutput(0, hardSigmoid(f, floatInput(node), node.attrFloat("alpha", 0.2),
                                node.attrFloat("beta", 0.5)));
}

void importSwish(NodeContext &node) {
  Formula f{node.emitter};
  const Value &x = floatInput(node);
  double alpha = node.attrFloat("alpha", 1.0);
  if (alpha == 1)
    return node.setOutput(0, elementwise(f.emitter, "silu", {x}));
  node.setOutput(0, f.mul(x, f.sigmoid(f.mul(x, number(x, alpha)))));
}

void importElu(NodeContext &node) {
  Formula f{node.emitter};
  node.setOutput(0, elu(f, floatInput(node), node.attrFloat("alpha", 1)));
}

/// max(0, x) + min(0, alpha * (exp(x / alpha) - 1))
void importCelu(NodeContext &node) {
  Formula f{node.emitter};
  const Value &x = floatInput(node);
  Value alpha = number(x, node.attrFloat("alpha", 1));
  Value negative = f.mul(alpha, expm1Negative(f, f.div(x, alpha)));
  node.setOutput(0, f.select(f.compare("gt", x, number(x, 0)), x, negative));
}

/// gamma * (x if x > 0, else alpha * (exp(x) - 1)). Source: Klambauer et al., "Self-Normalizing
/// Neural Networks", 2017; the constants are those of the operator's definition.
void importSelu(NodeContext &node) {
  Formula f{node.emitter};
  const Value &x = floatInput(node);
  double alpha = node.attrFloat("alpha", 1.67326319217681884765625);
  double gamma = node.attrFloat("gamma", 1.05070102214813232421875);
  node.setOutput(0, f.mul(number(x, gamma), elu(f, x, alpha)));
}

/// x * tanh(softplus(x))
void importMish(NodeContext &node) {
  Formula f{node.emitter};
  const Value &x = floatInput(node);
  node.setOutput(0, f.mul(x, f.tanh(softplus(f, x))));
}

void importThresholdedRelu(NodeContext &node) {
  Formula f{node.emitter};
  node.setOutput(0, thresholdedRelu(f, floatInput(node), node.attrFloat("alpha", 1)));
}

/// x + bias if x < -lambd, x - bias if x > lambd, else 0.
void importShrink(NodeContext &node) {
  Formula f{node.emitter};
  const Value &x = node.input(0);
  Value bias = number(x, node.attrFloat("bias", 0));
  double lambda = node.attrFloat("lambd", 0.5);
  Value high = f.select(f.compare("gt", x, number(x, lambda)), f.sub(x, bias), number(x, 0));
  node.setOutput(0, f.select(f.compare("lt", x, number(x, -lambda)), f.add(x, bias), high));
}

/// swish(a) * b
void importSwiGlu(NodeContext &node) {
  Formula f{node.emitter};
  const Value &a = floatInput(node), &b = node.input(1);
  double alpha = node.attrFloat("alpha", 1);
  if (a.shape != b.shape || a.dtype != b.dtype)
    throw ImportError("needs two inputs of one type");
  Value gate = alpha == 1 ? elementwise(f.emitter, "silu", {a})
                          : f.mul(a, f.sigmoid(f.mul(a, number(a, alpha))));
  node.setOutput(0, f.mul(gate, b));
}

} // namespace

llvm::ArrayRef<OpImporter> activationOps() {
  static const OpImporter ops[] = {
      {"", "Celu", importCelu},
      {"", "Elu", importElu},
      {"", "Gelu", importGelu},
      {"", "HardSigmoid", importHardSigmoid},
      {"", "HardSwish", importHardSwish},
      {"", "LeakyRelu", importLeakyRelu},
      {"", "Mish", importMish},
      {"", "PRelu", importPRelu, "", weightsAt(1)},
      {"", "Selu", importSelu},
      {"", "Shrink", importShrink},
      {"", "Softplus", importSoftplus},
      {"", "Softsign", importSoftsign},
      {"", "SwiGLU", importSwiGlu},
      {"", "Swish", importSwish},
      {"", "ThresholdedRelu", importThresholdedRelu},
  };
  return ops;
}

} // namespace tbc::frontend
