//===- RandomBlocks.cpp - Forward and backward blocks of a random program -===//

#include "tests/runtime/support/RandomProgramMaker.h"

#include <algorithm>

namespace tbc::program::random {

ValueId Maker::exchange(BlockBuilder &b, int stage, ValueId value, bool toRows) {
  Communication comm;
  comm.axes = tensor;
  comm.dim = toRows ? 1 : 0, comm.splitDim = toRows ? 0 : 1;
  SegmentShape columns{1, width / tp, 1}, ofRows{1, rows / tp, 1};
  comm.segments = {toRows ? columns : ofRows};
  comm.splitSegments = {toRows ? ofRows : columns};
  return b.collective(newId("exchange", stage), InstructionKind::AllToAll, value, comm,
                      toRows ? cutRows() : cutColumns());
}

ValueId Maker::relu(BlockBuilder &b, int stage, const std::string &name, ValueId value,
                    Shape shape) {
  save(b, stage, name, value);
  return b.kernel(newId("relu", stage), "relu", {value}, std::move(shape));
}

ValueId Maker::layerForward(BlockBuilder &b, int chunk, size_t index, ValueId h) {
  const Layer &layer = layers[size_t(chunk)][index];
  const int stage = stageOf(chunk);
  std::string name = layerName(chunk, index);
  if (layer.form == Layer::Form::Relu)
    return relu(b, stage, name + ".z", h, full());
  if (layer.form == Layer::Form::Statistics) {
    std::string slot = meanName(chunk, index);
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

void Maker::accumulate(BlockBuilder &b, int stage, const Weight &weight, const std::string &saved,
                       ValueId g, std::map<std::string, ValueId> &sums) {
  if (weight.isFrozen)
    return;
  if (!partsBackward)
    return accumulateNow(b, stage, weight, b.read(saved), g, sums);
  later.push_back({int(&weight - weights.data()), saved, saved + ".cotangent"});
  save(b, stage, saved + ".cotangent", g);
}

void Maker::accumulateNow(BlockBuilder &b, int stage, const Weight &weight, ValueId lhs,
                          ValueId rhs, std::map<std::string, ValueId> &sums) {
  ValueId gradient =
      b.einsum(newId("dw", stage), lhs, rhs, {0, 1}, {0, 2}, {1, 2}, usedShape(weight));
  if (weight.zero >= 2)
    gradient = overZero(b, stage, ".scatter", InstructionKind::ReduceScatter, weight, gradient);
  if (!weight.accumulatesByHand) {
    b.add(weight.name + ".grad", gradient);
    return;
  }
  // Layers that share a weight accumulate into one value, written at the end of the block.
  auto [found, isNew] = sums.try_emplace(weight.name, -1);
  ValueId before = isNew ? b.read(weight.name + ".grad") : found->second;
  Shape shape = program.stages[size_t(stage)].values[size_t(gradient)].shape;
  found->second = b.kernel(newId("accumulate", stage), "add", {before, gradient}, shape);
}

ValueId Maker::reluBackward(BlockBuilder &b, int stage, const std::string &saved, ValueId g,
                            Shape shape) {
  return b.kernel(newId("relu.bwd", stage), "relu_grad", {b.read(saved), g}, std::move(shape));
}

ValueId Maker::layerBackward(BlockBuilder &b, int chunk, size_t index, ValueId g,
                             std::map<std::string, ValueId> &sums, bool needsInput) {
  const Layer &layer = layers[size_t(chunk)][index];
  const int stage = stageOf(chunk);
  std::string name = layerName(chunk, index);
  if (layer.form == Layer::Form::Relu)
    return reluBackward(b, stage, name + ".z", g, full());
  if (layer.form == Layer::Form::Statistics)
    return g;
  const Weight &first = weights[size_t(layer.first)];
  bool isDense = layer.form == Layer::Form::Dense;
  if (!isDense) {
    const Weight &second = weights[size_t(layer.second)];
    if (layer.form == Layer::Form::SequencePair) {
      g = along(b, stage, "slice", InstructionKind::ShardSlice, g, tensor, 0, rows / tp, cutRows());
      g = reluBackward(b, stage, name + ".s", g, cutRows());
      g = along(b, stage, "gather.bwd", InstructionKind::AllGather, g, tensor, 0, rows / tp,
                full());
    }
    accumulate(b, stage, second, name + ".a", g, sums);
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
  accumulate(b, stage, first, name + ".x", g, sums);
  if (!needsInput)
    return -1;
  g = b.einsum(newId("dx", stage), g, use(b, stage, first), {0, 2}, {1, 2}, {0, 1}, full());
  return isDense ? g : allReduce(b, stage, "partial.bwd", g, tensor);
}

void Maker::forward(int chunk) {
  const int stage = stageOf(chunk);
  BlockBuilder b(program, stage, blockOf(Kind::Forward, chunk));
  ValueId h = chunk == 0 ? b.read("x") : take(b, "next", chunk - 1, chunk, chunk);
  for (size_t i = 0; i < skips.size(); ++i)
    if (skips[i].second == chunk)
      h = b.kernel(newId("skip.add", stage), "add",
                   {h, take(b, "skip" + std::to_string(i), skips[i].first, chunk, skipChannel(i))},
                   full());
  for (size_t i = 0; i < layers[size_t(chunk)].size(); ++i) {
    ValueId result = layerForward(b, chunk, i, h);
    h = layers[size_t(chunk)][i].isResidual
            ? b.kernel(newId("residual", stage), "add", {result, h}, full())
            : result;
  }
  if (!isLast(chunk))
    pass(b, "next", h, chunk, chunk + 1, chunk + 1);
  for (size_t i = 0; i < skips.size(); ++i)
    if (skips[i].first == chunk)
      pass(b, "skip" + std::to_string(i), h, chunk, skips[i].second, skipChannel(i));
  if (!isLast(chunk))
    return;
  ValueId diff = b.kernel(newId("diff", stage), "sub", {h, b.read("t")}, full());
  ValueId square = b.kernel(newId("square", stage), "mul", {diff, diff}, full());
  ValueId sum = b.kernel(newId("sum", stage), "reduce_sum", {square}, {},
                         {{"dims", std::vector<int64_t>{0, 1}}});
  b.write("diff", diff);
  b.add("loss", sum);
}

void Maker::backward(int chunk) {
  const int stage = stageOf(chunk);
  BlockBuilder b(program, stage, blockOf(Kind::Backward, chunk));
  later.clear();
  ValueId g;
  if (isLast(chunk)) {
    ValueId two = b.constant(newId("two", stage), 2.0, full());
    g = b.kernel(newId("diff.bwd", stage), "mul", {b.read("diff"), two}, full());
  } else {
    g = take(b, "back", chunk + 1, chunk, chunk + 1);
  }
  for (size_t i = 0; i < skips.size(); ++i)
    if (skips[i].first == chunk)
      g = b.kernel(newId("skip.add.bwd", stage), "add",
                   {g, take(b, "skip" + std::to_string(i) + ".back", skips[i].second, chunk,
                            skipChannel(i))},
                   full());
  std::map<std::string, ValueId> sums;
  for (size_t i = layers[size_t(chunk)].size(); i-- > 0 && g >= 0;) {
    bool needsInput = chunk > 0 || needsGradient(i);
    ValueId result = layerBackward(b, chunk, i, g, sums, needsInput);
    bool addsInput = layers[size_t(chunk)][i].isResidual && needsInput;
    g = addsInput ? b.kernel(newId("residual.bwd", stage), "add", {result, g}, full()) : result;
    if (!needsInput)
      break;
  }
  for (const auto &[name, sum] : sums)
    b.write(name + ".grad", sum);
  if (chunk > 0)
    pass(b, "back", g, chunk, chunk - 1, chunk);
  for (size_t i = 0; i < skips.size(); ++i)
    if (skips[i].second == chunk)
      pass(b, "skip" + std::to_string(i) + ".back", g, chunk, skips[i].first, skipChannel(i));
}

/// Writes the wgrad block: the work deferred by the chunk's backward.
void Maker::weightPart(int chunk) {
  const int stage = stageOf(chunk);
  BlockBuilder b(program, stage, blockOf(Kind::Weight, chunk));
  std::map<std::string, ValueId> sums;
  for (const Later &entry : later)
    accumulateNow(b, stage, weights[size_t(entry.weight)], b.read(entry.saved),
                  b.read(entry.cotangent), sums);
  for (const auto &[name, sum] : sums)
    b.write(name + ".grad", sum);
}

bool Maker::needsGradient(size_t layer) const {
  for (size_t i = 0; i < layer; ++i)
    for (int weight : {layers[0][i].first, layers[0][i].second})
      if (weight >= 0 && !weights[size_t(weight)].isFrozen)
        return true;
  return false;
}

} // namespace tbc::program::random
