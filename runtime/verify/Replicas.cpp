//===- Replicas.cpp - Replicas stay equal ----------------------------------===//
//
// Tracks, for every value, the mesh axes along which ranks may hold different ones. Inputs and
// stored tensors differ along their cut axes. Kernels take the union over their operands.
// Collectives remove or add axes. The pipeline axis is included, for stages with the same tensor.
//
// A value without inputs (a constant, an index), or a value repeated into new dims, may stand for a
// shard and yet be equal on all ranks. `isUniform` marks values whose equality proves no
// replication.
//
//===----------------------------------------------------------------------===//

#include "runtime/verify/Places.h"
#include "runtime/verify/Verify.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace tbc::verify {
namespace {

using program::AxisRef;
using program::Block;
using program::Instruction;
using program::InstructionKind;
using program::Piece;
using program::Program;
using program::Role;
using program::Slot;
using program::Stage;
using program::ValueId;

using AxisSet = uint64_t;
constexpr AxisSet all = ~AxisSet(0);

/// The mesh axes as bits of an AxisSet. Each axis is split at every place where the program splits
/// it into parts. Parts of size 1 have no bit, because no two ranks differ along them. Example: an
/// axis of 8 that is used as 8 and as parts 2 x 4 has two bits.
class AxisAtoms {
public:
  explicit AxisAtoms(const Program &program) : mesh(program.mesh), cuts(mesh.axes.size()) {
    for (const program::GlobalTensor &tensor : program.tensors) {
      add(tensor.partial);
      add(tensor.piece.flat);
      for (const program::PieceDim &dim : tensor.piece.dims)
        for (const program::PieceSegment &segment : dim)
          for (const program::PieceFactor &factor : segment)
            add(factor.axes);
    }
    for (const Stage &stage : program.stages)
      for (BlockId block : stage.blocks())
        for (const Instruction &instruction : stage.block(block).instructions)
          add(instruction.comm.axes);
    int bit = 0;
    for (size_t axis = 0; axis < cuts.size(); ++axis) {
      cuts[axis].insert(mesh.axes[axis].size);
      int64_t begin = 1;
      for (int64_t end : cuts[axis]) {
        if (end > begin)
          atoms.push_back({int(axis), begin, end, bit++});
        begin = end;
      }
    }
  }

  /// Returns whether the program splits its axes into more parts than an AxisSet has bits.
  bool isTooFine() const { return atoms.size() > maxAtoms; }

  AxisSet of(const std::vector<AxisRef> &axes) const {
    AxisSet set = 0;
    for (const AxisRef &ref : axes) {
      for (const Atom &atom : atoms) {
        if (atom.axis == ref.axis && atom.begin >= ref.pre && atom.end <= ref.pre * ref.size)
          set |= AxisSet(1) << atom.bit;
      }
    }
    return set;
  }
  AxisSet of(const Piece &piece) const {
    AxisSet set = of(piece.flat);
    for (const program::PieceDim &dim : piece.dims)
      for (const program::PieceSegment &segment : dim)
        for (const program::PieceFactor &factor : segment)
          set |= of(factor.axes);
    return set;
  }

  std::string toString(AxisSet set) const {
    std::vector<AxisRef> axes;
    for (const Atom &atom : atoms) {
      if (set >> atom.bit & 1)
        axes.push_back({atom.axis, atom.begin, atom.end / atom.begin});
    }
    return "\"" + program::toString(mesh, axes) + "\"";
  }

private:
  static constexpr size_t maxAtoms = 64;
  struct Atom {
    int axis;
    int64_t begin, end; // the part between the products of sizes `begin` and `end`
    int bit;
  };
  void add(const std::vector<AxisRef> &axes) {
    for (const AxisRef &ref : axes) {
      cuts[ref.axis].insert(ref.pre);
      cuts[ref.axis].insert(ref.pre * ref.size);
    }
  }

