//===- ConvolutionPart.cpp - A convolution of a box of channels by oneDNN ---===//

#include "runtime/cpu/ConvolutionPart.h"
#include "runtime/cpu/Dnnl.h"
#include "runtime/cpu/Threads.h"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace tbc::cpu {

using dnnl::memory;
using kernels::Shape;

namespace {

memory::desc described(const memory::dims &dims, const memory::dims &strides) {
  return {dims, memory::data_type::f32, strides};
}

/// [n, c, spatial..] with a stride between samples.
memory::desc dataView(int64_t samples, int64_t channels, const Shape &spatial,
                      int64_t sampleStride) {
  memory::dims dims{samples, channels};
  dims.insert(dims.end(), spatial.begin(), spatial.end());
  memory::dims strides(dims.size(), 1);
  for (size_t d = dims.size() - 1; d-- > 0;)
    strides[d] = strides[d + 1] * dims[d + 1];
  // The stride of a single sample has no effect, but descriptions are compared, so it stays at its
  // default.
  if (samples > 1)
    strides[0] = sampleStride;
  return described(dims, strides);
}

bool isAll(const Shape &sizes, int64_t value) {
  return std::all_of(sizes.begin(), sizes.end(), [&](int64_t size) { return size == value; });
}

/// Whether windows are single taps that leave out elements of x and read no pad. Example: 1 x 1 at
/// strides of 2. Whole strides must fit into x, since oneDNN describes no tensor whose rows reach
/// into the next channel: 56 elements at strides of 2, but not 9.
bool leavesOut(const ConvolutionShape &shape) {
  bool fits = isAll(shape.lowPads, 0);
  for (size_t d = 0; d < shape.input.size(); ++d)
    fits &= shape.output[d] * shape.strides[d] <= shape.input[d];
  return fits && isAll(shape.window, 1) && !isAll(shape.strides, 1);
}

/// The same convolution of the elements that its windows read: at strides of 1.
ConvolutionShape ofElementsRead(ConvolutionShape shape) {
  shape.input = shape.output;
  shape.strides.assign(shape.strides.size(), 1);
  shape.highPads.assign(shape.highPads.size(), 0);
  return shape;
}

/// Where these elements are in x.
memory::desc elementsRead(const ConvolutionShape &shape) {
  memory::dims dims{shape.samples, shape.groups * shape.inChannels};
  dims.insert(dims.end(), shape.output.begin(), shape.output.end());
  memory::dims strides(dims.size());
  int64_t stride = 1;
  for (size_t d = shape.input.size(); d-- > 0; stride *= shape.input[d])
    strides[d + 2] = stride * shape.strides[d];
  strides[1] = stride;
  strides[0] = shape.sampleX;
  return described(dims, strides);
}

/// [g, o, i, window..], without g if there is one group.
memory::desc weightView(const ConvolutionShape &shape, int64_t outChannelStride) {
  memory::dims dims{shape.outChannels, shape.inChannels};
  dims.insert(dims.end(), shape.window.begin(), shape.window.end());
  memory::dims strides(dims.size(), 1);
  for (size_t d = dims.size() - 1; d-- > 0;)
    strides[d] = strides[d + 1] * dims[d + 1];
  if (shape.outChannels > 1)
    strides[0] = outChannelStride;
  if (shape.groups > 1) {
    dims.insert(dims.begin(), shape.groups);
    strides.insert(strides.begin(), shape.outChannels * strides[0]);
  }
  return described(dims, strides);
}

/// Whether matmuls on plain tensors are faster: see ConvolutionPart.
bool isFasterPlain(const ConvolutionShape &shape) {
  bool isPointwise = shape.groups == 1 && isAll(shape.window, 1) && isAll(shape.strides, 1);
  int64_t positions = kernels::numElements(shape.output);
  if (shape.kind == ConvolutionKind::WeightGradient)
    return isPointwise || (shape.groups == 1 && positions < 1024 && !hasAvx512());
  return isPointwise && positions >= 512;
}

size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

/// Copies a tensor from one layout to another; empty if both are the same.
class Reorder {
public:
  Reorder() = default;
  Reorder(const memory::desc &from, const memory::desc &to) : from(from), to(to) {
    if (from == to)
      return;
    dnnl::reorder::primitive_desc description(dnnlEngine(), from, dnnlEngine(), to,
                                              withOwnScratchpad());
    scratch = description.scratchpad_desc();
    change = dnnl::reorder(description);
    isNeeded = true;
  }

