//===- GridSample.cpp - Interpolation at computed positions ----------------===//
//
// Every result is a weighted sum of a few elements near its position. The elements are gathered,
// and the weights are computed from the positions. So both the image and the grid get gradients.
// The rules are those of the operator's definition
// (onnx.ai/onnx/operators/onnx__GridSample.html).
//
//===----------------------------------------------------------------------===//

#include "frontend/onnx/ops/Families.h"

#include <string>

namespace tbc::frontend {

namespace {

/// Samples an image [n, c, sizes..] at `rows` positions of each n.
struct Sampler {
  Emitter &emitter;
  Formula f;
  /// [n, c, elements]
  Value image;
  Shape sizes;
  std::string padding;
  bool corners = false;

  /// Mirrors positions at the borders until they are within. A border is a corner element, or half
  /// an element outside it. Example: 2 corners 0 and 3 map 4 to 2.
  Value reflected(const Value &at, int64_t size) {
    double low = corners ? 0 : -0.5, range = corners ? double(size) - 1 : double(size);
    if (range == 0)
      return number(at, low);
    Value period = number(at, 2 * range);
    Value away = f.abs(f.sub(at, number(at, low)));
    away = f.sub(away, f.mul(period, f.floor(f.div(away, period))));
    return f.add(f.minimum(away, f.sub(period, away)), number(at, low));
  }

  Value clamped(const Value &at, int64_t size) {
    return f.minimum(f.maximum(at, number(at, 0)), number(at, double(size) - 1));
  }

  /// Returns the elements [n, c, rows] at whole positions, one tensor [n, rows] for each dim.
  Value elements(const std::vector<Value> &at) {
    Value flat, inside;
    int64_t stride = 1;
    for (size_t k = sizes.size(); k-- > 0; stride *= sizes[k]) {
      Value place = padding == "reflection" ? reflected(at[k], sizes[k]) : at[k];
      if (padding == "zeros") {
        Value here = f.both(f.compare("ge", place, number(place, 0)),
                            f.compare("le", place, number(place, double(sizes[k]) - 1)));
        inside = inside.isDefined() ? f.both(inside, here) : here;
      }
      place = cast(emitter, clamped(place, sizes[k]), DType::I64);
      Value term = f.mul(place, number(place, double(stride)));
      flat = flat.isDefined() ? f.add(flat, term) : term;
    }
    Shape shape{image.shape[0], image.shape[1], flat.shape[1]};
    Value everywhere = expand(emitter, unsqueeze(flat, {1}), shape);
    Value found = Value::ofTensor(
        image.dtype,
        emitter.createOne("gather_elements", {emitter.full(image), emitter.full(everywhere)},
                          emitter.type(image.dtype, shape), {emitter.integer("dim", 2)}));
    if (!inside.isDefined())
      return found;
    return f.select(unsqueeze(inside, {1}), found, number(found, 0));
  }