  const program::Mesh &mesh;
  std::vector<std::set<int64_t>> cuts;
  std::vector<Atom> atoms;
};

/// The knowledge about a value.
struct Knowledge {
  AxisSet differs = 0;
  /// The axes along which it is equal but may stand for shards or partial sums: a shard of a
  /// constant is the constant. A collective over an axis removes it from this set.
  AxisSet uniform = 0;
  /// The axes over which it is a chunk of a flattened tensor.
  AxisSet flat = 0;
};

class ReplicaChecker {
public:
  explicit ReplicaChecker(const Program &program) : program(program), atoms(program) {}

  Status check() {
    if (atoms.isTooFine())
      return rejected("mesh", "its axes are cut into too many different parts");
    if (program.pipelineAxis >= 0)
      pipeline = atoms.of({wholeAxis(program.mesh, program.pipelineAxis)});
    numHolders.assign(program.tensors.size(), 0);
    for (const Stage &stage : program.stages) {
      for (const Slot &slot : stage.slots) {
        if (slot.tensor >= 0)
          ++numHolders[slot.tensor];
      }
    }
    for (int stage = 0; stage < program.numStages(); ++stage)
      initialize(stage);
    for (Kind kind :
         {Kind::Forward, Kind::Backward, Kind::LastBackward, Kind::Weight, Kind::Update}) {
      if (Status status = runBlocks(kind); !status)
        return status;
    }
    return checkEnd();
  }

private:
  /// Returns the axes along which the contents of a slot may differ.
  AxisSet allowed(const Slot &slot) const {
    if (slot.tensor < 0)
      return slot.role == Role::Loss ? pipeline : ~AxisSet(0);
    const program::GlobalTensor &tensor = program.tensors[slot.tensor];
    AxisSet set = atoms.of(tensor.piece) | atoms.of(tensor.partial);
    return numHolders[slot.tensor] > 1 ? set : set | pipeline;
  }

  void initialize(int stage) {
    std::vector<Knowledge> &known = slots.emplace_back(program.stages[stage].slots.size());
    for (size_t i = 0; i < known.size(); ++i) {
      const Slot &slot = program.stages[stage].slots[i];
      bool isZero = slot.role == Role::Gradient || slot.role == Role::Loss;
      if (isZero || slot.role == Role::Scalar) {
        known[i].uniform = isZero ? all : 0;
      } else if (slot.tensor >= 0) {
        known[i].differs = atoms.of(program.tensors[slot.tensor].piece);
        known[i].flat = atoms.of(program.tensors[slot.tensor].piece.flat);
        if (slot.role == Role::Input || numHolders[slot.tensor] == 1)
          known[i].differs |= pipeline;
      }
    }
  }

  /// A message (from, to, channel), or a slot written by another block of the stage (stage, -1,
  /// slot).
  using Need = std::tuple<int, int, int64_t>;
  struct Item {
    int stage;
    BlockId block;
  };

  /// Runs the blocks of a kind on all stages, each as soon as its received messages and read slots
  /// are known. One micro-batch stands for all: a second one would add no knowledge about slots.
  Status runBlocks(Kind kind) {
    std::vector<Item> items;
    std::vector<bool> isDone;
    std::multimap<Need, size_t> waiting; // indices of items
    for (int stage = 0; stage < program.numStages(); ++stage)
      for (BlockId block : program.stages[stage].blocks())
        if (block.kind == kind)
          items.push_back({stage, block});
    isDone.assign(items.size(), false);
    findWriters(items);
    std::vector<size_t> runnable;
    auto visit = [&](size_t item) {
      if (std::optional<Need> missing = missingNeed(items[item]))
        waiting.insert({*missing, item});
      else
        runnable.push_back(item);
    };
    for (size_t item = items.size(); item-- > 0;)
      visit(item);
    auto provide = [&](const Need &need) {
      auto [begin, end] = waiting.equal_range(need);
      std::vector<size_t> waiters;
      for (auto it = begin; it != end; ++it)
        waiters.push_back(it->second);
      waiting.erase(begin, end);
      for (size_t waiter : waiters)
        visit(waiter);
    };
    while (!runnable.empty()) {
      size_t at = runnable.back();
      const Item &item = items[at];
      runnable.pop_back();
      if (Status status = runBlock(item.stage, item.block); !status)
        return status;
      isDone[at] = true;
      const Block &block = program.stages[item.stage].block(item.block);
      for (const program::BlockResult &result : block.results)
        if (unwritten.erase({item.stage, result.slot}))
          provide({item.stage, -1, result.slot});
      for (const Instruction &instruction : block.instructions)
        if (instruction.kind == InstructionKind::Send)
          provide({item.stage, instruction.comm.peerStage, instruction.comm.channel});
    }
    auto missing = std::find(isDone.begin(), isDone.end(), false);
    if (missing == isDone.end())
      return Status::ok();
    const Item &stuck = items[size_t(missing - isDone.begin())];
    return rejected(describe(program, stuck.stage, stuck.block),
                    "it receives from a block that waits for it");
  }