  explicit operator bool() const { return isNeeded; }
  size_t scratchBytes() const { return isNeeded ? scratch.get_size() : 0; }

  void run(const void *source, void *target, void *scratchMemory) const {
    const dnnl::engine &engine = dnnlEngine();
    change.execute(dnnlStream(), {{DNNL_ARG_FROM, memory(from, engine, const_cast<void *>(source))},
                                  {DNNL_ARG_TO, memory(to, engine, target)},
                                  {DNNL_ARG_SCRATCHPAD, memory(scratch, engine, scratchMemory)}});
  }

private:
  memory::desc from, to, scratch;
  dnnl::reorder change;
  bool isNeeded = false;
};

/// x, w and y of a convolution.
struct Layouts {
  memory::desc x, w, y;
};

/// The primitive of a convolution, and the layouts of its tensors.
struct Primitive {
  Layouts layouts;
  memory::desc scratch;
  dnnl::primitive primitive;
  bool isSlow = false;

  template <typename Description>
  void make(const Description &description, const memory::desc &x, const memory::desc &w,
            const memory::desc &y) {
    layouts = {x, w, y};
    scratch = description.scratchpad_desc();
    isSlow = isPlainLoop(description.impl_info_str());
  }
};

Primitive makePrimitive(const ConvolutionShape &shape, const Layouts &layouts) {
  memory::dims strides = shape.strides, dilations = shape.dilations;
  memory::dims low = shape.lowPads, high = shape.highPads;
  for (int64_t &dilation : dilations)
    --dilation; // oneDNN counts the elements between two taps
  const auto direct = dnnl::algorithm::convolution_direct;
  const dnnl::primitive_attr attributes = withOwnScratchpad();
  const dnnl::engine &engine = dnnlEngine();
  dnnl::convolution_forward::primitive_desc forward({dnnl::prop_kind::forward_training, direct,
                                                     layouts.x, layouts.w, layouts.y, strides,
                                                     dilations, low, high},
                                                    attributes, engine);
  Primitive made;
  switch (shape.kind) {
  case ConvolutionKind::Forward:
    made.make(forward, forward.src_desc(), forward.weights_desc(), forward.dst_desc());
    made.primitive = dnnl::convolution_forward(forward);
    break;
  case ConvolutionKind::InputGradient: {
    dnnl::convolution_backward_data::primitive_desc backward(
        {direct, layouts.x, layouts.w, layouts.y, strides, dilations, low, high}, attributes,
        engine, forward);
    made.make(backward, backward.diff_src_desc(), backward.weights_desc(),
              backward.diff_dst_desc());
    made.primitive = dnnl::convolution_backward_data(backward);
    break;
  }
  case ConvolutionKind::WeightGradient: {
    dnnl::convolution_backward_weights::primitive_desc backward(
        {direct, layouts.x, layouts.w, layouts.y, strides, dilations, low, high}, attributes,
        engine, forward);
    made.make(backward, backward.src_desc(), backward.diff_weights_desc(),
              backward.diff_dst_desc());
    made.primitive = dnnl::convolution_backward_weights(backward);
    break;
  }
  }
  return made;
}

class DnnlConvolution : public ConvolutionPart {
public:
  explicit DnnlConvolution(const ConvolutionShape &whole) : kind(whole.kind) {
    const ConvolutionShape shape = leavesOut(whole) ? ofElementsRead(whole) : whole;
    int64_t ins = shape.groups * shape.inChannels, outs = shape.groups * shape.outChannels;
    auto layoutsOf = [&](int64_t sampleX, int64_t sampleY, int64_t outChannelW) {
      return Layouts{dataView(shape.samples, ins, shape.input, sampleX),
                     weightView(shape, outChannelW),
                     dataView(shape.samples, outs, shape.output, sampleY)};
    };
    Layouts outside = layoutsOf(shape.sampleX, shape.sampleY, shape.outChannelW);
    if (leavesOut(whole)) {
      outside.x = elementsRead(whole);
      if (kind == ConvolutionKind::InputGradient)
        zeroed = {whole.samples, ins * kernels::numElements(whole.input), whole.sampleX};
    }
    const Layouts plain = layoutsOf(ins * kernels::numElements(shape.input),
                                    outs * kernels::numElements(shape.output),
                                    shape.inChannels * kernels::numElements(shape.window));
    auto any = [](const memory::desc &tensor) {
      return memory::desc(tensor.dims(), memory::data_type::f32, memory::format_tag::any);
    };
    const Layouts chosen{any(plain.x), any(plain.w), any(plain.y)};
    made = makePrimitive(shape, isFasterPlain(shape) ? plain : chosen);
    if (made.isSlow)
      made = makePrimitive(shape, plain);

    const Layouts &inside = made.layouts;
    switch (kind) {
    case ConvolutionKind::Forward:
      arguments = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
      setSides(inside.x, inside.w, inside.y, Reorder(outside.x, inside.x),
               Reorder(outside.w, inside.w), Reorder(inside.y, outside.y));
      break;
    case ConvolutionKind::InputGradient:
      arguments = {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC};
      setSides(inside.y, inside.w, inside.x, Reorder(outside.y, inside.y),
               Reorder(outside.w, inside.w), Reorder(inside.x, outside.x));
      break;
    case ConvolutionKind::WeightGradient:
      arguments = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS};
      setSides(inside.x, inside.y, inside.w, Reorder(outside.x, inside.x),
               Reorder(outside.y, inside.y), Reorder(inside.w, outside.w));
      break;
    }
  }

