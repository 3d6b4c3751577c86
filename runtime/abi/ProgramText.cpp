//===- ProgramText.cpp - A readable listing of a Program -------------------===//

#include "runtime/abi/Program.h"

#include <algorithm>
#include <sstream>

namespace tbc::program {
namespace {

using Kind = schedule::Action::Kind;

struct AttrText {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const {
    std::ostringstream out;
    out << value;
    return out.str();
  }
  std::string operator()(const std::string &value) const { return "\"" + value + "\""; }
  template <typename T> std::string operator()(const std::vector<T> &values) const {
    constexpr size_t most = 8; // a constant may have millions
    std::string text = "[";
    for (size_t i = 0; i < values.size() && i < most; ++i)
      text += (i ? ", " : "") + AttrText()(values[i]);
    if (values.size() > most)
      text += ", ... " + std::to_string(values.size()) + " in all";
    return text + "]";
  }
};

class Listing {
public:
  explicit Listing(const Program &program) : program(program) {}

  std::string text() {
    header();
    tensors();
    for (int stage = 0; stage < program.numStages(); ++stage)
      showStage(stage);
    return out.str();
  }

private:
  void header() {
    out << "program of " << program.mesh.numRanks() << " ranks, mesh";
    for (const MeshAxis &axis : program.mesh.axes)
      out << " " << axis.name << "=" << axis.size;
    out << ", " << program.numStages() << (program.numStages() == 1 ? " stage" : " stages");
    out << ", " << program.microBatches
        << (program.microBatches == 1 ? " micro-batch" : " micro-batches") << ", schedule "
        << program.schedule.generator << "\n";
    if (!program.schedule.chunkStage.empty()) {
      out << "  " << program.schedule.chunkStage.size() << " chunks, on stages";
      for (int stage : program.schedule.chunkStage)
        out << " " << stage;
      out << "\n";
    }
    for (const auto &[key, value] : program.metadata)
      out << "  " << key << ": " << value << "\n";
  }

  void tensors() {
    out << "\ntensors\n";
    for (const GlobalTensor &tensor : program.tensors) {
      out << "  " << name(tensor.role) << " " << tensor.name << ": " << toString(tensor.type) << " "
          << toString(program.mesh, tensor.piece);
      if (!tensor.partial.empty())
        out << " partial{" << toString(program.mesh, tensor.partial) << "}";
      if (!tensor.initializer.empty())
        out << " from \"" << tensor.initializer << "\"";
      if (tensor.fill != 0)
        out << " from " << tensor.fill;
      out << "\n";
    }
  }

  void showStage(int index) {
    const Stage &stage = program.stages[index];
    out << "\nstage " << index << "\n";
    showArena(stage);
    out << "  slots\n";
    for (size_t i = 0; i < stage.slots.size(); ++i) {
      const Slot &slot = stage.slots[i];
      out << "    " << name(slot.role) << " " << slot.name << ": " << toString(slot.type);
      if (slot.location == Location::Host)
        out << " on the host";
      if (!stage.memory.isEmpty())
        showPlace(stage.memory.slots[i]);
      out << "\n";
    }
    for (BlockId id : stage.blocks())
      if (id.kind != Kind::Weight || splitsBackward())
        showBlock(stage, id);
    out << "  schedule:";
    for (const schedule::Action &action : actionsOf(program, index)) {
      out << " " << "FBWUL"[int(action.kind)];
      if (action.kind != Kind::Update && stage.chunks.size() > 1)
        out << action.chunk << ".";
      if (action.kind != Kind::Update)
        out << action.microBatch;
    }
    out << "\n";
  }

  void showArena(const Stage &stage) {
    const MemoryPlan &memory = stage.memory;
    if (memory.isEmpty())
      return;
    out << "  arena of " << memory.arenaBytes << " bytes";
    if (memory.hostArenaBytes > 0)
      out << ", of " << memory.hostArenaBytes << " on the host";
    out << "\n";
    for (size_t i = 0; i < memory.frames.size(); ++i) {
      out << "    frame " << i << " of " << memory.frames[i].bytes << " bytes at";
      for (int64_t offset : memory.frames[i].offsets)
        out << " " << offset;
      out << "\n";
    }
  }

  void showPlace(const Stage &stage, const ValuePlace &place) {
    if (place.slot >= 0)
      out << " in " << stage.slots[place.slot].name;
    else if (place.isInside())
      out << " inside";
    else
      out << " at " << place.offset;
  }

  void showPlace(const SlotPlace &place) {
    out << " at " << place.offset;
    if (place.frame >= 0)
      out << " of frame " << place.frame;
  }

