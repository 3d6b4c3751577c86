//===- Tape.h - Reverse-mode differentiation over primitive kernels --------===//
//
// Part of tbc. The oracle for composites and their gradients: a composite's decomposition is
// written with primitive kernels on a tape, and its VJP follows from the primitives' few rules
// alone.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_RUNTIME_KERNELS_TAPE_H
#define TBC_TESTS_RUNTIME_KERNELS_TAPE_H

#include "tests/runtime/kernels/TestSupport.h"

#include <functional>

namespace tbc::kernels {

class Tape {
public:
  using Var = int;
  using Labels = Ints;

  Tape(Arith arith, DType dtype = DType::F32) : arith(arith), dtype(dtype) {}

  Var leaf(Tensor value) { return record(std::move(value), {}, nullptr); }
  /// A constant as IR holds it: rounded to the dtype of the graph.
  Var constant(double value, const Shape &shape) {
    return leaf(floats(arith, shape, {roundTo(dtype, value)}, dtype));
  }
  Tensor value(Var x) const { return nodes[x].value; }
  Shape shape(Var x) const { return nodes[x].value.shape(); }

  Var add(Var x, Var y) {
    return record(prim("add", {x, y}), {x, y},
                  [=](const Tensor &, const Tensor &dy) { return std::vector<Tensor>{dy, dy}; });
  }
  Var sub(Var x, Var y) {
    return record(prim("sub", {x, y}), {x, y}, [=](const Tensor &, const Tensor &dy) {
      return std::vector<Tensor>{dy, map("neg", {dy})};
    });
  }
  Var mul(Var x, Var y) {
    return record(prim("mul", {x, y}), {x, y}, [=](const Tensor &, const Tensor &dy) {
      return std::vector<Tensor>{map("mul", {dy, value(y)}), map("mul", {dy, value(x)})};
    });
  }
  Var div(Var x, Var y) {
    return record(prim("div", {x, y}), {x, y}, [=](const Tensor &z, const Tensor &dy) {
      Tensor dx = map("div", {dy, value(y)});
      return std::vector<Tensor>{dx, map("neg", {map("mul", {dx, z})})};
    });
  }
  Var neg(Var x) { return sub(constant(0, shape(x)), x); }
  Var exp(Var x) {
    return unary("exp", x, [=](const Tensor &y) { return y; });
  }
  Var log(Var x) {
    return unary("log", x, [=](const Tensor &) { return map("reciprocal", {value(x)}); });
  }
  Var rsqrt(Var x) { // -0.5 * y * y * y
    return unary("rsqrt", x, [=](const Tensor &y) {
      return map("mul", {splat(-0.5, y.shape()), map("mul", {y, map("mul", {y, y})})});
    });
  }
  Var erf(Var x) { // 2/sqrt(pi) * exp(-(x * x))
    return unary("erf", x, [=](const Tensor &y) {
      Tensor square = map("neg", {map("mul", {value(x), value(x)})});
      return map("mul", {splat(1.1283791670955126, y.shape()), map("exp", {square})});
    });
  }
  Var tanh(Var x) { // 1 - y * y
    return unary("tanh", x, [=](const Tensor &y) {
      return map("sub", {splat(1, y.shape()), map("mul", {y, y})});
    });
  }
  Var sigmoid(Var x) { // y * (1 - y)
    return unary("sigmoid", x, [=](const Tensor &y) {
      return map("mul", {y, map("sub", {splat(1, y.shape()), y})});
    });
  }
  Var sum(Var x, Ints dims) {
    return record(reduced("reduce_sum", x, dims), {x}, [=](const Tensor &, const Tensor &dy) {
      return std::vector<Tensor>{
          run(arith, "broadcast", {{"dims", others(x, dims)}}, {dy}, nodes[x].value.type())};
    });
  }
  Var broadcast(Var x, Ints dims, const Shape &to) {
    Tensor y = run(arith, "broadcast", {{"dims", dims}}, {value(x)}, {dtype, to});
    return record(y, {x}, [=](const Tensor &, const Tensor &dy) {
      Ints added;
      for (int64_t dim = 0; dim < int64_t(to.size()); ++dim)
        if (std::find(dims.begin(), dims.end(), dim) == dims.end())
          added.push_back(dim);
      return std::vector<Tensor>{
          run(arith, "reduce_sum", {{"dims", added}}, {dy}, nodes[x].value.type())};
    });
  }
  /// The row max counts as a constant: the result of the softmax does not depend on it.
  Var stabilizer(Var x, Ints dims) { return leaf(reduced("stabilizer_max", x, dims)); }
  Var einsum(Var x, Var y, Labels lhs, Labels rhs, Labels out, const Shape &to) {
    Tensor z = product(value(x), value(y), lhs, rhs, out, to);
    return record(z, {x, y}, [=](const Tensor &, const Tensor &dz) {
      return std::vector<Tensor>{product(dz, value(y), out, rhs, lhs, shape(x)),
                                 product(dz, value(x), out, lhs, rhs, shape(y))};
    });
  }

