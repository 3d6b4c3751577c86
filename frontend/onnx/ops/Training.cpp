//===- Training.cpp - Optimizer ops in the graph, and detach ---------------===//
//
// Adagrad, Adam and Momentum of the domain ai.onnx.preview.training. Inputs: a rate R, a count T of
// updates, then all parameters, all gradients and all of each kind of state. The outputs have the
// same order, without the gradients.
//
// Detach of the domain tbc: one input, and the same as output, through which no gradient passes.
//
//===----------------------------------------------------------------------===//

#include "frontend/onnx/Detach.h"
#include "frontend/onnx/NodeContext.h"

namespace tbc::frontend {

namespace {

/// Returns the common length of the `kinds` lists after R and T.
size_t countParameters(NodeContext &node, size_t kinds) {
  size_t given = node.numInputs() < 2 ? 0 : node.numInputs() - 2;
  if (given == 0 || given % kinds != 0)
    throw ImportError("has " + std::to_string(given) + " tensors behind R and T; expected " +
                      std::to_string(kinds) + " for each parameter");
  return given / kinds;
}

/// Returns the gradient with its weight decay: norm_coefficient * x + g.
Value penalized(NodeContext &node, Formula &f, const Value &x, const Value &g) {
  return f.add(f.mul(number(x, node.attrFloat("norm_coefficient", 0)), x), g);
}

/// Returns T in the type of `like`.
Value updates(NodeContext &node, const Value &like) {
  return cast(node.emitter, node.input(1), like.dtype);
}

/// H' = H + g^2, x' = x - R / (1 + T * decay_factor) * g / (sqrt(H') + epsilon)
void importAdagrad(NodeContext &node) {
  Formula f{node.emitter};
  size_t count = countParameters(node, 3);
  for (size_t i = 0; i < count; ++i) {
    const Value &x = node.input(2 + i), &h = node.input(2 + 2 * count + i);
    Value g = penalized(node, f, x, node.input(2 + count + i));
    Value decay = f.mul(updates(node, x), number(x, node.attrFloat("decay_factor", 0)));
    Value rate = f.div(node.input(0), f.add(number(x, 1), decay));
    Value newH = f.add(h, f.mul(g, g));
    Value scale = f.add(f.sqrt(newH), number(x, node.attrFloat("epsilon", 1e-6)));
    node.setOutput(i, f.sub(x, f.div(f.mul(rate, g), scale)));
    node.setOutput(count + i, newH);
  }
}

/// V' = alpha V + (1 - alpha) g, H' = beta H + (1 - beta) g^2, x' = (1 - norm_coefficient_post) (x
/// - R' V' / (sqrt(H') + epsilon)). From the second update on, R' = R sqrt(1 - beta^T) / (1 -
/// alpha^T).
void importAdam(NodeContext &node) {
  Formula f{node.emitter};
  size_t count = countParameters(node, 4);
  double alpha = node.attrFloat("alpha", 0.9), beta = node.attrFloat("beta", 0.999);
  for (size_t i = 0; i < count; ++i) {
    const Value &x = node.input(2 + i), &v = node.input(2 + 2 * count + i);
    const Value &h = node.input(2 + 3 * count + i), &rate = node.input(0);
    Value g = penalized(node, f, x, node.input(2 + count + i)), one = number(x, 1);
    Value newV = f.add(f.mul(number(x, alpha), v), f.mul(number(x, 1 - alpha), g));
    Value newH = f.add(f.mul(number(x, beta), h), f.mul(number(x, 1 - beta), f.mul(g, g)));
    Value t = updates(node, x), isLater = f.compare("gt", t, number(x, 0));
    // The unselected branch must not divide by zero.
    Value exponent = f.maximum(t, one);
    Value corrected = f.div(f.mul(rate, f.sqrt(f.sub(one, f.pow(number(x, beta), exponent)))),
                            f.sub(one, f.pow(number(x, alpha), exponent)));
    Value scale = f.add(f.sqrt(newH), number(x, node.attrFloat("epsilon", 1e-6)));
    Value step = f.div(f.mul(f.select(isLater, corrected, rate), newV), scale);
    node.setOutput(
        i, f.mul(number(x, 1 - node.attrFloat("norm_coefficient_post", 0)), f.sub(x, step)));
    node.setOutput(count + i, newV);
    node.setOutput(2 * count + i, newH);
  }
}

/// V' = alpha V + beta' g, with beta' = 1 at the first update; x' = x - R V', or with Nesterov's
/// momentum x - R (g + alpha V').
void importMomentum(NodeContext &node) {
  Formula f{node.emitter};
  size_t count = countParameters(node, 3);
  std::string mode = node.attrText("mode", "");
  if (mode != "standard" && mode != "nesterov")
    throw ImportError("unknown mode '" + mode + "'; expected standard or nesterov");
  for (size_t i = 0; i < count; ++i) {
    const Value &x = node.input(2 + i), &v = node.input(2 + 2 * count + i);
    Value g = penalized(node, f, x, node.input(2 + count + i));
    Value alpha = number(x, node.attrFloat("alpha", 0)), t = updates(node, x);
    Value beta = f.select(f.compare("gt", t, number(x, 0)), number(x, node.attrFloat("beta", 0)),
                          number(x, 1));
    Value newV = f.add(f.mul(alpha, v), f.mul(beta, g));
    Value step = mode == "nesterov" ? f.add(g, f.mul(alpha, newV)) : newV;
    node.setOutput(i, f.sub(x, f.mul(node.input(0), step)));
    node.setOutput(count + i, newV);
  }
}

void importDetach(NodeContext &node) { node.setOutput(0, detach(node.emitter, node.input(0))); }

} // namespace

llvm::ArrayRef<OpImporter> trainingOps() {
  static constexpr const char *domain = "ai.onnx.preview.training";
  static const OpImporter ops[] = {
      {domain, "Adagrad", importAdagrad},
      {domain, "Adam", importAdam},
      {domain, "Momentum", importMomentum},
      {"tbc", "Detach", importDetach},
  };
  return ops;
}

} // namespace tbc::frontend
