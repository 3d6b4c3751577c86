//===- InsertCollectives.cpp - Collectives on whole tensors ----------------===//

#include "passes/plan/InsertCollectives.h"

#include "ir/Reshard.h"
#include "passes/Passes.h"

#include "llvm/ADT/STLExtras.h"

#include <map>

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_INSERTCOLLECTIVESPASS
#define GEN_PASS_DEF_BUCKETPASS
#include "passes/Passes.h.inc"

using reshard::Reshard;
using reshard::Where;

static StringRef reasonOf(Where where) {
  switch (where) {
  case Where::Operand:
    return "operand";
  case Where::ParameterUse:
    return "parameter_use";
  case Where::GradientMicro:
    return "gradient";
  case Where::Stage:
    return "stage";
  case Where::GradientLast:
  case Where::GradientStep:
  case Where::MatrixStep:
  case Where::MatrixTotals:
  case Where::ParameterStep:
  case Where::Loss:
  case Where::StepTotal:
    break;
  }
  llvm_unreachable("a reshard of the whole step is no op of @train");
}

/// E.g. "all_reduce over tp, 512 bytes", "send from stage 0 to stage 1, 512 bytes".
static std::string describe(const reshard::Mesh &mesh, const reshard::Collective &step) {
  std::string text = reshard::name(step.kind);
  if (step.kind == reshard::CollectiveKind::Send)
    text += " from stage " + std::to_string(step.stages[0]) + " to stage " +
            std::to_string(step.stages[1]);
  else
    text += " over " + reshard::toString(mesh, step.axes);
  return text + ", " + std::to_string(step.bytes) + " bytes";
}

static ArrayAttr describe(OpBuilder &builder, const reshard::Mesh &mesh, const Reshard &reshard) {
  SmallVector<Attribute> steps;
  for (const reshard::Collective &step : reshard.steps)
    steps.push_back(builder.getStringAttr(describe(mesh, step)));
  return builder.getArrayAttr(steps);
}

static bool isInserted(const Reshard &reshard) {
  return !reshard.perStep && !reshard.steps.empty();
}

static SmallVector<ReshardOp> reshardOps(DerivedStep &step) {
  return llvm::to_vector(step.planned.train.getOps<ReshardOp>());
}

//===----------------------------------------------------------------------===//
// Insertion
//===----------------------------------------------------------------------===//

namespace {

/// Inserts reshards in the order of the derivation, and rewires their readers.
class Inserter {
public:
  explicit Inserter(DerivedStep &step)
      : step(step), planned(step.planned), graph(planned.graph), reshards(step.derivation.reshards),
        builder(planned.train.getContext()), made(reshards.size()) {}

  LogicalResult run() {
    for (auto [number, reshard] : llvm::enumerate(reshards))
      if (isInserted(reshard))
        insert(int(number));
    for (size_t op = 0; op < graph.ops.size(); ++op)
      if (failed(rewire(int(op))))
        return failure();
    rewireGradients();
    return success();
  }

private:
  /// The block of a read: one chunk and phase.
  struct Place {
    int chunk, stage;
    reshard::Phase phase;
  };

  void insert(int number) {
    const Reshard &reshard = reshards[number];
    Place place{reshard.chunk, reshard.stage, reshard.phase};
    Value input = find(reshard.value, reshard.from, place);
    Operation *&last = lastAfter[input];
    if (reshard.op >= 0)
      builder.setInsertionPoint(planned.step.ops[reshard.op]);
    else if (Operation *after = last ? last : input.getDefiningOp())
      builder.setInsertionPointAfter(after);
    else
      builder.setInsertionPointToStart(&planned.train.getBody().front());
    const reshard::Mesh &mesh = planned.assignment.mesh;
    MLIRContext *context = builder.getContext();
    int64_t rank = tensorType(input).getRank();
    auto op = builder.create<ReshardOp>(
        planned.step.values[reshard.value].getLoc(), input.getType(), input,
        toAttribute(context, mesh, reshard.from, rank),
        toAttribute(context, mesh, reshard.to, rank), builder.getI64IntegerAttr(number),
        builder.getStringAttr(reasonOf(reshard.where)), describe(builder, mesh, reshard),
        IntegerAttr());
    if (reshard.op < 0)
      last = op;
    made[number] = op.getResult();
    byValue[reshard.value].push_back(number);
  }

