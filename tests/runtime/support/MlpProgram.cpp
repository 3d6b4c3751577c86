//===- MlpProgram.cpp - Training a multi-layer perceptron, for tests -------===//

#include "tests/runtime/support/MlpProgram.h"
#include "tests/runtime/support/ProgramBuilder.h"

#include <set>

namespace tbc::program {
namespace {

using Kind = schedule::Action::Kind;

class MlpBuilder {
public:
  explicit MlpBuilder(const MlpOptions &options) : o(options) {}

  Program build() {
    program.mesh.axes = {{"pp", o.pp}, {"dp", o.dp}, {"tp", o.tp}};
    program.pipelineAxis = 0;
    program.microBatches = o.microBatches;
    program.schedule.generator = o.schedule;
    program.stages.resize(o.pp);
    tensors();
    for (int stage = 0; stage < o.pp; ++stage) {
      slots(stage);
      forward(stage);
      backward(stage);
      if (reducesLast(stage))
        backward(stage, Kind::LastBackward);
      update(stage);
    }
    return program;
  }

private:
  static std::string numbered(const std::string &name, int i) { return name + std::to_string(i); }
  std::string weight(int layer) const {
    return numbered("W", o.isTied && layer == o.numLayers - 1 ? 0 : layer);
  }
  bool isColumn(int layer) const { return layer % 2 == 0; }
  int firstLayer(int stage) const { return (stage * o.numLayers + o.pp - 1) / o.pp; }
  bool isLast(int stage) const { return stage == o.pp - 1; }
  bool isTied(int layer) const {
    return o.isTied && o.pp > 1 && (layer == 0 || layer == o.numLayers - 1);
  }
  std::vector<AxisRef> axes(int axis) const { return {wholeAxis(program.mesh, axis)}; }

  bool reducesLast(int stage) const { return o.reducesLast && stage == 0 && o.zero < 3; }

  int64_t localSamples() const { return o.samples / o.dp; }
  /// Returns the local width of h[layer].
  int64_t localWidth(int layer) const { return isColumn(layer) ? o.width : o.width / o.tp; }
  kernels::Shape activation(int layer) const { return {localSamples(), localWidth(layer)}; }
  kernels::Shape weightShape(int layer) const { return {localWidth(layer), localWidth(layer + 1)}; }

  void tensors() {
    for (const char *name : {"x", "t"}) {
      Piece piece = wholePiece({o.samples, o.width});
      piece.dims[0][0][0].axes = axes(1);
      addTensor(program, Role::Input, name, "", piece);
    }
    for (int layer = 0; layer < o.numLayers - (o.isTied ? 1 : 0); ++layer) {
      std::string name = weight(layer);
      Piece piece = wholePiece({o.width, o.width});
      piece.dims[isColumn(layer) ? 1 : 0][0][0].axes = axes(2);
      Piece flat = piece;
      flat.flat = axes(1);
      addTensor(program, Role::Parameter, name, name, o.zero == 3 ? flat : piece);
      addTensor(program, Role::OptimizerState, name + ".buf", "", o.zero ? flat : piece);
      const bool isComplete =
          o.zero == 3 || (o.zero == 0 && reducesLast(0) && layer < firstLayer(1));
      std::vector<AxisRef> pending = isComplete ? std::vector<AxisRef>() : axes(1);
      if (isTied(layer))
        pending.insert(pending.begin(), axes(0)[0]);
      addTensor(program, Role::Gradient, name + ".grad", "", o.zero == 3 ? flat : piece, pending);
    }
  }

  /// Returns the names of a stage's weights, without repetitions.
  std::set<std::string> weightsOf(int stage) const {
    std::set<std::string> names;
    for (int layer = firstLayer(stage); layer < firstLayer(stage + 1); ++layer)
      names.insert(weight(layer));
    return names;
  }