  /// Returns the sum over all neighbours of a position: dim k has those at `base[k]` + j with the
  /// weights `weights[k][j]`, from `first` on.
  Value weightedSum(const std::vector<Value> &base, const std::vector<std::vector<Value>> &weights,
                    int64_t first) {
    Value sum;
    size_t taps = weights[0].size(), all = 1;
    for (size_t k = 0; k < base.size(); ++k)
      all *= taps;
    for (size_t number = 0; number < all; ++number) {
      std::vector<Value> at;
      Value weight;
      size_t rest = number;
      for (size_t k = 0; k < base.size(); ++k, rest /= taps) {
        size_t j = rest % taps;
        at.push_back(f.add(base[k], frontend::number(base[k], double(first) + double(j))));
        weight = weight.isDefined() ? f.mul(weight, weights[k][j]) : weights[k][j];
      }
      Value term = f.mul(elements(at), cast(emitter, unsqueeze(weight, {1}), image.dtype));
      sum = sum.isDefined() ? f.add(sum, term) : term;
    }
    return sum;
  }
};

/// Returns the weights of cubic interpolation for the four elements around a position, `x` behind
/// the second. Source: Keys (1981), with a = -0.75.
std::vector<Value> cubicWeights(Formula &f, const Value &x) {
  constexpr double a = -0.75;
  auto polynomial = [&](const Value &at, const std::vector<double> &coefficients) {
    Value sum = number(at, coefficients[0]);
    for (size_t i = 1; i < coefficients.size(); ++i)
      sum = f.add(f.mul(sum, at), number(at, coefficients[i]));
    return sum;
  };
  auto near = [&](const Value &at) { return polynomial(at, {a + 2, -(a + 3), 0, 1}); };
  auto far = [&](const Value &at) { return polynomial(at, {a, -5 * a, 8 * a, -4 * a}); };
  Value one = number(x, 1), two = number(x, 2);
  return {far(f.add(x, one)), near(x), near(f.sub(one, x)), far(f.sub(two, x))};
}

/// Returns the positions of all samples along dim `k`, [n, rows], in elements of the image. The
/// grid's last dim has x first, that is the last dim of the image, each from -1 to 1.
Value positionsAlong(Sampler &sampler, const Value &grid, size_t k) {
  Formula &f = sampler.f;
  unsigned last = grid.rank() - 1;
  int64_t column = int64_t(sampler.sizes.size() - 1 - k);
  Shape shape{grid.shape[0],
              saturatedElements(Shape(grid.shape.begin() + 1, grid.shape.end() - 1))};
  Value at = reshape(sampler.emitter, slice(sampler.emitter, grid, last, column, 1, 1), shape);
  double size = double(sampler.sizes[k]);
  if (sampler.corners)
    return f.mul(f.add(at, number(at, 1)), number(at, (size - 1) / 2));
  return f.sub(f.mul(f.add(at, number(at, 1)), number(at, size / 2)), number(at, 0.5));
}

} // namespace

void importGridSample(NodeContext &node) {
  Emitter &emitter = node.emitter;
  const Value &image = node.input(0), &grid = node.input(1);
  size_t rank = image.rank() < 2 ? 0 : image.rank() - 2;
  if (rank < 1 || grid.rank() != image.rank() || grid.shape[0] != image.shape[0] ||
      grid.shape.back() != int64_t(rank) || !kernels::isFloat(image.dtype) ||
      !kernels::isFloat(grid.dtype))
    throw ImportError("its grid does not fit its image");
  Shape sizes(image.shape.begin() + 2, image.shape.end());
  Value flat = reshape(emitter, image, {image.shape[0], image.shape[1], saturatedElements(sizes)});
  Sampler sampler{emitter,
                  Formula{emitter},
                  flat,
                  sizes,
                  node.attrText("padding_mode", "zeros"),
                  node.attrInt("align_corners", 0) != 0};
  Formula &f = sampler.f;
  std::string mode = node.attrText("mode", "linear");
  bool isCubic = mode == "cubic" || mode == "bicubic", isNearest = mode == "nearest";
  if (!isCubic && !isNearest && mode != "linear" && mode != "bilinear")
    throw ImportError("mode '" + mode + "' is not supported");
  if (sampler.padding != "zeros" && sampler.padding != "border" && sampler.padding != "reflection")
    throw ImportError("padding mode '" + sampler.padding + "' is not supported");
  if (isCubic && rank > 2)
    throw ImportError("cubic interpolation has two dims at most");
  std::vector<Value> base;
  std::vector<std::vector<Value>> weights;
  for (size_t k = 0; k < rank; ++k) {
    Value at = positionsAlong(sampler, grid, k);
    if (isNearest)
      at = f.round(at);
    if (sampler.padding == "border")
      at = sampler.clamped(at, sizes[k]);
    else if (sampler.padding == "reflection")
      at = sampler.reflected(at, sizes[k]);
    base.push_back(isNearest ? at : f.floor(at));
    Value behind = f.sub(at, base.back());
    if (isCubic)
      weights.push_back(cubicWeights(f, behind));
    else
      weights.push_back({f.sub(number(behind, 1), behind), behind});
  }
  Value sum =
      isNearest ? sampler.elements(base) : sampler.weightedSum(base, weights, isCubic ? -1 : 0);
  Shape result{image.shape[0], image.shape[1]};
  result.insert(result.end(), grid.shape.begin() + 1, grid.shape.end() - 1);
  node.setOutput(0, reshape(emitter, sum, result));
}

} // namespace tbc::frontend
