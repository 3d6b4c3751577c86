//===- Mutations.cpp - Planted miscompiles --------------------------------===//

#include "tests/tools/Mutations.h"

#include <algorithm>
#include <set>

namespace tbc::test {

using program::Block;
using program::BlockId;
using program::BlockResult;
using program::Instruction;
using program::InstructionKind;
using program::Program;
using program::ValueId;
using Kind = schedule::Action::Kind;

namespace {

/// The position of a mutation: a block of a stage and an index in it.
struct Place {
  int stage;
  BlockId id;
  size_t index;

  Block &block(Program &p) const { return p.stages[stage].block(id); }
  Instruction &instruction(Program &p) const { return block(p).instructions[index]; }
};

bool sameType(const Program &p, int stage, ValueId a, ValueId b) {
  const auto &values = p.stages[stage].values;
  return values[a].dtype == values[b].dtype && values[a].shape == values[b].shape;
}

/// Replaces all uses of `from` by `to`.
void replaceUses(Block &block, ValueId from, ValueId to) {
  for (Instruction &instruction : block.instructions)
    std::replace(instruction.operands.begin(), instruction.operands.end(), from, to);
  for (BlockResult &result : block.results)
    if (result.value == from)
      result.value = to;
}

/// Removes an instruction and replaces its result by its first operand. For a collective of several
/// tensors, each result is replaced by its own operand.
void bypass(Program &p, Place place) {
  Block &block = place.block(p);
  Instruction taken = block.instructions[place.index];
  block.instructions.erase(block.instructions.begin() + place.index);
  bool isJoint = taken.kind != InstructionKind::Kernel;
  for (size_t r = 0; r < (isJoint ? taken.results.size() : 1); ++r)
    replaceUses(block, taken.results[r], taken.operands[r]);
}

/// Runs an all_reduce a second time on its own result.
void repeatCollective(Program &p, Place place) {
  Block &block = place.block(p);
  auto &values = p.stages[place.stage].values;
  Instruction copy = block.instructions[place.index];
  copy.operands = copy.results;
  for (ValueId &result : copy.results) {
    ValueId again = ValueId(values.size());
    values.push_back(kernels::TensorType(values[result]));
    replaceUses(block, result, again);
    result = again;
  }
  block.instructions.insert(block.instructions.begin() + place.index + 1, copy);
}

class Enumerator {
public:
  explicit Enumerator(const Program &program) : p(program) {}

  std::vector<Mutant> run() {
    for (int stage = 0; stage < p.numStages(); ++stage)
      for (BlockId kind : p.stages[stage].blocks()) {
        const Block &block = p.stages[stage].block(kind);
        for (size_t i = 0; i < block.instructions.size(); ++i)
          visit({stage, kind, i}, block.instructions[i]);
        visitResults(stage, kind, block);
        visitArguments(stage, kind, block);
      }
    for (int stage = 0; stage < p.numStages(); ++stage)
      visitSchedule(stage);
    return std::move(mutants);
  }

private:
  void add(std::string kind, Place place, std::function<void(Program &)> apply) {
    mutants.push_back({std::move(kind),
                       program::describe(p, place.stage, place.id, int(place.index)),
                       std::move(apply)});
  }

  void visit(Place place, const Instruction &instruction) {
    if (instruction.kind != InstructionKind::Kernel && instruction.operands.size() > 1)
      visitBucket(place, instruction);
    if (instruction.kind == InstructionKind::AllReduce)
      visitAllReduce(place, instruction);
    if (instruction.kind == InstructionKind::AllGather ||
        instruction.kind == InstructionKind::ReduceScatter ||
        instruction.kind == InstructionKind::ShardSlice)
      visitShards(place, instruction);
    if (instruction.kind == InstructionKind::AllToAll)
      visitExchange(place, instruction);
    if (instruction.kind == InstructionKind::Permute)
      visitPermute(place, instruction);
    if (instruction.kind == InstructionKind::Recv)
      visitRecv(place, instruction);
    if (instruction.kind == InstructionKind::Kernel)
      visitKernel(place, instruction);
  }

