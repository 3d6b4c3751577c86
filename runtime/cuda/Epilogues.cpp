//===- Epilogues.cpp - Epilogues of matmuls --------------------------------===//

#include "runtime/cuda/Epilogues.h"

#include <algorithm>
#include <set>

namespace tbc::cuda {

using kernels::DType;
using kernels::TensorType;
using program::Block;
using program::Instruction;
using program::Region;
using program::Stage;
using program::ValueId;

std::string Epilogue::name() const {
  std::vector<std::string> parts;
  if (bias)
    parts.emplace_back("bias");
  if (added)
    parts.emplace_back("sum");
  if (function == Function::Cast)
    parts.emplace_back("cast");
  if (function == Function::Gelu)
    parts.emplace_back("gelu");
  if (function == Function::GeluGradient)
    parts.emplace_back("gradient of gelu");
  std::string text;
  for (const std::string &part : parts)
    text += (text.empty() ? "" : " and ") + part;
  return text;
}

std::string describe(const std::map<std::string, int64_t> &counts) {
  std::string text;
  for (const auto &[what, count] : counts)
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + what;
  return text;
}

namespace {

/// Reads a region as a sequence of steps on a matmul's result.
class Reader {
public:
  Reader(const Stage &stage, const Block &block, const Region &region, ValueId matmul)
      : stage(stage), block(block), region(region), values(program::regionValues(block, region)),
        type(stage.values[size_t(matmul)]) {
    levels[matmul] = 0;
    for (ValueId value : values.operands)
      if (value != matmul)
        sources[value] = value;
  }

  /// Sets `epilogue`. Returns false if the region has another form, with a reason in `why` if it is
  /// worth reporting.
  bool read(Epilogue &epilogue, std::string &why) {
    for (int i = region.first; i < region.first + region.count; ++i)
      if (const Instruction &instruction = block.instructions[size_t(i)]; !step(instruction)) {
        if (last > 0 && reason.empty())
          reason = "an epilogue with " + instruction.op;
        why = reason;
        return false;
      }
    return finish(epilogue);
  }

private:
  const TensorType &typeOf(ValueId value) const { return stage.values[size_t(value)]; }
  bool isMatmul(ValueId value) const {
    auto found = levels.find(value);
    return found != levels.end() && found->second == last;
  }

  bool step(const Instruction &instruction) {
    if (instruction.results.size() != 1)
      return false;
    const std::string &op = instruction.op;
    if (op == "reshape")
      return pass(instruction);
    if (op == "broadcast")
      return broadcast(instruction);
    if (op == "add")
      return add(instruction);
    if (op == "cast")
      return cast(instruction);
    if (op == "gelu" || op == "gelu_grad")
      return gelu(instruction);
    return false;
  }

  /// Treats a reshape as its operand under another name.
  bool pass(const Instruction &instruction) {
    ValueId from = instruction.operands[0], to = instruction.results[0];
    if (levels.count(from))
      levels[to] = levels[from];
    else if (sources.count(from))
      sources[to] = sources[from];
    else
      return false;
    return true;
  }

  /// Accepts a broadcast along new leading dims.
  bool broadcast(const Instruction &instruction) {
    auto source = sources.find(instruction.operands[0]);
    const std::vector<int64_t> &dims = instruction.attrs.getInts("dims");
    int64_t added = int64_t(typeOf(instruction.results[0]).shape.size()) - int64_t(dims.size());
    for (size_t i = 0; i < dims.size(); ++i)
      if (dims[i] != added + int64_t(i))
        return false;
    if (source == sources.end() || dims.empty())
      return false;
    biases[instruction.results[0]] = source->second;
    return true;
  }

