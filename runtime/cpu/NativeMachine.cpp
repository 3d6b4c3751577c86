//===- NativeMachine.cpp - The CPU backend --------------------------------===//

#include "runtime/cpu/NativeMachine.h"
#include "runtime/abi/Region.h"
#include "runtime/cpu/NativeKernel.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>

namespace tbc::cpu {

using kernels::Tensor;
using kernels::TensorType;
using program::BlockId;
using program::Instruction;
using program::InstructionKind;
using program::ValueId;
using runtime::KernelShare;
using runtime::MachineSetting;
using runtime::RankMemory;
using runtime::SlotWrite;

namespace {

/// Wraps the reference kernel of an op to run on bytes.
NativeKernel wrapped(kernels::KernelFn kernel, const kernels::KernelContext &context,
                     const kernels::Attrs &attrs, const Types &operands, const Types &results) {
  return [=](Threads &, const Buffers &buffers) {
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < operands.size(); ++i)
      inputs.push_back(Tensor::fromBytes(operands[i], context.arith, buffers.operands[i]));
    std::vector<Tensor> outputs = kernel(context, attrs, inputs, results);
    for (size_t r = 0; r < results.size(); ++r) {
      kernels::require(outputs[r].type() == results[r], [&] {
        return "it gave " + toString(outputs[r].type()) + " where " + toString(results[r]) +
               " is expected";
      });
      std::vector<unsigned char> bytes = outputs[r].toBytes();
      std::copy(bytes.begin(), bytes.end(), static_cast<unsigned char *>(buffers.results[r]));
    }
  };
}

class NativeMachine : public runtime::Machine {
public:
  NativeMachine(const MachineSetting &setting, const NativeOptions &options)
      : program(setting.program), stage(setting.stage), code(program.stages[stage]),
        memory(setting.memory), context(setting.context), threads(options.threads),
        compiled(options.compiled) {}

  Status prepare(BlockId id) override;
  int numAtOnce(BlockId id, int index) const override { return prepared.at(id)[index].count; }
  void run(BlockId id, int index) override;
  void write(const std::vector<SlotWrite> &writes) override;
  /// Each value has its own bytes, which kernels of other values do not touch.
  bool allowsCommunicationThread() const override { return true; }
  std::vector<KernelShare> shares() const override;

private:
  /// An instruction, or a whole region at its first instruction.
  struct Prepared {
    NativeKernel kernel; // empty within a region
    int count = 1;
    std::vector<ValueId> operands, results;
    KernelShare *share = nullptr;
  };
  enum class Source { Native, Compiled, Reference };

  Status prepareInstruction(BlockId id, int index);
  Status prepareRegion(BlockId id, const program::Region &region);
  KernelShare *shareOf(const std::string &op, Source source);
  Types typesOf(const std::vector<ValueId> &values) const;
  /// The kernel that adds to a slot, and the share that counts its time.
  struct Adder {
    NativeKernel kernel;
    KernelShare *share = nullptr;
  };
  Adder adderOf(const TensorType &slot, const TensorType &value);
  void add(int slot, const TensorType &type, const void *value);