  void visitAllReduce(Place place, const Instruction &instruction) {
    add("dropped collective", place, [place](Program &m) { bypass(m, place); });
    add("doubled collective", place, [place](Program &m) { repeatCollective(m, place); });
    add("wrong reduction", place, [place](Program &m) {
      auto &reduce = place.instruction(m).comm.reduce;
      reduce =
          reduce == program::ReduceKind::Sum ? program::ReduceKind::Max : program::ReduceKind::Sum;
    });
    visitStages(place, instruction);
    for (size_t axis = 0; axis < p.mesh.axes.size(); ++axis) {
      std::vector<program::AxisRef> other = {program::wholeAxis(p.mesh, int(axis))};
      if (int(axis) == p.pipelineAxis || other == instruction.comm.axes ||
          !instruction.comm.stages.empty())
        continue;
      add("wrong axis", place,
          [place, other](Program &m) { place.instruction(m).comm.axes = other; });
    }
  }

  /// Mutates a collective of several tensors: leaves one out, puts one twice in place of another,
  /// swaps two results.
  void visitBucket(Place place, const Instruction &instruction) {
    for (size_t i = 0; i < instruction.operands.size(); ++i) {
      if (sameType(p, place.stage, instruction.operands[i], instruction.results[i]))
        add("bucket member left out", place, [place, i](Program &m) {
          Instruction &bucket = place.instruction(m);
          ValueId operand = bucket.operands[i], result = bucket.results[i];
          bucket.operands.erase(bucket.operands.begin() + long(i));
          bucket.results.erase(bucket.results.begin() + long(i));
          replaceUses(place.block(m), result, operand);
        });
      for (size_t j = i + 1; j < instruction.operands.size(); ++j) {
        if (!sameType(p, place.stage, instruction.operands[i], instruction.operands[j]))
          continue;
        add("bucket member in the place of another", place, [place, i, j](Program &m) {
          std::vector<ValueId> &operands = place.instruction(m).operands;
          operands[i] = operands[j];
        });
        add("bucket members at each other's offset", place, [place, i, j](Program &m) {
          std::vector<ValueId> &results = place.instruction(m).results;
          std::swap(results[i], results[j]);
        });
      }
    }
  }

  /// Mutates the blocks of a ring: stale, from the rank after next, or sent the other way.
  void visitPermute(Place place, const Instruction &instruction) {
    add("block not passed on", place, [place](Program &m) { bypass(m, place); });
    add("block passed twice", place, [place](Program &m) { repeatCollective(m, place); });
    int64_t passes = program::groupSize(instruction.comm.axes) - 1;
    if (passes > 2)
      add("block passed the wrong way", place, [place, passes](Program &m) {
        for (int64_t i = 1; i < passes; ++i)
          repeatCollective(m, place);
      });
  }

  /// Reduces a sum over all ranks only within each stage.
  void visitStages(Place place, const Instruction &instruction) {
    std::vector<program::AxisRef> inside;
    for (const program::AxisRef &axis : instruction.comm.axes)
      if (axis.axis != p.pipelineAxis)
        inside.push_back(axis);
    if (inside.size() == instruction.comm.axes.size() || inside.empty() ||
        !instruction.comm.stages.empty())
      return;
    add("not reduced over stages", place,
        [place, inside](Program &m) { place.instruction(m).comm.axes = inside; });
  }

  void visitShards(Place place, const Instruction &instruction) {
    const auto &segments = instruction.comm.segments;
    for (size_t s = 0; s < segments.size(); ++s)
      if (segments[s].k > 1 && segments[s].outer == 1)
        add("shards in the wrong order", place, [place, s](Program &m) {
          // Interleaved instead of in segments: swaps outer and k.
          auto &segment = place.instruction(m).comm.segments[s];
          std::swap(segment.outer, segment.k);
        });
    if (instruction.comm.dim < 0 && instruction.kind == InstructionKind::ReduceScatter)
      add("reduce_scatter without the sum", place,
          [place](Program &m) { place.instruction(m).kind = InstructionKind::ShardSlice; });
  }