  bool isSlow() const { return made.isSlow; }

  size_t packedBytes() const override { return sides[1].change ? made.layouts.w.get_size() : 0; }

  void pack(const float *w, void *packed) const override {
    sides[1].change.run(w, packed, threadScratch(sides[1].change.scratchBytes()));
  }

  void run(const void *first, const void *second, float *result) const override {
    // One allocation: scratch of reorders, scratch of the primitive, tensors in its layouts.
    size_t reorderBytes = 0;
    for (const Side &side : sides)
      reorderBytes = std::max(reorderBytes, aligned(side.change.scratchBytes()));
    size_t bytes = reorderBytes + aligned(made.scratch.get_size());
    std::array<size_t, 3> places{};
    for (size_t i = 0; i < sides.size(); ++i)
      if (isBrought(i)) {
        places[i] = bytes;
        bytes += aligned(sides[i].inside.get_size());
      }
    char *memory = threadScratch(bytes);

    std::array<void *, 3> inside = {const_cast<void *>(first), const_cast<void *>(second), result};
    for (size_t i = 0; i < sides.size(); ++i) {
      if (!isBrought(i))
        continue;
      if (i < 2)
        sides[i].change.run(inside[i], memory + places[i], memory);
      inside[i] = memory + places[i];
    }
    const dnnl::engine &engine = dnnlEngine();
    std::unordered_map<int, dnnl::memory> tensors;
    for (size_t i = 0; i < sides.size(); ++i)
      tensors[arguments[i]] = dnnl::memory(sides[i].inside, engine, inside[i]);
    tensors[DNNL_ARG_SCRATCHPAD] = dnnl::memory(made.scratch, engine, memory + reorderBytes);
    made.primitive.execute(dnnlStream(), tensors);
    for (int64_t n = 0; n < zeroed.samples; ++n)
      std::fill_n(result + n * zeroed.stride, zeroed.elements, 0.0F);
    if (isBrought(2))
      sides[2].change.run(inside[2], result, memory);
  }

private:
  /// An operand or the result, in the primitive's layout; `change` reorders it to that layout or
  /// back.
  struct Side {
    memory::desc inside;
    Reorder change;
  };

  void setSides(const memory::desc &first, const memory::desc &second, const memory::desc &result,
                Reorder firstChange, Reorder secondChange, Reorder resultChange) {
    sides[0] = {first, std::move(firstChange)};
    sides[1] = {second, std::move(secondChange)};
    sides[2] = {result, std::move(resultChange)};
  }

  /// Whether `run` reorders a side. Packed weights already have their layout.
  bool isBrought(size_t side) const {
    bool isPacked = side == 1 && kind != ConvolutionKind::WeightGradient;
    return !isPacked && bool(sides[side].change);
  }

  /// The gradient of x, where windows leave out elements: theirs is 0.
  struct Zeroed {
    int64_t samples = 0, elements = 0, stride = 0;
  };

  ConvolutionKind kind;
  Zeroed zeroed;
  Primitive made;
  std::array<int, 3> arguments{};
  std::array<Side, 3> sides;
};

} // namespace

std::shared_ptr<const ConvolutionPart> ConvolutionPart::find(const ConvolutionShape &shape) {
  return primitiveOf<ConvolutionPart, DnnlConvolution>(shape);
}

} // namespace tbc::cpu
