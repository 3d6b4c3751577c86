//===- Resize.cpp - Interpolation along dims -------------------------------===//
//
// Every element of a resized dim is a weighted sum of a few old ones, with known weights. The dim
// is multiplied by a matrix of weights, or gathered by a list of indices if every element has a
// single source. The rules are those of the operator's definition
// (onnx.ai/onnx/operators/onnx__Resize.html).
//
//===----------------------------------------------------------------------===//

#include "frontend/onnx/ops/Families.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>

namespace tbc::frontend {

namespace {

struct Options {
  std::string mode, coordinates, nearest;
  double cubic = -0.75, outside = 0;
  bool antialias = false, excludeOutside = false;
};

/// One resized dim: its sizes, the given ratio between them, and the region of interest.
struct ResizedDim {
  unsigned axis;
  int64_t from, to;
  double scale, begin = 0, end = 1;
};

/// Returns the position of result element `x` among the old ones. Example: mode asymmetric with
/// scale 2 maps 3 to 1.5.
double placeOf(const ResizedDim &dim, double x, const std::string &mode) {
  double width = dim.scale * double(dim.from), last = double(dim.from) - 1;
  if (mode == "align_corners")
    return width == 1 ? 0 : x * last / (width - 1);
  if (mode == "asymmetric")
    return x / dim.scale;
  if (mode == "tf_crop_and_resize")
    return dim.begin * last + (width == 1 ? (dim.end - dim.begin) * last / 2
                                          : x * (dim.end - dim.begin) * last / (width - 1));
  double place = (x + 0.5) / dim.scale - 0.5;
  if (mode == "pytorch_half_pixel")
    return width == 1 ? -0.5 : place;
  if (mode == "half_pixel_symmetric")
    return place + double(dim.from) / 2 * (1 - double(dim.to) / width);
  if (mode == "half_pixel")
    return place;
  throw ImportError("coordinate mode '" + mode + "' is not supported");
}

/// Returns the weight of linear or cubic interpolation at distance `x`.
double kernelAt(double x, const Options &options) {
  x = std::fabs(x);
  if (options.mode == "linear")
    return std::max(0.0, 1 - x);
  double a = options.cubic;
  if (x <= 1)
    return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/// Returns the nearest old element for a position `ratio` in (0, 1] behind element `base`.
int64_t nearestTo(int64_t base, double ratio, const std::string &mode) {
  if (ratio == 1)
    return base + 1;
  if (mode == "round_prefer_floor")
    return base + (ratio > 0.5);
  if (mode == "round_prefer_ceil")
    return base + (ratio >= 0.5);
  if (mode == "floor")
    return base;
  if (mode == "ceil")
    return base + 1;
  throw ImportError("nearest mode '" + mode + "' is not supported");
}

/// Returns the weights of old elements in new ones, [to, from] in row-major order.
std::vector<double> weightsOf(const ResizedDim &dim, const Options &options) {
  std::vector<double> matrix(dim.to * dim.from, 0);
  double stretch = options.antialias ? std::min(dim.scale, 1.0) : 1;
  int64_t radius = options.mode == "linear" ? 1 : 2;
  int64_t reach = -int64_t(std::floor(-double(radius) / stretch) + 1);
  for (int64_t x = 0; x < dim.to; ++x) {
    double place = placeOf(dim, double(x), options.coordinates);
    if (options.coordinates == "tf_crop_and_resize" && (place < 0 || place > double(dim.from) - 1))
      continue;
    double base = std::ceil(place) - 1, total = 0;
    std::vector<double> weights;
    for (int64_t i = -reach; i < 2 + reach; ++i) {
      double at = base + double(i), weight = kernelAt((at - place) * stretch, options);
      if (options.excludeOutside && (at < 0 || at >= double(dim.from)))
        weight = 0;
      weights.push_back(weight);
      total += weight;
    }
    for (int64_t i = -reach; i < 2 + reach; ++i) {
      double at = std::clamp(base + double(i), 0.0, double(dim.from) - 1);
      matrix[x * dim.from + int64_t(at)] += weights[i + reach] / total;
    }
  }
  return matrix;
}

/// Returns for each new element 1 if its position is within the old ones, else 0.
std::vector<int64_t> insideOf(const ResizedDim &dim, const Options &options) {
  std::vector<int64_t> inside;
  for (int64_t x = 0; x < dim.to; ++x) {
    double place = placeOf(dim, double(x), options.coordinates);
    inside.push_back(place >= 0 && place <= double(dim.from) - 1);
  }
  return inside;
}

Value resizeDim(Emitter &emitter, const Value &value, const ResizedDim &dim,
                const Options &options) {
  if (saturatedElements({dim.from, dim.to}) > kMaxKnownElements)
    throw ImportError("resizes a dim of " + std::to_string(dim.from) + " to " +
                      std::to_string(dim.to) + " elements, which is too large");
  if (dim.from < 1 || dim.to < 1 || !(dim.scale > 0))
    throw ImportError("resizes a dim of " + std::to_string(dim.from) + " to " +
                      std::to_string(dim.to) + " elements");
  WorkBudget::spend(saturatedElements({dim.from, dim.to}));
  if (options.mode == "nearest") {
    std::vector<int64_t> indices;
    for (int64_t x = 0; x < dim.to; ++x) {
      double place = placeOf(dim, double(x), options.coordinates), base = std::ceil(place) - 1;
      indices.push_back(std::clamp<int64_t>(nearestTo(int64_t(base), place - base, options.nearest),
                                            0, dim.from - 1));
    }
    return gather(emitter, value, Value::ofInts(std::move(indices)), dim.axis);
  }
  std::vector<int64_t> labels, out;
  for (unsigned i = 0; i < value.rank(); ++i) {
    labels.push_back(i);
    out.push_back(i == dim.axis ? value.rank() : i);
  }
  Value matrix =
      Value::ofKnown(value.dtype, Known::ofReals({dim.to, dim.from}, weightsOf(dim, options)));
  return einsum(emitter, value, labels, matrix, {int64_t(value.rank()), int64_t(dim.axis)}, out);
}

std::vector<double> reals(NodeContext &node, size_t i) {
  const Value &value = node.input(i);
  if (!value.isKnown())
    throw ImportError("input " + std::to_string(i) + " ('" + node.inputName(i) +
                      "') must be constant");
  return fullReals(value);
}

/// Sets scales and new sizes. Example: 1.5 makes 4 of 3.
void scaleDims(std::vector<ResizedDim> &dims, const std::vector<double> &scales) {
  for (size_t i = 0; i < dims.size(); ++i) {
    double size = std::floor(scales[i] * double(dims[i].from));
    if (!(scales[i] > 0) || !(size <= 0x1p40))
      throw ImportError("scales a dim by " + std::to_string(scales[i]));
    dims[i].scale = scales[i];
    dims[i].to = int64_t(size);
  }
}

/// Returns the resized dims, from the scales or the sizes of `axes`.
std::vector<ResizedDim> resizedDims(NodeContext &node, const std::vector<int64_t> &axes) {
  const Shape &shape = node.input(0).shape;
  std::vector<ResizedDim> dims;
  auto requireCount = [&](size_t count) {
    if (count != axes.size())
      throw ImportError("has " + std::to_string(count) + " scales or sizes for " +
                        std::to_string(axes.size()) + " dims");
  };
  for (int64_t axis : axes) {
    unsigned dim = checkAxis(axis, int64_t(shape.size()));
    dims.push_back({dim, shape[dim], shape[dim], 1});
  }
  if (node.hasInput(3) && !node.input(3).shape.empty() && node.input(3).shape[0] != 0) {
    std::vector<int64_t> sizes = node.ints(3);
    requireCount(sizes.size());
    std::string policy = node.attrText("keep_aspect_ratio_policy", "stretch");
    if (policy != "stretch" && policy != "not_larger" && policy != "not_smaller")
      throw ImportError("keep_aspect_ratio_policy '" + policy + "' is not supported");
    std::vector<double> scales;
    for (size_t i = 0; i < dims.size(); ++i)
      scales.push_back(double(sizes[i]) / double(std::max<int64_t>(dims[i].from, 1)));
    if (scales.empty())
      return dims;
    double common =
        policy == "not_larger" ? *llvm::min_element(scales) : *llvm::max_element(scales);
    for (size_t i = 0; i < dims.size(); ++i) {
      bool keepsRatio = policy != "stretch";
      dims[i].scale = keepsRatio ? common : scales[i];
      double size = std::floor(common * double(dims[i].from) + 0.5);
      if (keepsRatio && !(size <= 0x1p40))
        throw ImportError("makes a dim of " + std::to_string(size) + " elements");
      dims[i].to = keepsRatio ? int64_t(size) : sizes[i];
    }
    return dims;
  }
  std::vector<double> scales = reals(node, 2);
  requireCount(scales.size());
  scaleDims(dims, scales);
  return dims;
}

/// The ancestor of Resize: position x is the old x / scale. Source: ONNX's change log, Upsample 9.
void importUpsample(NodeContext &node) {
  Value value = node.input(0);
  Options options;
  options.mode = node.attrText("mode", "nearest");
  options.coordinates = "asymmetric";
  options.nearest = "floor";
  if (options.mode != "nearest" && options.mode != "linear")
    throw ImportError("mode '" + options.mode + "' is not supported");
  if (options.mode == "linear" && !kernels::isFloat(value.dtype))
    throw ImportError("interpolates " + std::string(kernels::name(value.dtype)) +
                      ", which is not supported");
  std::vector<double> scales = reals(node, 1);
  std::vector<ResizedDim> dims;
  for (unsigned dim = 0; dim < value.rank(); ++dim)
    dims.push_back({dim, value.shape[dim], value.shape[dim], 1});
  if (scales.size() != dims.size())
    throw ImportError("has " + std::to_string(scales.size()) + " scales for " +
                      std::to_string(dims.size()) + " dims");
  scaleDims(dims, scales);
  for (const ResizedDim &dim : dims)
    if (dim.scale != 1)
      value = resizeDim(node.emitter, value, dim, options);
  node.setOutput(0, value);
}

/// Takes the scales of an antialiased F.interpolate(scale_factor=...) from the metadata: torch's
/// newer exporter writes the sizes alone, whose ratio is another number where they are rounded.
/// Example: 8 * 0.6 is 4 elements, and the scale is 0.6, not 0.5.
void takeScales(const NodeContext &node, std::vector<ResizedDim> &dims) {
  for (const char *op : {"aten._upsample_bilinear2d_aa", "aten._upsample_bicubic2d_aa"})
    for (auto [axis, name] : {std::pair(2u, "scales_h"), std::pair(3u, "scales_w")})
      for (ResizedDim &dim : dims)
        if (dim.axis == axis && node.torchArgument(op, axis + 1, name).value_or("None") != "None")
          dim.scale = *node.torchNumber(op, axis + 1, name);
}

void importResize(NodeContext &node) {
  Emitter &emitter = node.emitter;
  Value value = node.input(0);
  Options options;
  options.mode = node.attrText("mode", "nearest");
  options.coordinates = node.attrText("coordinate_transformation_mode", "half_pixel");
  options.nearest = node.attrText("nearest_mode", "round_prefer_floor");
  options.cubic = node.attrFloat("cubic_coeff_a", -0.75);
  options.outside = node.attrFloat("extrapolation_value", 0);
  options.antialias = node.attrInt("antialias", 0) != 0;
  options.excludeOutside = node.attrInt("exclude_outside", 0) != 0;
  for (size_t i : {1, 2})
    node.hasInput(i); // only one mode reads a region, and sizes replace scales
  if (options.mode != "nearest" && options.mode != "linear" && options.mode != "cubic")
    throw ImportError("mode '" + options.mode + "' is not supported");
  if (options.mode != "nearest" && !kernels::isFloat(value.dtype))
    throw ImportError("interpolates " + std::string(kernels::name(value.dtype)) +
                      ", which is not supported");
  std::vector<int64_t> axes;
  for (unsigned dim = 0; dim < value.rank(); ++dim)
    axes.push_back(dim);
  axes = node.attrInts("axes", axes);
  checkAxes(axes, value.rank());
  std::vector<ResizedDim> dims = resizedDims(node, axes);
  if (options.antialias && options.coordinates == "half_pixel")
    takeScales(node, dims);
  bool crops = options.coordinates == "tf_crop_and_resize";
  if (crops) {
    std::vector<double> region = reals(node, 1);
    if (region.size() != 2 * dims.size())
      throw ImportError("its region of interest does not have two bounds for each dim");
    for (size_t i = 0; i < dims.size(); ++i)
      dims[i].begin = region[i], dims[i].end = region[i + dims.size()];
  }
  for (const ResizedDim &dim : dims) {
    bool isWhole = !crops || (dim.begin == 0 && dim.end == 1);
    if (dim.scale == 1 && dim.from == dim.to && isWhole)
      continue;
    value = resizeDim(emitter, value, dim, options);
    if (!crops)
      continue;
    std::vector<unsigned> behind;
    for (unsigned i = dim.axis + 1; i < value.rank(); ++i)
      behind.push_back(i - dim.axis);
    Value inside = Value::ofKnown(DType::Bool, Known::ofInts({dim.to}, insideOf(dim, options)));
    value = select(emitter, unsqueeze(inside, behind), value, number(value, options.outside));
  }
  node.setOutput(0, value);
}

//===- blocks of pixels ----------------------------------------------------===//

int64_t blockSize(NodeContext &node) {
  int64_t size = node.attrInt("blocksize", 0);
  if (size < 1 || size > (1 << 20) || node.input(0).rank() != 4)
    throw ImportError("needs a tensor of rank 4 and a positive block size");
  return size;
}

void requireDivides(int64_t divisor, int64_t size) {
  if (size % divisor != 0)
    throw ImportError("a dim of size " + std::to_string(size) + " is no multiple of " +
                      std::to_string(divisor));
}

void importDepthToSpace(NodeContext &node) {
  const Value &value = node.input(0);
  int64_t b = blockSize(node);
  Shape s = value.shape;
  requireDivides(b * b, s[1]);
  int64_t depth = s[1] / (b * b);
  bool isColumns = node.attrText("mode", "DCR") == "CRD";
  Value split = reshape(node.emitter, value,
                        isColumns ? Shape{s[0], depth, b, b, s[2], s[3]}
                                  : Shape{s[0], b, b, depth, s[2], s[3]});
  split = transpose(node.emitter, split,
                    isColumns ? std::vector<unsigned>{0, 1, 4, 2, 5, 3}
                              : std::vector<unsigned>{0, 3, 4, 1, 5, 2});
  node.setOutput(0, reshape(node.emitter, split, {s[0], depth, s[2] * b, s[3] * b}));
}

void importSpaceToDepth(NodeContext &node) {
  const Value &value = node.input(0);
  int64_t b = blockSize(node);
  Shape s = value.shape;
  requireDivides(b, s[2]);
  requireDivides(b, s[3]);
  bool isColumns = node.attrText("mode", "DCR") == "CRD";
  Value split = reshape(node.emitter, value, {s[0], s[1], s[2] / b, b, s[3] / b, b});
  split = transpose(node.emitter, split,
                    isColumns ? std::vector<unsigned>{0, 1, 3, 5, 2, 4}
                              : std::vector<unsigned>{0, 3, 5, 1, 2, 4});
  node.setOutput(0, reshape(node.emitter, split, {s[0], s[1] * b * b, s[2] / b, s[3] / b}));
}

/// Adds columns of blocks to their source images: [n, c * block, l] to [n, c, image...].
void importCol2Im(NodeContext &node) {
  Emitter &emitter = node.emitter;
  const Value &value = node.input(0);
  std::vector<int64_t> image = node.ints(1), block = node.ints(2);
  size_t rank = image.size();
  std::vector<int64_t> ones(rank, 1), zeros(2 * rank, 0);
  std::vector<int64_t> dilations = node.attrInts("dilations", ones),
                       strides = node.attrInts("strides", ones),
                       pads = node.attrInts("pads", zeros);
  constexpr int64_t largest = 1 << 20;
  auto inRange = [&](const std::vector<int64_t> &list, size_t count, int64_t low) {
    return list.size() == count &&
           llvm::all_of(list, [&](int64_t n) { return n >= low && n <= largest; });
  };
  if (rank == 0 || !inRange(image, rank, 1) || !inRange(block, rank, 1) ||
      !inRange(dilations, rank, 1) || !inRange(strides, rank, 1) || !inRange(pads, 2 * rank, 0))
    throw ImportError("its image, block, strides, dilations and pads do not fit together");
  Shape padded, counts;
  for (size_t i = 0; i < rank; ++i) {
    padded.push_back(image[i] + pads[i] + pads[i + rank]);
    int64_t extent = dilations[i] * (block[i] - 1) + 1;
    if (extent > padded[i])
      throw ImportError("a block is larger than the image");
    counts.push_back((padded[i] - extent) / strides[i] + 1);
  }
  Shape both = block;
  both.insert(both.end(), counts.begin(), counts.end());
  int64_t total = saturatedElements(both), perColumn = saturatedElements(block);
  if (value.rank() != 3 || value.shape[2] != saturatedElements(counts) ||
      value.shape[1] % perColumn != 0 || total > kMaxKnownElements)
    throw ImportError("its columns do not fit the image");
  std::vector<int64_t> places;
  forEachIndex(both, [&](const Shape &index) {
    int64_t place = 0;
    for (size_t i = 0; i < rank; ++i)
      place = place * padded[i] + index[i] * dilations[i] + index[i + rank] * strides[i];
    places.push_back(place);
  });
  int64_t channels = value.shape[1] / perColumn;
  Value columns = reshape(emitter, value, {value.shape[0], channels, total});
  Value list = Value::ofInts(std::move(places));
  Value sums = Value::ofTensor(
      value.dtype, emitter.createOne("scatter_add", {emitter.full(columns), emitter.full(list)},
                                     emitter.type(value.dtype, {value.shape[0], channels,
                                                                saturatedElements(padded)}),
                                     {emitter.integer("dim", 2)}));
  Shape shape{value.shape[0], channels};
  shape.insert(shape.end(), padded.begin(), padded.end());
  Value result = reshape(emitter, sums, shape);
  for (size_t i = 0; i < rank; ++i)
    result = slice(emitter, result, unsigned(i + 2), pads[i], 1, image[i]);
  node.setOutput(0, result);
}

/// Returns the coordinates of an image's pixels, from -1 to 1, under an affine map per sample.
void importAffineGrid(NodeContext &node) {
  Emitter &emitter = node.emitter;
  const Value &theta = node.input(0);
  std::vector<int64_t> sizes = checkedShape(node.ints(1));
  bool corners = node.attrInt("align_corners", 0) != 0;
  if (sizes.size() < 4 || sizes.size() > 5 ||
      theta.shape != Shape{sizes[0], int64_t(sizes.size()) - 2, int64_t(sizes.size()) - 1})
    throw ImportError("its maps do not fit its sizes");
  Shape image(sizes.begin() + 2, sizes.end());
  int64_t rank = image.size();
  Shape table = image;
  table.push_back(rank + 1);
  if (saturatedElements(table) > kMaxKnownElements)
    throw ImportError("makes a grid that is too large");
  std::vector<double> elements;
  forEachIndex(image, [&](const Shape &index) {
    for (int64_t dim = rank - 1; dim >= 0; --dim) { // x, then y
      double size = double(image[dim]), at = double(index[dim]);
      elements.push_back(corners ? (size == 1 ? -1 : 2 * at / (size - 1) - 1)
                                 : (2 * at + 1) / size - 1);
    }
    elements.push_back(1);
  });
  Value grid = Value::ofKnown(theta.dtype, Known::ofReals(table, std::move(elements)));
  // theta[n, i, j], grid[.., j]
  std::vector<int64_t> labels, out{0};
  for (int64_t dim = 0; dim < rank; ++dim) {
    labels.push_back(3 + dim);
    out.push_back(3 + dim);
  }
  labels.push_back(2);
  out.push_back(1);
  node.setOutput(0, einsum(emitter, theta, {0, 1, 2}, grid, labels, out));
}

} // namespace

llvm::ArrayRef<OpImporter> resizeOps() {
  static const OpImporter ops[] = {
      {"", "AffineGrid", importAffineGrid},
      {"", "Col2Im", importCol2Im},
      {"", "DepthToSpace", importDepthToSpace},
      {"", "DeformConv", importDeformConv, "", weightsAt(1, 3)},
      {"", "GridSample", importGridSample},
      {"", "Resize", importResize},
      {"", "SpaceToDepth", importSpaceToDepth},
      {"", "Upsample", importUpsample},
  };
  return ops;
}

} // namespace tbc::frontend