  void visitExchange(Place place, const Instruction &instruction) {
    for (size_t axis = 0; axis < p.mesh.axes.size(); ++axis) {
      std::vector<program::AxisRef> other = {program::wholeAxis(p.mesh, int(axis))};
      if (int(axis) != p.pipelineAxis && other != instruction.comm.axes)
        add("exchanged with the wrong ranks", place,
            [place, other](Program &m) { place.instruction(m).comm.axes = other; });
    }
    for (size_t s = 0; s < instruction.comm.splitSegments.size(); ++s)
      add("exchanged in the wrong order", place, [place, s](Program &m) {
        auto &segment = place.instruction(m).comm.splitSegments[s];
        std::swap(segment.outer, segment.k);
      });
  }

  void visitRecv(Place place, const Instruction &instruction) {
    const Block &block = p.stages[place.stage].block(place.id);
    for (size_t j = place.index + 1; j < block.instructions.size(); ++j) {
      const Instruction &other = block.instructions[j];
      if (other.kind != InstructionKind::Recv ||
          !sameType(p, place.stage, instruction.results[0], other.results[0]))
        continue;
      add("swapped messages", place, [place, j](Program &m) {
        std::swap(place.block(m).instructions[place.index].results,
                  place.block(m).instructions[j].results);
      });
      return;
    }
  }

  void visitKernel(Place place, const Instruction &instruction) {
    if (instruction.op == "div" &&
        sameType(p, place.stage, instruction.operands[0], instruction.results[0]))
      add("missing 1/N", place, [place](Program &m) { bypass(m, place); });
    if (instruction.op == "factor_size")
      add("wrong N", place, [place](Program &m) {
        auto &attrs = place.instruction(m).attrs;
        attrs.set("count", attrs.getInt("count") + 1);
      });
    if ((instruction.op == "dispatch" || instruction.op == "combine") &&
        instruction.attrs.getBool("weighted"))
      add("router's weight left out", place,
          [place](Program &m) { place.instruction(m).attrs.set("weighted", false); });
    bool ordered = instruction.op == "sub" || instruction.op == "div" ||
                   instruction.op == "relu_grad" || instruction.op == "gelu_grad";
    if (ordered && sameType(p, place.stage, instruction.operands[0], instruction.operands[1]))
      add("swapped operands", place, [place](Program &m) {
        std::swap(place.instruction(m).operands[0], place.instruction(m).operands[1]);
      });
    if (instruction.op == "slice" && instruction.attrs.getInt("offset") > 0)
      add("slice off by one", place, [place](Program &m) {
        auto &attrs = place.instruction(m).attrs;
        attrs.set("offset", attrs.getInt("offset") - 1);
      });
    if (instruction.op == "add" && place.id.kind != Kind::Forward && place.id.kind != Kind::Update)
      add("dropped contribution to a gradient", place, [place](Program &m) { bypass(m, place); });
    if (instruction.op == "reduce_sum" && place.id.kind != Kind::Forward &&
        place.id.kind != Kind::Update)
      visitStaleOperand(place, instruction);
    if (instruction.op == "einsum")
      visitStaleOperand(place, instruction);
    if (instruction.op == "scale_by")
      add("gradient not scaled", place, [place](Program &m) { bypass(m, place); });
    if (instruction.op == "update_if")
      add("step not skipped", place, [place](Program &m) {
        std::swap(place.instruction(m).operands[0], place.instruction(m).operands[1]);
        bypass(m, place);
      });
    if (instruction.op == "count_not_finite")
      visitOverflowFlag(place, instruction);
  }

  /// Each rank uses its own gradients' overflow flag.
  void visitOverflowFlag(Place place, const Instruction &instruction) {
    const Block &block = p.stages[place.stage].block(place.id);
    for (size_t j = place.index + 1; j < block.instructions.size(); ++j) {
      const Instruction &test = block.instructions[j];
      if (test.op == "compare" && test.attrs.getString("predicate") == "eq" &&
          sameType(p, place.stage, test.operands[0], instruction.results[0]))
        add("overflow flag not reduced", place, [place, j](Program &m) {
          Block &changed = place.block(m);
          changed.instructions[j].operands[0] = changed.instructions[place.index].results[0];
        });
    }
  }

