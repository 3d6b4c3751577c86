//===- StepBuilder.h - Hand-made training steps for tests ------------------===//
//
// Builds the graph of a step op by op, einsum-like, and its backward by the chain rule.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_PLANNER_CORE_STEPBUILDER_H
#define TBC_TESTS_PLANNER_CORE_STEPBUILDER_H

#include "planner/reshard/Graph.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace tbc::planner::test {

using reshard::FactorId;
using reshard::Graph;
/// A tensor's dims, each a product of factors.
using Dims = std::vector<std::vector<FactorId>>;

class StepBuilder {
public:
  FactorId factor(int64_t size, bool fixed = false) {
    sizes.push_back(size);
    if (fixed)
      fixedFactors.insert(FactorId(sizes.size()) - 1);
    return FactorId(sizes.size()) - 1;
  }

  int input(const std::string &name, const Dims &dims, int64_t elementBytes = 4) {
    return value(name, dims, reshard::ValueRole::Input, elementBytes);
  }
  int parameter(const std::string &name, const Dims &dims) {
    int v = value(name, dims, reshard::ValueRole::Parameter, elementBytes);
    graph.parameters.push_back({v, -1, -1, nullptr});
    return v;
  }

  /// x[.., k..] * w[k.., n..]
  int matmul(const std::string &id, int x, int w, const Dims &out) {
    int y = op(id, "einsum", "matmul", {x, w}, {out})[0];
    int forward = graph.values[y].producer;
    tape.push_back([=](StepBuilder &b) {
      int dy = b.cotangent(y);
      if (dy < 0)
        return;
      b.addCotangent(x, b.backward(forward, "dx", "einsum", "matmul", {dy, w}, {b.dimsOf[x]})[0]);
      b.addCotangent(w, b.backward(forward, "dw", "einsum", "matmul", {x, dy}, {b.dimsOf[w]})[0]);
    });
    return y;
  }

  int unary(const std::string &id, int x) {
    int y = op(id, "gelu", "elementwise", {x}, {dimsOf[x]})[0];
    int forward = graph.values[y].producer;
    tape.push_back([=](StepBuilder &b) {
      int dy = b.cotangent(y);
      b.addCotangent(
          x, b.backward(forward, "dx", "gelu_grad", "elementwise", {x, dy}, {b.dimsOf[x]})[0]);
    });
    return y;
  }

  /// By a number: its backward reads the cotangent alone.
  int scale(const std::string &id, int x) {
    int y = op(id, "scale", "elementwise", {x}, {dimsOf[x]})[0];
    int forward = graph.values[y].producer;
    tape.push_back([=](StepBuilder &b) {
      int dy = b.cotangent(y);
      b.addCotangent(
          x, b.backward(forward, "dx", "scale_grad", "elementwise", {dy}, {b.dimsOf[x]})[0]);
    });
    return y;
  }

  int add(const std::string &id, int x, int y) {
    int z = op(id, "add", "elementwise", {x, y}, {dimsOf[x]}, {}, true)[0];
    tape.push_back([=](StepBuilder &b) {
      int dz = b.cotangent(z);
      b.addCotangent(x, dz);
      b.addCotangent(y, dz);
    });
    return z;
  }

  /// Normalises over the last dim, scaled by w.
  int norm(const std::string &id, int x, int w) {
    std::set<FactorId> last(dimsOf[x].back().begin(), dimsOf[x].back().end());
    int y = op(id, "norm", "reduction", {x, w}, {dimsOf[x]}, last)[0];
    int forward = graph.values[y].producer;
    tape.push_back([=](StepBuilder &b) {
      int dy = b.cotangent(y);
      b.addCotangent(x, b.backward(forward, "dx", "norm_grad", "reduction", {dy, x, w},
                                   {b.dimsOf[x]}, last)[0]);
      b.addCotangent(w, b.backward(forward, "dw", "norm_scale_grad", "reduction", {dy, x},
                                   {b.dimsOf[w]}, last)[0]);
    });
    return y;
  }

