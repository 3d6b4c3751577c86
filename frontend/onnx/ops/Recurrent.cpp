//===- Recurrent.cpp - RNN, LSTM and GRU -----------------------------------===//
//
// Terms without the state are computed for all positions at once. LSTM and GRU in their usual form
// become one op per direction. RNN, peepholes, other activations, clipping and samples of different
// lengths are unrolled: one step per position, in matmuls and elementwise ops. Source: ONNX's
// definitions of the three operators.
//
//===----------------------------------------------------------------------===//

#include "frontend/onnx/ops/Families.h"

#include "llvm/ADT/STLExtras.h"

#include <numeric>

namespace tbc::frontend {

namespace {

/// The limit on unrolled steps, over all directions of one node.
constexpr int64_t maxSteps = 2048;

/// An activation with its parameters.
struct Activation {
  std::string name;
  double alpha = 0, beta = 0;

  Value apply(Formula &f, const Value &x) const {
    if (name == "Sigmoid")
      return f.sigmoid(x);
    if (name == "Tanh")
      return f.tanh(x);
    if (name == "Relu")
      return f.relu(x);
    if (name == "Affine")
      return f.add(f.mul(x, number(x, alpha)), number(x, beta));
    if (name == "LeakyRelu")
      return leakyRelu(f, x, alpha);
    if (name == "ThresholdedRelu")
      return thresholdedRelu(f, x, alpha);
    if (name == "ScaledTanh")
      return f.mul(number(x, alpha), f.tanh(f.mul(x, number(x, beta))));
    if (name == "HardSigmoid")
      return hardSigmoid(f, x, alpha, beta);
    if (name == "Elu")
      return elu(f, x, alpha);
    if (name == "Softsign")
      return softsign(f, x);
    if (name == "Softplus")
      return softplus(f, x);
    throw ImportError("unknown activation '" + name + "'");
  }
};

/// An activation's default parameters, and their number.
struct Defaults {
  const char *name;
  int parameters;
  double alpha, beta;
};
constexpr Defaults activationDefaults[] = {
    {"Affine", 2, 1, 0},     {"LeakyRelu", 1, 0.01, 0},    {"ThresholdedRelu", 1, 1, 0},
    {"ScaledTanh", 2, 1, 1}, {"HardSigmoid", 2, 0.2, 0.5}, {"Elu", 1, 1, 0},
};

/// Returns the node's activations; by default `defaults` in each direction. Given parameters belong
/// to the activations that take parameters, in order.
std::vector<Activation> readActivations(NodeContext &node, const std::vector<std::string> &defaults,
                                        size_t directions) {
  std::vector<std::string> names;
  if (const onnx::AttributeProto *given = node.find("activations"))
    names.assign(given->strings().begin(), given->strings().end());
  else
    for (size_t i = 0; i < directions; ++i)
      names.insert(names.end(), defaults.begin(), defaults.end());
  if (names.size() != defaults.size() * directions)
    throw ImportError("names " + std::to_string(names.size()) + " activations; expected " +
                      std::to_string(defaults.size() * directions));
  const onnx::AttributeProto *alphas = node.find("activation_alpha");
  const onnx::AttributeProto *betas = node.find("activation_beta");
  int nextAlpha = 0, nextBeta = 0;
  std::vector<Activation> result;
  for (const std::string &name : names) {
    Activation activation{name};
    for (const Defaults &known : activationDefaults) {
      if (name != known.name)
        continue;
      activation.alpha = known.alpha;
      activation.beta = known.beta;
      if (alphas && nextAlpha < alphas->floats_size())
        activation.alpha = alphas->floats(nextAlpha++);
      if (known.parameters == 2 && betas && nextBeta < betas->floats_size())
        activation.beta = betas->floats(nextBeta++);
    }
    result.push_back(activation);
  }
  return result;
}

/// Common to the three ops: shapes, weights by direction, the loop over the sequence.
class Recurrence {
public:
  Recurrence(NodeContext &node, int64_t gates, const std::vector<std::string> &activations)
      : node(node), f{node.emitter}, gates(gates) {
    readShapes();
    functions = readActivations(node, activations, directions);
    perDirection = activations.size();
  }

