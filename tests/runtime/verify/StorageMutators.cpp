//===- StorageMutators.cpp - Wrong pieces and replicas ---------------------===//

#include "tests/runtime/verify/MutationSite.h"

#include <algorithm>

namespace tbc::verify {
namespace {

using namespace tbc::program;
using Random = std::mt19937;

//===----------------------------------------------------------------------===//
// Ownership
//===----------------------------------------------------------------------===//

bool outlivesAStep(const Slot &slot) {
  return slot.role == Role::Parameter || slot.role == Role::State ||
         slot.role == Role::OptimizerState;
}

/// Picks a slot of a tensor that outlives the step.
bool pickSlot(Mutant &m, Random &random, int &stage, int &slot) {
  std::vector<std::pair<int, int>> slots;
  for (int s = 0; s < m.program.numStages(); ++s)
    for (size_t i = 0; i < m.program.stages[s].slots.size(); ++i)
      if (outlivesAStep(m.program.stages[s].slots[i]))
        slots.push_back({s, int(i)});
  if (slots.empty())
    return false;
  std::tie(stage, slot) = slots[below(random, slots.size())];
  return true;
}

std::vector<int> holdersOf(const Program &p, int tensor) {
  std::vector<int> stages;
  for (int s = 0; s < p.numStages(); ++s)
    for (const Slot &slot : p.stages[s].slots)
      if (slot.tensor == tensor)
        stages.push_back(s);
  return stages;
}

bool addOrphan(Mutant &m, Random &random) {
  static const Role roles[] = {Role::Parameter, Role::State, Role::OptimizerState};
  m.program.tensors.push_back({"orphan", roles[below(random, 3)], "", {}, wholePiece({}), {}});
  m.names = {inQuotes("orphan")};
  return true;
}

bool doubleOwner(Mutant &m, Random &random) {
  int stage = 0, index = 0;
  if (!pickSlot(m, random, stage, index))
    return false;
  Slot slot = m.program.stages[stage].slots[index];
  m.names = {inQuotes(m.program.tensors[slot.tensor].name)};
  slot.name += " again";
  m.program.stages[stage].slots.push_back(slot);
  return true;
}

/// Makes a slot a piece of another tensor of the same type. Its own tensor loses its only holder.
bool retargetSlot(Mutant &m, Random &random) {
  int stage = 0, index = 0;
  if (!pickSlot(m, random, stage, index))
    return false;
  Slot &slot = m.program.stages[stage].slots[index];
  if (holdersOf(m.program, slot.tensor).size() != 1)
    return false;
  std::vector<int> others;
  for (size_t t = 0; t < m.program.tensors.size(); ++t) {
    const GlobalTensor &other = m.program.tensors[t];
    if (int(t) != slot.tensor && other.role == slot.role &&
        localShape(other.piece) == slot.type.shape)
      others.push_back(int(t));
  }
  if (others.empty())
    return false;
  m.names = {inQuotes(m.program.tensors[slot.tensor].name)};
  slot.tensor = others[below(random, others.size())];
  m.names.push_back(inQuotes(m.program.tensors[slot.tensor].name));
  return true;
}

//===----------------------------------------------------------------------===//
// Holders
//===----------------------------------------------------------------------===//

/// Picks, at one of its stages, the optimizer step of a weight held by several stages.
bool pickTiedStep(Mutant &m, Random &random, Site &site, int &weightSlot) {
  std::vector<std::pair<Site, int>> steps;
  for (const Site &at : sitesOf(m.program, [](const Instruction &it, const Site &) {
         return it.op == "sgd_momentum";
       })) {
    std::vector<std::string> readers = readersOf(m.program, at, at.in(m.program).results[0], true);
    for (const BlockResult &result : at.block(m.program).results) {
      const Slot &slot = m.program.stages[at.stage].slots[result.slot];
      bool isIts = std::count(readers.begin(), readers.end(),
                              slotName(m.program, at.stage, result.slot)) != 0;
      if (isIts && slot.role == Role::Parameter && holdersOf(m.program, slot.tensor).size() > 1)
        steps.push_back({at, result.slot});
    }
  }
  if (steps.empty())
    return false;
  std::tie(site, weightSlot) = steps[below(random, steps.size())];
  const std::string &weight = m.program.stages[site.stage].slots[weightSlot].name;
  m.names = {inQuotes(weight), inQuotes(weight + ".buf"), inQuotes(site.in(m.program).id)};
  return true;
}

/// One of the holders writes only its optimizer state.
bool missUpdateAtOneHolder(Mutant &m, Random &random) {
  Site site;
  int slot = 0;
  if (!pickTiedStep(m, random, site, slot))
    return false;
  Block &block = site.block(m.program);
  auto isWeight = [&](const BlockResult &result) { return result.slot == slot; };
  block.results.erase(std::remove_if(block.results.begin(), block.results.end(), isWeight),
                      block.results.end());
  Instruction &step = site.in(m.program);
  step.op = "add";
  step.attrs = {};
  step.results = {step.results[1]};
  step.operands = {step.operands[1], step.operands[2]};
  removeUnused(block);
  return true;
}

bool stepOtherwise(Mutant &m, Random &random) {
  Site site;
  int slot = 0;
  if (!pickTiedStep(m, random, site, slot))
    return false;
  site.in(m.program).attrs.set(below(random, 2) ? "momentum" : "weight_decay", 0.25);
  return true;
}

/// One of the holders scales the gradient, unlike the others.
bool scaleAtOneHolder(Mutant &m, Random &random) {
  Site site;
  int slot = 0;
  if (!pickTiedStep(m, random, site, slot))
    return false;
  ValueId g = site.in(m.program).operands[1];
  kernels::TensorType type = m.program.stages[site.stage].values[g];
  ValueId other = insertKernel(m.program, site, below(random, 2) ? "add" : "mul", {g, g}, type);
  ++site.index;
  site.in(m.program).operands[1] = other;
  return true;
}

//===----------------------------------------------------------------------===//
// Layouts
//===----------------------------------------------------------------------===//

std::vector<AxisRef> realAxes(const std::vector<AxisRef> &axes) {
  std::vector<AxisRef> list;
  for (const AxisRef &axis : axes)
    if (axis.size > 1)
      list.push_back(axis);
  return list;
}

/// Returns the mesh axes with more than one rank, except the pipeline's.
std::vector<int> dataAxes(const Program &p) {
  std::vector<int> list;
  for (size_t i = 0; i < p.mesh.axes.size(); ++i)
    if (int(i) != p.pipelineAxis && p.mesh.axes[i].size > 1)
      list.push_back(int(i));
  return list;
}

/// Collectives on a weight's pieces. The checker knows the layout they must produce.
bool isOnPieces(const Program &p, const Instruction &it) {
  bool moves = it.kind == InstructionKind::AllGather || it.kind == InstructionKind::ReduceScatter ||
               it.kind == InstructionKind::ShardSlice;
  return moves && isGroup(p, it) && it.id[0] == 'w';
}
bool pickOnPieces(Mutant &m, Random &random, Site &site,
                  const std::function<bool(const Communication &)> &fits) {
  auto all = [&](const Instruction &it, const Site &) {
    return isOnPieces(m.program, it) && fits(it.comm);
  };
  if (!pickSite(m.program, random, all, site))
    return false;
  nameSite(m, site, true);
  return true;
}

bool reverseOrder(Mutant &m, Random &random) {
  Site site;
  auto several = [](const Communication &comm) { return realAxes(comm.axes).size() > 1; };
  if (!pickOnPieces(m, random, site, several))
    return false;
  std::vector<AxisRef> &axes = site.in(m.program).comm.axes;
  axes = realAxes(axes);
  std::vector<AxisRef> before = axes;
  std::reverse(axes.begin(), axes.end());
  // Two parts of one axis in order are the axis itself. In reverse order they are not.
  return before != axes;
}

bool moveOverOtherAxis(Mutant &m, Random &random) {
  Site site;
  if (!pickOnPieces(m, random, site, [](const Communication &) { return true; }))
    return false;
  Communication &comm = site.in(m.program).comm;
  int64_t size = groupSize(comm.axes);
  std::vector<std::vector<AxisRef>> others;
  for (int axis : dataAxes(m.program)) {
    bool isNew = std::none_of(comm.axes.begin(), comm.axes.end(),
                              [&](const AxisRef &ref) { return ref.axis == axis && ref.size > 1; });
    // A kernel may use a weight still split along dim 0 in its own way.
    bool isKernels =
        m.program.mesh.axes[axis].name == "tp" && comm.dim == 0 && site.kind != Kind::Update;
    if (isNew && !isKernels && m.program.mesh.axes[axis].size == size)
      others.push_back({wholeAxis(m.program.mesh, axis)});
  }
  if (others.empty())
    return false;
  comm.axes = others[below(random, others.size())];
  return true;
}

/// Takes every k-th element instead of contiguous runs.
bool interleave(Mutant &m, Random &random) {
  Site site;
  auto hasRuns = [](const Communication &comm) {
    return comm.dim >= 0 && comm.segments[0].k > 1 && comm.segments[0].outer == 1;
  };
  if (!pickOnPieces(m, random, site, hasRuns))
    return false;
  SegmentShape &segment = site.in(m.program).comm.segments[0];
  std::swap(segment.k, segment.outer);
  return true;
}

/// Places the pieces of a tensor on ranks in another order, or along another axis.
bool cutTensorOtherwise(Mutant &m, Random &random) {
  int stage = 0, index = 0;
  if (!pickSlot(m, random, stage, index))
    return false;
  const Slot &slot = m.program.stages[stage].slots[index];
  GlobalTensor &tensor = m.program.tensors[slot.tensor];
  bool isUpdated = false; // an untrained weight may be split in any way
  for (const BlockResult &result : m.program.stages[stage].update.results)
    isUpdated |= result.slot == index;
  if (!isUpdated)
    return false;
  std::vector<std::vector<AxisRef> *> lists = {&tensor.piece.flat};
  for (PieceDim &dim : tensor.piece.dims)
    for (PieceSegment &segment : dim)
      for (PieceFactor &factor : segment)
        lists.push_back(&factor.axes);
  std::vector<AxisRef> &axes = *lists[below(random, lists.size())];
  std::vector<AxisRef> before = realAxes(axes), after = before;
  std::vector<int> others = dataAxes(m.program);
  if (before.empty())
    return false;
  for (const AxisRef &axis : before)
    if (m.program.mesh.axes[axis.axis].name == "tp" && slot.role == Role::Parameter)
      return false; // that would be another computation from forward on
  if (before.size() > 1 && below(random, 2)) {
    std::reverse(after.begin(), after.end());
  } else {
    AxisRef &axis = after[below(random, after.size())];
    int other = others[below(random, others.size())];
    if (other == axis.axis || m.program.mesh.axes[other].size != axis.size)
      return false;
    axis = wholeAxis(m.program.mesh, other);
  }
  axes = after;
  for (int s = 0; s < m.program.numStages(); ++s)
    for (BlockId id : m.program.stages[size_t(s)].blocks()) {
      Site block{s, id.kind, 0, id.chunk};
      for (const Argument &argument : block.block(m.program).arguments)
        if (m.program.stages[s].slots[argument.slot].tensor == slot.tensor)
          addNames(m, readersOf(m.program, block, argument.value, true));
    }
  m.names.push_back("slot " + inQuotes(slot.name));
  m.names.push_back("tensor " + inQuotes(tensor.name));
  return true;
}

bool forgetPartial(Mutant &m, Random &random) {
  std::vector<int> tensors;
  for (size_t t = 0; t < m.program.tensors.size(); ++t)
    if (!realAxes(m.program.tensors[t].partial).empty() && !holdersOf(m.program, int(t)).empty())
      tensors.push_back(int(t));
  if (tensors.empty())
    return false;
  GlobalTensor &tensor = m.program.tensors[tensors[below(random, tensors.size())]];
  tensor.partial = realAxes(tensor.partial);
  tensor.partial.erase(tensor.partial.begin() + int64_t(below(random, tensor.partial.size())));
  m.names = {"slot " + inQuotes(tensor.name)};
  return true;
}

//===----------------------------------------------------------------------===//
// Replicas
//===----------------------------------------------------------------------===//

/// Returns whether replicas depend on this sum over ranks: of gradients, running statistics or the
/// loss.
bool isNeededSum(const Program &p, const Instruction &it) {
  bool isIts = it.id.find(".reduce") != std::string::npos || it.id.rfind("mean", 0) == 0 ||
               it.id.rfind("loss", 0) == 0;
  return it.kind == InstructionKind::AllReduce && isGroup(p, it) && isIts;
}
bool pickNeededSum(Mutant &m, Random &random, Site &site) {
  auto fits = [&](const Instruction &it, const Site &) { return isNeededSum(m.program, it); };
  if (!pickSite(m.program, random, fits, site))
    return false;
  nameSite(m, site, true);
  return true;
}

bool leaveOutSum(Mutant &m, Random &random) {
  Site site;
  if (!pickNeededSum(m, random, site))
    return false;
  Instruction it = site.in(m.program);
  erase(m.program, site);
  replaceReads(site.block(m.program), it.results[0], it.operands[0]);
  return true;
}

bool sumOverFewer(Mutant &m, Random &random) {
  Site site;
  if (!pickNeededSum(m, random, site))
    return false;
  std::vector<AxisRef> &axes = site.in(m.program).comm.axes;
  axes = realAxes(axes);
  if (axes.size() < 2)
    return false;
  axes.erase(axes.begin() + int64_t(below(random, axes.size())));
  return true;
}

bool sumOverOther(Mutant &m, Random &random) {
  Site site;
  if (!pickNeededSum(m, random, site))
    return false;
  std::vector<AxisRef> &axes = site.in(m.program).comm.axes;
  axes = realAxes(axes);
  AxisRef &axis = axes[below(random, axes.size())];
  std::vector<int> others = dataAxes(m.program);
  int other = others[below(random, others.size())];
  for (const AxisRef &ref : axes)
    if (ref.axis == other)
      return false;
  axis = wholeAxis(m.program.mesh, other);
  return true;
}

bool sumTwice(Mutant &m, Random &random) {
  Site site;
  auto fits = [&](const Instruction &it, const Site &) {
    return it.kind == InstructionKind::AllReduce && isGroup(m.program, it) &&
           it.comm.reduce == ReduceKind::Sum && !isMeeting(m.program, it);
  };
  if (!pickSite(m.program, random, fits, site))
    return false;
  Instruction again = site.in(m.program);
  m.names = {inQuotes(again.id + ".again")};
  again.id += ".again";
  ValueId result = again.results[0];
  ValueId second = newValue(m.program, site.stage, m.program.stages[site.stage].values[result]);
  again.operands = {result};
  again.results = {second};
  replaceReads(site.block(m.program), result, second);
  std::vector<Instruction> &list = site.block(m.program).instructions;
  list.insert(list.begin() + int64_t(site.index) + 1, again);
  return true;
}

/// Adds a rank's own share to the sum a second time.
bool addOwnShare(Mutant &m, Random &random) {
  Site site;
  if (!pickNeededSum(m, random, site))
    return false;
  Instruction it = site.in(m.program);
  ++site.index;
  ValueId own =
      insertKernel(m.program, site, "add", {it.results[0], it.operands[0]},
                   kernels::TensorType(m.program.stages[site.stage].values[it.results[0]]));
  m.names.push_back(inQuotes("inserted"));
  replaceReads(site.block(m.program), it.results[0], own, site.index);
  return true;
}

/// Replaces a reduce_scatter by a slice of the value that ranks share, without the sum.
bool scatterWithoutSum(Mutant &m, Random &random) {
  Site site;
  auto fits = [&](const Instruction &it, const Site &at) {
    return it.kind == InstructionKind::ReduceScatter && isOnPieces(m.program, it);
  };
  if (!pickSite(m.program, random, fits, site))
    return false;
  nameSite(m, site);
  site.in(m.program).kind = InstructionKind::ShardSlice;
  return true;
}

bool changeMovement(Mutant &m, Random &random) {
  Site site;
  auto fits = [&](const Instruction &it, const Site &) { return isOnPieces(m.program, it); };
  if (!pickSite(m.program, random, fits, site))
    return false;
  nameSite(m, site);
  InstructionKind &kind = site.in(m.program).kind;
  if (kind == InstructionKind::AllGather)
    kind = below(random, 2) ? InstructionKind::ReduceScatter : InstructionKind::AllReduce;
  else
    kind = below(random, 2) ? InstructionKind::AllGather : InstructionKind::AllReduce;
  return true;
}

/// One side of a collective has another shape or dtype than its operand implies.
bool resizeCollective(Mutant &m, Random &random) {
  Site site;
  auto fits = [&](const Instruction &it, const Site &) { return isGroup(m.program, it); };
  if (!pickSite(m.program, random, fits, site))
    return false;
  nameSite(m, site);
  Instruction &it = site.in(m.program);
  kernels::TensorType type = m.program.stages[site.stage].values[it.results[0]];
  if (below(random, 2))
    type.dtype = kernels::DType::F64;
  else
    type.shape.push_back(2);
  ValueId old = it.results[0], other = newValue(m.program, site.stage, type);
  it.results[0] = other;
  replaceReads(site.block(m.program), old, other);
  return true;
}

} // namespace

std::vector<NamedMutator> storageMutators() {
  return {{"AddOrphan", addOrphan},
          {"DoubleOwner", doubleOwner},
          {"RetargetSlot", retargetSlot},
          {"MissUpdateAtOneHolder", missUpdateAtOneHolder},
          {"StepOtherwise", stepOtherwise},
          {"ScaleAtOneHolder", scaleAtOneHolder},
          {"ReverseOrder", reverseOrder},
          {"MoveOverOtherAxis", moveOverOtherAxis},
          {"Interleave", interleave},
          {"CutTensorOtherwise", cutTensorOtherwise},
          {"ForgetPartial", forgetPartial},
          {"LeaveOutSum", leaveOutSum},
          {"SumOverFewer", sumOverFewer},
          {"SumOverOther", sumOverOther},
          {"SumTwice", sumTwice},
          {"AddOwnShare", addOwnShare},
          {"ScatterWithoutSum", scatterWithoutSum},
          {"ChangeMovement", changeMovement},
          {"ResizeCollective", resizeCollective}};
}

} // namespace tbc::verify
