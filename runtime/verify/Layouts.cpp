//===- Layouts.cpp - Pieces fit where they are stored -----------------------===//
//
// Tracks, for every value, how it is cut from its global tensor. A block reads the tensor's piece
// from its slot. Gathers undo the last cut along their axes, in its order and at its place;
// scatters and slices add a cut. Sums, and the kernels of update, which are elementwise, keep the
// common cut of their operands. A value written to a tensor's slot must be cut as the tensor's
// piece.
//
// Results of other kernels have an unknown cut. Only the cuts added later by collectives are known.
// Such a layout is *relative*: it is compared with a slot's layout only along its own axes.
// Example: an unknown value after a reduce_scatter over dp along dim 0 is only known to be cut over
// dp there.
//
//===----------------------------------------------------------------------===//

#include "runtime/verify/Places.h"
#include "runtime/verify/Verify.h"

#include <algorithm>
#include <memory>

namespace tbc::verify {
namespace {

using program::AxisRef;
using program::Block;
using program::Communication;
using program::Instruction;
using program::InstructionKind;
using program::Program;
using program::SegmentShape;
using program::Slot;
using program::Stage;
using program::ValueId;

/// A part of a segment. It is either `size` consecutive elements on this rank, or (if axis.size >
/// 1) a cut with one element per rank along `axis`. The first part is the slowest.
struct Part {
  int64_t size = 1;
  AxisRef axis{-1, 1, 1};

  bool isCut() const { return axis.size > 1; }
  bool operator==(const Part &o) const { return size == o.size && axis == o.axis; }
};
using Parts = std::vector<Part>;

/// Appends a part in canonical form: it joins neighbours of one kind and skips parts with a single
/// element.
void addPart(Parts &parts, const Part &part) {
  if (part.size == 1 && !part.isCut())
    return;
  Part *last = parts.empty() ? nullptr : &parts.back();
  if (last && !last->isCut() && !part.isCut())
    last->size *= part.size;
  else if (last && last->isCut() && part.isCut() && last->axis.axis == part.axis.axis &&
           part.axis.pre == last->axis.pre * last->axis.size)
    last->axis.size *= part.axis.size;
  else
    parts.push_back(part);
}

Parts cutsOf(const std::vector<AxisRef> &axes) {
  Parts parts;
  for (const AxisRef &axis : axes)
    addPart(parts, {1, axis});
  return parts;
}

struct Layout {
  std::vector<std::vector<Parts>> dims; // dim > segment
  Parts flat;
  bool isRelative = false;

  bool operator==(const Layout &o) const { return dims == o.dims && flat == o.flat; }
};

bool isCut(const Parts &parts) {
  return std::any_of(parts.begin(), parts.end(), [](const Part &part) { return part.isCut(); });
}
int64_t localSize(const Parts &parts) {
  int64_t size = 1;
  for (const Part &part : parts)
    size *= part.size;
  return size;
}

/// Joins neighbouring segments without cuts into one.
void joinSegments(std::vector<Parts> &dim) {
  std::vector<Parts> joined;
  for (Parts &segment : dim) {
    bool joins = !joined.empty() && !isCut(joined.back()) && !isCut(segment);
    if (!joins) {
      joined.push_back(std::move(segment));
      continue;
    }
    Parts sum;
    addPart(sum, {localSize(joined.back()) + localSize(segment), {-1, 1, 1}});
    joined.back() = std::move(sum);
  }
  dim = std::move(joined);
}

Layout layoutOf(const program::Piece &piece) {
  Layout layout;
  for (const program::PieceDim &pieceDim : piece.dims) {
    std::vector<Parts> &dim = layout.dims.emplace_back();
    for (const program::PieceSegment &segment : pieceDim) {
      Parts &parts = dim.emplace_back();
      for (const program::PieceFactor &factor : segment) {
        for (const AxisRef &axis : factor.axes)
          addPart(parts, {1, axis});
        addPart(parts, {factor.size / groupSize(factor.axes), {-1, 1, 1}});
      }
    }
    joinSegments(dim);
  }
  layout.flat = cutsOf(piece.flat);
  return layout;
}

/// Returns the layout of a value with unknown cuts.
Layout relativeLayout(const kernels::TensorType &type) {
  Layout layout = layoutOf(program::wholePiece(type.shape));
  layout.isRelative = true;
  return layout;
}

/// Removes the cuts `axes` from a segment, with `outer` slower elements before them. Returns false
/// if they are not there.
bool removeCuts(Parts &segment, const Parts &axes, const SegmentShape &shape) {
  int64_t outer = 1;
  for (size_t i = 0; i + axes.size() <= segment.size(); ++i) {
    if (outer == shape.outer &&
        std::equal(axes.begin(), axes.end(), segment.begin() + int64_t(i))) {
      Parts result;
      for (size_t k = 0; k < segment.size(); ++k) {
        bool isGathered = k >= i && k < i + axes.size();
        addPart(result, isGathered ? Part{segment[k].axis.size, {-1, 1, 1}} : segment[k]);
      }
      segment = std::move(result);
      return true;
    }
    outer *= segment[i].size;
  }
  return false;
}

/// Inserts the cuts `axes` into a segment, behind `shape.outer` slower elements. Returns false if
/// the sizes of the parts do not divide.
bool insertCuts(Parts &segment, const Parts &axes, const SegmentShape &shape) {
  int64_t n = 1;
  for (const Part &axis : axes)
    n *= axis.axis.size;
  Parts result;
  int64_t outer = shape.outer, cut = n;
  bool isInserted = false;
  for (const Part &part : segment) {
    if (part.isCut()) {
      addPart(result, part);
      continue;
    }
    int64_t size = part.size;
    if (outer > 1) {
      int64_t before = std::min(outer, size);
      if (outer % before != 0 || size % before != 0)
        return false;
      addPart(result, {before, {-1, 1, 1}});
      outer /= before, size /= before;
    }
    if (outer == 1 && size > 1 && cut > 1) {
      if (!isInserted)
        for (const Part &axis : axes)
          addPart(result, axis);
      isInserted = true;
      int64_t taken = std::min(cut, size);
      if (cut % taken != 0 || size % taken != 0)
        return false;
      cut /= taken, size /= taken;
    }
    addPart(result, {size, {-1, 1, 1}});
  }
  if (cut > 1 || outer > 1)
    return false;
  segment = std::move(result);
  return true;
}

/// Null: the cut is unknown and no collective has added one.
using LayoutPtr = std::shared_ptr<const Layout>;

class LayoutChecker {
public:
  LayoutChecker(const Program &program, const std::vector<LayoutPtr> &tensors, int stageIndex)
      : program(program), tensors(tensors), stageIndex(stageIndex),
        stage(program.stages[stageIndex]), values(stage.values.size()), slots(stage.slots.size()),
        source(stage.values.size(), -1) {}

