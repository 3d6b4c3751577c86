//===- UpdateBuffers.cpp - Buffers allocated by an update -----------------===//
//
// Follows passes/optimizer/BuildUpdate.cpp and the output of passes/partition/LocalUpdate.cpp step
// by step; a test compares the two.
//
//===----------------------------------------------------------------------===//

#include "planner/memory/BufferList.h"
#include "planner/memory/Buffers.h"

#include <set>

using namespace tbc::reshard;

namespace tbc::planner {

namespace {

constexpr int64_t wideBytes = 4;    // the optimizer computes in f32
constexpr int64_t accessBytes = 16; // of a thread of a GPU

class UpdateWalk {
public:
  UpdateWalk(const Graph &graph, const Assignment &assignment, const Derivation &derivation,
             const Overlap &overlap, const Job &job, int stage)
      : graph(graph), assignment(assignment), derivation(derivation), overlap(overlap), job(job),
        stage(stage) {
    for (const Reshard &reshard : derivation.reshards)
      if (reshard.stage == stage &&
          (reshard.where == Where::GradientStep || reshard.where == Where::MatrixStep ||
           reshard.where == Where::MatrixTotals || reshard.where == Where::ParameterStep))
        reshards[{reshard.where, reshard.value}].push_back(&reshard);
  }

  BlockBuffers run() {
    walk();
    return list.finish();
  }

  std::vector<LaunchedKernel> launched() {
    walk();
    return std::move(kernels);
  }

private:
  static constexpr int unknown = -2;

  void walk() {
    // The totals of a step: the loss, its count, then the sums over gradients.
    bool counts = graph.count >= 0;
    int64_t parts = graph.stepTotalBytes / wideBytes;
    bool sumsGradients = parts > 1 + int64_t(counts);
    auto clip = job.settings.find("clip_norm");
    bool clips = clip != job.settings.end() && clip->second != 0;
    isScaled = parts > 0;
    maySkip = counts || parts > 1 + int64_t(counts) + int64_t(clips);
    completed.assign(graph.parameters.size(), unknown);
    if (sumsGradients)
      for (int p = 0; p < int(graph.parameters.size()); ++p)
        if (holds(p))
          completed[p] = complete(p);
    if (sumsGradients) {
      list.next();
      for (int buffer : completed)
        if (buffer != unknown)
          list.read(buffer);
    }
    // Scalars read by all parameters: the factor of gradients, whether to step, Adam's count.
    list.next();
    int numScalars = int(isScaled) + int(maySkip) + int(job.stateBytesPerElement() > wideBytes);
    for (int i = 0; i < numScalars; ++i)
      scalars.push_back(list.make(wideBytes, BufferKind::Transient));
    for (int p = 0; p < int(graph.parameters.size()); ++p)
      if (holds(p))
        step(p);
  }

  bool holds(int parameter) const {
    const std::vector<int> &stages = derivation.parameterStages[parameter];
    return graph.parameters[parameter].gradient >= 0 &&
           std::find(stages.begin(), stages.end(), stage) != stages.end();
  }

  /// Reshards the contents of a slot from `from` to `to`: first as derived, then by local steps.
  int apply(Where where, int value, int64_t elementBytes, int buffer, const Sharding &from,
            const Sharding &to) {
    const TensorLayout &layout = graph.values[value].layout;
    const Sharding *current = &from;
    auto elements = [&] { return localBytes(layout, *current) / layout.elementBytes; };
    auto listed = reshards.find({where, value});
    if (listed != reshards.end())
      for (const Reshard *reshard : listed->second) {
        buffer = overlap.bucket(derivation, *reshard) >= 0
                     ? reduceBucket(*reshard)
                     : list.addSteps(reshard->steps, buffer, elements(), elementBytes,
                                     BufferKind::Collective);
        current = &reshard->to;
      }
    if (*current == to)
      return buffer;
    return list.addSteps(reshard::reshard(assignment.mesh, layout, *current, to), buffer,
                         elements(), elementBytes, BufferKind::Transient);
  }