  const program::Program &program;
  int stage;
  const program::Stage &code;
  RankMemory &memory;
  kernels::KernelContext context;
  Threads threads;
  std::shared_ptr<const CompiledKernels> compiled;
  std::map<BlockId, std::vector<Prepared>> prepared;
  std::map<std::pair<int, kernels::DType>, Adder> adders; // by slot and dtype of the value
  std::map<std::pair<Source, std::string>, KernelShare> sharesByOp;
};

Types NativeMachine::typesOf(const std::vector<ValueId> &values) const {
  Types types;
  for (ValueId value : values)
    types.push_back(code.values[value]);
  return types;
}

KernelShare *NativeMachine::shareOf(const std::string &op, Source source) {
  KernelShare &share = sharesByOp[{source, op}];
  share.op = op;
  share.isReference = source == Source::Reference;
  return &share;
}

Status NativeMachine::prepare(BlockId id) {
  const program::Block &block = code.block(id);
  prepared[id].resize(block.instructions.size());
  if (compiled)
    for (const program::Region &region : block.regions)
      if (!region.symbol.empty())
        if (Status status = prepareRegion(id, region); !status)
          return status;
  for (int i = 0; i < int(block.instructions.size());) {
    const Prepared &ready = prepared[id][i];
    if (!ready.kernel && block.instructions[i].kind == InstructionKind::Kernel)
      if (Status status = prepareInstruction(id, i); !status)
        return status;
    i += ready.count;
  }
  return Status::ok();
}

Status NativeMachine::prepareInstruction(BlockId id, int index) {
  const Instruction &instruction = code.block(id).instructions[index];
  Prepared &ready = prepared[id][index];
  ready.operands = instruction.operands;
  ready.results = instruction.results;
  Types operands = typesOf(ready.operands), results = typesOf(ready.results);
  ready.kernel = findNativeKernel(instruction.op, instruction.attrs, operands, results);
  ready.share = shareOf(instruction.op, ready.kernel ? Source::Native : Source::Reference);
  if (ready.kernel)
    return Status::ok();
  kernels::KernelFn reference = kernels::findKernel(instruction.op);
  if (!reference)
    return Error{ErrorCode::Usage, describe(program, stage, id, index) + ": there is no kernel \"" +
                                       instruction.op + "\""};
  ready.kernel = wrapped(reference, context, instruction.attrs, operands, results);
  return Status::ok();
}

Status NativeMachine::prepareRegion(BlockId id, const program::Region &region) {
  const program::Block &block = code.block(id);
  program::CompiledKernel kernel = compiled->find(region.symbol);
  if (!kernel)
    return Error{ErrorCode::Usage, describe(program, stage, id, region.first) +
                                       ": the compiled kernels have no \"" + region.symbol +
                                       "\"; compile again"};
  program::RegionValues values = program::regionValues(block, region);
  Prepared &ready = prepared[id][region.first];
  ready.operands = values.operands;
  ready.results = values.results;
  ready.count = region.count;
  ready.share = shareOf("compiled regions", Source::Compiled);
  int64_t bytes = 0;
  for (const std::vector<ValueId> *list : {&values.operands, &values.results})
    for (ValueId value : *list)
      bytes += program::sizeBytes(code.values[value]);
  // The results do not depend on the cut into pieces, so it may depend on the number of threads. A
  // few pieces per thread even out disturbances by the system.
  constexpr int64_t leastBytes = 1 << 16, piecesPerThread = 4;
  int64_t most = std::min(piecesPerThread * threads.count(), bytes / leastBytes);
  int64_t pieces = std::clamp<int64_t>(most, 1, std::max<int64_t>(1, region.extent));
  int64_t grain = std::max<int64_t>(1, (region.extent + pieces - 1) / pieces);
  ready.kernel = [kernel, grain, extent = region.extent](Threads &threads, const Buffers &buffers) {
    std::vector<void *> all;
    for (const void *operand : buffers.operands)
      all.push_back(const_cast<void *>(operand));
    all.insert(all.end(), buffers.results.begin(), buffers.results.end());
    threads.runRanges(extent, grain,
                      [&](int64_t begin, int64_t end) { kernel(all.data(), begin, end); });
  };
  return Status::ok();
}

void NativeMachine::run(BlockId id, int index) {
  const Prepared &ready = prepared.at(id)[index];
  Buffers buffers;
  for (ValueId value : ready.operands)
    buffers.operands.push_back(memory.bytesOf(value));
  for (ValueId value : ready.results)
    buffers.results.push_back(memory.bytesOf(value));
  auto begin = std::chrono::steady_clock::now();
  ready.kernel(threads, buffers);
  ready.share->seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ready.share->count += ready.count;
  for (ValueId value : ready.results)
    memory.defineInPlace(value);
}

/// slot = slot + value, in the slot's type.
NativeMachine::Adder NativeMachine::adderOf(const TensorType &slot, const TensorType &value) {
  const std::string name = "sums in slots";
  // A value wider than the slot is rounded before it is added.
  if (value.dtype == slot.dtype || slot.dtype == kernels::DType::F32)
    if (NativeKernel kernel = findNativeKernel("add", {}, {slot, value}, {slot}))
      return {kernel, shareOf(name, Source::Native)};
  NativeKernel cast = wrapped(kernels::findKernel("cast"), context, {}, {value}, {slot});
  NativeKernel add = wrapped(kernels::findKernel("add"), context, {}, {slot, slot}, {slot});
  NativeKernel both = [=, bytes = program::sizeBytes(slot)](Threads &threads,
                                                            const Buffers &buffers) {
    std::vector<char> converted(size_t(bytes), 0);
    cast(threads, {{buffers.operands[1]}, {converted.data()}});
    add(threads, {{buffers.operands[0], converted.data()}, buffers.results});
  };
  return {both, shareOf(name, Source::Reference)};
}

void NativeMachine::add(int slot, const TensorType &type, const void *value) {
  Adder &adder = adders[{slot, type.dtype}];
  if (!adder.kernel)
    adder = adderOf(code.slots[slot].type, type);
  void *to = memory.bytesOfSlot(slot);
  auto begin = std::chrono::steady_clock::now();
  adder.kernel(threads, {{to, value}, {to}});
  adder.share->seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ++adder.share->count;
}

void NativeMachine::write(const std::vector<SlotWrite> &writes) {
  // A value may lie in a slot that an earlier write of this list overwrites.
  std::vector<std::vector<unsigned char>> copies(writes.size());
  std::vector<const unsigned char *> sources;
  for (size_t i = 0; i < writes.size(); ++i) {
    const unsigned char *from = memory.bytesOf(writes[i].value);
    int64_t bytes = program::sizeBytes(code.values[writes[i].value]);
    for (size_t j = 0; j < i; ++j) {
      const unsigned char *to = memory.bytesOfSlot(writes[j].slot);
      if (from < to + program::sizeBytes(code.slots[writes[j].slot].type) && to < from + bytes)
        copies[i].assign(from, from + bytes);
    }
    sources.push_back(copies[i].empty() ? from : copies[i].data());
  }
  for (size_t i = 0; i < writes.size(); ++i) {
    const SlotWrite &write = writes[i];
    const TensorType &type = code.values[write.value];
    if (write.accumulate)
      add(write.slot, type, sources[i]);
    else
      std::memmove(memory.bytesOfSlot(write.slot), sources[i], size_t(program::sizeBytes(type)));
    memory.settle(write.slot);
  }
}

std::vector<KernelShare> NativeMachine::shares() const {
  std::vector<KernelShare> list;
  for (const auto &entry : sharesByOp)
    list.push_back(entry.second);
  return list;
}

} // namespace

