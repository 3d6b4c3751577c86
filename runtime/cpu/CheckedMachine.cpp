//===- CheckedMachine.cpp - A backend that checks every kernel it runs ----===//

#include "runtime/cpu/CheckedMachine.h"
#include "runtime/cpu/NativeKernel.h"
#include "runtime/kernels/Kernel.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace tbc::cpu {

using kernels::Tensor;
using kernels::TensorType;
using program::BlockId;
using program::Instruction;
using program::ValueId;
using runtime::MachineSetting;
using runtime::SlotWrite;
using Kind = KernelComparison::Kind;

namespace {

/// Memory at the least aligned address that a kernel allows, with a guard on either side.
class Guarded {
public:
  explicit Guarded(int64_t bytes)
      : bytes(size_t(bytes)),
        memory(static_cast<unsigned char *>(std::aligned_alloc(period, rounded()))) {
    kernels::require(memory != nullptr, "there is no memory to check a kernel in");
    std::memset(memory.get(), pattern, rounded());
  }

  unsigned char *data() const { return memory.get() + program::kernelAlignment; }
  bool isWhole() const {
    auto isPattern = [](unsigned char byte) { return byte == pattern; };
    return std::all_of(memory.get(), data(), isPattern) &&
           std::all_of(data() + bytes, memory.get() + rounded(), isPattern);
  }

private:
  static constexpr size_t period = 2 * program::kernelAlignment;
  static constexpr unsigned char pattern = 0xa5;
  struct Free {
    void operator()(unsigned char *begin) const { std::free(begin); }
  };
  size_t rounded() const {
    return (bytes + 2 * program::kernelAlignment + period - 1) / period * period;
  }

  size_t bytes;
  std::unique_ptr<unsigned char, Free> memory;
};

class CheckedMachine : public runtime::Machine {
public:
  CheckedMachine(const MachineSetting &setting, const CheckOptions &options,
                 std::unique_ptr<runtime::Machine> inner)
      : program(setting.program), stage(setting.stage), code(program.stages[size_t(stage)]),
        memory(setting.memory), options(options), inner(std::move(inner)) {}

  Status prepare(BlockId id) override;
  int numAtOnce(BlockId id, int index) const override { return inner->numAtOnce(id, index); }
  void run(BlockId id, int index) override;
  void write(const std::vector<SlotWrite> &writes) override;
  bool allowsCommunicationThread() const override { return inner->allowsCommunicationThread(); }
  runtime::StepWay beginStep(bool mayBeWhole) override {
    ++step;
    return inner->beginStep(mayBeWhole);
  }
  std::vector<runtime::KernelShare> shares() const override { return inner->shares(); }

private:
  /// Data computed once per kernel.
  struct Checked {
    KernelWork work;
    std::string key, name;
    Kind kind = Kind::Native;
    const program::Region *region = nullptr;
  };
  const Checked &checkedOf(BlockId id, int index);
  std::vector<Tensor> runApart(const Checked &checked, const std::vector<Tensor> &operands,
                               std::string &why) const;
  void report(const std::string &key, KernelComparison one) const;
  bool isOn() const { return options.steps == 0 || step <= options.steps; }

  const program::Program &program;
  int stage;
  const program::Stage &code;
  runtime::RankMemory &memory;
  CheckOptions options;
  std::unique_ptr<runtime::Machine> inner;
  std::map<std::pair<BlockId, int>, Checked> known;
  int64_t step = 0;
};

Status CheckedMachine::prepare(BlockId id) {
  if (options.native.compiled)
    for (const program::Region &region : code.block(id).regions)
      if (!region.symbol.empty())
        known[{id, region.first}].region = &region;
  return inner->prepare(id);
}

std::string signatureOf(const program::Stage &stage, const program::RegionValues &values) {
  std::string text;
  for (ValueId value : values.operands)
    text += " " + toString(stage.values[size_t(value)]);
  text += " ->";
  for (size_t r = 0; r < values.results.size(); ++r) {
    ValueId result = values.results[r];
    text += " " + toString(stage.values[size_t(result)]);
    for (size_t o = 0; o < values.operands.size(); ++o)
      if (areAtOnePlace(stage, result, values.operands[o]))
        text += " over operand " + std::to_string(o);
  }
  return text;
}

struct AttrText {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return std::to_string(value); }
  std::string operator()(const std::string &value) const { return value; }
  template <typename T> std::string operator()(const std::vector<T> &values) const {
    std::string text = "[";
    for (const T &value : values)
      text += (*this)(value) + " ";
    return text + "]";
  }
};

