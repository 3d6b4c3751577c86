//===- UpdateBuffers.cpp - Buffers allocated by an update -----------------===//
//
// Follows passes/optimizer/BuildUpdate.cpp and the output of passes/partition/LocalUpdate.cpp step
// by step; a test compares the two.
//
//===----------------------------------------------------------------------===//

#include "planner/memory/BufferList.h"
#include "planner/memory/Buffers.h"

using namespace tbc::reshard;

namespace tbc::planner {

namespace {

constexpr int64_t wideBytes = 4; // the optimizer computes in f32

class UpdateWalk {
public:
  UpdateWalk(const Graph &graph, const Assignment &assignment, const Derivation &derivation,
             const Overlap &overlap, const Job &job, int stage)
      : graph(graph), assignment(assignment), derivation(derivation), overlap(overlap), job(job),
        stage(stage) {
    for (const Reshard &reshard : derivation.reshards)
      if (reshard.stage == stage &&
          (reshard.where == Where::GradientStep || reshard.where == Where::ParameterStep))
        reshards[{reshard.where, reshard.value}].push_back(&reshard);
  }

  BlockBuffers run() {
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
    return list.finish();
  }

private:
  static constexpr int unknown = -2;

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

  int make(double bytes, std::initializer_list<int> operands) {
    list.next();
    return result(bytes, operands);
  }

  /// Adds an op on each element of parameter `p`. Those in a row are one kernel.
  int compute(int p, double bytes, std::initializer_list<int> operands) {
    list.nextInRun(p);
    return result(bytes, operands);
  }

  int result(double bytes, std::initializer_list<int> operands) {
    for (int operand : operands)
      list.read(operand);
    return list.make(bytes, BufferKind::Transient);
  }

  /// Selects the new value or the old one, if the step may be skipped.
  int chosen(int p, int fresh, int old, bool inSlot, double bytes) {
    list.nextInRun(p);
    list.read(fresh);
    list.read(old);
    return inSlot ? BufferList::inSlot : list.make(bytes, BufferKind::Transient);
  }

  void offload(int buffer) {
    list.next();
    list.read(buffer);
  }

  /// Adds the instructions of one parameter: the gradient widened, scaled and clipped; the
  /// optimizer; the selection if the step may be skipped; the cast and the gather of the new value.
  void step(int p) {
    const GraphParameter &parameter = graph.parameters[p];
    const TensorLayout &layout = graph.values[parameter.value].layout;
    int64_t own = layout.elementBytes;
    double elements = double(localBytes(layout, derivation.state[p]) / own);
    double wide = elements * wideBytes;
    bool hasMaster = masterBytes(own) > 0;
    bool isWhole = derivation.stored[p] == derivation.state[p];

    int gradient = completed[p] != unknown ? completed[p] : complete(p);
    if (graph.values[parameter.gradient].layout.elementBytes < wideBytes)
      gradient = compute(p, wide, {gradient});
    if (isScaled)
      gradient = compute(p, wide, {gradient});
    auto clip = job.settings.find("clip_value");
    if (clip != job.settings.end() && clip->second != 0)
      gradient = compute(p, wide, {gradient});
    int old = BufferList::inSlot; // the master copy
    if (!hasMaster)
      old = apply(Where::GradientStep, parameter.value, own, old, derivation.stored[p],
                  derivation.state[p]);

    int64_t numMoments = job.stateBytesPerElement() / wideBytes;
    bool onHost = assignment.offloadsStates;
    if (hasMaster && onHost)
      old = make(wide, {});
    std::vector<int> oldMoments, moments;
    for (int64_t m = 0; m < numMoments; ++m)
      oldMoments.push_back(onHost ? make(wide, {}) : BufferList::inSlot);
    // If the step cannot be skipped, results go to their slots at once, unless these are on the
    // host.
    bool inSlot = hasMaster ? !onHost : isWhole;
    list.nextInRun(p);
    for (int scalar : scalars)
      list.read(scalar);
    list.read(gradient);
    list.read(old);
    for (int moment : oldMoments)
      list.read(moment);
    int fresh = !maySkip && inSlot ? BufferList::inSlot : list.make(wide, BufferKind::Transient);
    for (int64_t m = 0; m < numMoments; ++m)
      moments.push_back(maySkip || onHost ? list.make(wide, BufferKind::Transient)
                                          : BufferList::inSlot);
    if (maySkip) {
      fresh = chosen(p, fresh, old, inSlot, wide);
      if (hasMaster && onHost)
        offload(fresh);
      for (int64_t m = 0; m < numMoments; ++m) {
        int moment = chosen(p, moments[m], oldMoments[m], !onHost, wide);
        if (onHost)
          offload(moment);
      }
    } else if (onHost) {
      if (hasMaster)
        offload(fresh);
      for (int moment : moments)
        offload(moment);
    }
    if (hasMaster) {
      list.nextInRun(p);
      list.read(fresh);
      fresh =
          isWhole ? BufferList::inSlot : list.make(elements * double(own), BufferKind::Transient);
    }
    // Gathered to the stored sharding of the parameter.
    list.moveToSlot(apply(Where::ParameterStep, parameter.value, own, fresh, derivation.state[p],
                          derivation.stored[p]));
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
  std::vector<int> scalars;
  bool isScaled = false, maySkip = false;
  BufferList list;
};

} // namespace

BlockBuffers updateBuffers(const Graph &graph, const Assignment &assignment,
                           const Derivation &derivation, const Overlap &overlap, const Job &job,
                           int stage) {
  return UpdateWalk(graph, assignment, derivation, overlap, job, stage).run();
}

} // namespace tbc::planner
