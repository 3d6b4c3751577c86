//===- RandomProgram.cpp - Random training programs, for tests -------------===//

#include "tests/runtime/support/RandomProgram.h"
#include "tests/runtime/support/ProgramBuilder.h"

#include <algorithm>
#include <random>

namespace tbc::program {
namespace {

using Kind = schedule::Action::Kind;
using kernels::Shape;
using Axes = std::vector<AxisRef>;

/// A weight [width, width] and how ranks hold it.
struct Weight {
  std::string name;
  enum class Cut { None, Columns, Rows } cut = Cut::None; // over the tensor axis
  /// 0: replicas; 1: the optimizer state in pieces over the zero axes; 2: the gradient too; 3: the
  /// weight too.
  int zero = 0;
  bool isFlat = true; // pieces are flat chunks; else runs of dim 0 (of the local tensor)
  bool isFrozen = false;
  bool accumulatesByHand = false; // reads the gradient, adds, writes it
  bool hasGradientTensor = true;
  bool tiesFirst = true;     // in update: over stages before over data
  bool reducesTwice = false; // over data: one axis after the other
  bool isClipped = false;
  std::vector<int> holders; // stages, ascending
};

struct Layer {
  enum class Form { Relu, Dense, Pair, SequencePair, ExchangePair, Statistics };
  Form form = Form::Relu;
  int first = -1, second = -1; // weights
  bool isResidual = false;     // its input is added to its output
};

class Maker {
public:
  explicit Maker(const RandomProgramOptions &options) : options(options), random(options.seed) {}

  Program make() {
    makeMesh();
    makeLayers();
    makeSchedule();
    makeTensors();
    for (int stage = 0; stage < numStages; ++stage) {
      makeSlots(stage);
      forward(stage);
      backward(stage);
      update(stage);
    }
    return std::move(program);
  }

private:
  unsigned below(unsigned n) { return unsigned(random() % n); }
  bool oneIn(unsigned n) { return below(n) == 0; }

  //===--------------------------------------------------------------------===//
  // What there is
  //===--------------------------------------------------------------------===//

  void makeMesh() {
    numStages = 1 + int(below(unsigned(options.maxStages)));
    std::vector<MeshAxis> axes = {{"pp", numStages},
                                  {"dp", 1 + int64_t(below(4))},
                                  {"fsdp", 1 + int64_t(below(3))},
                                  {"tp", 1 + int64_t(below(3))}};
    while (numStages * axes[1].size * axes[2].size * axes[3].size > options.maxRanks)
      for (size_t i = 1; i < axes.size(); ++i)
        axes[i].size = std::max<int64_t>(1, axes[i].size - 1);
    if (numStages == 1 && oneIn(2))
      axes.erase(axes.begin());
    std::shuffle(axes.begin(), axes.end(), random);
    program.mesh.axes = axes;
    program.pipelineAxis = program.mesh.axisIndex("pp");
    program.stages.resize(size_t(numStages));
    if (program.pipelineAxis >= 0)
      pipeline = {wholeAxis(program.mesh, program.pipelineAxis)};

    int dp = program.mesh.axisIndex("dp"), fsdp = program.mesh.axisIndex("fsdp");
    if (program.mesh.axes[dp].size == 4 && oneIn(2))
      data = {{dp, 1, 2}, {dp, 2, 2}};
    else
      data = {wholeAxis(program.mesh, dp)};
    data.push_back(wholeAxis(program.mesh, fsdp));
    std::shuffle(data.begin(), data.end(), random);
    tensor = {wholeAxis(program.mesh, program.mesh.axisIndex("tp"))};
    for (const AxisRef &axis : data)
      (oneIn(2) ? zero : rest).push_back(axis);
    if (oneIn(2))
      std::reverse(zero.begin(), zero.end());

    tp = groupSize(tensor);
    rows = 2 * tp;
    width = 2 * tp * groupSize(zero);
    program.microBatches = 1 + below(4);
  }