  Status check() {
    for (BlockId id : stage.blocks()) {
      if (Status status = checkBlock(id); !status)
        return status;
    }
    return Status::ok();
  }

private:
  Status checkBlock(BlockId id) {
    const Block &block = stage.block(id);
    for (const program::Argument &argument : block.arguments) {
      int tensor = stage.slots[argument.slot].tensor;
      values[argument.value] = tensor >= 0 ? tensors[tensor] : slots[argument.slot];
    }
    for (size_t i = 0; i < block.instructions.size(); ++i) {
      const Instruction &instruction = block.instructions[i];
      Status status = Status::ok();
      if (isHostCopy(instruction.kind))
        values[instruction.results[0]] = values[instruction.operands[0]];
      else if (isCommunication(instruction.kind))
        status = runCommunication(id, int(i));
      else
        status = runKernel(id, int(i));
      if (!status)
        return status;
      for (ValueId value : block.instructions[i].results)
        source[value] = int(i);
    }
    for (const program::BlockResult &result : block.results) {
      const Slot &slot = stage.slots[result.slot];
      const LayoutPtr &layout = values[result.value];
      if (!layout)
        continue;
      const LayoutPtr &held = slot.tensor >= 0 ? tensors[slot.tensor] : slots[result.slot];
      if (held && held != layout && !fits(*layout, *held))
        return rejectResult(id, result, slot);
      if (slot.tensor < 0)
        slots[result.slot] = layout;
    }
    return Status::ok();
  }

  Status rejectResult(BlockId id, const program::BlockResult &result, const Slot &slot) const {
    std::string place = source[result.value] < 0
                            ? describe(program, stageIndex, id)
                            : describe(program, stageIndex, id, source[result.value]);
    std::string why = "its pieces are cut otherwise than what the slot holds";
    if (slot.tensor >= 0)
      why = "its pieces are cut otherwise than those of tensor \"" +
            program.tensors[slot.tensor].name + "\", " +
            toString(program.mesh, program.tensors[slot.tensor].piece);
    return rejected(place + ", result to slot \"" + slot.name + "\"", why);
  }

  /// The result of a collective on a layout. Layers repeat, so the next call often has the same.
  struct Moved {
    LayoutPtr operand;
    const kernels::Shape *shape;
    const Instruction *instruction;
    LayoutPtr result;
  };
  static constexpr size_t maxRecent = 8;

  static bool movesAlike(const Instruction &a, const Instruction &b) {
    return a.kind == b.kind && a.comm.axes == b.comm.axes && a.comm.dim == b.comm.dim &&
           a.comm.segments == b.comm.segments && a.comm.splitDim == b.comm.splitDim &&
           a.comm.splitSegments == b.comm.splitSegments;
  }