  /// Returns the reduced gradient of `wanted`. The first call for a bucket reduces all its members,
  /// from gradients in their slots.
  int reduceBucket(const Reshard &wanted) {
    if (!reduced.count(&wanted)) {
      std::vector<BufferList::Member> members;
      const Bucket &bucket = overlap.buckets[overlap.bucket(derivation, wanted)];
      for (int index : bucket.reshards) {
        const Reshard &reshard = derivation.reshards[index];
        const TensorLayout &layout = graph.values[reshard.value].layout;
        members.push_back({&reshard, BufferList::inSlot,
                           localBytes(layout, reshard.from) / layout.elementBytes,
                           layout.elementBytes});
      }
      list.addBucket(members);
      for (const BufferList::Member &member : members)
        reduced[member.reshard] = member.buffer;
    }
    return reduced.at(&wanted);
  }

  /// Returns the gradient on the state's shard.
  int complete(int p) {
    if (derivation.isReducedLast[size_t(p)])
      return BufferList::inSlot;
    int gradient = graph.parameters[p].gradient;
    const TensorLayout &layout = graph.values[gradient].layout;
    const std::vector<GradientParts::Part> &parts = derivation.gradientParts[p].parts;
    bool hasPart = std::any_of(parts.begin(), parts.end(), [&](const GradientParts::Part &part) {
      return assignment.stageOf(part.chunk) == stage;
    });
    // A stage without a part adds zeros to the sum over stages.
    int own =
        hasPart ? BufferList::inSlot : make(double(localBytes(layout, derivation.gradient[p])), {});
    return apply(Where::GradientStep, gradient, layout.elementBytes, own, derivation.gradient[p],
                 derivation.state[p]);
  }

  /// Begins an op on each element of parameter `p`, in the kernel of the one right before it.
  void beginRun(int p) {
    const int before = list.instruction();
    list.nextInRun(p);
    if (list.instruction() == before)
      return;
    kernels.emplace_back().isBehindPrevious = before == lastKernel;
    lastKernel = list.instruction();
  }

  int make(double bytes, std::initializer_list<int> operands) {
    list.next();
    return result(bytes, operands);
  }

  /// Adds an op on each element of parameter `p`. Those in a row are one kernel.
  int compute(int p, double bytes, std::initializer_list<int> operands) {
    beginRun(p);
    return result(bytes, operands);
  }

  int result(double bytes, std::initializer_list<int> operands) {
    for (int operand : operands)
      list.read(operand);
    return list.make(bytes, BufferKind::Transient);
  }

  /// Selects the new value or the old one, if the step may be skipped.
  int chosen(int p, int fresh, int old, bool inSlot, double bytes) {
    beginRun(p);
    list.read(fresh);
    list.read(old);
    return inSlot ? BufferList::inSlot : list.make(bytes, BufferKind::Transient);
  }

  void offload(int buffer) {
    list.next();
    list.read(buffer);
  }

  /// The sizes of one parameter on a rank.
  struct Parameter {
    int number;
    const GraphParameter &graph;
    const TensorLayout &layout;
    int64_t own; // bytes of an element
    double elements, wide;
    bool hasMaster;
    bool isWhole; // the stored parameter has the sharding of the state
  };

  Parameter parameterOf(int p) const {
    const GraphParameter &parameter = graph.parameters[p];
    const TensorLayout &layout = graph.values[parameter.value].layout;
    const int64_t own = layout.elementBytes;
    const int64_t number = localBytes(layout, derivation.state[p]) / own;
    const double elements = double(number);
    return {p,
            parameter,
            layout,
            own,
            elements,
            elements * wideBytes,
            masterBytes(own) > 0,
            derivation.stored[p] == derivation.state[p]};
  }

  /// Adds the gradient of a parameter as the optimizer reads it: widened, scaled and clipped.
  int gradientOf(const Parameter &p) {
    if (completed[p.number] == unknown)
      completed[p.number] = complete(p.number);
    int gradient = completed[p.number];
    if (graph.values[p.graph.gradient].layout.elementBytes < wideBytes)
      gradient = compute(p.number, p.wide, {gradient});
    if (isScaled)
      gradient = compute(p.number, p.wide, {gradient});
    auto clip = job.settings.find("clip_value");
    if (clip != job.settings.end() && clip->second != 0)
      gradient = compute(p.number, p.wide, {gradient});
    return gradient;
  }