  /// Replaces an operand by an earlier value of the same type.
  void visitStaleOperand(Place place, const Instruction &instruction) {
    const Block &block = p.stages[place.stage].block(place.id);
    for (size_t j = place.index; j-- > 0;)
      for (ValueId other : block.instructions[j].results)
        if (other != instruction.operands[0] &&
            sameType(p, place.stage, other, instruction.operands[0])) {
          add("stale value", place,
              [place, other](Program &m) { place.instruction(m).operands[0] = other; });
          return;
        }
  }

  void visitResults(int stage, BlockId kind, const Block &block) {
    for (size_t r = 0; r < block.results.size(); ++r) {
      const program::Slot &slot = p.stages[stage].slots[block.results[r].slot];
      Place place{stage, kind, 0};
      if (block.results[r].accumulate)
        add("micro-batch not accumulated", place,
            [place, r](Program &m) { place.block(m).results[r].accumulate = false; });
      if (slot.role == program::Role::Parameter)
        add("stale parameter", place, [place, r](Program &m) {
          auto &results = place.block(m).results;
          results.erase(results.begin() + r);
        });
      for (size_t q = r + 1; q < block.results.size(); ++q)
        if (slot.role == p.stages[stage].slots[block.results[q].slot].role &&
            sameType(p, stage, block.results[r].value, block.results[q].value)) {
          add("swapped results", place, [place, r, q](Program &m) {
            auto &results = place.block(m).results;
            std::swap(results[r].value, results[q].value);
          });
          break;
        }
    }
  }

  /// Plants faults of virtual stages and of a split backward.
  void visitSchedule(int stage) {
    const auto &chunks = p.stages[stage].chunks;
    for (int chunk = 0; chunk < int(chunks.size()); ++chunk) {
      Place weight{stage, {Kind::Weight, chunk}, 0};
      if (chunks[chunk].weight.instructions.empty())
        continue;
      for (size_t r = 0; r < chunks[chunk].weight.results.size(); ++r)
        add("dropped weight gradient", weight, [weight, r](Program &m) {
          auto &results = weight.block(m).results;
          results.erase(results.begin() + r);
        });
      add("weights before their backward", weight, [stage, chunk](Program &m) {
        std::vector<schedule::Action> &actions = tableOf(m, stage);
        auto find = [&](Kind kind) {
          return std::find(actions.begin(), actions.end(), schedule::Action{kind, 0, chunk});
        };
        std::iter_swap(find(Kind::Weight), find(Kind::Backward));
      });
    }
    if (chunks.size() > 1 && !chunks[0].forward.instructions.empty())
      add("swapped chunks", {stage, {Kind::Forward, 0}, 0},
          [stage](Program &m) { std::swap(m.stages[stage].chunks[0], m.stages[stage].chunks[1]); });
  }

  /// Returns the schedule of a stage as an editable list.
  static std::vector<schedule::Action> &tableOf(Program &m, int stage) {
    if (m.schedule.table.empty()) {
      for (int s = 0; s < m.numStages(); ++s)
        m.schedule.table.push_back(scheduledActions(m, s));
      m.schedule.generator = "table";
    }
    return m.schedule.table[stage];
  }

  void visitArguments(int stage, BlockId kind, const Block &block) {
    for (size_t a = 0; a < block.arguments.size(); ++a)
      for (size_t b = a + 1; b < block.arguments.size(); ++b) {
        program::Role role = p.stages[stage].slots[block.arguments[a].slot].role;
        if (role != p.stages[stage].slots[block.arguments[b].slot].role ||
            !sameType(p, stage, block.arguments[a].value, block.arguments[b].value))
          continue;
        Place place{stage, kind, 0};
        std::string what = role == program::Role::Residual ? "swapped residuals" : "swapped slots";
        add(what, place, [place, a, b](Program &m) {
          auto &arguments = place.block(m).arguments;
          std::swap(arguments[a].slot, arguments[b].slot);
        });
        break;
      }
  }

  const Program &p;
  std::vector<Mutant> mutants;
};

} // namespace

std::vector<Mutant> enumerateMutants(const Program &program) { return Enumerator(program).run(); }

} // namespace tbc::test