  Weight newWeight(Weight::Cut cut, int stage) {
    Weight weight;
    weight.name = "w" + std::to_string(weights.size());
    weight.cut = cut;
    weight.zero = int(below(4));
    weight.isFlat = !oneIn(3);
    weight.isFrozen = oneIn(10);
    weight.accumulatesByHand = oneIn(5);
    weight.hasGradientTensor = !oneIn(6);
    weight.tiesFirst = oneIn(2);
    weight.reducesTwice = oneIn(3);
    weight.isClipped = isClipping && !weight.isFrozen && !oneIn(4);
    weight.holders = {stage};
    return weight;
  }
  int addWeight(Weight::Cut cut, int stage) {
    weights.push_back(newWeight(cut, stage));
    return int(weights.size()) - 1;
  }

  void makeLayers() {
    isClipping = oneIn(2);
    layers.resize(size_t(numStages));
    for (int stage = 0; stage < numStages; ++stage) {
      for (unsigned i = 0, n = 1 + below(unsigned(options.maxLayersPerStage)); i < n; ++i) {
        Layer layer;
        layer.form = Layer::Form(below(6));
        layer.isResidual = oneIn(3);
        if (i == 0 && stage == 0)
          layer.form = Layer::Form::Dense; // there is a parameter
        if (layer.form == Layer::Form::Dense) {
          layer.first = tiedWeight(stage);
          if (i == 0 && stage == 0) // something for every backward block to go on to
            weights[0].isFrozen = false;
        } else if (layer.form != Layer::Form::Relu && layer.form != Layer::Form::Statistics) {
          layer.first = addWeight(Weight::Cut::Columns, stage);
          layer.second = addWeight(Weight::Cut::Rows, stage);
        }
        layers[size_t(stage)].push_back(layer);
      }
    }
    for (int from = 0; from + 1 < numStages; ++from)
      if (oneIn(3))
        skips.push_back({from, from + 1 + int(below(unsigned(numStages - from - 1)))});
  }

  /// A weight that an earlier dense layer uses too, or a new one.
  int tiedWeight(int stage) {
    for (size_t i = 0; i < weights.size(); ++i) {
      Weight &weight = weights[i];
      if (weight.cut != Weight::Cut::None || !oneIn(3))
        continue;
      if (weight.holders.back() != stage)
        weight.holders.push_back(stage);
      // Its elements would count once per holder; and the sum over holders needs a name.
      weight.isClipped = weight.isClipped && weight.holders.size() == 1;
      weight.hasGradientTensor = weight.hasGradientTensor || weight.holders.size() > 1;
      return int(i);
    }
    return addWeight(Weight::Cut::None, stage);
  }

  void makeSchedule() {
    unsigned choice = below(3);
    program.schedule.generator = choice == 0 ? "gpipe" : choice == 1 ? "1f1b" : "table";
    if (choice < 2)
      return;
    // A random run: micro-batches in any one order forward, and in any one order backward.
    std::vector<int64_t> order[2];
    for (std::vector<int64_t> &list : order) {
      for (int64_t m = 0; m < program.microBatches; ++m)
        list.push_back(m);
      std::shuffle(list.begin(), list.end(), random);
    }
    std::vector<std::vector<schedule::Action>> &table = program.schedule.table;
    table.resize(size_t(numStages));
    std::vector<size_t> done[2] = {std::vector<size_t>(size_t(numStages), 0),
                                   std::vector<size_t>(size_t(numStages), 0)};
    size_t all = size_t(program.microBatches);
    for (size_t left = 2 * all * size_t(numStages); left > 0;) {
      int stage = int(below(unsigned(numStages)));
      size_t s = size_t(stage), which = below(2), &at = done[which][s];
      if (at == all)
        continue;
      int64_t m = order[which][at];
      auto forwardEnd = order[0].begin() + int64_t(done[0][s]);
      bool canRun = which == 0 ? stage == 0 || done[0][s - 1] > at
                               : std::find(order[0].begin(), forwardEnd, m) != forwardEnd &&
                                     (stage + 1 == numStages || done[1][s + 1] > at);
      if (!canRun)
        continue;
      table[s].push_back({Kind(which), m});
      ++at;
      --left;
    }
    for (std::vector<schedule::Action> &actions : table)
      actions.push_back({Kind::Update, 0});
  }

  //===--------------------------------------------------------------------===//
  // How it is held
  //===--------------------------------------------------------------------===//

  static void append(Axes &to, const Axes &axes) { to.insert(to.end(), axes.begin(), axes.end()); }