  // Shorthands over the last dim, or scalars.
  Var scaled(Var x, double factor) { return mul(x, constant(factor, shape(x))); }
  Var plus(Var x, double term) { return add(x, constant(term, shape(x))); }
  Var sumLast(Var x) { return sum(x, {int64_t(shape(x).size()) - 1}); }
  Var meanLast(Var x) {
    Var total = sumLast(x);
    return div(total, constant(double(shape(x).back()), shape(total)));
  }
  /// x [..] repeated along a new last dim, or along new leading dims.
  Var alongLast(Var x, const Shape &to) { return broadcast(x, range(0, shape(x).size()), to); }
  Var alongFirst(Var x, const Shape &to) {
    return broadcast(x, range(to.size() - shape(x).size(), to.size()), to);
  }

  /// Returns the cotangents of `wanted`, given the cotangent `dy` of `y`.
  std::vector<Tensor> gradients(Var y, const Tensor &dy, const std::vector<Var> &wanted) const {
    std::vector<Tensor> cotangents(nodes.size());
    cotangents[y] = dy;
    for (int i = y; i >= 0; --i) {
      if (!cotangents[i] || !nodes[i].vjp)
        continue;
      std::vector<Tensor> contributions = nodes[i].vjp(nodes[i].value, cotangents[i]);
      for (size_t p = 0; p < contributions.size(); ++p) {
        Tensor &target = cotangents[nodes[i].parents[p]];
        target = target ? map("add", {target, contributions[p]}) : contributions[p];
      }
    }
    std::vector<Tensor> result;
    for (Var x : wanted)
      result.push_back(cotangents[x]);
    return result;
  }

private:
  using Vjp = std::function<std::vector<Tensor>(const Tensor &y, const Tensor &dy)>;
  struct Node {
    Tensor value;
    std::vector<Var> parents;
    Vjp vjp;
  };

  static Ints range(int64_t from, int64_t to) {
    Ints dims;
    for (int64_t dim = from; dim < to; ++dim)
      dims.push_back(dim);
    return dims;
  }
  Var record(Tensor value, std::vector<Var> parents, Vjp vjp) {
    nodes.push_back({std::move(value), std::move(parents), std::move(vjp)});
    return Var(nodes.size()) - 1;
  }
  Tensor map(const std::string &op, const std::vector<Tensor> &inputs) const {
    return run(arith, op, {}, inputs, inputs[0].type());
  }
  Tensor prim(const std::string &op, const std::vector<Var> &inputs) const {
    std::vector<Tensor> values;
    for (Var x : inputs)
      values.push_back(value(x));
    return map(op, values);
  }
  Tensor splat(double constant, const Shape &shape) const {
    return floats(arith, shape, {roundTo(dtype, constant)}, dtype);
  }
  Var unary(const std::string &op, Var x, std::function<Tensor(const Tensor &y)> derivative) {
    return record(prim(op, {x}), {x}, [=](const Tensor &y, const Tensor &dy) {
      return std::vector<Tensor>{map("mul", {dy, derivative(y)})};
    });
  }
  Ints others(Var x, const Ints &dims) const {
    Ints kept;
    for (int64_t dim = 0; dim < int64_t(shape(x).size()); ++dim)
      if (std::find(dims.begin(), dims.end(), dim) == dims.end())
        kept.push_back(dim);
    return kept;
  }
  Tensor reduced(const std::string &op, Var x, const Ints &dims) const {
    Shape to;
    for (int64_t dim : others(x, dims))
      to.push_back(shape(x)[dim]);
    return run(arith, op, {{"dims", dims}}, {value(x)}, {dtype, to});
  }
  Tensor product(const Tensor &a, const Tensor &b, const Labels &lhs, const Labels &rhs,
                 const Labels &out, const Shape &to) const {
    return run(arith, "einsum", {{"lhs_labels", lhs}, {"rhs_labels", rhs}, {"out_labels", out}},
               {a, b}, {dtype, to});
  }

  Arith arith;
  DType dtype;
  std::vector<Node> nodes;
};

} // namespace tbc::kernels

#endif // TBC_TESTS_RUNTIME_KERNELS_TAPE_H