  bool add(const Instruction &instruction) {
    ValueId x = instruction.operands[0], y = instruction.operands[1];
    if (!isMatmul(x))
      std::swap(x, y);
    if (!isMatmul(x) || isMatmul(y) || made.function != Epilogue::Function::Identity)
      return false;
    if (auto bias = biases.find(y); bias != biases.end() && !made.bias)
      made.bias = bias->second;
    else if (auto source = sources.find(y); source != sources.end() && !made.added)
      made.added = source->second;
    else
      return false;
    next(instruction);
    return true;
  }

  bool cast(const Instruction &instruction) {
    bool isAlone = last == 0 && isMatmul(instruction.operands[0]);
    bool isNarrow = type.dtype == DType::BF16 || type.dtype == DType::F16;
    if (!isAlone || !isNarrow || typeOf(instruction.results[0]).dtype != DType::F32)
      return false;
    made.function = Epilogue::Function::Cast;
    next(instruction);
    return true;
  }

  bool gelu(const Instruction &instruction) {
    bool isGradient = instruction.op == "gelu_grad";
    ValueId x = instruction.operands[0];
    if (made.function != Epilogue::Function::Identity ||
        !isMatmul(isGradient ? instruction.operands[1] : x))
      return false;
    if (instruction.attrs.getString("approximate") != "tanh") {
      reason = "a gelu that is not the tanh form";
      return false;
    }
    if (isGradient) {
      auto source = sources.find(x);
      if (last > 0 || source == sources.end())
        return false;
      made.geluInput = source->second;
    }
    made.function = isGradient ? Epilogue::Function::GeluGradient : Epilogue::Function::Gelu;
    geluLevel = last;
    next(instruction);
    return true;
  }

  void next(const Instruction &instruction) { levels[instruction.results[0]] = ++last; }

  bool finish(Epilogue &epilogue) {
    if (last == 0)
      return false;
    std::optional<ValueId> result;
    for (ValueId value : values.results) {
      auto level = levels.find(value);
      bool isInput = made.function == Epilogue::Function::Gelu && level != levels.end() &&
                     level->second == geluLevel && !made.geluInput;
      if (level != levels.end() && level->second == last && !result)
        result = value;
      else if (isInput)
        made.geluInput = value;
      else
        return false;
    }
    if (!result)
      return false;
    for (const std::optional<ValueId> &value : {made.bias, made.added, made.geluInput})
      if (value && typeOf(*value).dtype != type.dtype)
        return false;
    epilogue = made;
    epilogue.region = region;
    epilogue.result = *result;
    return true;
  }

  const Stage &stage;
  const Block &block;
  const Region &region;
  const program::RegionValues values;
  const TensorType &type; // of the matmul
  Epilogue made;
  std::map<ValueId, int> levels; // by value computed from the matmul: number of steps
  int last = 0, geluLevel = -1;
  std::map<ValueId, ValueId> sources; // by renamed value: the original
  std::map<ValueId, ValueId> biases;  // by broadcast: its operand
  std::string reason;
};

class Finder {
public:
  Finder(const Stage &stage, const Block &block) : stage(stage), block(block) {
    for (int i = 0; i < int(block.instructions.size()); ++i) {
      for (ValueId value : block.instructions[size_t(i)].results)
        maker[value] = i;
      for (ValueId value : block.instructions[size_t(i)].operands)
        readers[value].insert(i);
    }
    for (const program::BlockResult &result : block.results)
      isResult.insert(result.value);
    for (const Region &region : block.regions)
      if (region.count == 1)
        isAlone.insert(region.first);
  }

  Epilogues run() {
    if (stage.memory.isEmpty())
      return {};
    times = program::resultTimes(stage, block);
    for (const Region &region : block.regions)
      tryRegion(region);
    return std::move(found);
  }

private:
  const std::string &opOf(int instruction) const {
    return block.instructions[size_t(instruction)].op;
  }