  /// The weight as the tensor axis cuts it.
  Piece usedPiece(const Weight &weight) const {
    Piece piece = wholePiece({width, width});
    if (weight.cut != Weight::Cut::None)
      piece.dims[weight.cut == Weight::Cut::Columns ? 1 : 0][0][0].axes = tensor;
    return piece;
  }
  /// The piece of that over the zero axes.
  Piece zeroPiece(const Weight &weight) const {
    Piece piece = usedPiece(weight);
    append(weight.isFlat ? piece.flat : piece.dims[0][0][0].axes, zero);
    return piece;
  }
  Piece pieceAt(const Weight &weight, int level) const {
    return weight.zero >= level ? zeroPiece(weight) : usedPiece(weight);
  }
  Shape usedShape(const Weight &weight) const { return localShape(usedPiece(weight)); }
  Shape zeroShape(const Weight &weight) const { return localShape(zeroPiece(weight)); }
  bool isTied(const Weight &weight) const { return weight.holders.size() > 1; }

  void makeTensors() {
    for (const char *name : {"x", "t"}) {
      Piece piece = wholePiece({rows * groupSize(data), width});
      piece.dims[0][0][0].axes = data;
      addTensor(program, Role::Input, name, "", piece);
    }
    for (int stage = 0; stage < numStages; ++stage)
      for (size_t i = 0; i < layers[size_t(stage)].size(); ++i)
        if (layers[size_t(stage)][i].form == Layer::Form::Statistics)
          addTensor(program, Role::State, meanName(stage, i), meanName(stage, i),
                    wholePiece({width}));
    for (const Weight &weight : weights) {
      addTensor(program, Role::Parameter, weight.name, weight.name, pieceAt(weight, 3));
      if (weight.isFrozen)
        continue;
      addTensor(program, Role::OptimizerState, weight.name + ".buf", "", pieceAt(weight, 1));
      if (!weight.hasGradientTensor)
        continue;
      Axes pending = weight.zero >= 2 ? rest : data;
      if (isTied(weight))
        append(pending, pipeline);
      addTensor(program, Role::Gradient, weight.name + ".grad", "", pieceAt(weight, 2), pending);
    }
  }

  std::string meanName(int stage, size_t layer) const {
    return "mean" + std::to_string(stage) + "." + std::to_string(layer);
  }
  std::string layerName(int stage, size_t layer) const {
    return "l" + std::to_string(stage) + "." + std::to_string(layer);
  }
  bool isLast(int stage) const { return stage == numStages - 1; }

  void makeSlots(int stage) {
    if (stage == 0)
      addSlot(program, stage, program.tensorIndex("x"));
    if (isLast(stage))
      addSlot(program, stage, program.tensorIndex("t"));
    for (const Weight &weight : weights) {
      if (!std::count(weight.holders.begin(), weight.holders.end(), stage))
        continue;
      addSlot(program, stage, program.tensorIndex(weight.name));
      if (weight.isFrozen)
        continue;
      addSlot(program, stage, program.tensorIndex(weight.name + ".buf"));
      if (weight.hasGradientTensor)
        addSlot(program, stage, program.tensorIndex(weight.name + ".grad"));
      else
        addSlot(program, stage, Role::Gradient, weight.name + ".grad",
                localShape(pieceAt(weight, 2)));
    }
    for (size_t i = 0; i < layers[size_t(stage)].size(); ++i) {
      if (layers[size_t(stage)][i].form == Layer::Form::Statistics)
        addSlot(program, stage, program.tensorIndex(meanName(stage, i)));
    }
    if (isLast(stage)) {
      addSlot(program, stage, Role::Residual, "diff", {rows, width});
      addSlot(program, stage, Role::Loss, "loss", {});
    }
    addSlot(program, stage, Role::Scalar, "lr", {});
  }

  /// Keeps a value for the backward block.
  void save(BlockBuilder &b, int stage, const std::string &name, ValueId value) {
    const kernels::TensorType type = program.stages[size_t(stage)].values[size_t(value)];
    addSlot(program, stage, Role::Residual, name, type.shape);
    b.write(name, value);
  }

  //===--------------------------------------------------------------------===//
  // Communication
  //===--------------------------------------------------------------------===//

  std::string newId(const std::string &what, int stage) {
    return what + ".s" + std::to_string(stage) + "." + std::to_string(numIds++);
  }