  NodeContext &node;
  Formula f;
  int64_t gates, hidden = 0, seq = 0, batch = 0;
  size_t directions = 1, perDirection = 0;
  /// [seq, batch, input]
  Value x;

  /// The state after a step: h, and for LSTM c.
  struct State {
    Value h, c;
  };

  /// Slice `direction` of a weight [directions, ...] without that dim.
  Value ofDirection(const Value &value, size_t direction) {
    return squeeze(f.emitter, slice(f.emitter, value, 0, int64_t(direction), 1, 1), {0});
  }
  /// Gates `first` to before `last` of the last dim of `value`.
  Value gate(const Value &value, int64_t first, int64_t last) {
    return slice(f.emitter, value, value.rank() - 1, first * hidden, 1, (last - first) * hidden);
  }
  /// Rows of gates `first` to before `last` of a recurrence weight.
  Value rows(const Value &weight, int64_t first, int64_t last) {
    return slice(f.emitter, weight, 0, first * hidden, 1, (last - first) * hidden);
  }
  /// h times the transpose of `weight`.
  Value project(const Value &h, const Value &weight) {
    return einsum(f.emitter, h, {0, 2}, weight, {1, 2}, {0, 1});
  }
  /// Activation `i` of a direction, of a clipped argument.
  Value activate(size_t direction, size_t i, Value value) {
    if (clip > 0)
      value = f.maximum(f.minimum(value, number(value, clip)), number(value, -clip));
    return functions[direction * perDirection + i].apply(f, value);
  }

  /// The bias of the input (`half` 0) or of the recurrence (1), [gates * hidden].
  std::optional<Value> bias(size_t direction, int64_t half) {
    if (!node.hasInput(3))
      return std::nullopt;
    return slice(f.emitter, ofDirection(node.input(3), direction), 0, half * gates * hidden, 1,
                 gates * hidden);
  }
  Value plus(const Value &value, const std::optional<Value> &bias) {
    return bias ? f.add(value, *bias) : value;
  }

  /// Whether the node can become a tbc.lstm or tbc.gru.
  bool isPlain() const {
    auto isUsual = [](const Activation &activation) {
      return activation.name == "Sigmoid" || activation.name == "Tanh";
    };
    for (size_t i = 0; i < functions.size(); ++i)
      if (!isUsual(functions[i]) ||
          functions[i].name != (i % perDirection == 0 ? "Sigmoid" : "Tanh"))
        return false;
    return clip == 0 && !node.hasInput(4) && !node.hasInput(7) &&
           node.attrInt("input_forget", 0) == 0;
  }

  /// Runs the composite `mnemonic` in each direction and sets the outputs. Operands: the
  /// inputs of the gates, plus the recurrence's biases of the first `biased` gates;
  /// `operands(direction)`; the first state. Results: the states of all steps; for an LSTM
  /// the cells; the values saved for the gradient, each of `saved` times the size of a
  /// state.
  template <typename Operands>
  void runWhole(const char *mnemonic, bool hasCell, int64_t biased,
                const std::vector<int64_t> &saved, const Attributes &attributes,
                Operands operands) {
    Emitter &e = f.emitter;
    std::vector<Value> ys, lastH, lastC;
    for (size_t direction = 0; direction < directions; ++direction) {
      bool isReverse = direction == 1 || name == "reverse";
      Value inputs = projected(direction);
      if (std::optional<Value> added = bias(direction, 1))
        inputs =
            f.add(inputs, padZeros(e, gate(*added, 0, biased), 0, 0, (gates - biased) * hidden));
      std::vector<mlir::Value> values{e.full(inputs)};
      for (const Value &operand : operands(direction))
        values.push_back(e.full(operand));
      values.push_back(e.full(initial(5, direction)));
      if (hasCell)
        values.push_back(e.full(initial(6, direction)));
      Attributes all = attributes;
      all.push_back(e.flag("reverse", isReverse));
      std::vector<mlir::Type> types;
      for (int64_t times : saved)
        types.push_back(e.type(x.dtype, {seq, batch, times * hidden}));
      mlir::Operation *op = e.create(mnemonic, values, types, all);
      auto last = [&](const Value &states) {
        return squeeze(e, slice(e, states, 0, isReverse ? 0 : seq - 1, 1, 1), {0});
      };
      Value states = Value::ofTensor(x.dtype, op->getResult(0));
      ys.push_back(unsqueeze(states, {1}));
      lastH.push_back(last(states));
      if (hasCell)
        lastC.push_back(last(Value::ofTensor(x.dtype, op->getResult(1))));
    }
    setOutputs(directions == 1 ? ys[0] : concat(e, ys, 1), lastH, lastC, hasCell);
  }

