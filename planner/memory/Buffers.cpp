//===- Buffers.cpp - Buffers allocated by the blocks of a step ------------===//
//
// Follows the output of passes/partition/LocalBlock.cpp step by step; a test compares the two.
//
//===----------------------------------------------------------------------===//

#include "planner/memory/Buffers.h"
#include "planner/memory/BufferList.h"

using namespace tbc::reshard;

namespace tbc::planner {

namespace {

/// The entries of one block, taken from the derivation's lists.
struct BlockLists {
  const std::vector<Kernel> *kernels = nullptr;
  std::map<int, std::vector<const Reshard *>> reshards; // by value
  std::vector<const Transfer *> received, sent;
  std::vector<int> residuals;          // indices of the residuals it keeps
  std::multimap<int, int> offloaded;   // the offloaded ones, by value
  std::multimap<int, int> gradientsOf; // parameters, by the value to be added to their gradient
  std::multimap<int, const Reshard *> gathersBefore; // prefetched gathers, by op
};

class StepWalk {
public:
  StepWalk(const Graph &graph, const Assignment &assignment, const Derivation &derivation,
           const Overlap &overlap, const BlockKernels &kernels)
      : graph(graph), assignment(assignment), derivation(derivation), overlap(overlap),
        repeated(repeatedOps(graph)), cache(graph.values.size()) {
    index(kernels);
  }

  StepBuffers run() {
    const std::vector<bool> &isReducedLast = derivation.isReducedLast;
    if (std::find(isReducedLast.begin(), isReducedLast.end(), true) != isReducedLast.end()) {
      isLast = true;
      BlockLists lists = blocks[lastBackward];
      result.lastBackward = buffersOf(lastBackward, lists);
      isLast = false;
    }
    for (auto &[key, lists] : blocks)
      result.blocks[key] = buffersOf(key, lists);
    for (const KeptRows &rows : derivation.keptRows)
      keepRows(rows);
    for (auto &[slot, kept] : slots)
      result.kept.push_back(std::move(kept));
    return std::move(result);
  }

private:
  /// Walks the block; its list of gradients is empty afterwards.
  BlockBuffers buffersOf(const BlockKey &key, BlockLists &lists) {
    block = key;
    here = &lists;
    list = BufferList();
    for (int value : cached)
      cache[size_t(value)].clear();
    cached.clear();
    emitted.clear();
    walk();
    return list.finish();
  }

  //===--------------------------------------------------------------------===//
  // Entries by block
  //===--------------------------------------------------------------------===//

  void index(const BlockKernels &kernels) {
    for (const auto &[key, ofBlock] : kernels)
      blocks[key].kernels = &ofBlock;
    for (const Reshard &reshard : derivation.reshards) {
      if (!reshard.perStep && reshard.chunk >= 0)
        blocks[{reshard.chunk, reshard.phase}].reshards[reshard.value].push_back(&reshard);
      if (reshard.where == Where::GradientLast)
        lastReductions[reshard.value] = &reshard;
    }
    for (size_t r = 0; r < overlap.issuedBefore.size(); ++r) {
      const Reshard &reshard = derivation.reshards[r];
      if (int before = overlap.issuedBefore[r]; before >= 0)
        blocks[{reshard.chunk, reshard.phase}].gathersBefore.insert({before, &reshard});
    }
    for (const Transfer &transfer : derivation.transfers) {
      blocks[{transfer.toChunk, transfer.phase}].received.push_back(&transfer);
      blocks[{transfer.fromChunk, transfer.phase}].sent.push_back(&transfer);
    }
    for (int r = 0; r < int(derivation.residuals.size()); ++r) {
      const Residual &residual = derivation.residuals[r];
      BlockLists &keeper = blocks[{residual.chunk, residual.phase}];
      keeper.residuals.push_back(r);
      if (residual.isOnHost)
        keeper.offloaded.insert({residual.value, r});
      residualsOf[residual.value].push_back(r);
    }
    for (size_t p = 0; p < derivation.gradientParts.size(); ++p)
      for (const GradientParts::Part &part : derivation.gradientParts[p].parts) {
        int producer = graph.values[part.value].producer;
        Phase phase = producer < 0 ? Phase::Backward : graph.ops[producer].phase;
        if (phase != Phase::Forward)
          blocks[{part.chunk, phase}].gradientsOf.insert({part.value, int(p)});
      }
  }