  ValueId allReduce(BlockBuilder &b, int stage, const std::string &what, ValueId value,
                    const Axes &axes, std::vector<int> stages = {},
                    ReduceKind reduce = ReduceKind::Sum) {
    if (axes.empty())
      return value;
    Communication comm;
    comm.axes = axes, comm.stages = std::move(stages), comm.reduce = reduce;
    Shape shape = program.stages[size_t(stage)].values[size_t(value)].shape;
    return b.collective(newId(what, stage), InstructionKind::AllReduce, value, comm, shape);
  }

  /// Along a dim whose local size is `k`, or flattened (dim -1).
  ValueId along(BlockBuilder &b, int stage, const std::string &what, InstructionKind kind,
                ValueId value, const Axes &axes, int dim, int64_t k, Shape result) {
    if (axes.empty())
      return value;
    Communication comm;
    comm.axes = axes, comm.dim = dim;
    if (dim >= 0)
      comm.segments = {{1, k, 1}};
    return b.collective(newId(what, stage), kind, value, comm, std::move(result));
  }

  ValueId overZero(BlockBuilder &b, int stage, const std::string &what, InstructionKind kind,
                   const Weight &weight, ValueId value) {
    bool gathers = kind == InstructionKind::AllGather;
    return along(b, stage, weight.name + what, kind, value, zero, weight.isFlat ? -1 : 0,
                 zeroShape(weight)[0], gathers ? usedShape(weight) : zeroShape(weight));
  }

  ValueId use(BlockBuilder &b, int stage, const Weight &weight) {
    ValueId value = b.read(weight.name);
    if (weight.zero < 3)
      return value;
    return overZero(b, stage, ".gather", InstructionKind::AllGather, weight, value);
  }

  //===--------------------------------------------------------------------===//
  // Blocks
  //===--------------------------------------------------------------------===//

  Shape full() const { return {rows, width}; }
  Shape cutColumns() const { return {rows, width / tp}; }
  Shape cutRows() const { return {rows / tp, width}; }

  ValueId exchange(BlockBuilder &b, int stage, ValueId value, bool toRows) {
    Communication comm;
    comm.axes = tensor;
    comm.dim = toRows ? 1 : 0, comm.splitDim = toRows ? 0 : 1;
    SegmentShape columns{1, width / tp, 1}, ofRows{1, rows / tp, 1};
    comm.segments = {toRows ? columns : ofRows};
    comm.splitSegments = {toRows ? ofRows : columns};
    return b.collective(newId("exchange", stage), InstructionKind::AllToAll, value, comm,
                        toRows ? cutRows() : cutColumns());
  }

  ValueId relu(BlockBuilder &b, int stage, const std::string &name, ValueId value, Shape shape) {
    save(b, stage, name, value);
    return b.kernel(newId("relu", stage), "relu", {value}, std::move(shape));
  }

  ValueId layerForward(BlockBuilder &b, int stage, size_t index, ValueId h) {
    const Layer &layer = layers[size_t(stage)][index];
    std::string name = layerName(stage, index);
    if (layer.form == Layer::Form::Relu)
      return relu(b, stage, name + ".z", h, full());
    if (layer.form == Layer::Form::Statistics) {
      std::string slot = meanName(stage, index);
      ValueId sum = b.kernel(newId("sum", stage), "reduce_sum", {h}, {width},
                             {{"dims", std::vector<int64_t>{0}}});
      sum = allReduce(b, stage, "mean", sum, data);
      ValueId next = b.kernel(newId("running", stage), "add", {b.read(slot), sum}, {width});
      b.write(slot, next);
      return h;
    }
    const Weight &first = weights[size_t(layer.first)];
    save(b, stage, name + ".x", h);
    bool isDense = layer.form == Layer::Form::Dense;
    ValueId z = b.einsum(newId("matmul", stage), h, use(b, stage, first), {0, 1}, {1, 2}, {0, 2},
                         isDense ? full() : cutColumns());
    if (isDense)
      return z;
    const Weight &second = weights[size_t(layer.second)];
    bool exchanges = layer.form == Layer::Form::ExchangePair;
    if (exchanges)
      z = exchange(b, stage, z, true);
    z = relu(b, stage, name + ".z", z, exchanges ? cutRows() : cutColumns());
    if (exchanges)
      z = exchange(b, stage, z, false);
    save(b, stage, name + ".a", z);
    z = b.einsum(newId("matmul", stage), z, use(b, stage, second), {0, 1}, {1, 2}, {0, 2}, full());
    if (layer.form != Layer::Form::SequencePair)
      return allReduce(b, stage, "partial", z, tensor);
    z = along(b, stage, "scatter", InstructionKind::ReduceScatter, z, tensor, 0, rows / tp,
              cutRows());
    z = relu(b, stage, name + ".s", z, cutRows());
    return along(b, stage, "gather", InstructionKind::AllGather, z, tensor, 0, rows / tp, full());
  }