  /// Collects the micro-batch slots written by one of the blocks.
  void findWriters(const std::vector<Item> &items) {
    unwritten.clear();
    for (const Item &item : items)
      for (const program::BlockResult &result :
           program.stages[item.stage].block(item.block).results)
        if (program.stages[item.stage].slots[result.slot].role == Role::Residual)
          unwritten.insert({item.stage, result.slot});
  }

  /// Returns a slot or message needed by the block and still unknown.
  std::optional<Need> missingNeed(const Item &item) const {
    const Block &block = program.stages[item.stage].block(item.block);
    for (const program::Argument &argument : block.arguments)
      if (unwritten.count({item.stage, argument.slot}))
        return Need{item.stage, -1, argument.slot};
    for (const Instruction &instruction : block.instructions) {
      Need message = {instruction.comm.peerStage, item.stage, instruction.comm.channel};
      if (instruction.kind == InstructionKind::Recv && !messages.count(message))
        return message;
    }
    return std::nullopt;
  }

  Status runBlock(int stageIndex, BlockId id) {
    const Stage &stage = program.stages[stageIndex];
    const Block &block = stage.block(id);
    std::vector<Knowledge> values(stage.values.size());
    std::vector<int> source(stage.values.size(), -1); // the defining instruction
    for (const program::Argument &argument : block.arguments)
      values[argument.value] = slots[stageIndex][argument.slot];
    for (size_t i = 0; i < block.instructions.size(); ++i) {
      const Instruction &instruction = block.instructions[i];
      // A collective of several tensors handles each separately.
      bool isJoint = instruction.kind != InstructionKind::Kernel &&
                     instruction.operands.size() == instruction.results.size();
      Knowledge result;
      for (size_t k = 0; k < (isJoint ? instruction.operands.size() : 1); ++k) {
        if (Status status = evaluate(stageIndex, id, int(i), values, result, k); !status)
          return status;
        if (isJoint)
          values[instruction.results[k]] = result;
      }
      for (ValueId value : instruction.results) {
        if (!isJoint)
          values[value] = result;
        source[value] = int(i);
      }
    }
    for (const program::BlockResult &result : block.results) {
      Knowledge value = values[result.value];
      Knowledge &slot = slots[stageIndex][result.slot];
      if (result.accumulate)
        value = {value.differs | slot.differs, value.uniform & slot.uniform, value.flat};
      // A stage's part of a gradient is its own, even if it is computed from equal values alone.
      // Example: the norm of a weight in the loss, on the last stage and for the first one's
      // weight.
      if (stage.slots[result.slot].role == Role::Gradient)
        value.differs |= allowed(stage.slots[result.slot]) & pipeline;
      // The loss may differ until the step ends, a gradient until it is reduced.
      const bool isOpen = stage.slots[result.slot].role == Role::Loss ||
                          (id.kind == Kind::Backward && isCompletedLater(stage, id, result.slot));
      AxisSet wrong = value.differs & ~allowed(stage.slots[result.slot]);
      if (wrong && !isOpen)
        return rejected(resultPlace(stageIndex, id, result, source[result.value]),
                        "ranks that differ along " + atoms.toString(wrong) +
                            " hold the same piece and would get different values");
      AxisSet flat = flatOf(stage.slots[result.slot], value);
      if ((value.flat ^ flat) & ~value.uniform)
        return rejected(resultPlace(stageIndex, id, result, source[result.value]),
                        "it is a chunk over " + atoms.toString(value.flat) +
                            ", the slot is for one over " + atoms.toString(flat));
      slot = value;
    }
    return Status::ok();
  }