  double bytes(int value, const Sharding &sharding) const {
    return double(derivation.bytesOf(graph, value, sharding));
  }

  //===--------------------------------------------------------------------===//
  // One block
  //===--------------------------------------------------------------------===//

  void walk() {
    op = -1;
    waiting.clear();
    bucketedFor.clear();
    for (const Transfer *transfer : here->received) {
      list.next(-1, BufferList::Form::Communication);
      remember(transfer->value, transfer->sharding,
               list.make(bytes(transfer->value, transfer->sharding), BufferKind::Transient));
    }
    if (here->kernels)
      for (const Kernel &kernel : *here->kernels)
        emit(kernel);
    while (!here->gradientsOf.empty())
      addGradients(here->gradientsOf.begin()->first);
    keepResiduals();
    if (block.second == Phase::Forward)
      for (auto [state, updated] : graph.stateUpdates)
        if (isMadeHere(updated))
          list.moveToSlot(get(updated, derivation.home[updated]));
    for (const Transfer *transfer : here->sent) {
      int buffer = get(transfer->value, transfer->sharding);
      list.next(op, BufferList::Form::Communication);
      list.read(buffer);
    }
  }

  bool isMadeHere(int value) const {
    int producer = graph.values[value].producer;
    return (producer < 0 ? 0 : graph.ops[producer].chunk) == block.first;
  }

  /// Adds a kernel: gathers ahead and operands from outside, its ops, then what happens to their
  /// results.
  void emit(const Kernel &emitted) {
    const std::vector<int> &kernel = emitted.ops;
    op = kernel.back();
    for (int index : kernel) {
      auto [first, last] = here->gathersBefore.equal_range(index);
      for (auto gather = first; gather != last; ++gather)
        get(gather->second->value, gather->second->to);
    }
    std::map<int, int> inside; // buffers of the results, by value
    std::vector<std::vector<int>> operands;
    auto isMade = [&](int value) {
      return std::find(kernel.begin(), kernel.end(), graph.values[value].producer) != kernel.end();
    };
    for (int index : kernel) {
      const GraphOp &o = graph.ops[index];
      operands.emplace_back();
      for (size_t k = 0; k < o.operands.size(); ++k)
        operands.back().push_back(isMade(o.operands[k]) ? BufferList::inSlot
                                                        : get(o.operands[k], needed(index, k)));
    }
    list.next(op, formOf(emitted));
    for (size_t i = 0; i < kernel.size(); ++i) {
      const GraphOp &o = graph.ops[kernel[i]];
      for (size_t k = 0; k < o.operands.size(); ++k)
        list.read(isMade(o.operands[k]) ? inside.at(o.operands[k]) : operands[i][k]);
      for (int value : o.results)
        inside[value] = list.make(bytes(value, derivation.raw[value]), BufferKind::Transient);
      holdBlocks(kernel[i]);
    }
    keepResults(emitted, inside);
    for (int index : kernel)
      for (int value : graph.ops[index].results)
        addGradients(value);
  }

  BufferList::Form formOf(const Kernel &kernel) const {
    const GraphOp &first = graph.ops[kernel.ops.front()];
    bool isMatmul = first.kernelClass == KernelClass::Matmul && first.operands.size() == 2;
    return kernel.isNest     ? BufferList::Form::Nest
           : kernel.isPacked ? BufferList::Form::Packed
           : isMatmul        ? BufferList::Form::Matmul
                             : BufferList::Form::Other;
  }

  const Sharding &needed(int index, size_t operand) const {
    return derivation.operands[index][operand].sharding;
  }

  void keepResults(const Kernel &emitted, const std::map<int, int> &inside) {
    const std::vector<int> &kernel = emitted.ops;
    const bool isGenerated = graph.ops[kernel.back()].generator;
    for (int index : kernel) {
      if (emitted.cutsInPlace(graph.ops[index]) ||
          (repeated[size_t(index)] && !(isGenerated && index == kernel.back())))
        continue;
      for (int value : graph.ops[index].results)
        remember(value, derivation.raw[value], inside.at(value));
    }
  }