  /// Returns the parameter on the state's shard, unless the optimizer steps on a master copy.
  int oldValue(const Parameter &p) {
    return p.hasMaster ? BufferList::inSlot
                       : apply(Where::GradientStep, p.graph.value, p.own, BufferList::inSlot,
                               derivation.stored[p.number], derivation.state[p.number]);
  }

  /// Describes the last kernel, which steps `p`. It reads and writes `ownTensors` of this parameter
  /// alone. `source`: the buffer of the gradient, or of its direction.
  void describeKernel(const Parameter &p, int ownTensors, int source) {
    LaunchedKernel &kernel = kernels.back();
    kernel.mayJoin = p.isWhole && !assignment.offloadsStates;
    for (int scalar = 0; scalar <= int(scalars.size()); ++scalar) // the learning rate, too
      kernel.tensors.push_back(scalar);
    for (int i = 0; i < ownTensors; ++i)
      kernel.tensors.push_back(int(scalars.size()) + ++numTensors);
    if (int message = list.messageOf(source); message >= 0)
      kernel.messages.push_back(message);
    // The widest access that divides the tensor (codegen/cuda/NestEmitter.h).
    int64_t width = accessBytes / wideBytes;
    while (int64_t(p.elements) % width != 0)
      width /= 2;
    kernel.code = std::to_string(ownTensors) + " tensors, " + std::to_string(p.own) + " bytes, " +
                  std::to_string(width) + " at once";
  }

  void readScalars() {
    for (int scalar : scalars)
      list.read(scalar);
  }

  /// Ends the step of a parameter, of its new value `fresh`: the cast from the master copy, and the
  /// gather to the stored sharding.
  void store(const Parameter &p, int fresh) {
    if (p.hasMaster) {
      beginRun(p.number);
      list.read(fresh);
      fresh = p.isWhole ? BufferList::inSlot
                        : list.make(p.elements * double(p.own), BufferKind::Transient);
    }
    if (const Reshard *gather = jointGather(p.graph.value))
      gatherBucket(*gather, fresh);
    else
      list.moveToSlot(apply(Where::ParameterStep, p.graph.value, p.own, fresh,
                            derivation.state[p.number], derivation.stored[p.number]));
  }

  /// Returns the gather of a new parameter in a bucket, or null.
  const Reshard *jointGather(int value) const {
    auto listed = reshards.find({Where::ParameterStep, value});
    if (listed != reshards.end())
      for (const Reshard *reshard : listed->second)
        if (overlap.bucket(derivation, *reshard) >= 0)
          return reshard;
    return nullptr;
  }

  /// Adds the bucket of `ready`, a new parameter in `fresh`, once all members are present.
  void gatherBucket(const Reshard &ready, int fresh) {
    const int bucket = overlap.bucket(derivation, ready);
    std::map<const Reshard *, int> &present = waiting[bucket];
    present[&ready] = fresh;
    const std::vector<int> &wanted = overlap.buckets[bucket].reshards;
    if (present.size() < wanted.size())
      return;
    std::vector<BufferList::Member> members;
    for (int index : wanted) {
      const Reshard &reshard = derivation.reshards[index];
      const TensorLayout &layout = graph.values[reshard.value].layout;
      members.push_back({&reshard, present.at(&reshard),
                         localBytes(layout, reshard.from) / layout.elementBytes,
                         layout.elementBytes});
    }
    list.addBucket(members);
    for (const BufferList::Member &member : members)
      list.moveToSlot(member.buffer);
  }

