//===- ExplainRank.cpp - What one rank holds, computes and says -----------===//

#include "planner/explain/Explain.h"
#include "planner/layout/RankSlices.h"
#include "planner/plan/PlanCheck.h"
#include "planner/support/Format.h"
#include "planner/support/IdList.h"
#include "runtime/dtype/DType.h"

#include <algorithm>
#include <map>
#include <set>

namespace tbc::planner {

namespace {

/// Returns the bytes of an element; 0 for a dtype that this program does not know.
int64_t bytesOf(const std::string &dtype) {
  const auto known = parseDType(dtype);
  return known ? byteWidth(*known) : 0;
}

class RankReport {
public:
  RankReport(const Plan &plan, int64_t rank)
      : plan(plan), layout(plan.layout), rank(rank), place(placeOf(layout, rank)),
        ranksPerStage(plan.mesh.numRanks() / plan.mesh.pp), stage(int(rank / ranksPerStage)) {
    for (const LayoutChunk &chunk : layout.chunks)
      if (chunk.stage == stage)
        chunks.push_back(&chunk);
  }

  Report run() {
    facts();
    report.tables = {holds(), memory(), computes(), says()};
    return std::move(report);
  }

private:
  void fact(const char *key, const char *label, Cell value) {
    report.facts.push_back({key, label, std::move(value)});
  }

  /// Returns the node of the rank: ranks fill the nodes in order.
  int64_t node() const {
    int64_t first = 0, nodes = 0;
    for (const Cluster &group : plan.cluster.groups) {
      const int64_t devices = group.numNodes * group.devicesPerNode;
      if (rank < first + devices)
        return nodes + (rank - first) / group.devicesPerNode;
      first += devices;
      nodes += group.numNodes;
    }
    return nodes + (rank - first) / plan.cluster.devicesPerNode;
  }

  void facts() {
    fact("rank", "rank", Cell::count(double(rank)));
    std::vector<std::string> coordinates;
    for (const LayoutAxis &axis : layout.axes)
      coordinates.push_back(axis.axis + "=" + std::to_string(place.coordinate.at(axis.axis)));
    fact("coordinates", "coordinates", Cell::of(joined(coordinates, " ")));
    fact("stage", "pipeline stage", Cell::count(double(stage)));
    fact("node", "node", Cell::count(double(node())));
    std::vector<std::string> modules;
    for (const LayoutChunk *chunk : chunks)
      modules.push_back("chunk " + std::to_string(chunk->chunk) + ": " +
                        joined(compressIds(chunk->modules), ", "));
    fact("modules", "modules", Cell::of(joined(modules, "; ")));
  }

  void addSlice(Table &table, const std::string &names, int64_t count, const char *kind,
                const std::vector<int64_t> &shape, const std::string &dtype,
                int64_t bytesPerElement, const TensorPlacement &placement) const {
    const RankSlice slice = sliceOf(placement, shape, place);
    std::string sizes;
    for (int64_t size : shape)
      sizes += (sizes.empty() ? "" : "x") + std::to_string(size);
    std::string text = toString(slice, shape);
    if (!placement.partial.empty())
      text += std::string(" partial ") + (placement.isMaximum ? "maximum" : "sum") + " over " +
              joined(placement.partial, "+");
    table.rows.push_back({Cell::of(names), Cell::of(kind), Cell::of(sizes + " " + dtype),
                          Cell::of(text), Cell::count(double(count)),
                          Cell::bytes(double(slice.elements * bytesPerElement)),
                          Cell::bytes(double(slice.elements * bytesPerElement * count))});
  }

  Table holds() const {
    Table table{"holds",
                "holds (bytes of one tensor, and of all with these names)",
                {{"tensors", "tensors"},
                 {"kind", "kind"},
                 {"type", "whole"},
                 {"slice", "slice on this rank"},
                 {"count", "tensors"},
                 {"bytes", "bytes"},
                 {"all_bytes", "all"}},
                {},
                ""};
    std::set<std::string> own;
    for (const LayoutChunk *chunk : chunks)
      own.insert(chunk->parameters.begin(), chunk->parameters.end());
    for (const LayoutParameters &group : layout.parameters) {
      std::vector<std::string> names;
      for (const std::string &name : group.names)
        if (own.count(name))
          names.push_back(name);
      if (names.empty())
        continue;
      const std::string text = joined(compressIds(names), ", ");
      const int64_t count = int64_t(names.size()), bytes = bytesOf(group.dtype);
      addSlice(table, text, count, "parameter", group.shape, group.dtype, bytes, group.stored);
      if (!group.isTrained)
        continue;
      // Gradients of narrower types are accumulated in f32 (passes/autodiff/Differentiate.cpp).
      const bool isNarrow = bytes < bytesOf("f32");
      addSlice(table, text, count, "gradient", group.shape, isNarrow ? "f32" : group.dtype,
               isNarrow ? bytesOf("f32") : bytes, group.gradient);
      addSlice(table, text, count, "optimizer state", group.shape, "f32",
               group.stateBytes.value_or(plan.job.stateBytesPerElement()) + masterBytes(bytes),
               group.state);
    }
    for (const LayoutTensors &state : layout.states)
      addTensors(table, state, "state of the model");
    for (const LayoutTensors &input : layout.inputs)
      addTensors(table, input, "input, one micro-batch");
    table.note = "optimizer states and master weights are one row; " +
                 std::string(plan.offload.optimizer ? "they lie on the host; " : "") +
                 "gathered parameters and activations are in the lines of memory";
    if (plan.zigzag)
      table.note += "; over cp, local order is zigzag (docs/plan.md)";
    return table;
  }