  /// Adds a generator that no kernel has made before.
  void emitGenerator(int index) {
    const GraphOp &o = graph.ops[index];
    std::vector<int> operands;
    for (int value : o.operands)
      operands.push_back(get(value, derivation.raw[value]));
    list.next(op < 0 ? index : op);
    for (int buffer : operands)
      list.read(buffer);
    for (int value : o.results)
      remember(value, derivation.raw[value],
               list.make(bytes(value, derivation.raw[value]), BufferKind::Transient));
    emitted.insert(index);
  }

  /// An op with a streamed loop holds the next block while it computes on the current one, and a
  /// partial result beside the accumulated one.
  void holdBlocks(int index) {
    const GraphOp &o = graph.ops[index];
    const OpStrategy &strategy = assignment.strategies[index];
    if (streamedBlocks(graph, index, strategy) == 1)
      return;
    auto streams = [&](size_t operand) {
      for (const auto &[loop, axes] : strategy.loopAxes)
        for (const TensorDim &dim : o.loops[loop].operandDims)
          if (o.loops[loop].kind == LoopKind::Streamed && dim.tensor == int(operand))
            return true;
      return false;
    };
    for (size_t k = 0; k < o.operands.size(); ++k)
      if (streams(k))
        list.make(bytes(o.operands[k], operandSharding(graph, index, strategy, int(k))),
                  BufferKind::Collective);
    for (int value : o.results)
      list.make(bytes(value, derivation.raw[value]), BufferKind::Collective);
  }

  void addGradients(int value) {
    auto [first, last] = here->gradientsOf.equal_range(value);
    for (auto it = first; it != last; ++it)
      if (const Reshard *member = bucketed(value, derivation.gradient[it->second])) {
        waiting[overlap.bucket(derivation, *member)].insert(member);
        bucketedFor.insert({value, it->second});
      } else
        keepGradient(value, get(value, derivation.gradient[it->second]), it->second);
    here->gradientsOf.erase(first, last);
    reduceFullBuckets();
  }

  /// A gradient of one term in a step is made in its slot (codegen's writeGradientsOfOneTerm).
  void keepGradient(int value, int buffer, int parameter) {
    if (isLast && derivation.isReducedLast[size_t(parameter)])
      return completeGradient(buffer, parameter);
    list.keep(buffer);
    int terms = 0;
    for (const GradientParts::Part &part : derivation.gradientParts[size_t(parameter)].parts)
      terms += assignment.stageOf(part.chunk) == assignment.stageOf(block.first);
    const int gradient = graph.parameters[size_t(parameter)].gradient;
    if (assignment.microBatches == 1 && terms == 1 &&
        graph.values[size_t(value)].layout.elementBytes ==
            graph.values[size_t(gradient)].layout.elementBytes)
      list.moveToSlot(buffer);
  }

  /// Adds the total of a gradient over micro-batches, and the reductions of its bucket once all
  /// totals of that are at hand.
  void completeGradient(int part, int parameter) {
    const int gradient = graph.parameters[size_t(parameter)].gradient;
    const Reshard *reshard = lastReductions.at(gradient);
    const int64_t elementBytes = graph.values[size_t(gradient)].layout.elementBytes;
    list.next(op, BufferList::Form::Nest);
    list.read(part);
    int total = list.make(bytes(gradient, reshard->from), BufferKind::Transient);
    list.keep(total);
    const bool isInPlace = derivation.isReducedInPlace(parameter);
    if (!isInPlace)
      list.moveToSlot(total);
    const int64_t elements = int64_t(bytes(gradient, reshard->from)) / elementBytes;
    const int bucket = overlap.bucket(derivation, *reshard);
    if (bucket < 0) {
      list.moveToSlot(
          list.addSteps(reshard->steps, total, elements, elementBytes, BufferKind::Collective, op));
      return;
    }
    totals[bucket][reshard] = {reshard, total, elements, elementBytes};
    const std::vector<int> &wanted = overlap.buckets[bucket].reshards;
    if (totals[bucket].size() < wanted.size())
      return;
    std::vector<BufferList::Member> members;
    for (int index : wanted)
      members.push_back(totals[bucket].at(&derivation.reshards[index]));
    list.addBucket(members, op);
    for (const BufferList::Member &member : members)
      list.moveToSlot(member.buffer);
  }