  /// Returns graph value `value` in `sharding` for a reader at `place`: sent there, resharded in
  /// its block, or kept by an earlier block; otherwise the result of its producer.
  Value find(int value, const reshard::Sharding &sharding, const Place &place) const {
    int best = -1, bestRank = 0;
    auto found = byValue.find(value);
    if (found == byValue.end())
      return planned.step.values[value];
    for (int number : found->second) {
      const Reshard &reshard = reshards[number];
      bool isSend = reshard.where == Where::Stage;
      if (reshard.to != sharding || reshard.phase > place.phase ||
          (isSend ? reshard.steps[0].stages[1] : reshard.stage) != place.stage)
        continue;
      bool isHere = reshard.chunk == place.chunk && reshard.phase == place.phase;
      int rank = isSend || isHere ? 2 : 1;
      if (rank > bestRank) {
        best = number;
        bestRank = rank;
      }
    }
    return best < 0 ? planned.step.values[value] : made[best];
  }

  /// Whether `value` is made before `op`.
  static bool isBefore(Value value, Operation *op) {
    return !value.getDefiningOp() || value.getDefiningOp()->isBeforeInBlock(op);
  }

  LogicalResult rewire(int index) {
    const reshard::GraphOp &op = graph.ops[index];
    const auto &operands = step.derivation.operands[index];
    if (op.generator || operands.size() != op.operands.size())
      return success(); // generators are whole everywhere; skipped adds are not executed
    Operation *original = planned.step.ops[index];
    Place place{op.chunk, planned.assignment.stageOf(op.chunk), op.phase};
    for (auto [k, need] : llvm::enumerate(operands)) {
      Value value =
          need.reshard >= 0 ? made[need.reshard] : find(op.operands[k], need.sharding, place);
      if (!value)
        continue; // not in @train: once per step, or nothing to move
      if (!isBefore(value, original))
        return original->emitOpError()
               << "operand " << k << ": its tbc.reshard stands after the op that reads it";
      original->setOperand(unsigned(k), value);
    }
    return success();
  }

  /// @train returns gradients as they are accumulated.
  void rewireGradients() {
    Operation *terminator = planned.train.getBody().front().getTerminator();
    for (auto [number, reshard] : llvm::enumerate(reshards))
      if (isInserted(reshard) && reshard.where == Where::GradientMicro)
        for (OpOperand &operand : terminator->getOpOperands())
          if (throughReshards(operand.get()) == planned.step.values[reshard.value])
            operand.set(made[number]);
  }

  DerivedStep &step;
  PlannedStep &planned;
  const reshard::Graph &graph;
  const std::vector<Reshard> &reshards;
  OpBuilder builder;
  std::vector<Value> made;                      // by reshard
  std::map<int, std::vector<int>> byValue;      // reshards of each value, in order
  llvm::DenseMap<Value, Operation *> lastAfter; // by input: the last reshard right after it
};

} // namespace

LogicalResult insertCollectives(DerivedStep &step) {
  SmallVector<ReshardOp> present = reshardOps(step);
  if (!present.empty())
    return present.front().emitOpError("is there already; tbc-insert-collectives runs once");
  return Inserter(step).run();
}

//===----------------------------------------------------------------------===//
// Buckets and checks
//===----------------------------------------------------------------------===//

/// Returns the difference of `op` from the derivation, or "".
static std::string whyOther(DerivedStep &step, ReshardOp op) {
  const std::vector<Reshard> &reshards = step.derivation.reshards;
  size_t number = op.getNumber();
  if (number >= reshards.size() || !isInserted(reshards[number]))
    return "no reshard of a micro-batch has this number";
  const Reshard &reshard = reshards[number];
  const reshard::Mesh &mesh = step.planned.assignment.mesh;
  OpBuilder builder(op);
  int64_t rank = tensorType(op.getInput()).getRank();
  if (throughReshards(op.getInput()) != step.planned.step.values[reshard.value])
    return "it is of the value \"" + step.planned.graph.values[reshard.value].name + "\"";
  if (op.getFrom() != toAttribute(op.getContext(), mesh, reshard.from, rank) ||
      op.getTo() != toAttribute(op.getContext(), mesh, reshard.to, rank))
    return "it goes from " + reshard::toString(mesh, reshard.from) + " to " +
           reshard::toString(mesh, reshard.to);
  if (op.getReason() != reasonOf(reshard.where) ||
      op.getCollectives() != describe(builder, mesh, reshard))
    return "its reason or its collectives are others";
  if (op.getBucket() && int(*op.getBucket()) != step.overlap.bucket(step.derivation, reshard))
    return "it is in another bucket, or in none";
  return "";
}