  void addTensors(Table &table, const LayoutTensors &tensors, const char *kind) const {
    addSlice(table, joined(compressIds(tensors.names), ", "), int64_t(tensors.names.size()), kind,
             tensors.tensor.shape, tensors.tensor.dtype, bytesOf(tensors.tensor.dtype),
             tensors.tensor.placement);
  }

  Table memory() const {
    Table table{"memory", "memory", {{"line", "line"}, {"bytes", "bytes"}}, {}, ""};
    if (size_t(stage) >= plan.prediction.stages.size())
      return table;
    const StageMemory &lines = plan.prediction.stages[size_t(stage)];
    for (const MemoryLine &line : lines.lines)
      table.rows.push_back({Cell::of(line.name), Cell::bytes(double(line.bytes))});
    for (const MemoryLine &line : lines.host)
      table.rows.push_back({Cell::of("host: " + line.name), Cell::bytes(double(line.bytes))});
    return table;
  }

  Table computes() const {
    Table table{"computes",
                "computes (per step; micro-batches: " + std::to_string(plan.accumulation) + ")",
                {{"chunk", "chunk"},
                 {"part", "part"},
                 {"kernels", "kernels"},
                 {"count", "count"},
                 {"seconds", "seconds"}},
                {},
                ""};
    for (const LayoutChunk *chunk : chunks) {
      if (size_t(chunk->chunk) >= plan.prediction.chunks.size())
        continue;
      const ChunkSeconds &seconds = plan.prediction.chunks[size_t(chunk->chunk)];
      for (StagePart part :
           {&StageSeconds::forward, &StageSeconds::backward, &StageSeconds::recompute,
            &StageSeconds::weight, &StageSeconds::recomputeWeight, &StageSeconds::updateStep}) {
        const double times = part == &StageSeconds::updateStep ? 1 : double(plan.accumulation);
        for (const WorkSum &work : seconds.of(part))
          table.rows.push_back({Cell::count(double(chunk->chunk)), Cell::of(name(part)),
                                Cell::of(work.name), Cell::count(times * double(work.count)),
                                Cell::seconds(times * work.seconds)});
      }
    }
    return table;
  }

  /// Returns the ranks of the stages that exchange activations with this one.
  std::vector<int64_t> neighbours() const {
    std::map<int, int> stageOf; // by chunk
    for (const LayoutChunk &chunk : layout.chunks)
      stageOf[chunk.chunk] = chunk.stage;
    std::set<int64_t> ranks;
    for (const LayoutChunk *chunk : chunks)
      for (int next : {chunk->chunk - 1, chunk->chunk + 1})
        if (auto found = stageOf.find(next); found != stageOf.end() && found->second != stage)
          ranks.insert(rank + (found->second - stage) * ranksPerStage);
    return {ranks.begin(), ranks.end()};
  }

  Table says() const {
    Table table{"says",
                "says (bytes of one execution, executions per step)",
                {{"kind", "kind"},
                 {"purpose", "purpose"},
                 {"cause", "cause"},
                 {"axes", "axes"},
                 {"ranks", "with ranks"},
                 {"count", "count"},
                 {"bytes", "bytes"}},
                {},
                ""};
    for (const LayoutCollective &one : layout.collectives) {
      if (std::find(one.stages.begin(), one.stages.end(), stage) == one.stages.end())
        continue;
      const bool isSend = one.kind == reshard::name(reshard::CollectiveKind::Send);
      const std::vector<int64_t> ranks =
          isSend ? neighbours() : groupOf(one.axes, one.stages, rank, place);
      table.rows.push_back({Cell::of(one.kind), Cell::of(one.purpose), Cell::of(one.cause),
                            Cell::of(joined(one.axes, "+")), Cell::of(shortList(ranks)),
                            Cell::count(double(one.count)), Cell::bytes(double(one.bytes))});
    }
    return table;
  }

  const Plan &plan;
  const Layout &layout;
  const int64_t rank;
  const RankPlace place;
  const int64_t ranksPerStage;
  const int stage;
  std::vector<const LayoutChunk *> chunks; // of the stage
  Report report;
};

} // namespace

Result<Report> explainRank(const Plan &plan, int64_t rank) {
  if (rank < 0 || rank >= plan.mesh.numRanks())
    return Error{ErrorCode::Usage, "--rank: there is no rank " + std::to_string(rank) +
                                       "; the plan has ranks 0 to " +
                                       std::to_string(plan.mesh.numRanks() - 1)};
  if (std::string why = whyStale(plan); !why.empty())
    return Error{ErrorCode::Usage, why};
  return RankReport(plan, rank).run();
}

} // namespace tbc::planner