  /// Runs `step(direction, inputs of the gates [batch, gates * hidden], state)` over the sequence
  /// and sets the outputs. `addBoth`: both biases are added to the inputs.
  template <typename Step> void run(bool hasCell, bool addBoth, Step step) {
    if (seq * int64_t(directions) > maxSteps)
      throw ImportError("would be unrolled to " + std::to_string(seq * int64_t(directions)) +
                        " steps; at most " + std::to_string(maxSteps) +
                        " are supported. Bind a shorter sequence with --seq or --dim");
    std::vector<std::vector<Value>> ys(seq);
    std::vector<Value> lastH, lastC;
    for (size_t direction = 0; direction < directions; ++direction) {
      bool isReverse = direction == 1 || name == "reverse";
      Value all = projected(direction);
      if (addBoth)
        all = plus(all, bias(direction, 1));
      State state{initial(5, direction), hasCell ? initial(6, direction) : Value()};
      std::vector<Value> outputs(seq);
      for (int64_t i = 0; i < seq; ++i) {
        int64_t t = isReverse ? seq - 1 - i : i;
        Value inputs = squeeze(f.emitter, slice(f.emitter, all, 0, t, 1, 1), {0});
        outputs[t] = advance(t, state, step(direction, inputs, state), hasCell);
      }
      for (int64_t t = 0; t < seq; ++t)
        ys[t].push_back(outputs[t]);
      lastH.push_back(state.h);
      lastC.push_back(state.c);
    }
    std::vector<Value> steps;
    for (const std::vector<Value> &step : ys)
      steps.push_back(unsqueeze(stack(step), {0}));
    Value y = steps.size() == 1 ? steps[0] : concat(f.emitter, steps, 0);
    setOutputs(y, lastH, lastC, hasCell);
  }

private:
  /// The inputs of the gates at all steps, [seq, batch, gates * hidden].
  Value projected(size_t direction) {
    Value value =
        einsum(f.emitter, x, {0, 1, 3}, ofDirection(node.input(1), direction), {2, 3}, {0, 1, 2});
    return plus(value, bias(direction, 0));
  }

  void readShapes() {
    bool batchFirst = node.attrInt("layout", 0) != 0;
    x = node.input(0);
    if (x.rank() != 3 || !kernels::isFloat(x.dtype))
      throw ImportError("needs a float tensor [sequence, batch, input]");
    if (batchFirst)
      x = transpose(f.emitter, x, {1, 0, 2});
    name = node.attrText("direction", "forward");
    if (name != "forward" && name != "reverse" && name != "bidirectional")
      throw ImportError("unknown direction '" + name + "'");
    directions = name == "bidirectional" ? 2 : 1;
    seq = x.shape[0];
    batch = x.shape[1];
    const Value &w = node.input(1), &r = node.input(2);
    if (w.rank() != 3 || r.rank() != 3)
      throw ImportError("needs weights of rank 3");
    hidden = r.shape[2];
    int64_t d = int64_t(directions);
    if (w.shape != Shape{d, gates * hidden, x.shape[2]} ||
        r.shape != Shape{d, gates * hidden, hidden} ||
        node.attrInt("hidden_size", hidden) != hidden)
      throw ImportError("has weights of shapes " + printShape(w.shape, f.emitter.marker) + " and " +
                        printShape(r.shape, f.emitter.marker));
    if (node.hasInput(3) && node.input(3).shape != Shape{d, 2 * gates * hidden})
      throw ImportError("has a bias of shape " + printShape(node.input(3).shape, f.emitter.marker));
    if (f.emitter.dependsOnBatch(seq))
      throw ImportError("runs over the batch as its sequence");
    clip = node.attrFloat("clip", 0);
  }

