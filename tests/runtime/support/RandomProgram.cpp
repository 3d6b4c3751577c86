//===- RandomProgram.cpp - Random training programs, for tests ------------===//

#include "tests/runtime/support/RandomProgramMaker.h"

#include <algorithm>

namespace tbc::program::random {

Program Maker::make() {
  makeMesh();
  placeChunks();
  makeLayers();
  makeSchedule();
  makeTensors();
  for (int stage = 0; stage < numStages; ++stage)
    makeSlots(stage);
  for (int chunk = 0; chunk < numChunks; ++chunk)
    forward(chunk);
  for (int chunk = numChunks; chunk-- > 0;) {
    backward(chunk);
    if (partsBackward)
      weightPart(chunk);
  }
  for (int stage = 0; stage < numStages; ++stage)
    update(stage);
  return std::move(program);
}

BlockId Maker::blockOf(Kind kind, int chunk) const {
  int place = int(std::count(chunkStage.begin(), chunkStage.begin() + chunk, stageOf(chunk)));
  return {kind, place};
}

/// Assigns chunks to stages: one chunk per stage, or several, looped, V-shaped or random.
void Maker::placeChunks() {
  schedule::Pipeline pipeline = schedule::Pipeline::plain(numStages);
  if (program.pipelineAxis >= 0 && oneIn(3)) {
    int each = 2 + int(below(2));
    pipeline = oneIn(2) ? schedule::Pipeline::loop(numStages, each)
                        : schedule::Pipeline::vee(numStages, each);
    if (oneIn(3))
      std::shuffle(pipeline.chunkStage.begin(), pipeline.chunkStage.end(), random);
  }
  chunkStage = pipeline.chunkStage;
  numChunks = int(chunkStage.size());
  if (numChunks > numStages)
    program.schedule.chunkStage = chunkStage;
  for (int stage = 0; stage < numStages; ++stage)
    program.stages[size_t(stage)].chunks.resize(
        size_t(std::count(chunkStage.begin(), chunkStage.end(), stage)));
  partsBackward = program.pipelineAxis >= 0 && oneIn(4);
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
  layers.resize(size_t(numChunks));
  for (int chunk = 0; chunk < numChunks; ++chunk) {
    int stage = stageOf(chunk);
    for (unsigned i = 0, n = 1 + below(unsigned(options.maxLayersPerStage)); i < n; ++i) {
      Layer layer;
      layer.form = Layer::Form(below(6));
      layer.isResidual = oneIn(3);
      if (i == 0 && chunk == 0)
        layer.form = Layer::Form::Dense; // so there is a parameter
      if (layer.form == Layer::Form::Dense) {
        layer.first = tiedWeight(stage);
        if (i == 0 && chunk == 0) // every backward block passes a gradient on
          weights[0].isFrozen = false;
      } else if (layer.form != Layer::Form::Relu && layer.form != Layer::Form::Statistics) {
        layer.first = addWeight(Weight::Cut::Columns, stage);
        layer.second = addWeight(Weight::Cut::Rows, stage);
      }
      layers[size_t(chunk)].push_back(layer);
    }
  }
  for (int from = 0; from + 1 < numChunks; ++from)
    if (oneIn(3))
      skips.push_back({from, from + 1 + int(below(unsigned(numChunks - from - 1)))});
}

int Maker::tiedWeight(int stage) {
  for (size_t i = 0; i < weights.size(); ++i) {
    Weight &weight = weights[i];
    if (weight.cut != Weight::Cut::None || !oneIn(3))
      continue;
    auto at = std::lower_bound(weight.holders.begin(), weight.holders.end(), stage);
    if (at == weight.holders.end() || *at != stage)
      weight.holders.insert(at, stage);
    // A clipped tied weight would count once per holder. The sum over holders needs a name.
    weight.isClipped = weight.isClipped && weight.holders.size() == 1;
    weight.hasGradientTensor = weight.hasGradientTensor || weight.holders.size() > 1;
    return int(i);
  }
  return addWeight(Weight::Cut::None, stage);
}

void Maker::makeSchedule() {
  schedule::Pipeline pipeline{numStages, chunkStage};
  std::vector<std::string> generators;
  for (const std::string &name : schedule::scheduleNames()) {
    schedule::ScheduleKind kind = *schedule::parseScheduleKind(name);
    if (schedule::splitsBackward(kind) == partsBackward &&
        schedule::whyInvalid(kind, pipeline, program.microBatches).empty())
      generators.push_back(name);
  }
  generators.push_back("table");
  program.schedule.generator = generators[below(unsigned(generators.size()))];
  if (program.schedule.generator == "table")
    makeTable();
}

/// Draws a random schedule. Forward, backward and wgrad each run the micro-batches in an order of
/// their own.
void Maker::makeTable() {
  std::vector<int64_t> order[3];
  for (std::vector<int64_t> &list : order) {
    for (int64_t m = 0; m < program.microBatches; ++m)
      list.push_back(m);
    std::shuffle(list.begin(), list.end(), random);
  }
  std::vector<std::vector<schedule::Action>> &table = program.schedule.table;
  table.resize(size_t(numStages));
  unsigned numKinds = partsBackward ? 3 : 2;
  std::vector<std::vector<size_t>> done(3, std::vector<size_t>(size_t(numChunks), 0));
  size_t all = size_t(program.microBatches);
  auto isDone = [&](unsigned which, size_t chunk, int64_t m) {
    auto end = order[which].begin() + int64_t(done[which][chunk]);
    return std::find(order[which].begin(), end, m) != end;
  };
  for (size_t left = numKinds * all * size_t(numChunks); left > 0;) {
    size_t chunk = below(unsigned(numChunks)), which = below(numKinds), &at = done[which][chunk];
    if (at == all)
      continue;
    int64_t m = order[which][at];
    bool canRun = true;
    if (which == 0)
      canRun = chunk == 0 || done[0][chunk - 1] > at;
    else if (which == 1)
      canRun = isDone(0, chunk, m) && (int(chunk) + 1 == numChunks || done[1][chunk + 1] > at);
    else
      canRun = isDone(1, chunk, m);
    if (!canRun)
      continue;
    Kind kind = which == 0 ? Kind::Forward : which == 1 ? Kind::Backward : Kind::Weight;
    table[size_t(stageOf(int(chunk)))].push_back({kind, m, blockOf(kind, int(chunk)).chunk});
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