  void tryRegion(const Region &region) {
    for (ValueId value : program::regionValues(block, region).operands) {
      Epilogue epilogue;
      std::string why;
      std::vector<int> chain = matmulBefore(region, value);
      if (chain.empty())
        continue;
      if (Reader(stage, block, region, value).read(epilogue, why)) {
        epilogue.leftOut = chain;
        epilogue.einsum = chain.front();
        if (fits(epilogue)) {
          found.list.push_back(epilogue);
          return;
        }
        why = "the memory plan";
      }
      if (!why.empty())
        ++found.apart[why];
    }
  }

  /// Returns the einsum whose result only this region reads, with the reshapes in between; empty if
  /// there is no such einsum.
  std::vector<int> matmulBefore(const Region &region, ValueId value) const {
    std::vector<int> chain;
    auto isReadByRegion = [&](int reader) {
      return reader >= region.first && reader < region.first + region.count;
    };
    for (;;) {
      auto made = maker.find(value);
      if (made == maker.end() || made->second >= region.first || isResult.count(value) ||
          !isAlone.count(made->second))
        return {};
      const std::set<int> &read = readers.at(value);
      bool isOnlyHere =
          chain.empty() ? std::all_of(read.begin(), read.end(), isReadByRegion) : read.size() == 1;
      if (!isOnlyHere)
        return {};
      chain.insert(chain.begin(), made->second);
      if (opOf(made->second) == "einsum")
        return chain;
      if (opOf(made->second) != "reshape")
        return {};
      value = block.instructions[size_t(made->second)].operands[0];
    }
  }

  /// Returns whether the memory plan allows the matmul to run with its region.
  bool fits(const Epilogue &e) const {
    const Instruction &einsum = block.instructions[size_t(e.einsum)];
    std::vector<ValueId> reads = einsum.operands, writes = {e.result};
    for (const std::optional<ValueId> &value : {e.bias, e.added})
      if (value)
        reads.push_back(*value);
    if (e.geluInput)
      (e.function == Epilogue::Function::Gelu ? writes : reads).push_back(*e.geluInput);
    for (ValueId write : writes)
      for (ValueId read : reads)
        if (program::shareBytes(stage, write, read) &&
            !(write == e.result && e.added == read && program::areAtOnePlace(stage, write, read)))
          return false;
    if (writes.size() > 1 && program::shareBytes(stage, writes[0], writes[1]))
      return false;
    return mayWait(e);
  }

  /// Returns whether the einsum's operands are still intact where the region begins.
  bool mayWait(const Epilogue &e) const {
    int end = e.region.first + e.region.count;
    const std::vector<ValueId> &operands = block.instructions[size_t(e.einsum)].operands;
    for (int i = e.einsum + 1; i < int(block.instructions.size()); ++i) {
      const Instruction &other = block.instructions[size_t(i)];
      bool isDone = std::find(e.leftOut.begin(), e.leftOut.end(), i) != e.leftOut.end() ||
                    (i >= e.region.first && i < end);
      bool comesAfter = i >= end && (other.stream == program::Stream::Compute ||
                                     std::any_of(other.waits.begin(), other.waits.end(),
                                                 [&](int wait) { return wait >= end - 1; }));
      if (isDone || comesAfter)
        continue;
      for (ValueId result : other.results)
        for (ValueId operand : operands)
          if (program::shareBytes(stage, result, operand))
            return false;
    }
    // A slot written in between.
    for (size_t r = 0; r < times.size(); ++r)
      if (times[r] >= e.einsum && times[r] < end)
        for (ValueId operand : operands)
          if (program::sharesBytesOfSlot(stage, operand, block.results[r].slot))
            return false;
    return true;
  }

  const Stage &stage;
  const Block &block;
  std::map<ValueId, int> maker;
  std::map<ValueId, std::set<int>> readers;
  std::set<ValueId> isResult;
  std::set<int> isAlone; // instructions that are a region by themselves
  std::vector<int> times;
  Epilogues found;
};

} // namespace

Epilogues findEpilogues(const Stage &stage, const Block &block) {
  return Finder(stage, block).run();
}

} // namespace tbc::cuda