const CheckedMachine::Checked &CheckedMachine::checkedOf(BlockId id, int index) {
  Checked &checked = known[{id, index}];
  if (!checked.key.empty())
    return checked;
  const program::Block &block = code.block(id);
  const Instruction &instruction = block.instructions[size_t(index)];
  checked.work.stage = &code;
  checked.work.block = &block;
  checked.work.first = index;
  if (checked.region) {
    checked.kind = Kind::Compiled;
    checked.work.count = checked.region->count;
    checked.work.values = regionValues(block, *checked.region);
    std::map<std::string, int> ops;
    for (int i = index; i < index + checked.region->count; ++i)
      ++ops[block.instructions[size_t(i)].op];
    for (const auto &[op, count] : ops)
      checked.name +=
          (checked.name.empty() ? "" : ", ") + op + (count > 1 ? " x" + std::to_string(count) : "");
    checked.key = checked.region->symbol;
  } else {
    checked.work.values = {instruction.operands, instruction.results};
    Types operands, results;
    for (ValueId value : instruction.operands)
      operands.push_back(code.values[size_t(value)]);
    for (ValueId value : instruction.results)
      results.push_back(code.values[size_t(value)]);
    bool isNative = bool(findNativeKernel(instruction.op, instruction.attrs, operands, results));
    checked.kind = isNative ? Kind::Native : Kind::Reference;
    checked.name = checked.key = instruction.op;
    for (const auto &[name, value] : instruction.attrs.entries())
      checked.key += " " + name + "=" + std::visit(AttrText(), value);
  }
  std::string signature = signatureOf(code, checked.work.values);
  checked.key += signature;
  checked.name += signature;
  return checked;
}

/// Runs the kernel on copies of its operands. `why` reports writes outside its results.
std::vector<Tensor> CheckedMachine::runApart(const Checked &checked,
                                             const std::vector<Tensor> &operands,
                                             std::string &why) const {
  std::vector<Guarded> memories;
  std::vector<std::vector<unsigned char>> before;
  Buffers buffers;
  std::vector<void *> all;
  Types types, results;
  for (const Tensor &operand : operands) {
    before.push_back(operand.toBytes());
    memories.emplace_back(int64_t(before.back().size()));
    std::copy(before.back().begin(), before.back().end(), memories.back().data());
    buffers.operands.push_back(memories.back().data());
    all.push_back(memories.back().data());
    types.push_back(operand.type());
  }
  for (ValueId value : checked.work.values.results) {
    results.push_back(code.values[size_t(value)]);
    memories.emplace_back(program::sizeBytes(results.back()));
    buffers.results.push_back(memories.back().data());
    all.push_back(memories.back().data());
  }
  if (checked.region) {
    program::CompiledKernel kernel = options.native.compiled->find(checked.region->symbol);
    constexpr int64_t mostPieces = 64;
    const int64_t extent = checked.region->extent;
    const int64_t piece = std::max<int64_t>(1, extent / mostPieces);
    for (int64_t begin = (extent - 1) / piece * piece; begin >= 0; begin -= piece)
      kernel(all.data(), begin, std::min(extent, begin + piece));
  } else {
    const Instruction &instruction = checked.work.block->instructions[size_t(checked.work.first)];
    Threads threads(1);
    findNativeKernel(instruction.op, instruction.attrs, types, results)(threads, buffers);
  }
  for (size_t i = 0; i < memories.size() && why.empty(); ++i) {
    bool isOperand = i < operands.size();
    std::string name = isOperand ? "operand " + std::to_string(i)
                                 : "result " + std::to_string(i - operands.size());
    if (!memories[i].isWhole())
      why = "it writes beyond the ends of " + name;
    else if (isOperand && !std::equal(before[i].begin(), before[i].end(), memories[i].data()))
      why = "it writes to " + name + ", where no result lies";
  }
  std::vector<Tensor> made;
  for (size_t r = 0; r < results.size(); ++r)
    made.push_back(Tensor::fromBytes(results[r], kernels::Arith::Native, buffers.results[r]));
  return made;
}