  void accumulate(BlockBuilder &b, int stage, const Weight &weight, ValueId lhs, ValueId rhs,
                  std::map<std::string, ValueId> &sums) {
    if (weight.isFrozen)
      return;
    ValueId gradient =
        b.einsum(newId("dw", stage), lhs, rhs, {0, 1}, {0, 2}, {1, 2}, usedShape(weight));
    if (weight.zero >= 2)
      gradient = overZero(b, stage, ".scatter", InstructionKind::ReduceScatter, weight, gradient);
    if (!weight.accumulatesByHand) {
      b.add(weight.name + ".grad", gradient);
      return;
    }
    // One value for all layers that share the weight, written at the end of the block.
    auto [found, isNew] = sums.try_emplace(weight.name, -1);
    ValueId before = isNew ? b.read(weight.name + ".grad") : found->second;
    Shape shape = program.stages[size_t(stage)].values[size_t(gradient)].shape;
    found->second = b.kernel(newId("accumulate", stage), "add", {before, gradient}, shape);
  }

  ValueId reluBackward(BlockBuilder &b, int stage, const std::string &saved, ValueId g,
                       Shape shape) {
    return b.kernel(newId("relu.bwd", stage), "relu_grad", {b.read(saved), g}, std::move(shape));
  }

  ValueId layerBackward(BlockBuilder &b, int stage, size_t index, ValueId g,
                        std::map<std::string, ValueId> &sums, bool needsInput) {
    const Layer &layer = layers[size_t(stage)][index];
    std::string name = layerName(stage, index);
    if (layer.form == Layer::Form::Relu)
      return reluBackward(b, stage, name + ".z", g, full());
    if (layer.form == Layer::Form::Statistics)
      return g;
    const Weight &first = weights[size_t(layer.first)];
    bool isDense = layer.form == Layer::Form::Dense;
    if (!isDense) {
      const Weight &second = weights[size_t(layer.second)];
      if (layer.form == Layer::Form::SequencePair) {
        g = along(b, stage, "slice", InstructionKind::ShardSlice, g, tensor, 0, rows / tp,
                  cutRows());
        g = reluBackward(b, stage, name + ".s", g, cutRows());
        g = along(b, stage, "gather.bwd", InstructionKind::AllGather, g, tensor, 0, rows / tp,
                  full());
      }
      accumulate(b, stage, second, b.read(name + ".a"), g, sums);
      bool goesOn = needsInput || !first.isFrozen;
      if (!goesOn)
        return -1;
      g = b.einsum(newId("dx", stage), g, use(b, stage, second), {0, 2}, {1, 2}, {0, 1},
                   cutColumns());
      bool exchanges = layer.form == Layer::Form::ExchangePair;
      if (exchanges)
        g = exchange(b, stage, g, true);
      g = reluBackward(b, stage, name + ".z", g, exchanges ? cutRows() : cutColumns());
      if (exchanges)
        g = exchange(b, stage, g, false);
    }
    accumulate(b, stage, first, b.read(name + ".x"), g, sums);
    if (!needsInput)
      return -1;
    g = b.einsum(newId("dx", stage), g, use(b, stage, first), {0, 2}, {1, 2}, {0, 1}, full());
    return isDense ? g : allReduce(b, stage, "partial.bwd", g, tensor);
  }

  static int64_t skipChannel(size_t skip) { return 1000 + int64_t(skip); }