  /// Whether the last backward of the chunk writes the slot anew, the gradients of all
  /// micro-batches and ranks.
  static bool isCompletedLater(const Stage &stage, BlockId id, int slot) {
    const std::vector<program::BlockResult> &results = stage.chunks[id.chunk].lastBackward.results;
    return std::any_of(results.begin(), results.end(), [&](const program::BlockResult &result) {
      return result.slot == slot && !result.accumulate;
    });
  }

  /// Returns the axes over which the contents of a slot are chunks. A slot without a tensor accepts
  /// those of `value`.
  AxisSet flatOf(const Slot &slot, const Knowledge &value) const {
    return slot.tensor < 0 ? value.flat : atoms.of(program.tensors[slot.tensor].piece.flat);
  }

  std::string resultPlace(int stage, BlockId id, const program::BlockResult &result,
                          int source) const {
    std::string slot = "slot \"" + program.stages[stage].slots[result.slot].name + "\"";
    if (source < 0)
      return describe(program, stage, id) + ", " + slot;
    return describe(program, stage, id, source) + ", result to " + slot;
  }

  /// `tensor` is the index among several tensors of a collective.
  Status evaluate(int stage, BlockId id, int index, const std::vector<Knowledge> &values,
                  Knowledge &result, size_t tensor) {
    const Instruction &instruction = program.stages[stage].block(id).instructions[index];
    const program::Communication &comm = instruction.comm;
    if (instruction.kind == InstructionKind::Kernel) {
      result = kernelResult(program.stages[stage], instruction, values);
      return checkOperands(stage, id, index, values);
    }
    if (instruction.kind == InstructionKind::Recv) {
      result = messages.at({comm.peerStage, stage, comm.channel});
      result.differs |= pipeline;
      return Status::ok();
    }
    Knowledge operand = values[instruction.operands[tensor]];
    if (isHostCopy(instruction.kind)) {
      result = operand;
      return Status::ok();
    }
    if (instruction.kind == InstructionKind::Send) {
      messages[{stage, comm.peerStage, comm.channel}] = operand;
      return Status::ok();
    }

    AxisSet axes = atoms.of(comm.axes);
    result = operand;
    bool goesRound = instruction.kind == InstructionKind::Permute;
    bool isFlat = instruction.kind != InstructionKind::AllReduce && !goesRound &&
                  comm.dim == program::Communication::flatDim;
    if (isFlat && instruction.kind == InstructionKind::AllGather &&
        ((operand.flat ^ axes) & ~operand.uniform))
      return rejected(describe(program, stage, id, index),
                      "it gathers chunks over " + atoms.toString(axes) +
                          ", its operand is one over " + atoms.toString(operand.flat));
    if (isFlat)
      result.flat = instruction.kind == InstructionKind::AllGather ? 0 : operand.flat | axes;
    if (instruction.kind == InstructionKind::ShardSlice) {
      result.differs |= axes;
      if (operand.differs & axes)
        return rejected(describe(program, stage, id, index),
                        "it slices a value that differs along " +
                            atoms.toString(operand.differs & axes));
      return Status::ok();
    }
    AxisSet same = axes & ~operand.differs;
    bool isMax =
        instruction.kind == InstructionKind::AllReduce && comm.reduce == program::ReduceKind::Max;
    if ((same & ~operand.uniform) && !isMax)
      return rejected(describe(program, stage, id, index),
                      "its operand is the same along " + atoms.toString(same) +
                          ": no shards or partial sums to put together");
    bool staysCut = instruction.kind == InstructionKind::ReduceScatter ||
                    instruction.kind == InstructionKind::AllToAll || goesRound;
    result.differs = staysCut ? operand.differs | axes : operand.differs & ~axes;
    result.uniform = goesRound ? operand.uniform : operand.uniform & ~axes;
    return Status::ok();
  }