  Status runKernel(BlockId id, int index) {
    const Instruction &instruction = stage.block(id).instructions[index];
    if (instruction.results.empty() || (id.kind != Kind::Update && instruction.op != "add"))
      return Status::ok();
    const kernels::Shape &shape = stage.values[instruction.results[0]].shape;
    LayoutPtr known; // the most precise layout among the operands
    for (ValueId operand : instruction.operands) {
      const LayoutPtr &layout = values[operand];
      if (!layout || stage.values[operand].shape != shape)
        continue;
      bool isMore = !known || (known->isRelative && !layout->isRelative);
      const LayoutPtr &more = isMore ? layout : known, &less = isMore ? known : layout;
      if (less && less != more && !fits(*less, *more)) {
        if (more->isRelative && !nameTheSameAxes(*less, *more)) {
          // Each may have, unknown here, the cuts that only the other is known to have.
          known = nullptr;
          break;
        }
        return rejected(describe(program, stageIndex, id, index),
                        "its operands are cut from their tensors in different ways");
      }
      known = more;
    }
    for (ValueId result : instruction.results) {
      if (stage.values[result].shape == shape)
        values[result] = known;
    }
    return Status::ok();
  }

  Status runCommunication(BlockId id, int index) {
    const Instruction &instruction = stage.block(id).instructions[index];
    for (size_t i = 0; i < instruction.operands.size() && i < instruction.results.size(); ++i)
      if (Status status = communicate(id, index, i); !status)
        return status;
    return Status::ok();
  }

  /// Computes the layout of the collective's result number `i`.
  Status communicate(BlockId id, int index, size_t i) {
    const Instruction &instruction = stage.block(id).instructions[index];
    const Communication &comm = instruction.comm;
    const LayoutPtr &operand = values[instruction.operands[i]];
    LayoutPtr &result = values[instruction.results[i]];
    Parts axes = cutsOf(comm.axes);
    if (instruction.kind == InstructionKind::Permute) { // another rank's piece
      result = nullptr;
      return Status::ok();
    }
    if (axes.empty() || instruction.kind == InstructionKind::AllReduce) {
      result = operand;
      return Status::ok();
    }
    const kernels::Shape &shape = stage.values[instruction.operands[i]].shape;
    for (const Moved &moved : recent) {
      if (moved.operand == operand && *moved.shape == shape &&
          movesAlike(*moved.instruction, instruction)) {
        result = moved.result;
        return Status::ok();
      }
    }
    Layout layout = operand ? *operand : relativeLayout(stage.values[instruction.operands[i]]);
    bool isExchange = instruction.kind == InstructionKind::AllToAll;
    bool gathers = instruction.kind == InstructionKind::AllGather || isExchange;
    bool isRight = !gathers || gather(layout, axes, comm.dim, comm.segments);
    if (isRight && isExchange)
      isRight = scatter(layout, axes, comm.splitDim, comm.splitSegments);
    else if (isRight && !gathers)
      isRight = scatter(layout, axes, comm.dim, comm.segments);
    bool isUnknown = layout.isRelative;
    if (isRight)
      result = std::make_shared<const Layout>(std::move(layout));
    if (isRight || isUnknown) {
      if (recent.size() == maxRecent)
        recent.erase(recent.begin());
      recent.push_back({operand, &shape, &instruction, result});
      return Status::ok();
    }
    return rejected(describe(program, stageIndex, id, index),
                    std::string(gathers ? "it gathers" : "it cuts") + " over \"" +
                        toString(program.mesh, comm.axes) +
                        "\" in an order or at a place that does not fit how its operand is cut");
  }

  static int64_t ranks(const Parts &axes) {
    int64_t product = 1;
    for (const Part &axis : axes)
      product *= axis.axis.size;
    return product;
  }
  /// Returns the number of local elements before flattening.
  static int64_t elements(const Layout &layout) {
    int64_t product = 1;
    for (const std::vector<Parts> &dim : layout.dims) {
      int64_t size = 0;
      for (const Parts &segment : dim)
        size += localSize(segment);
      product *= size;
    }
    return product;
  }