  void slots(int stage) {
    if (stage == 0)
      addSlot(program, stage, program.tensorIndex("x"));
    if (isLast(stage))
      addSlot(program, stage, program.tensorIndex("t"));
    for (const std::string &name : weightsOf(stage)) {
      for (const char *suffix : {"", ".buf", ".grad"})
        addSlot(program, stage, program.tensorIndex(name + suffix));
      if (reducesLast(stage) && o.zero == 1)
        addSlot(program, stage, Role::Gradient, name + ".grad.reduced",
                {(o.width * o.width / o.tp + o.dp - 1) / o.dp});
    }
    for (int layer = firstLayer(stage); layer < firstLayer(stage + 1); ++layer) {
      addSlot(program, stage, Role::Residual, numbered("h", layer), activation(layer));
      if (layer != o.numLayers - 1)
        addSlot(program, stage, Role::Residual, numbered("z", layer), activation(layer + 1));
    }
    if (isLast(stage)) {
      addSlot(program, stage, Role::Residual, "diff", activation(o.numLayers));
      addSlot(program, stage, Role::Loss, "loss", {});
    }
    addSlot(program, stage, Role::Scalar, "lr", {});
  }

  /// Returns the weight as used by the block. A flat weight is gathered at its first use.
  ValueId useWeight(BlockBuilder &b, std::map<std::string, ValueId> &used, int layer,
                    const std::string &suffix) {
    auto [found, isNew] = used.try_emplace(weight(layer), -1);
    if (isNew) {
      found->second = b.read(weight(layer));
      if (o.zero == 3)
        found->second = b.allGatherFlat(weight(layer) + ".gather" + suffix, found->second, "dp",
                                        weightShape(layer));
    }
    return found->second;
  }

  void forward(int stage) {
    BlockBuilder b(program, stage, Kind::Forward);
    std::map<std::string, ValueId> used;
    int first = firstLayer(stage), end = firstLayer(stage + 1);
    bool sendsSkip = o.hasSkip && o.pp > 1;
    ValueId h = stage == 0 ? b.read("x")
                           : b.recv(numbered("recv", first), activation(first), stage - 1, first);
    ValueId skip = h;
    for (int layer = first; layer < end; ++layer) {
      std::string id = numbered("fc", layer);
      b.write(numbered("h", layer), h);
      ValueId z = b.einsum(id, h, useWeight(b, used, layer, ".fwd"), {0, 1}, {1, 2}, {0, 2},
                           activation(layer + 1));
      if (!isColumn(layer) && o.tp > 1)
        z = b.allReduce(id + ".sum", z, "tp");
      h = z;
      if (layer == o.numLayers - 1)
        break;
      b.write(numbered("z", layer), z);
      h = b.kernel(numbered("relu", layer), "relu", {z}, activation(layer + 1));
    }
    if (!isLast(stage)) {
      b.send(numbered("send", end), h, stage + 1, end);
      if (sendsSkip && stage == 0) // received last as well
        b.send("skip.send", skip, o.pp - 1, 1000);
      return;
    }
    if (o.hasSkip) {
      if (sendsSkip)
        skip = b.recv("skip.recv", activation(0), 0, 1000);
      h = b.kernel("skip.add", "add", {h, skip}, activation(o.numLayers));
    }
    ValueId diff = b.kernel("diff", "sub", {h, b.read("t")}, activation(o.numLayers));
    ValueId square = b.kernel("square", "mul", {diff, diff}, activation(o.numLayers));
    ValueId sum =
        b.kernel("sum", "reduce_sum", {square}, {}, {{"dims", std::vector<int64_t>{0, 1}}});
    ValueId share = b.constant("share", 1.0 / double(o.samples * o.microBatches), {});
    b.write("diff", diff);
    b.add("loss", b.kernel("loss", "mul", {sum, share}, {}));
  }