  /// Adds the instructions of one parameter: the gradient; the optimizer; the selection if the step
  /// may be skipped; the new value. If the step cannot be skipped, results go to their slots at
  /// once, unless these are on the host.
  void step(int number) {
    const Parameter p = parameterOf(number);
    const int gradient = gradientOf(p);
    if (p.graph.matrices)
      return stepOnMatrices(p, gradient);
    int old = oldValue(p);
    int64_t numMoments = job.stateBytesPerElement(p.graph) / wideBytes;
    bool onHost = assignment.offloadsStates;
    if (p.hasMaster && onHost)
      old = make(p.wide, {});
    std::vector<int> oldMoments, moments;
    for (int64_t m = 0; m < numMoments; ++m)
      oldMoments.push_back(onHost ? make(p.wide, {}) : BufferList::inSlot);
    bool inSlot = p.hasMaster ? !onHost : p.isWhole;
    beginRun(number);
    readScalars();
    list.read(gradient);
    list.read(old);
    for (int moment : oldMoments)
      list.read(moment);
    int fresh = !maySkip && inSlot ? BufferList::inSlot : list.make(p.wide, BufferKind::Transient);
    for (int64_t m = 0; m < numMoments; ++m)
      moments.push_back(maySkip || onHost ? list.make(p.wide, BufferKind::Transient)
                                          : BufferList::inSlot);
    if (maySkip) {
      fresh = chosen(number, fresh, old, inSlot, p.wide);
      if (p.hasMaster && onHost)
        offload(fresh);
      for (int64_t m = 0; m < numMoments; ++m) {
        int moment = chosen(number, moments[m], oldMoments[m], !onHost, p.wide);
        if (onHost)
          offload(moment);
      }
    } else if (onHost) {
      if (p.hasMaster)
        offload(fresh);
      for (int moment : moments)
        offload(moment);
    }
    store(p, fresh);
    // The gradient, old and new value and moments, and the parameter beside a master copy.
    describeKernel(p, int(3 + 2 * numMoments + int64_t(p.hasMaster)), completed[number]);
  }

  /// The same where the optimizer reads whole matrices: the momentum on the shard, if it has one;
  /// the direction, gathered; the ops on matrices; their result on the shard; sums over all shards;
  /// the step.
  void stepOnMatrices(const Parameter &p, int gradient) {
    const Sharding &state = derivation.state[p.number];
    const Sharding matrices =
        matrixSharding(state, p.graph.matrices.get(), int(p.layout.dims.size()));
    const MatrixUpdate &update = *p.graph.matrices;
    const bool hasMomentum = job.stateBytesPerElement(p.graph) > 0;
    int direction = hasMomentum ? momentum(p, gradient) : gradient;
    if (p.own < wideBytes)
      direction = compute(p.number, p.elements * double(p.own), {direction});
    direction = apply(Where::MatrixStep, p.graph.value, p.own, direction, state, matrices);
    const int64_t elements = localBytes(p.layout, matrices) / p.own,
                  resultBytes = update.graph.values.back().layout.elementBytes;
    direction = addMatrixOps(update, direction, double(elements) / double(p.layout.numElements()));
    if (matrices != state)
      direction = list.addSteps(reshard::reshard(assignment.mesh, p.layout, matrices, state),
                                direction, elements, resultBytes, BufferKind::Transient);
    if (resultBytes < wideBytes)
      direction = compute(p.number, p.wide, {direction});
    bool onHost = assignment.offloadsStates;
    int old = p.hasMaster && onHost ? make(p.wide, {}) : oldValue(p);
    if (update.totals > 0)
      addTotals(p, {old, direction});
    bool inSlot = p.hasMaster ? !onHost : p.isWhole;
    beginRun(p.number);
    readScalars();
    list.read(direction);
    list.read(old);
    int fresh = !maySkip && inSlot ? BufferList::inSlot : list.make(p.wide, BufferKind::Transient);
    if (maySkip)
      fresh = chosen(p.number, fresh, old, inSlot, p.wide);
    if (p.hasMaster && onHost)
      offload(fresh);
    store(p, fresh);
    describeKernel(p, 3 + int(p.hasMaster), direction); // direction, old and new value, parameter
  }