  static bool gather(Layout &layout, const Parts &axes, int dim,
                     const std::vector<SegmentShape> &segments) {
    if (dim == Communication::flatDim) {
      // The last cut, or all of them at once.
      bool isThere = layout.flat.size() >= axes.size() &&
                     std::equal(axes.rbegin(), axes.rend(), layout.flat.rbegin());
      if (isThere)
        layout.flat.resize(layout.flat.size() - axes.size());
      return isThere;
    }
    std::vector<Parts> &parts = layout.dims[dim];
    if (!layout.flat.empty() || parts.size() != segments.size())
      return false;
    for (size_t s = 0; s < parts.size(); ++s) {
      const SegmentShape &shape = segments[s];
      if (localSize(parts[s]) != shape.outer * shape.k * shape.inner ||
          !removeCuts(parts[s], axes, shape))
        return false;
    }
    joinSegments(parts);
    return true;
  }
  /// If the full dim is one uncut segment, it is first divided into `segments`.
  static bool scatter(Layout &layout, const Parts &axes, int dim,
                      const std::vector<SegmentShape> &segments) {
    if (dim == Communication::flatDim) {
      // Chunks of chunks equal chunks over all axes, provided no cut pads.
      bool isEven =
          layout.flat.empty() || elements(layout) % (ranks(layout.flat) * ranks(axes)) == 0;
      layout.flat.insert(layout.flat.end(), axes.begin(), axes.end());
      return isEven;
    }
    int64_t n = ranks(axes);
    std::vector<Parts> &parts = layout.dims[dim];
    if (!layout.flat.empty())
      return false;
    if (parts.size() == 1 && segments.size() > 1 && !isCut(parts[0])) {
      parts.clear();
      for (const SegmentShape &shape : segments)
        addPart(parts.emplace_back(), {n * shape.outer * shape.k * shape.inner, {-1, 1, 1}});
    }
    if (parts.size() != segments.size())
      return false;
    for (size_t s = 0; s < parts.size(); ++s) {
      const SegmentShape &shape = segments[s];
      if (localSize(parts[s]) != n * shape.outer * shape.k * shape.inner ||
          !insertCuts(parts[s], axes, shape))
        return false;
    }
    return true;
  }

  static bool names(const Layout &layout, const AxisRef &axis) {
    auto namesIt = [&](const Parts &parts) {
      return std::any_of(parts.begin(), parts.end(), [&](const Part &part) {
        return part.isCut() && part.axis.axis == axis.axis &&
               part.axis.pre < axis.pre * axis.size && axis.pre < part.axis.pre * part.axis.size;
      });
    };
    for (const std::vector<Parts> &dim : layout.dims)
      if (std::any_of(dim.begin(), dim.end(), namesIt))
        return true;
    return namesIt(layout.flat);
  }

  static std::vector<AxisRef> axesNamedBy(const Layout &layout) {
    std::vector<AxisRef> axes;
    auto add = [&](const Parts &parts) {
      for (const Part &part : parts)
        if (part.isCut())
          axes.push_back(part.axis);
    };
    for (const std::vector<Parts> &dim : layout.dims)
      std::for_each(dim.begin(), dim.end(), add);
    add(layout.flat);
    return axes;
  }
  static bool nameTheSameAxes(const Layout &a, const Layout &b) {
    auto allIn = [](const Layout &x, const Layout &y) {
      std::vector<AxisRef> axes = axesNamedBy(x);
      return std::all_of(axes.begin(), axes.end(),
                         [&](const AxisRef &axis) { return names(y, axis); });
    };
    return allIn(a, b) && allIn(b, a);
  }

  /// Returns whether `value` agrees with `slot`, whose layout is at least as well known.
  static bool fits(const Layout &value, const Layout &slot) {
    if (!value.isRelative || slot.isRelative)
      return value == slot;
    if (value.flat.empty() && !slot.flat.empty())
      return true; // a chunk from elsewhere
    Layout restricted;
    restricted.flat = value.flat.empty() ? Parts() : slot.flat;
    for (const std::vector<Parts> &slotDim : slot.dims) {
      std::vector<Parts> &dim = restricted.dims.emplace_back();
      for (const Parts &slotParts : slotDim) {
        Parts &parts = dim.emplace_back();
        for (const Part &part : slotParts)
          if (!part.isCut() || names(value, part.axis))
            addPart(parts, part);
      }
      joinSegments(dim);
    }
    return value == restricted;
  }

  const Program &program;
  const std::vector<LayoutPtr> &tensors;
  int stageIndex;
  const Stage &stage;
  std::vector<LayoutPtr> values;
  std::vector<Moved> recent;
  std::vector<LayoutPtr> slots; // for slots without a tensor: the layout written last
  std::vector<int> source;      // by value: its defining instruction, -1 for arguments
};

} // namespace

Status checkLayouts(const Program &program) {
  std::vector<LayoutPtr> tensors;
  for (size_t i = 0; i < program.tensors.size(); ++i) {
    // Neighbours are often cut alike.
    const program::Piece &piece = program.tensors[i].piece;
    tensors.push_back(i > 0 && piece == program.tensors[i - 1].piece
                          ? tensors[i - 1]
                          : std::make_shared<const Layout>(layoutOf(piece)));
  }
  for (int stage = 0; stage < program.numStages(); ++stage) {
    if (Status status = LayoutChecker(program, tensors, stage).check(); !status)
      return status;
  }
  return Status::ok();
}

} // namespace tbc::verify