  /// Adds the gradient of the last micro-batch to the others, and reduces the total.
  void complete(BlockBuilder &b, const std::string &name, ValueId dw, kernels::Shape shape) {
    ValueId total =
        b.kernel(name + ".total", "add", {b.read(name + ".grad"), dw}, std::move(shape));
    if (o.zero == 0) {
      b.write(name + ".grad", b.allReduce(name + ".reduce", total, "dp"));
      return;
    }
    b.write(name + ".grad", total);
    b.write(name + ".grad.reduced", b.reduceScatterFlat(name + ".scatter", total, "dp"));
  }

  void backward(int stage, Kind kind = Kind::Backward) {
    BlockBuilder b(program, stage, kind);
    std::map<std::string, ValueId> used;
    int first = firstLayer(stage), end = firstLayer(stage + 1);
    ValueId grad;
    if (isLast(stage)) {
      ValueId two =
          b.constant("two", 2.0 / double(o.samples * o.microBatches), activation(o.numLayers));
      grad = b.kernel("diff.bwd", "mul", {b.read("diff"), two}, activation(o.numLayers));
    } else {
      grad = b.recv(numbered("recv.bwd", end), activation(end), stage + 1, end);
    }
    for (int layer = end; layer-- > first;) {
      std::string id = numbered("fc", layer) + ".bwd";
      if (layer != o.numLayers - 1)
        grad = b.kernel(numbered("relu", layer) + ".bwd", "relu_grad",
                        {b.read(numbered("z", layer)), grad}, activation(layer + 1));
      ValueId dw = b.einsum(id + ".w", b.read(numbered("h", layer)), grad, {0, 1}, {0, 2}, {1, 2},
                            weightShape(layer));
      if (o.zero == 3)
        dw = b.reduceScatterFlat(id + ".w.scatter", dw, "dp");
      if (kind == Kind::LastBackward)
        complete(b, weight(layer), dw, weightShape(layer));
      else
        b.add(weight(layer) + ".grad", dw);
      if (layer == 0)
        break;
      grad = b.einsum(id + ".x", grad, useWeight(b, used, layer, ".bwd"), {0, 2}, {1, 2}, {0, 1},
                      activation(layer));
      if (isColumn(layer) && o.tp > 1)
        grad = b.allReduce(id + ".x.sum", grad, "tp");
    }
    if (stage > 0)
      b.send(numbered("send.bwd", first), grad, stage - 1, first);
  }

  void update(int stage) {
    BlockBuilder b(program, stage, Kind::Update);
    std::set<std::string> done;
    for (int layer = firstLayer(stage); layer < firstLayer(stage + 1); ++layer) {
      std::string name = weight(layer);
      if (!done.insert(name).second)
        continue;
      const bool isReduced = reducesLast(stage);
      ValueId g = b.read(name + (isReduced && o.zero == 1 ? ".grad.reduced" : ".grad"));
      ValueId p = b.read(name);
      if (isTied(layer))
        g = b.allReduce(name + ".tie", g, "pp", {0, o.pp - 1});
      if (o.zero == 0 && !isReduced)
        g = b.allReduce(name + ".reduce", g, "dp");
      if (o.zero == 1 && !isReduced)
        g = b.reduceScatterFlat(name + ".scatter", g, "dp");
      if (o.zero == 1)
        p = b.shardSliceFlat(name + ".slice", p, "dp");
      std::vector<ValueId> next =
          b.kernels(name + ".step", "sgd_momentum", {p, g, b.read(name + ".buf"), b.read("lr")}, 2,
                    {{"momentum", o.momentum}, {"nesterov", false}, {"weight_decay", 0.0}});
      p = next[0];
      if (o.zero == 1)
        p = b.allGatherFlat(name + ".gather", p, "dp", weightShape(layer));
      b.write(name, p);
      b.write(name + ".buf", next[1]);
    }
    if (isLast(stage))
      b.write("loss", b.allReduce("loss.sum", b.read("loss"), "dp"));
  }

  const MlpOptions &o;
  Program program;
};

} // namespace

Program mlpProgram(const MlpOptions &options) { return MlpBuilder(options).build(); }

} // namespace tbc::program