void CheckedMachine::report(const std::string &key, KernelComparison one) const {
  one.count = 1;
  options.comparisons->add(key, one);
  if (options.stops && !one.difference.empty())
    throw runtime::MachineError(
        {ErrorCode::VerificationFailed,
         "the " + std::string(one.kind == Kind::Compiled ? "compiled" : "native") + " kernel (" +
             one.name + ") and the reference kernels differ: " + one.difference +
             "; run with --kernels reference, and report this"});
}

void CheckedMachine::run(BlockId id, int index) {
  const Checked *checked = isOn() ? &checkedOf(id, index) : nullptr;
  if (!checked || !options.comparisons->begin(checked->key))
    return inner->run(id, index);
  std::vector<Tensor> operands;
  for (ValueId value : checked->work.values.operands)
    operands.push_back(memory.value(value));
  inner->run(id, index);
  KernelComparison one;
  one.name = checked->name;
  one.kind = checked->kind;
  one.place = describe(program, stage, id, index);
  if (checked->kind == Kind::Reference)
    return report(checked->key, one);
  std::vector<Tensor> made;
  for (ValueId value : checked->work.values.results)
    made.push_back(memory.value(value));
  ReferenceResults reference = evaluateReference(checked->work, operands);
  one.worst = worstOf(reference, made, one.difference);
  if (one.difference.empty()) {
    std::string why;
    std::vector<Tensor> apart = runApart(*checked, operands, why);
    one.worst = std::max(one.worst, worstOf(reference, apart, one.difference));
    if (!one.difference.empty())
      one.difference = "on memory of its own, " + one.difference;
    else
      one.difference = why;
  }
  report(checked->key, one);
}

void CheckedMachine::write(const std::vector<SlotWrite> &writes) {
  struct Sum {
    const SlotWrite *write;
    std::vector<Tensor> terms;
  };
  std::vector<Sum> sums;
  const int64_t microBatch = memory.microBatchOfBlock();
  for (const SlotWrite &write : writes) {
    auto isOther = [&](const SlotWrite &other) {
      return &other != &write && other.slot == write.slot;
    };
    std::string key = "sum in a slot of " + toString(code.slots[size_t(write.slot)].type);
    if (write.accumulate && isOn() && std::none_of(writes.begin(), writes.end(), isOther) &&
        options.comparisons->begin(key))
      sums.push_back({&write, {memory.slot(write.slot, microBatch), memory.value(write.value)}});
  }
  inner->write(writes);
  for (const Sum &sum : sums) {
    const TensorType &type = code.slots[size_t(sum.write->slot)].type;
    KernelComparison one;
    one.name = "sum in a slot of " + toString(type);
    one.place = "slot \"" + code.slots[size_t(sum.write->slot)].name + "\" of stage " +
                std::to_string(stage);
    ReferenceResults reference = addedByReference(type, sum.terms);
    one.worst = worstOf(reference, {memory.slot(sum.write->slot, microBatch)}, one.difference);
    report(one.name, one);
  }
}

} // namespace

runtime::MachineMaker checkedMachine(const CheckOptions &options) {
  return [options](const MachineSetting &setting) -> Result<std::unique_ptr<runtime::Machine>> {
    auto inner = nativeMachine(options.native)(setting);
    if (!inner)
      return inner.error();
    return std::unique_ptr<runtime::Machine>(
        std::make_unique<CheckedMachine>(setting, options, std::move(*inner)));
  };
}

} // namespace tbc::cpu
