//===- RandomUpdate.cpp - Update blocks of a random program ---------------===//

#include "tests/runtime/support/RandomProgramMaker.h"

#include <algorithm>

namespace tbc::program::random {

ValueId Maker::reducedGradient(BlockBuilder &b, int stage, const Weight &weight) {
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

void Maker::update(int stage) {
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
  if (stage == stageOf(numChunks - 1))
    b.write("loss", allReduce(b, stage, "loss", b.read("loss"), data));
}

ValueId Maker::norm(BlockBuilder &b, int stage,
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

std::string Maker::unusedNorm(int stage) {
  addTensor(program, Role::OptimizerState, "norm" + std::to_string(stage), "", wholePiece({}));
  addSlot(program, stage, int(program.tensors.size()) - 1);
  return program.tensors.back().name;
}

} // namespace tbc::program::random