  /// Normalizes by statistics over all but the last dim, so every sample contributes to them.
  int batchNorm(const std::string &id, int x) {
    Dims last = {dimsOf[x].back()};
    int statistics = op(id + ".statistics", "batch_mean", "reduction", {x}, {last})[0];
    int y = op(id, "centre", "elementwise", {x, statistics}, {dimsOf[x]})[0];
    int forward = graph.values[y].producer;
    tape.push_back([=](StepBuilder &b) {
      int dy = b.cotangent(y);
      int sum = b.backward(forward, "sum", "batch_sum", "reduction", {dy, x}, {last})[0];
      b.addCotangent(x, b.backward(forward, "dx", "centre_grad", "elementwise", {dy, x, sum},
                                   {b.dimsOf[x]})[0]);
    });
    return y;
  }

  /// q, k, v: [b, s, h d]; heads may be split, s and d not.
  int attention(const std::string &id, int q, int k, int v, FactorId s, FactorId d) {
    int o = op(id, "attention", "attention", {q, k, v}, {dimsOf[q]}, {s, d})[0];
    int forward = graph.values[o].producer;
    graph.ops[forward].flops *= double(sizes[s]) * 4;
    tape.push_back([=](StepBuilder &b) {
      int dz = b.cotangent(o);
      std::vector<int> grads =
          b.backward(forward, "d", "attention_grad", "attention", {dz, q, k, v, o},
                     {b.dimsOf[q], b.dimsOf[k], b.dimsOf[v]}, {s, d});
      b.graph.ops.back().flops *= double(b.sizes[s]) * 8;
      b.addCotangent(q, grads[0]);
      b.addCotangent(k, grads[1]);
      b.addCotangent(v, grads[2]);
    });
    return o;
  }

  /// Rows of table[v, e] by ids[b, s].
  int gather(const std::string &id, int table, int ids, FactorId v, const Dims &out) {
    int y = op(id, "gather", "gather", {table, ids}, {out}, {v})[0];
    int forward = graph.values[y].producer;
    tape.push_back([=](StepBuilder &b) {
      int dy = b.cotangent(y);
      b.addCotangent(table, b.backward(forward, "dw", "scatter_add", "gather", {dy, ids},
                                       {b.dimsOf[table]}, {v})[0]);
    });
    return y;
  }

  /// Sums cross entropy over everything; classes may not be split.
  void loss(const std::string &id, int logits, int labels) {
    std::set<FactorId> classes(dimsOf[logits].back().begin(), dimsOf[logits].back().end());
    int y = op(id, "cross_entropy", "reduction", {logits, labels}, {{}}, classes)[0];
    graph.loss = y;
    graph.values[y].role = reshard::ValueRole::Loss;
    int forward = graph.values[y].producer;
    int dx = backward(forward, "dx", "cross_entropy_grad", "reduction", {logits, labels},
                      {dimsOf[logits]}, classes)[0];
    addCotangent(logits, dx);
  }

  /// The step, with the backward of everything.
  Graph finish(FactorId batch) {
    for (auto rule = tape.rbegin(); rule != tape.rend(); ++rule)
      (*rule)(*this);
    for (reshard::GraphParameter &parameter : graph.parameters)
      parameter.gradient = cotangent(parameter.value);
    graph.batchFactor = batch;
    return graph;
  }

  int64_t elementBytes = 4;

private:
  reshard::TensorLayout layout(const Dims &dims, int64_t bytes) const {
    reshard::TensorLayout result;
    result.elementBytes = bytes;
    for (const auto &dim : dims) {
      reshard::Segment segment;
      for (FactorId f : dim)
        segment.factors.push_back({f, sizes[f]});
      result.dims.push_back({{segment}});
    }
    return result;
  }

  int value(const std::string &name, const Dims &dims, reshard::ValueRole role, int64_t bytes) {
    reshard::GraphValue v;
    v.name = name;
    v.dtype = bytes == 8   ? reshard::DType::I64
              : bytes == 4 ? reshard::DType::F32
                           : reshard::DType::BF16;
    v.layout = layout(dims, bytes);
    v.role = role;
    graph.values.push_back(std::move(v));
    dimsOf.push_back(dims);
    return int(graph.values.size()) - 1;
  }

