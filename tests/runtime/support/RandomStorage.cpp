//===- RandomStorage.cpp - Storage and messages of random programs --------===//

#include "tests/runtime/support/RandomProgramMaker.h"

#include <algorithm>

namespace tbc::program::random {

Piece Maker::usedPiece(const Weight &weight) const {
  Piece piece = wholePiece({width, width});
  if (weight.cut != Weight::Cut::None)
    piece.dims[weight.cut == Weight::Cut::Columns ? 1 : 0][0][0].axes = tensor;
  return piece;
}

Piece Maker::zeroPiece(const Weight &weight) const {
  Piece piece = usedPiece(weight);
  append(weight.isFlat ? piece.flat : piece.dims[0][0][0].axes, zero);
  return piece;
}

Piece Maker::pieceAt(const Weight &weight, int level) const {
  return weight.zero >= level ? zeroPiece(weight) : usedPiece(weight);
}

void Maker::makeTensors() {
  for (const char *name : {"x", "t"}) {
    Piece piece = wholePiece({rows * groupSize(data), width});
    piece.dims[0][0][0].axes = data;
    addTensor(program, Role::Input, name, "", piece);
  }
  for (int chunk = 0; chunk < numChunks; ++chunk)
    for (size_t i = 0; i < layers[size_t(chunk)].size(); ++i)
      if (layers[size_t(chunk)][i].form == Layer::Form::Statistics)
        addTensor(program, Role::State, meanName(chunk, i), meanName(chunk, i),
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

std::string Maker::meanName(int chunk, size_t layer) const {
  return "mean" + std::to_string(chunk) + "." + std::to_string(layer);
}

std::string Maker::layerName(int chunk, size_t layer) const {
  return "l" + std::to_string(chunk) + "." + std::to_string(layer);
}

void Maker::makeSlots(int stage) {
  bool holdsLast = stage == stageOf(numChunks - 1);
  if (stage == stageOf(0))
    addSlot(program, stage, program.tensorIndex("x"));
  if (holdsLast)
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
  for (int chunk = 0; chunk < numChunks; ++chunk)
    for (size_t i = 0; i < layers[size_t(chunk)].size() && stageOf(chunk) == stage; ++i)
      if (layers[size_t(chunk)][i].form == Layer::Form::Statistics)
        addSlot(program, stage, program.tensorIndex(meanName(chunk, i)));
  if (holdsLast) {
    addSlot(program, stage, Role::Residual, "diff", {rows, width});
    addSlot(program, stage, Role::Loss, "loss", {});
  }
  addSlot(program, stage, Role::Scalar, "lr", {});
}

void Maker::save(BlockBuilder &b, int stage, const std::string &name, ValueId value) {
  const kernels::TensorType type = program.stages[size_t(stage)].values[size_t(value)];
  addSlot(program, stage, Role::Residual, name, type.shape);
  b.write(name, value);
}

int Maker::laneOf(int from, int to) const {
  // With one chunk per stage, a stage sends to another in only one phase.
  return numChunks == numStages ? 0 : 2 * (from * numChunks + to) + (from < to ? 0 : 1);
}

/// Messages of two chunks differ in channel; forward and backward differ in direction.
static std::string passName(const std::string &what, int from, int to) {
  return "pass." + what + "." + std::to_string(from) + "." + std::to_string(to);
}

void Maker::pass(BlockBuilder &b, const std::string &what, ValueId value, int from, int to,
                 int64_t channel) {
  if (stageOf(from) == stageOf(to))
    save(b, stageOf(from), passName(what, from, to), value);
  else
    b.send(newId(what + ".send", stageOf(from)), value, stageOf(to), channel, laneOf(from, to));
}

ValueId Maker::take(BlockBuilder &b, const std::string &what, int from, int to, int64_t channel) {
  if (stageOf(from) == stageOf(to))
    return b.read(passName(what, from, to));
  return b.recv(newId(what + ".recv", stageOf(to)), full(), stageOf(from), channel,
                laneOf(from, to));
}

std::string Maker::newId(const std::string &what, int stage) {
  return what + ".s" + std::to_string(stage) + "." + std::to_string(numIds++);
}

ValueId Maker::allReduce(BlockBuilder &b, int stage, const std::string &what, ValueId value,
                         const Axes &axes, std::vector<int> stages, ReduceKind reduce) {
  if (axes.empty())
    return value;
  Communication comm;
  comm.axes = axes, comm.stages = std::move(stages), comm.reduce = reduce;
  Shape shape = program.stages[size_t(stage)].values[size_t(value)].shape;
  return b.collective(newId(what, stage), InstructionKind::AllReduce, value, comm, shape);
}

ValueId Maker::along(BlockBuilder &b, int stage, const std::string &what, InstructionKind kind,
                     ValueId value, const Axes &axes, int dim, int64_t k, Shape result) {
  if (axes.empty())
    return value;
  Communication comm;
  comm.axes = axes, comm.dim = dim;
  if (dim >= 0)
    comm.segments = {{1, k, 1}};
  return b.collective(newId(what, stage), kind, value, comm, std::move(result));
}

ValueId Maker::overZero(BlockBuilder &b, int stage, const std::string &what, InstructionKind kind,
                        const Weight &weight, ValueId value) {
  bool gathers = kind == InstructionKind::AllGather;
  return along(b, stage, weight.name + what, kind, value, zero, weight.isFlat ? -1 : 0,
               zeroShape(weight)[0], gathers ? usedShape(weight) : zeroShape(weight));
}

ValueId Maker::use(BlockBuilder &b, int stage, const Weight &weight) {
  ValueId value = b.read(weight.name);
  if (weight.zero < 3)
    return value;
  return overZero(b, stage, ".gather", InstructionKind::AllGather, weight, value);
}

} // namespace tbc::program::random
