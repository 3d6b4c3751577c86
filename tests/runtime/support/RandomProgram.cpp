//===- RandomProgram.cpp - Random training programs, for tests ------------===//

#include "tests/runtime/support/RandomProgramMaker.h"

#include <algorithm>

namespace tbc::program::random {

Program Maker::make() {
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

void Maker::makeMesh() {
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

Weight Maker::newWeight(Weight::Cut cut, int stage) {
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

int Maker::addWeight(Weight::Cut cut, int stage) {
  weights.push_back(newWeight(cut, stage));
  return int(weights.size()) - 1;
}

void Maker::makeLayers() {
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

int Maker::tiedWeight(int stage) {
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

void Maker::makeSchedule() {
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

} // namespace tbc::program::random

tbc::program::Program tbc::program::randomProgram(const RandomProgramOptions &options) {
  return random::Maker(options).make();
}