  /// Initial state `input` of a direction, [batch, hidden]; zero without the input.
  Value initial(size_t input, size_t direction) {
    if (!node.hasInput(input))
      return Value::ofSplat(x.dtype, {batch, hidden}, 0);
    Value value = node.input(input);
    if (node.attrInt("layout", 0) != 0)
      value = transpose(f.emitter, value, {1, 0, 2});
    Shape shape{int64_t(directions), batch, hidden};
    value = overSamples(value, shape, f.emitter.marker);
    if (value.shape != shape)
      throw ImportError("has an initial state of shape " +
                        printShape(node.input(input).shape, f.emitter.marker));
    return ofDirection(value, direction);
  }

  /// Advances `state` to `next` in samples longer than `t`; returns the output of the step.
  Value advance(int64_t t, State &state, const State &next, bool hasCell) {
    if (!node.hasInput(4)) {
      state = next;
      return next.h;
    }
    const Value &lengths = node.input(4);
    if (lengths.shape != Shape{batch})
      throw ImportError("has sequence_lens of shape " +
                        printShape(lengths.shape, f.emitter.marker));
    Value isInside = unsqueeze(f.compare("gt", lengths, number(lengths, double(t))), {1});
    Value output = f.select(isInside, next.h, number(next.h, 0));
    state.h = f.select(isInside, next.h, state.h);
    if (hasCell)
      state.c = f.select(isInside, next.c, state.c);
    return output;
  }

  /// Joins values [batch, hidden] along a new dim 0.
  Value stack(const std::vector<Value> &values) {
    std::vector<Value> rows;
    for (const Value &value : values)
      rows.push_back(unsqueeze(value, {0}));
    return rows.size() == 1 ? rows[0] : concat(f.emitter, rows, 0);
  }

  /// `y`: [seq, directions, batch, hidden]; `lastH` and `lastC` by direction.
  void setOutputs(const Value &y, const std::vector<Value> &lastH, const std::vector<Value> &lastC,
                  bool hasCell) {
    bool batchFirst = node.attrInt("layout", 0) != 0;
    if (node.wantsOutput(0))
      node.setOutput(0, batchFirst ? transpose(f.emitter, y, {2, 0, 1, 3}) : y);
    auto last = [&](const std::vector<Value> &values) {
      Value value = stack(values);
      return batchFirst ? transpose(f.emitter, value, {1, 0, 2}) : value;
    };
    if (node.wantsOutput(1))
      node.setOutput(1, last(lastH));
    if (hasCell && node.wantsOutput(2))
      node.setOutput(2, last(lastC));
  }