  /// Adds the momentum's step. Returns the direction.
  int momentum(const Parameter &p, int gradient) {
    bool onHost = assignment.offloadsStates;
    int old = onHost ? make(p.wide, {}) : BufferList::inSlot;
    beginRun(p.number);
    readScalars();
    list.read(gradient);
    list.read(old);
    int fresh = maySkip || onHost ? list.make(p.wide, BufferKind::Transient) : BufferList::inSlot;
    int direction = list.make(p.wide, BufferKind::Transient);
    if (maySkip)
      fresh = chosen(p.number, fresh, old, !onHost, p.wide);
    if (onHost)
      offload(fresh);
    return direction;
  }

  /// Adds the sum of the squares of each of `tensors`, and their sums over all shards.
  void addTotals(const Parameter &p, std::initializer_list<int> tensors) {
    int sum = BufferList::inSlot;
    for (int tensor : tensors) {
      sum = make(wideBytes, {tensor});
      kernels.emplace_back();
      lastKernel = list.instruction();
    }
    auto derived = reshards.find({Where::MatrixTotals, p.graph.value});
    if (derived != reshards.end())
      list.addSteps(derived->second.front()->steps, sum, int64_t(tensors.size()), wideBytes,
                    BufferKind::Collective);
  }

  /// Adds the ops on matrices of which a rank has `share`. Returns the last result. States of whole
  /// matrices on the host are there before the first op, and leave behind the last one.
  int addMatrixOps(const MatrixUpdate &update, int gathered, double share) {
    const bool onHost = assignment.offloadsStates;
    auto bytesOf = [&](int value) {
      const TensorLayout &layout = update.graph.values[size_t(value)].layout;
      return double(layout.numElements() * layout.elementBytes) * share;
    };
    std::vector<int> buffers(update.graph.values.size(), BufferList::inSlot);
    buffers.front() = gathered;
    std::set<int> newStates;
    for (auto [old, fresh] : update.graph.stateUpdates) {
      newStates.insert(fresh);
      if (onHost)
        buffers[size_t(old)] = make(bytesOf(old), {});
    }
    for (size_t i = 0; i < update.graph.ops.size(); ++i) {
      const GraphOp &op = update.graph.ops[i];
      const bool isMatmul = op.kernelClass == KernelClass::Matmul && op.operands.size() == 2;
      if (!update.joinsPrevious[i])
        list.next(-1, op.isLoopNest ? BufferList::Form::Nest
                      : isMatmul    ? BufferList::Form::Matmul
                                    : BufferList::Form::Other);
      for (int operand : op.operands)
        list.read(buffers[size_t(operand)]);
      for (int value : op.results)
        if (onHost || !newStates.count(value))
          buffers[size_t(value)] = list.make(bytesOf(value), BufferKind::Transient);
    }
    for (int fresh : newStates)
      if (onHost)
        offload(buffers[size_t(fresh)]);
    return buffers.back();
  }

  const Graph &graph;
  const Assignment &assignment;
  const Derivation &derivation;
  const Overlap &overlap;
  const Job &job;
  int stage;
  std::map<std::pair<Where, int>, std::vector<const Reshard *>> reshards; // by value
  std::vector<int> completed;                                             // by parameter
  std::map<const Reshard *, int> reduced;                                 // members of buckets
  /// By bucket of gathers: members with a new parameter, and its buffer.
  std::map<int, std::map<const Reshard *, int>> waiting;
  std::vector<int> scalars;
  std::vector<LaunchedKernel> kernels;
  int lastKernel = -1; // its instruction
  int numTensors = 0;  // of the kernels so far, without scalars
  bool isScaled = false, maySkip = false;
  BufferList list;
};

} // namespace

BlockBuffers updateBuffers(const Graph &graph, const Assignment &assignment,
                           const Derivation &derivation, const Overlap &overlap, const Job &job,
                           int stage) {
  return UpdateWalk(graph, assignment, derivation, overlap, job, stage).run();
}

std::vector<LaunchedKernel> updateKernels(const Graph &graph, const Assignment &assignment,
                                          const Derivation &derivation, const Overlap &overlap,
                                          const Job &job, int stage) {
  return UpdateWalk(graph, assignment, derivation, overlap, job, stage).launched();
}

} // namespace tbc::planner