  std::vector<int> op(const std::string &id, const std::string &kind,
                      const std::string &kernelClass, const std::vector<int> &operands,
                      const std::vector<Dims> &results, const std::set<FactorId> &fixed = {},
                      bool additive = false) {
    reshard::GraphOp o;
    int index = int(graph.ops.size());
    o.id = id;
    o.kind = kind;
    o.kernelClass = reshard::parseKernelClass(kernelClass).value();
    o.operands = operands;
    o.additive = additive;
    if (kind == "add")
      o.function = reshard::ElementFunction::Sum;
    o.forwardOp = index;
    std::map<FactorId, reshard::Loop> loops;
    auto visit = [&](const Dims &dims, int tensor, bool isResult) {
      for (size_t d = 0; d < dims.size(); ++d)
        for (FactorId f : dims[d]) {
          reshard::Loop &loop = loops[f];
          loop.factor = f;
          loop.size = sizes[f];
          (isResult ? loop.resultDims : loop.operandDims).push_back({tensor, int(d)});
        }
    };
    for (size_t k = 0; k < operands.size(); ++k) {
      visit(dimsOf[operands[k]], int(k), false);
      std::vector<int> &users = graph.values[operands[k]].users;
      if (users.empty() || users.back() != index)
        users.push_back(index);
    }
    for (size_t r = 0; r < results.size(); ++r) {
      visit(results[r], int(r), true);
      int v = value(id + (results.size() > 1 ? "#" + std::to_string(r) : ""), results[r],
                    reshard::ValueRole::Activation, elementBytes);
      graph.values[v].producer = index;
      graph.values[v].producerResult = int(r);
      o.results.push_back(v);
    }
    double elements = kernelClass == "gather" ? 0 : 1; // of the largest operand or result
    for (const auto *values : {&o.operands, &o.results})
      for (int v : *values)
        if (kernelClass != "gather")
          elements = std::max(elements, double(graph.values[v].layout.numElements()));
    o.flops = kernelClass == "matmul" ? 2 : elements;
    for (auto &[f, loop] : loops) {
      loop.kind = fixed.count(f) || fixedFactors.count(f) ? reshard::LoopKind::Fixed
                  : loop.resultDims.empty()               ? reshard::LoopKind::Reduction
                                                          : reshard::LoopKind::Parallel;
      if (kernelClass == "matmul")
        o.flops *= double(loop.size);
      o.loops.push_back(loop);
    }
    graph.ops.push_back(std::move(o));
    return graph.ops.back().results;
  }

  std::vector<int> backward(int forward, const std::string &suffix, const std::string &kind,
                            const std::string &kernelClass, const std::vector<int> &operands,
                            const std::vector<Dims> &results, const std::set<FactorId> &fixed = {},
                            bool additive = false) {
    std::vector<int> values = op(graph.ops[forward].id + ".bwd." + suffix, kind, kernelClass,
                                 operands, results, fixed, additive);
    graph.ops.back().phase = reshard::Phase::Backward;
    graph.ops.back().forwardOp = forward;
    return values;
  }

  void addCotangent(int of, int contribution) {
    if (graph.values[of].role == reshard::ValueRole::Input)
      return;
    parts[of].push_back(contribution);
    graph.values[contribution].cotangentOf = of;
  }

  /// The sum of the contributions so far, or -1.
  int cotangent(int of) {
    std::vector<int> &list = parts[of];
    while (list.size() > 1) {
      int producer = std::max(0, graph.values[of].producer);
      int sum = backward(producer, "sum" + std::to_string(sums++), "add", "elementwise",
                         {list[0], list[1]}, {dimsOf[of]}, {}, true)[0];
      graph.values[sum].cotangentOf = of;
      list.erase(list.begin(), list.begin() + 2);
      list.insert(list.begin(), sum);
    }
    return list.empty() ? -1 : list[0];
  }

  Graph graph;
  std::vector<Dims> dimsOf;
  std::vector<int64_t> sizes;
  std::set<FactorId> fixedFactors;
  std::map<int, std::vector<int>> parts;
  std::vector<std::function<void(StepBuilder &)>> tape;
  int sums = 0;
};