  std::string name;
  double clip = 0;
  std::vector<Activation> functions;
};

/// h' = f(Wx + Rh + biases)
void importRnn(NodeContext &node) {
  Recurrence r(node, 1, {"Tanh"});
  r.run(false, true, [&](size_t d, const Value &inputs, const Recurrence::State &state) {
    Value sum = r.f.add(inputs, r.project(state.h, r.ofDirection(node.input(2), d)));
    return Recurrence::State{r.activate(d, 0, sum), {}};
  });
}

/// Gates i, o, f and the cell's input c:
///     C' = f * C + i * c, H' = o * h(C'), with peepholes from C to i and f and from C' to o.
void importLstm(NodeContext &node) {
  Recurrence r(node, 4, {"Sigmoid", "Tanh", "Tanh"});
  Formula &f = r.f;
  bool couples = node.attrInt("input_forget", 0) != 0;
  if (r.isPlain()) {
    r.runWhole("lstm", true, 4, {1, 1, 4}, {},
               [&](size_t d) { return std::vector<Value>{r.ofDirection(node.input(2), d)}; });
    return;
  }
  r.run(true, true, [&](size_t d, const Value &inputs, const Recurrence::State &state) {
    Value sum = f.add(inputs, r.project(state.h, r.ofDirection(node.input(2), d)));
    auto peep = [&](const Value &value, int64_t gate, const Value &cell) {
      if (!node.hasInput(7))
        return value;
      Value weight = r.gate(r.ofDirection(node.input(7), d), gate, gate + 1);
      return f.add(value, f.mul(weight, cell));
    };
    Value i = r.activate(d, 0, peep(r.gate(sum, 0, 1), 0, state.c));
    Value forget =
        couples ? f.sub(number(i, 1), i) : r.activate(d, 0, peep(r.gate(sum, 2, 3), 2, state.c));
    Value c = f.add(f.mul(forget, state.c), f.mul(i, r.activate(d, 1, r.gate(sum, 3, 4))));
    Value o = r.activate(d, 0, peep(r.gate(sum, 1, 2), 1, c));
    return Recurrence::State{f.mul(o, r.activate(d, 2, c)), c};
  });
}

/// Gates z, r and the candidate h: H' = (1 - z) * h + z * H. With linear_before_reset the reset
/// gate r scales the recurrent matmul's result, else the state before it.
void importGru(NodeContext &node) {
  Recurrence r(node, 3, {"Sigmoid", "Tanh"});
  Formula &f = r.f;
  bool linearFirst = node.attrInt("linear_before_reset", 0) != 0;
  if (r.isPlain()) {
    r.runWhole("gru", false, 2, {1, 3, 1}, {f.emitter.flag("reset_after", linearFirst)},
               [&](size_t d) {
                 std::optional<Value> all = r.bias(d, 1);
                 Value bias = all ? r.gate(*all, 2, 3) : Value::ofSplat(r.x.dtype, {r.hidden}, 0);
                 return std::vector<Value>{r.ofDirection(node.input(2), d), bias};
               });
    return;
  }
  r.run(false, false, [&](size_t d, const Value &inputs, const Recurrence::State &state) {
    Value weight = r.ofDirection(node.input(2), d);
    std::optional<Value> bias = r.bias(d, 1);
    auto biasOf = [&](int64_t first, int64_t last) {
      return bias ? std::optional<Value>(r.gate(*bias, first, last)) : std::nullopt;
    };
    Value gates = f.add(r.gate(inputs, 0, 2), r.project(state.h, r.rows(weight, 0, 2)));
    gates = r.plus(gates, biasOf(0, 2));
    Value z = r.activate(d, 0, r.gate(gates, 0, 1)), reset = r.activate(d, 0, r.gate(gates, 1, 2));
    Value candidates = r.rows(weight, 2, 3), product;
    if (linearFirst)
      product = f.mul(reset, r.plus(r.project(state.h, candidates), biasOf(2, 3)));
    else
      product = r.plus(r.project(f.mul(reset, state.h), candidates), biasOf(2, 3));
    Value h = r.activate(d, 1, f.add(r.gate(inputs, 2, 3), product));
    return Recurrence::State{f.add(f.mul(f.sub(number(z, 1), z), h), f.mul(z, state.h)), {}};
  });
}

} // namespace

llvm::ArrayRef<OpImporter> recurrentOps() {
  static const OpImporter ops[] = {
      {"", "GRU", importGru, "", weightsAt(1, 2, 3)},
      {"", "LSTM", importLstm, "", weightsAt(1, 2, 3, 7)},
      {"", "RNN", importRnn, "", weightsAt(1, 2, 3)},
  };
  return ops;
}

} // namespace tbc::frontend