  const Reshard *bucketed(int value, const Sharding &sharding) const {
    if (auto listed = here->reshards.find(value); listed != here->reshards.end())
      for (const Reshard *reshard : listed->second)
        if (reshard->to == sharding && overlap.bucket(derivation, *reshard) >= 0)
          return reshard;
    return nullptr;
  }

  /// Adds the members of a bucket, which are at hand.
  std::vector<BufferList::Member> addBucketOf(int bucket) {
    std::vector<BufferList::Member> members;
    for (int index : overlap.buckets[bucket].reshards) {
      const Reshard &reshard = derivation.reshards[index];
      const TensorLayout &layout = graph.values[reshard.value].layout;
      members.push_back({&reshard, get(reshard.value, reshard.from),
                         localBytes(layout, reshard.from) / layout.elementBytes,
                         layout.elementBytes, kindOf(reshard)});
    }
    list.addBucket(members, op);
    for (const BufferList::Member &member : members)
      remember(member.reshard->value, member.reshard->to, member.buffer);
    return members;
  }

  /// Reduces the buckets with all members present.
  void reduceFullBuckets() {
    for (auto it = waiting.begin(); it != waiting.end();) {
      const std::vector<int> &reshards = overlap.buckets[it->first].reshards;
      if (it->second.size() < reshards.size()) {
        ++it;
        continue;
      }
      for (const BufferList::Member &member : addBucketOf(it->first)) {
        const int value = member.reshard->value;
        list.keep(member.buffer);
        auto [first, last] = bucketedFor.equal_range(value);
        for (auto it = first; it != last; ++it)
          keepGradient(value, member.buffer, it->second);
      }
      it = waiting.erase(it);
    }
  }

  void keepResiduals() {
    for (int r : here->residuals) {
      const Residual &residual = derivation.residuals[r];
      int buffer = get(residual.value, residual.sharding);
      if (!residual.isOnHost)
        list.moveToSlot(buffer);
      useResidual(r);
    }
  }

  //===--------------------------------------------------------------------===//
  // Sources of values
  //===--------------------------------------------------------------------===//

  int remember(int value, const Sharding &sharding, int buffer) {
    auto [first, last] = here->offloaded.equal_range(value);
    for (auto it = first; it != last; ++it)
      if (derivation.residuals[it->second].sharding == sharding) {
        list.next(op);
        list.read(buffer);
      }
    if (cache[size_t(value)].empty())
      cached.push_back(value);
    cache[size_t(value)].push_back({&sharding, buffer});
    return buffer;
  }

  int get(int value, const Sharding &sharding) {
    for (const auto &[as, buffer] : cache[size_t(value)])
      if (as == &sharding || *as == sharding)
        return buffer;
    auto listed = here->reshards.find(value);
    if (listed != here->reshards.end())
      for (const Reshard *reshard : listed->second) {
        if (reshard->to != sharding || reshard->from == sharding)
          continue;
        if (int bucket = overlap.bucket(derivation, *reshard);
            bucket >= 0 && reshard->where == Where::ParameterUse) {
          addBucketOf(bucket);
          return get(value, sharding);
        }
        int from = get(value, reshard->from);
        const TensorLayout &layout = graph.values[value].layout;
        int64_t elements = localBytes(layout, reshard->from) / layout.elementBytes;
        return remember(value, sharding,
                        list.addSteps(reshard->steps, from, elements, layout.elementBytes,
                                      kindOf(*reshard), op));
      }
    return source(value, sharding);
  }

  static BufferKind kindOf(const Reshard &reshard) {
    return reshard.where == Where::ParameterUse                ? BufferKind::Gathered
           : reshard.op < 0 && reshard.where == Where::Operand ? BufferKind::Transient
                                                               : BufferKind::Collective;
  }