  void forward(int stage) {
    BlockBuilder b(program, stage, Kind::Forward);
    ValueId h = stage == 0 ? b.read("x") : b.recv(newId("recv", stage), full(), stage - 1, stage);
    for (size_t i = 0; i < skips.size(); ++i)
      if (skips[i].second == stage)
        h = b.kernel(newId("skip.add", stage), "add",
                     {h, b.recv(newId("skip.recv", stage), full(), skips[i].first, skipChannel(i))},
                     full());
    for (size_t i = 0; i < layers[size_t(stage)].size(); ++i) {
      ValueId result = layerForward(b, stage, i, h);
      h = layers[size_t(stage)][i].isResidual
              ? b.kernel(newId("residual", stage), "add", {result, h}, full())
              : result;
    }
    if (!isLast(stage))
      b.send(newId("send", stage), h, stage + 1, stage + 1);
    for (size_t i = 0; i < skips.size(); ++i)
      if (skips[i].first == stage)
        b.send(newId("skip.send", stage), h, skips[i].second, skipChannel(i));
    if (!isLast(stage))
      return;
    ValueId diff = b.kernel(newId("diff", stage), "sub", {h, b.read("t")}, full());
    ValueId square = b.kernel(newId("square", stage), "mul", {diff, diff}, full());
    ValueId sum = b.kernel(newId("sum", stage), "reduce_sum", {square}, {},
                           {{"dims", std::vector<int64_t>{0, 1}}});
    b.write("diff", diff);
    b.add("loss", sum);
  }

  void backward(int stage) {
    BlockBuilder b(program, stage, Kind::Backward);
    ValueId g;
    if (isLast(stage)) {
      ValueId two = b.constant(newId("two", stage), 2.0, full());
      g = b.kernel(newId("diff.bwd", stage), "mul", {b.read("diff"), two}, full());
    } else {
      g = b.recv(newId("recv.bwd", stage), full(), stage + 1, stage + 1);
    }
    for (size_t i = 0; i < skips.size(); ++i)
      if (skips[i].first == stage)
        g = b.kernel(
            newId("skip.add.bwd", stage), "add",
            {g, b.recv(newId("skip.recv.bwd", stage), full(), skips[i].second, skipChannel(i))},
            full());
    std::map<std::string, ValueId> sums;
    for (size_t i = layers[size_t(stage)].size(); i-- > 0 && g >= 0;) {
      bool needsInput = stage > 0 || needsGradient(i);
      ValueId result = layerBackward(b, stage, i, g, sums, needsInput);
      bool addsInput = layers[size_t(stage)][i].isResidual && needsInput;
      g = addsInput ? b.kernel(newId("residual.bwd", stage), "add", {result, g}, full()) : result;
      if (!needsInput)
        break;
    }
    for (const auto &[name, sum] : sums)
      b.write(name + ".grad", sum);
    if (stage > 0)
      b.send(newId("send.bwd", stage), g, stage - 1, stage);
    for (size_t i = 0; i < skips.size(); ++i)
      if (skips[i].second == stage)
        b.send(newId("skip.send.bwd", stage), g, skips[i].first, skipChannel(i));
  }

  /// Whether a layer of stage 0 before this one has a weight to train.
  bool needsGradient(size_t layer) const {
    for (size_t i = 0; i < layer; ++i)
      for (int weight : {layers[0][i].first, layers[0][i].second})
        if (weight >= 0 && !weights[size_t(weight)].isFrozen)
          return true;
    return false;
  }

  /// The gradient, complete, in the piece of the optimizer state.
  ValueId reducedGradient(BlockBuilder &b, int stage, const Weight &weight) {
    ValueId g = b.read(weight.name + ".grad");
    auto tie = [&] {
      if (isTied(weight))
        g = allReduce(b, stage, weight.name + ".tie", g, pipeline, weight.holders);
    };
    if (weight.tiesFirst)
      tie();
    Axes left = weight.zero == 0 ? data : rest;
    if (weight.reducesTwice) {
      for (const AxisRef &axis : left)
        g = allReduce(b, stage, weight.name + ".reduce", g, {axis});
    } else {
      g = allReduce(b, stage, weight.name + ".reduce", g, left);
    }
    if (weight.zero == 1)
      g = overZero(b, stage, ".scatter", InstructionKind::ReduceScatter, weight, g);
    if (!weight.tiesFirst)
      tie();
    return g;
  }