Result<std::shared_ptr<const CompiledKernels>>
compiledKernelsOf(const program::Program &program, const program::SealedFolder &folder,
                  const std::string &programHash) {
  bool hasRegions = false;
  for (const program::Stage &stage : program.stages)
    for (BlockId id : stage.blocks())
      for (const program::Region &region : stage.block(id).regions)
        hasRegions |= !region.symbol.empty();
  if (!hasRegions)
    return std::shared_ptr<const CompiledKernels>();
  if (!folder.has(program::kernelsFile))
    return Error{ErrorCode::Usage, folder.folder() + " was sealed without " + program::kernelsFile +
                                       ", which the program's regions need; compile again, or run "
                                       "with --kernels reference"};
  Result<program::OpenFile> file = folder.file(program::kernelsFile);
  if (!file)
    return file.error();
  return CompiledKernels::open(*file, programHash);
}

runtime::MachineMaker nativeMachine(const NativeOptions &options) {
  return [options](const MachineSetting &setting) -> Result<std::unique_ptr<runtime::Machine>> {
    if (!setting.memory.hasArena())
      return Error{ErrorCode::Usage,
                   "the Program has no memory plan, which native kernels need; compile it again, "
                   "or use --kernels reference"};
    return std::unique_ptr<runtime::Machine>(std::make_unique<NativeMachine>(setting, options));
  };
}

} // namespace tbc::cpu
