//===- StreamedOp.cpp - Ops on operands that arrive block by block ---------===//

#include "passes/partition/LocalBlock.h"

#include "ir/Formula.h"
#include "ir/Movement.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc {

using reshard::GraphOp;

namespace {

/// The ring of ranks along some axes; each rank sends its block to the next.
class Ring : public BlockStream {
public:
  /// A constant-derived operand: each rank cuts its block from `whole`, so that it need not travel.
  struct Generated {
    unsigned operand = 0;
    Value whole;
    int64_t dim = 0;
    reshard::TensorLayout layout;
    reshard::Reshard cut;
  };

  Ring(OpBuilder &builder, Location loc, const reshard::Mesh &mesh,
       std::vector<reshard::AxisRef> axes, SmallVector<Value> own, SmallVector<Type> types)
      : f{builder, loc}, mesh(mesh), current(std::move(own)), types(std::move(types)) {
    step.kind = reshard::CollectiveKind::Permute;
    step.axes = std::move(axes);
  }
  void addTravelling(unsigned operand) { travelling.push_back(operand); }
  void addGenerated(Generated operand) { generated.push_back(std::move(operand)); }

  int64_t numBlocks() const override { return reshard::groupSize(step.axes); }
  ArrayRef<Type> resultTypes() const override { return types; }
  Value pass(Value value) override {
    return emitCollective(f.builder, f.loc, value, step, mesh, tensorType(value).getShape());
  }
  /// Sends this block on before any op works on it, so transfer and compute overlap.
  SmallVector<Value> operands(int64_t block) override {
    for (; at < block; ++at) {
      sendOn();
      current = std::move(coming);
      coming.clear();
    }
    if (block + 1 < numBlocks())
      sendOn();
    for (const Generated &operand : generated)
      if (block > 0)
        current[operand.operand] = emitReshard(f.builder, f.loc, shifted(operand, block),
                                               operand.cut, operand.layout, mesh);
    return current;
  }

private:
  /// Sends the current block to the next rank, unless it is on its way already.
  void sendOn() {
    if (!coming.empty())
      return;
    coming = current;
    for (unsigned operand : travelling)
      coming[operand] = pass(current[operand]);
  }

  /// Rotates an operand: a rank's share is then the block that has passed `block` ranks.
  Value shifted(const Generated &operand, int64_t block) {
    int64_t size = tensorType(operand.whole).getDimSize(operand.dim);
    int64_t last = block * (size / numBlocks());
    Value behind = f.make<SliceOp>(operand.whole, operand.dim, size - last, last);
    Value before = f.make<SliceOp>(operand.whole, operand.dim, 0, size - last);
    return f.make<ConcatOp>(ValueRange{behind, before}, operand.dim);
  }

  Formula f;
  const reshard::Mesh &mesh;
  reshard::Collective step;
  SmallVector<Value> current, coming; // by operand: of block `at`, and of the one after it
  SmallVector<Type> types;
  SmallVector<unsigned> travelling;
  SmallVector<Generated> generated;
  int64_t at = 0;
};

} // namespace

/// Emits the streamed op `index` on its own blocks `operands`.
LogicalResult LocalBlock::emitStreamed(int index, ArrayRef<Value> operands) {
  const GraphOp &op = in.graph.ops[index];
  Operation *original = templateOf(index);
  auto streamed = dyn_cast<StreamedOpInterface>(original);
  const reshard::Loop *loop = nullptr;
  std::vector<reshard::AxisRef> axes;
  for (const auto &entry : in.assignment.strategies[index].loopAxes)
    if (op.loops[entry.first].kind == reshard::LoopKind::Streamed && !entry.second.empty()) {
      if (loop)
        return original->emitOpError("streams along two loops at once, which cannot be emitted; "
                                     "use --context all-gather");
      loop = &op.loops[entry.first];
      axes = entry.second;
    }
  if (!streamed)
    return original->emitOpError("has a streamed loop but cannot work block by block");
  SmallVector<Type> types;
  for (int result : op.results)
    types.push_back(localType(result, in.derivation.raw[result]));
  Ring ring(function.builder(), original->getLoc(), in.assignment.mesh, axes,
            SmallVector<Value>(operands), types);
  for (const reshard::TensorDim &dim : loop->operandDims) {
    int value = op.operands[dim.tensor], producer = in.graph.values[value].producer;
    if (producer < 0 || !in.graph.ops[producer].generator) {
      ring.addTravelling(dim.tensor);
      continue;
    }
    const reshard::TensorLayout &layout = in.graph.values[value].layout;
    if (layout.dims[dim.dim].numElements() != loop->size)
      return original->emitOpError(
          "streams numbers along a dim of more than the loop, which cannot "
          "be emitted; use --context all-gather");
    Ring::Generated operand{
        unsigned(dim.tensor), get(value, in.derivation.raw[value]), dim.dim, layout, {}};
    operand.cut.from = in.derivation.raw[value];
    operand.cut.to = in.derivation.operands[index][dim.tensor].sharding;
    operand.cut.steps =
        reshard::reshard(in.assignment.mesh, layout, operand.cut.from, operand.cut.to);
    ring.addGenerated(std::move(operand));
  }
  for (auto [result, value] :
       llvm::zip_equal(op.results, streamed.buildStreamed(function.builder(), ring)))
    remember(result, in.derivation.raw[result], value);
  return success();
}

} // namespace tbc