  void update(int stage) {
    BlockBuilder b(program, stage, Kind::Update);
    std::vector<std::pair<const Weight *, ValueId>> gradients;
    for (const Weight &weight : weights)
      if (!weight.isFrozen && std::count(weight.holders.begin(), weight.holders.end(), stage))
        gradients.push_back({&weight, reducedGradient(b, stage, weight)});
    ValueId scale = isClipping ? norm(b, stage, gradients) : -1;
    for (auto [weight, g] : gradients) {
      const Shape shape = program.stages[size_t(stage)].values[size_t(g)].shape;
      if (weight->isClipped) {
        std::vector<int64_t> all(shape.begin(), shape.end());
        ValueId wide = b.kernel(newId("wide", stage), "broadcast", {scale}, shape,
                                {{"shape", all}, {"dims", std::vector<int64_t>{}}});
        g = b.kernel(newId("clip", stage), "mul", {g, wide}, shape);
      }
      ValueId p = b.read(weight->name);
      bool slices = weight->zero == 1 || weight->zero == 2;
      if (slices)
        p = overZero(b, stage, ".slice", InstructionKind::ShardSlice, *weight, p);
      std::vector<ValueId> next =
          b.kernels(newId(weight->name + ".step", stage), "sgd_momentum",
                    {p, g, b.read(weight->name + ".buf"), b.read("lr")}, 2,
                    {{"momentum", 0.5}, {"nesterov", false}, {"weight_decay", 0.0}});
      p = next[0];
      if (slices)
        p = overZero(b, stage, ".gather.upd", InstructionKind::AllGather, *weight, p);
      b.write(weight->name, p);
      b.write(weight->name + ".buf", next[1]);
    }
    if (isLast(stage))
      b.write("loss", allReduce(b, stage, "loss", b.read("loss"), data));
  }

  /// The sum of squares of all clipped gradients, each element once, over all stages.
  ValueId norm(BlockBuilder &b, int stage,
               const std::vector<std::pair<const Weight *, ValueId>> &gradients) {
    bool isUsed = std::any_of(gradients.begin(), gradients.end(),
                              [](const auto &entry) { return entry.first->isClipped; });
    if (!isUsed && numStages == 1)
      return -1;
    ValueId total = b.constant(newId("none", stage), 0.0, {});
    for (auto [weight, g] : gradients) {
      if (!weight->isClipped)
        continue;
      const Shape shape = program.stages[size_t(stage)].values[size_t(g)].shape;
      ValueId square = b.kernel(newId("square", stage), "mul", {g, g}, shape);
      std::vector<int64_t> dims;
      for (size_t d = 0; d < shape.size(); ++d)
        dims.push_back(int64_t(d));
      ValueId sum = b.kernel(newId("squares", stage), "reduce_sum", {square}, {}, {{"dims", dims}});
      Axes cut = weight->cut == Weight::Cut::None ? Axes() : tensor;
      append(cut, weight->zero >= 1 ? zero : Axes());
      sum = allReduce(b, stage, "norm", sum, cut);
      total = b.kernel(newId("norm.add", stage), "add", {total, sum}, {});
    }
    if (numStages > 1)
      total = allReduce(b, stage, "norm.all", total, pipeline);
    if (!isUsed)
      b.write(unusedNorm(stage), total);
    return total;
  }

  /// A stage without clipped weights meets the others, and keeps what it gets.
  std::string unusedNorm(int stage) {
    addTensor(program, Role::OptimizerState, "norm" + std::to_string(stage), "", wholePiece({}));
    addSlot(program, stage, int(program.tensors.size()) - 1);
    return program.tensors.back().name;
  }

  const RandomProgramOptions &options;
  std::mt19937 random;
  Program program;
  int numStages = 1;
  Axes pipeline, data, tensor, zero, rest; // data = zero and rest
  int64_t tp = 1, rows = 2, width = 2;     // of the local activation
  std::vector<Weight> weights;
  std::vector<std::vector<Layer>> layers; // by stage
  std::vector<std::pair<int, int>> skips; // from, to
  bool isClipping = false;
  int numIds = 0;
};

} // namespace

Program randomProgram(const RandomProgramOptions &options) { return Maker(options).make(); }

} // namespace tbc::program