LogicalResult checkCollectives(DerivedStep &step) {
  SmallVector<ReshardOp> ops = reshardOps(step);
  if (ops.empty())
    return success(); // tbc-insert-collectives did not run
  std::vector<bool> seen(step.derivation.reshards.size(), false);
  for (ReshardOp op : ops) {
    if (std::string why = whyOther(step, op); !why.empty())
      return op.emitOpError() << "is not the one that the strategies on the IR give: " << why;
    if (seen[op.getNumber()])
      return op.emitOpError() << "stands twice: number " << op.getNumber();
    seen[op.getNumber()] = true;
  }
  for (auto [number, reshard] : llvm::enumerate(step.derivation.reshards))
    if (isInserted(reshard) && !seen[number])
      return step.planned.train.emitError()
             << "tbc.reshard number " << number << " is missing, of the value \""
             << step.planned.graph.values[reshard.value].name << "\"";
  return success();
}

/// The op before which reshard `number` is issued ahead of its use, or -1.
static int issuedBefore(const DerivedStep &step, size_t number) {
  return step.overlap.issuedBefore.empty() ? -1 : step.overlap.issuedBefore[number];
}

/// By op: the operation before which gathers issued ahead of the op stand. It is the first
/// tbc.reshard for the op without early issue, else the op. Example: op "add" reads parameter p in
/// another sharding than the gathered one:
///
///   %whole = tbc.reshard %p       // the gather of p
///   %wanted = tbc.reshard %whole  // gathers issued ahead of "add" stand before this one
///   tbc.add %wanted, ...
static std::vector<Operation *> issuePoints(DerivedStep &step) {
  std::vector<Operation *> points(step.planned.step.ops.begin(), step.planned.step.ops.end());
  std::vector<bool> found(points.size(), false);
  for (ReshardOp op : reshardOps(step)) {
    int reader = step.derivation.reshards[op.getNumber()].op;
    if (reader < 0 || found[reader] || issuedBefore(step, op.getNumber()) >= 0)
      continue;
    points[reader] = op;
    found[reader] = true;
  }
  return points;
}

LogicalResult bucketCollectives(DerivedStep &step) {
  if (failed(checkCollectives(step)))
    return failure();
  OpBuilder builder(step.planned.train.getContext());
  std::vector<Operation *> points = issuePoints(step);
  for (ReshardOp op : reshardOps(step)) {
    size_t number = op.getNumber();
    int bucket = step.overlap.bucket(step.derivation, step.derivation.reshards[number]);
    if (bucket >= 0)
      op.setBucketAttr(builder.getI64IntegerAttr(bucket));
    // Gathers move only ahead: a reshard before the op may read the gather.
    if (int before = issuedBefore(step, number); before >= 0 && points[before]->isBeforeInBlock(op))
      op->moveBefore(points[before]);
  }
  return success();
}

namespace {

struct InsertCollectives : impl::InsertCollectivesPassBase<InsertCollectives> {
  void runOnOperation() override {
    FailureOr<DerivedStep> &step = getAnalysis<DerivedStepAnalysis>().step;
    if (failed(step) || failed(insertCollectives(*step)))
      return signalPassFailure();
    // It sees through tbc.reshard.
    markAnalysesPreserved<DerivedStepAnalysis>();
  }
};

struct BucketCollectives : impl::BucketPassBase<BucketCollectives> {
  void runOnOperation() override {
    FailureOr<DerivedStep> &step = getAnalysis<DerivedStepAnalysis>().step;
    if (failed(step) || failed(bucketCollectives(*step)))
      return signalPassFailure();
    markAnalysesPreserved<DerivedStepAnalysis>();
  }
};

} // namespace

} // namespace tbc
