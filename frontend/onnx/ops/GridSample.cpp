//===- GridSample.cpp - Interpolation at computed positions ----------------===//
//
// Every result is a weighted sum of a few elements near its position. The elements are gathered,
// and the weights are computed from the positions. So both the image and the grid get gradients.
// The rules are those of the operator's definition
// (onnx.ai/onnx/operators/onnx__GridSample.html).
//
//===----------------------------------------------------------------------===//

#include "frontend/onnx/ops/Families.h"
#include "frontend/onnx/ops/Window.h"

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
      // Again as integers: residues, by which plans are verified, have no order that bounds them.
      place = clamped(cast(emitter, clamped(place, sizes[k]), DType::I64), sizes[k]);
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

//===- deformable convolution ----------------------------------------------===//

namespace {

/// A convolution whose window element k reads at output place o the position
/// o * stride - pad + k * dilation + offset, weighted by a mask.
struct Deformed {
  Emitter &emitter;
  Formula f;
  Window window;
  /// The elements of a window, and the places of the output.
  int64_t taps, places;
  int64_t offsetGroups;

  /// Returns the undisturbed positions along dim `k`, [1, taps * places].
  Value regular(size_t k) {
    Shape both(window.kernel.begin(), window.kernel.end());
    both.insert(both.end(), window.output.begin(), window.output.end());
    std::vector<int64_t> steps(both.size(), 0);
    steps[k] = window.dilations[k];
    steps[k + window.kernel.size()] = window.strides[k];
    Value table = Value::ofKnown(DType::I64, Known::affine(both, -window.pads[k], steps, false));
    return reshape(emitter, table, {1, taps * places});
  }

  /// Returns part `part` of `count` of group `group` of x[n, groups * taps * count, output..], as
  /// [n, taps * places].
  Value partOf(const Value &x, int64_t group, int64_t count, int64_t part) {
    Value parts = reshape(emitter, x, {x.shape[0], offsetGroups, taps, count, places});
    parts = slice(emitter, slice(emitter, parts, 1, group, 1, 1), 3, part, 1, 1);
    return reshape(emitter, parts, {x.shape[0], taps * places});
  }

  /// Returns the elements that the windows of one group read, [n, channels, taps * places].
  Value sampled(const Value &image, const Value &offset, int64_t group) {
    Shape sizes(image.shape.begin() + 2, image.shape.end());
    Value flat =
        reshape(emitter, image, {image.shape[0], image.shape[1], saturatedElements(sizes)});
    Sampler sampler{emitter, f, flat, sizes, "zeros"};
    auto rank = int64_t(sizes.size());
    std::vector<Value> base;
    std::vector<std::vector<Value>> weights;
    for (int64_t k = 0; k < rank; ++k) {
      Value moved = partOf(offset, group, rank, k);
      Value at = f.add(moved, cast(emitter, regular(size_t(k)), moved.dtype));
      base.push_back(f.floor(at));
      Value behind = f.sub(at, base.back());
      weights.push_back({f.sub(number(behind, 1), behind), behind});
    }
    return sampler.weightedSum(base, weights, 0);
  }
};

/// Throws unless the offsets and the mask have the shapes that the window asks for.
void checkOffsets(NodeContext &node, const Deformed &d) {
  auto require = [&](size_t input, int64_t channels, const char *what) {
    const Value &value = node.input(input);
    if (value.shape != withSpatial(node.input(0).shape[0], channels, d.window.output) ||
        !kernels::isFloat(value.dtype))
      throw ImportError(std::string("has ") + what + " of shape " +
                        printShape(value.shape, node.emitter.marker) + "; expected " +
                        std::to_string(channels) + " channels at each place of the output");
  };
  require(2, d.offsetGroups * d.taps * int64_t(d.window.kernel.size()), "offsets");
  if (node.hasInput(4))
    require(4, d.offsetGroups * d.taps, "a mask");
}

} // namespace

/// Source: ONNX's definition of DeformConv; Dai et al., Deformable Convolutional Networks (2017).
void importDeformConv(NodeContext &node) {
  Emitter &e = node.emitter;
  const Value &x = imageInput(node), &w = node.input(1);
  int64_t groups = node.attrInt("group", 1), offsetGroups = node.attrInt("offset_group", 1);
  if (w.rank() != x.rank() || w.dtype != x.dtype || groups < 1 || offsetGroups < 1 ||
      x.shape[1] % groups != 0 || w.shape[0] % groups != 0 || x.shape[1] % offsetGroups != 0 ||
      w.shape[1] != x.shape[1] / groups)
    throw ImportError("its weight, groups and input do not fit together");
  Window window = readWindow(node, x.shape, {w.shape.begin() + 2, w.shape.end()});
  int64_t taps = saturatedElements(window.kernel), places = saturatedElements(window.output);
  if (saturatedElements({taps, places}) > kMaxKnownElements)
    throw ImportError("reads more than " + std::to_string(kMaxKnownElements) +
                      " elements for each sample and channel");
  Deformed d{e, Formula{e}, window, taps, places, offsetGroups};
  checkOffsets(node, d);
  int64_t n = x.shape[0], perOffset = x.shape[1] / offsetGroups, in = w.shape[1];
  std::vector<Value> parts;
  for (int64_t group = 0; group < offsetGroups; ++group) {
    Value part = d.sampled(slice(e, x, 1, group * perOffset, 1, perOffset), node.input(2), group);
    if (node.hasInput(4))
      part = d.f.mul(part, cast(e, unsqueeze(d.partOf(node.input(4), group, 1, 0), {1}), x.dtype));
    parts.push_back(part);
  }
  Value columns = reshape(e, concat(e, parts, 1), {n, groups, in, taps, places});
  Value weight = reshape(e, w, {groups, w.shape[0] / groups, in, taps});
  // n 0, group 1, in 2, tap 3, place 4, out 5
  Value y = einsum(e, columns, {0, 1, 2, 3, 4}, weight, {1, 5, 2, 3}, {0, 1, 5, 4});
  y = reshape(e, y, withSpatial(n, w.shape[0], window.output));
  node.setOutput(0, addChannelBias(node, y, 3));
}

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