/// Layers of matmul and gelu, then a loss. Widths: in, hidden.., out. Example: {16, 32, 8} has two
/// matmuls with a gelu between them. `hasBias` puts an op between each matmul but the last and its
/// gelu.
inline Graph makeMlp(int64_t batch, const std::vector<int64_t> &widths, int64_t elementBytes = 4,
                     bool hasBias = false) {
  StepBuilder b;
  b.elementBytes = elementBytes;
  FactorId n = b.factor(batch), in = b.factor(widths[0]);
  int x = b.input("x", {{n}, {in}}, elementBytes), labels = b.input("labels", {{n}}, 8);
  for (size_t layer = 1; layer < widths.size(); ++layer) {
    std::string name = "fc" + std::to_string(layer);
    FactorId out = b.factor(widths[layer]);
    int w = b.parameter(name + ".w", {{in}, {out}});
    x = b.matmul(name, x, w, {{n}, {out}});
    if (hasBias && layer + 1 < widths.size())
      x = b.scale(name + ".bias", x);
    if (layer + 1 < widths.size())
      x = b.unary(name + ".act", x);
    in = out;
  }
  b.loss("loss", x, labels);
  Graph graph = b.finish(n);
  for (reshard::GraphOp &op : graph.ops)
    op.isLoopNest = op.kernelClass == reshard::KernelClass::Elementwise;
  return graph;
}

struct ChainSizes {
  int64_t layers = 2, batch = 4, sequence = 16, heads = 4, headDim = 8, hidden = 64, classes = 96;
  bool tied = false;
  int64_t elementBytes = 4;
};

/// A transformer-like chain: embedding, layers of norm, three projections, attention, projection,
/// add, norm, two matmuls, add; norm and a projection to classes.
inline Graph makeChain(const ChainSizes &sizes) {
  StepBuilder b;
  b.elementBytes = sizes.elementBytes;
  FactorId n = b.factor(sizes.batch), s = b.factor(sizes.sequence);
  FactorId e = b.factor(sizes.heads * sizes.headDim), v = b.factor(sizes.classes);
  int ids = b.input("ids", {{n}, {s}}, 8), labels = b.input("labels", {{n}, {s}}, 8);
  int table = b.parameter("wte", {{v}, {e}});
  int x = b.gather("embed", table, ids, v, {{n}, {s}, {e}});
  for (int64_t layer = 0; layer < sizes.layers; ++layer) {
    std::string p = "h." + std::to_string(layer) + ".";
    FactorId h = b.factor(sizes.heads), d = b.factor(sizes.headDim), f = b.factor(sizes.hidden);
    auto project = [&](const char *name, int from) {
      int w = b.parameter(p + name + ".w", {{e}, {h, d}});
      return b.matmul(p + name, from, w, {{n}, {s}, {h, d}});
    };
    int ln = b.norm(p + "ln1", x, b.parameter(p + "ln1.w", {{e}}));
    int q = project("q", ln), k = project("k", ln), val = project("v", ln);
    int o = b.attention(p + "attn", q, k, val, s, d);
    int proj = b.matmul(p + "proj", o, b.parameter(p + "proj.w", {{h, d}, {e}}), {{n}, {s}, {e}});
    x = b.add(p + "add1", x, proj);
    int ln2 = b.norm(p + "ln2", x, b.parameter(p + "ln2.w", {{e}}));
    int up = b.matmul(p + "up", ln2, b.parameter(p + "up.w", {{e}, {f}}), {{n}, {s}, {f}});
    int act = b.unary(p + "act", up);
    int down = b.matmul(p + "down", act, b.parameter(p + "down.w", {{f}, {e}}), {{n}, {s}, {e}});
    x = b.add(p + "add2", x, down);
  }
  x = b.norm("ln_f", x, b.parameter("ln_f.w", {{e}}));
  int head = sizes.tied ? table : b.parameter("head.w", {{v}, {e}});
  int logits = b.matmul("head", x, head, {{n}, {s}, {v}});
  b.loss("loss", logits, labels);
  return b.finish(n);
}

} // namespace tbc::planner::test

#endif // TBC_TESTS_PLANNER_CORE_STEPBUILDER_H