  /// All operands of an elementwise kernel must be chunks over the same axes. In update, where all
  /// of them are pieces of one parameter's shape, they must also differ along the same axes.
  Status checkOperands(int stage, BlockId id, int index,
                       const std::vector<Knowledge> &values) const {
    const Instruction &instruction = program.stages[stage].block(id).instructions[index];
    const std::vector<kernels::TensorType> &types = program.stages[stage].values;
    const Knowledge *first = nullptr;
    for (ValueId operand : instruction.operands) {
      const Knowledge &known = values[operand];
      if (known.uniform == all || types[operand].shape != types[instruction.results[0]].shape)
        continue;
      AxisSet settled = first ? ~(first->uniform | known.uniform) : 0;
      if (first && ((first->flat ^ known.flat) & settled))
        return rejected(describe(program, stage, id, index),
                        "it mixes a chunk over " + atoms.toString(first->flat) + " with one over " +
                            atoms.toString(known.flat));
      AxisSet only = first ? (first->differs ^ known.differs) & settled & ~pipeline : 0;
      if (id.kind == Kind::Update && only)
        return rejected(describe(program, stage, id, index),
                        "it mixes a value that differs along " + atoms.toString(only) +
                            " with one that is the same there");
      first = &known;
    }
    return Status::ok();
  }

  static Knowledge kernelResult(const Stage &stage, const Instruction &instruction,
                                const std::vector<Knowledge> &values) {
    if (instruction.operands.empty())
      return {0, all};
    const kernels::Shape &shape = stage.values[instruction.results[0]].shape;
    // Equal shapes alone prove nothing: a matmul of square matrices has them too.
    bool isElementwise = program::mayOverwriteOperands(instruction);
    AxisSet anyUniform = 0, allUniform = all;
    Knowledge result;
    for (ValueId operand : instruction.operands) {
      const Knowledge &known = values[operand];
      bool sameShape = stage.values[operand].shape == shape;
      isElementwise &= sameShape;
      result.differs |= known.differs;
      if (sameShape) // an operand of the result's shape shows how the result is cut
        result.flat |= known.flat;
      anyUniform |= known.uniform;
      allUniform &= known.uniform;
    }
    result.uniform = isElementwise ? allUniform : anyUniform;
    if (instruction.op == "broadcast")
      result.uniform = all;
    return result;
  }

  Status checkEnd() const {
    for (int stage = 0; stage < program.numStages(); ++stage) {
      for (size_t i = 0; i < slots[stage].size(); ++i) {
        const Slot &slot = program.stages[stage].slots[i];
        AxisSet wrong = slots[stage][i].differs & ~allowed(slot);
        if (slot.role == Role::Loss && wrong)
          return rejected("stage " + std::to_string(stage) + ", slot \"" + slot.name + "\"",
                          "the loss of the step differs between ranks along " +
                              atoms.toString(wrong));
      }
    }
    return Status::ok();
  }

  const Program &program;
  AxisAtoms atoms;
  AxisSet pipeline = 0;
  std::vector<int> numHolders;               // the number of stages that hold a tensor
  std::vector<std::vector<Knowledge>> slots; // by stage
  std::map<Need, Knowledge> messages;        // (from, to, channel)
  /// (stage, slot), for the kind of blocks being run
  std::set<std::pair<int, int>> unwritten;
};

} // namespace

Status checkReplicas(const Program &program) { return ReplicaChecker(program).check(); }

} // namespace tbc::verify