  bool splitsBackward() const {
    for (const Stage &stage : program.stages)
      for (const Chunk &chunk : stage.chunks)
        if (!chunk.weight.results.empty() || !chunk.weight.instructions.empty())
          return true;
    return false;
  }

  void showBlock(const Stage &stage, BlockId id) {
    const Block &block = stage.block(id);
    out << "  " << name(id.kind);
    if (stage.chunks.size() > 1 && id.kind != Kind::Update)
      out << " of chunk " << id.chunk;
    out << "\n";
    for (const Argument &argument : block.arguments)
      out << "    %" << argument.value << " = " << stage.slots[argument.slot].name << "\n";
    auto region = block.regions.begin();
    bool isOverlapped =
        std::any_of(block.instructions.begin(), block.instructions.end(),
                    [](const Instruction &i) { return i.stream != Stream::Compute; });
    for (int i = 0; i < int(block.instructions.size()); ++i) {
      while (region != block.regions.end() &&
             (region->symbol.empty() || i >= region->first + region->count))
        ++region;
      if (region != block.regions.end() && i == region->first)
        out << "    " << region->symbol << " of " << region->extent << " does " << region->count
            << ":\n";
      bool isCompiled = region != block.regions.end() && i >= region->first;
      out << (isCompiled ? "    | " : "    ");
      if (isOverlapped)
        showStream(block.instructions[i], i);
      showInstruction(stage, block.instructions[i]);
    }
    for (const BlockResult &result : block.results)
      out << "    " << stage.slots[result.slot].name << (result.accumulate ? " += %" : " = %")
          << result.value << "\n";
  }

  /// Prints the index of the instruction and the indices in its `waits`.
  void showStream(const Instruction &instruction, int number) {
    out << (instruction.stream == Stream::Compute ? "" : "~ ") << number << ": ";
    for (size_t i = 0; i < instruction.waits.size(); ++i)
      out << (i ? ", " : "after ") << instruction.waits[i];
    out << (instruction.waits.empty() ? "" : ": ");
  }

  void showInstruction(const Stage &stage, const Instruction &instruction) {
    for (size_t i = 0; i < instruction.results.size(); ++i) {
      ValueId value = instruction.results[i];
      out << (i ? ", %" : "%") << value << ": " << toString(stage.values[value]);
      if (!stage.memory.isEmpty())
        showPlace(stage, stage.memory.values[value]);
    }
    out << (instruction.results.empty() ? "" : " = ");
    bool isKernel = instruction.kind == InstructionKind::Kernel;
    out << (isKernel ? std::string_view(instruction.op) : name(instruction.kind));
    for (size_t i = 0; i < instruction.operands.size(); ++i)
      out << (i ? ", %" : " %") << instruction.operands[i];
    if (isKernel)
      showAttrs(instruction);
    else if (isHostCopy(instruction.kind))
      out << " " << messageBytes(program, stage, instruction) << " bytes";
    else
      showCommunication(stage, instruction);
    out << "  // " << instruction.id << "\n";
  }

  void showAttrs(const Instruction &instruction) {
    if (instruction.attrs.entries().empty())
      return;
    const char *separator = " {";
    for (const auto &[key, value] : instruction.attrs.entries()) {
      out << separator << key << "=" << std::visit(AttrText(), value);
      separator = ", ";
    }
    out << "}";
  }

  void showCommunication(const Stage &stage, const Instruction &instruction) {
    const Communication &comm = instruction.comm;
    if (instruction.kind == InstructionKind::Send || instruction.kind == InstructionKind::Recv) {
      out << (instruction.kind == InstructionKind::Send ? " to" : " from") << " stage "
          << comm.peerStage << " channel " << comm.channel;
      if (comm.lane != 0)
        out << " lane " << comm.lane;
    } else {
      if (instruction.kind == InstructionKind::AllReduce)
        out << (comm.reduce == ReduceKind::Sum ? " sum" : " max");
      out << " over " << toString(program.mesh, comm.axes);
      for (size_t i = 0; i < comm.stages.size(); ++i)
        out << (i ? "," : " stages ") << comm.stages[i];
    }
    bool hasDim = instruction.kind != InstructionKind::AllReduce &&
                  instruction.kind != InstructionKind::Permute && !comm.axes.empty();
    if (hasDim && comm.dim == Communication::flatDim)
      out << " flat";
    else if (hasDim)
      out << " dim " << comm.dim;
    if (instruction.kind == InstructionKind::AllToAll)
      out << " split dim " << comm.splitDim;
    if (instruction.kind != InstructionKind::ShardSlice)
      out << " " << messageBytes(program, stage, instruction) << " bytes";
  }

  const Program &program;
  std::ostringstream out;
};

} // namespace

std::string show(const Program &program) { return Listing(program).text(); }

} // namespace tbc::program