  /// A value from outside the block, or from a generator.
  int source(int value, const Sharding &sharding) {
    const GraphValue &graphValue = graph.values[value];
    int holder = holderOf(graph, assignment, value, block.first);
    if (auto listed = residualsOf.find(value); listed != residualsOf.end())
      for (int r : listed->second) {
        const Residual &residual = derivation.residuals[r];
        bool isElsewhere = BlockKey(residual.chunk, residual.phase) != block;
        if (residual.chunk == holder && residual.sharding == sharding && isElsewhere) {
          useResidual(r);
          if (!residual.isOnHost)
            return remember(value, sharding, BufferList::inSlot);
          list.next(op);
          return remember(value, sharding,
                          list.make(bytes(value, sharding), BufferKind::Transient));
        }
      }
    if (graphValue.producer < 0) {
      if (graphValue.role != ValueRole::Parameter && graphValue.role != ValueRole::State &&
          graphValue.role != ValueRole::OptimizerState)
        use({1, value, assignment.stageOf(block.first)}, KeptSlot::Kind::Input,
            bytes(value, sharding));
      return remember(value, sharding, BufferList::inSlot);
    }
    int producer = graphValue.producer;
    if (!graph.ops[producer].generator || emitted.count(producer))
      return remember(value, sharding, BufferList::inSlot); // only with a wrong derivation
    emitGenerator(producer);
    return get(value, sharding);
  }

  void useResidual(int number) {
    const Residual &residual = derivation.residuals[number];
    bool isGathered = graph.values[residual.value].role == ValueRole::Parameter;
    use({0, number, assignment.stageOf(residual.chunk)},
        isGathered ? KeptSlot::Kind::Gathered : KeptSlot::Kind::Residual,
        bytes(residual.value, residual.sharding), residual.isOnHost);
  }

  /// What forward keeps of the tokens of experts, until their backward.
  void keepRows(const KeptRows &rows) {
    const int chunk = graph.ops[size_t(rows.op)].chunk;
    for (Phase phase : {Phase::Forward, Phase::Backward}) {
      block = {chunk, phase};
      use({2, rows.op, assignment.stageOf(chunk)}, KeptSlot::Kind::Residual, double(rows.bytes));
    }
  }

  using SlotKey = std::tuple<int, int, int>; // residual, input or rows, number, stage

  void use(const SlotKey &key, KeptSlot::Kind kind, double bytes, bool isOnHost = false) {
    KeptSlot &slot = slots[key];
    slot.kind = kind;
    slot.isOnHost = isOnHost;
    slot.stage = std::get<2>(key);
    slot.bytes = int64_t(bytes);
    slot.users.insert(block);
  }

  const Graph &graph;
  const Assignment &assignment;
  const Derivation &derivation;
  const Overlap &overlap;
  const std::vector<bool> repeated; // by op
  std::map<BlockKey, BlockLists> blocks;
  std::map<int, std::vector<int>> residualsOf; // by value
  std::map<SlotKey, KeptSlot> slots;
  StepBuffers result;

  static constexpr BlockKey lastBackward = {0, Phase::Backward};
  std::map<int, const Reshard *> lastReductions; // by gradient

  // State of the current block.
  BlockKey block;
  bool isLast = false; // the last backward of the step, which completes gradients
  /// Of it, by bucket: the members with a total.
  std::map<int, std::map<const Reshard *, BufferList::Member>> totals;
  BlockLists *here = nullptr;
  BufferList list;
  /// By value: its available shardings, as in the derivation, and their buffers.
  std::vector<std::vector<std::pair<const Sharding *, int>>> cache;
  std::vector<int> cached; // the values in `cache`
  std::set<int> emitted;
  std::map<int, std::set<const Reshard *>> waiting; // by bucket: members present
  std::multimap<int, int> bucketedFor;              // parameters, by the value of a bucket
  int op = -1;
};

} // namespace

StepBuffers stepBuffers(const Graph &graph, const Assignment &assignment,
                        const Derivation &derivation, const Overlap &overlap,
                        const BlockKernels *kernels) {
  if (kernels)
    return StepWalk(graph, assignment, derivation, overlap, *kernels).run();
  const BlockKernels planned = planKernels(graph, assignment, derivation);
  return StepWalk(graph, assignment, derivation, overlap, planned).run();
}

} // namespace tbc::planner
