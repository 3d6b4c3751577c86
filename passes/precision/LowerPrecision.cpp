//===- LowerPrecision.cpp - bf16 or f16 by policy --------------------------===//

#include "passes/precision/LowerPrecision.h"

#include "ir/Contraction.h"
#include "ir/Elementwise.h"
#include "ir/Formula.h"
#include "ir/Loss.h"
#include "ir/Movement.h"
#include "ir/Normalization.h"
#include "ir/Random.h"
#include "ir/Roles.h"
#include "passes/OpIds.h"
#include "passes/Passes.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_LOWERPRECISIONPASS
#include "passes/Passes.h.inc"

namespace {

/// The precision of an op (docs/precision.md has the table).
enum class Policy {
  Narrow, // bf16 or f16 operands
  Wide,   // f32 operands
  Follow, // narrow if all its float operands are, generators aside
  Any,    // operands as they are, widened inside
  Keep,   // sets its own result type
};

class PrecisionLowerer {
public:
  PrecisionLowerer(func::FuncOp model, FloatType narrow)
      : model(model), narrow(narrow), ids(model), builder(model.getContext()) {}

  LogicalResult run();

private:
  bool isGenerator(Value value) const;
  bool isNarrow(Operation *op) const;
  Value castTo(Value value, Type elementType, Operation *before);
  LogicalResult setResultTypes(Operation *op, Type elementType);
  LogicalResult lower(Operation *op);

  bool isNarrowed(Value value) const { return tensorType(value).getElementType() == narrow; }

  func::FuncOp model;
  FloatType narrow;
  OpIds ids;
  OpBuilder builder;
  llvm::DenseSet<Operation *> generators;
  llvm::DenseMap<std::pair<Value, Type>, Value> casts;
};

} // namespace

static Policy policyOf(Operation *op) {
  if (isa<CastOp, ConstantOp, FactorSizeOp, RandomUniformOp>(op))
    return Policy::Keep;
  // These compute in f32 inside for every operand type, and keep their statistics in f32.
  if (isa<SoftmaxOp, LayerNormOp, RmsNormOp>(op))
    return Policy::Narrow;
  if (isa<ExpOp, LogOp, SqrtOp, RsqrtOp, ReciprocalOp, DivOp, PowOp, ErfOp, SinOp, CosOp,
          ReduceSumOp, StabilizerMaxOp, BatchNormOp, BatchNormTrainOp>(op))
    return Policy::Wide;
  if (isa<CrossEntropyOp>(op))
    return Policy::Any;
  // So the experts' operands and results are narrow with and without a capacity.
  if (isa<ExpertOpInterface>(op))
    return Policy::Narrow;
  if (isMatrixClass(cast<CostOpInterface>(op).getKernelClass()))
    return Policy::Narrow;
  return Policy::Follow;
}

static bool isF32(Value value) { return tensorType(value).getElementType().isF32(); }

bool PrecisionLowerer::isGenerator(Value value) const {
  return value.getDefiningOp() && generators.contains(value.getDefiningOp());
}

/// Returns true if `op` must compute in the narrow type.
bool PrecisionLowerer::isNarrow(Operation *op) const {
  switch (policyOf(op)) {
  case Policy::Narrow:
    return true;
  case Policy::Wide:
  case Policy::Any:
  case Policy::Keep:
    return false;
  case Policy::Follow:
    bool anyNarrow = false;
    for (Value operand : op->getOperands()) {
      if (isGenerator(operand))
        continue;
      if (isF32(operand))
        return false;
      anyNarrow |= isNarrowed(operand);
    }
    return anyNarrow;
  }
  llvm_unreachable("unknown policy");
}

/// `value` with another element type; one cast serves all users.
Value PrecisionLowerer::castTo(Value value, Type elementType, Operation *before) {
  auto type = tensorType(value);
  if (type.getElementType() == elementType)
    return value;
  Value &cached = casts[{value, elementType}];
  if (!cached) {
    builder.setInsertionPoint(before);
    auto cast = builder.create<CastOp>(value.getLoc(),
                                       RankedTensorType::get(type.getShape(), elementType), value);
    Operation *producer = value.getDefiningOp();
    std::string base = getId(producer ? producer : before).str();
    cast->setAttr(kIdAttr, builder.getStringAttr(ids.unique(base + ".cast")));
    if (isGenerator(value))
      generators.insert(cast);
    cached = cast;
  }
  return cached;
}

/// Sets the result types of `op` by its new operands. A result without an inferred type was f32, or
/// narrow in a model that is exported narrow; both follow the operands. Example: a bf16 broadcast
/// of a quotient that is now computed in f32.
LogicalResult PrecisionLowerer::setResultTypes(Operation *op, Type elementType) {
  SmallVector<Type> types;
  if (auto infer = dyn_cast<InferTypeOpInterface>(op)) {
    if (failed(infer.inferReturnTypes(op->getContext(), op->getLoc(), op->getOperands(),
                                      op->getDiscardableAttrDictionary(),
                                      op->getPropertiesStorage(), op->getRegions(), types)))
      return op->emitOpError() << "cannot compute in " << elementType;
  } else {
    for (Value result : op->getResults())
      types.push_back(isF32(result) || isNarrowed(result)
                          ? RankedTensorType::get(tensorType(result).getShape(), elementType)
                          : result.getType());
  }
  for (auto [result, type] : llvm::zip_equal(op->getResults(), types))
    result.setType(type);
  return success();
}

LogicalResult PrecisionLowerer::lower(Operation *op) {
  if (llvm::all_of(op->getOperands(), [&](Value v) { return isGenerator(v); })) {
    generators.insert(op);
    return success();
  }
  auto floats = llvm::make_filter_range(op->getOpOperands(), [&](OpOperand &operand) {
    return isF32(operand.get()) || isNarrowed(operand.get());
  });
  // An op on f64, or on the other narrow type, is left as it is.
  if (policyOf(op) == Policy::Keep || floats.empty())
    return success();
  if (policyOf(op) == Policy::Any) {
    for (OpOperand &operand : floats)
      operand.set(beforeWidening(operand.get()));
    return setResultTypes(op, builder.getF32Type());
  }
  Type elementType = isNarrow(op) ? Type(narrow) : Type(builder.getF32Type());
  for (OpOperand &operand : floats)
    operand.set(castTo(operand.get(), elementType, op));
  return setResultTypes(op, elementType);
}

LogicalResult PrecisionLowerer::run() {
  Block &block = model.getBody().front();
  Operation *terminator = block.getTerminator();
  for (BlockArgument arg : block.getArguments()) {
    if (argumentRole(model, arg.getArgNumber()) == TensorRole::Parameter && isF32(arg))
      arg.setType(RankedTensorType::get(tensorType(arg).getShape(), narrow));
  }
  for (Operation &op : llvm::make_early_inc_range(block.without_terminator()))
    if (failed(lower(&op)))
      return failure();
  for (auto [i, type] : llvm::enumerate(model.getResultTypes()))
    terminator->setOperand(i, castTo(terminator->getOperand(i),
                                     cast<RankedTensorType>(type).getElementType(), terminator));
  model.setType(builder.getFunctionType(block.getArgumentTypes(), model.getResultTypes()));
  return success();
}

LogicalResult lowerPrecision(func::FuncOp model, FloatType narrow) {
  return PrecisionLowerer(model, narrow).run();
}

namespace {
struct LowerPrecision : impl::LowerPrecisionPassBase<LowerPrecision> {
  using LowerPrecisionPassBase::LowerPrecisionPassBase;
  void runOnOperation() override {
    FloatType narrow;
    if (to == "bf16")
      narrow = FloatType::getBF16(&getContext());
    else if (to == "f16")
      narrow = FloatType::getF16(&getContext());
    else
      getOperation().emitError() << "cannot compute in \"" << to << "\"; expected bf16 or f16";
    if (!narrow || failed(lowerPrecision(getOperation(), narrow)))
      signalPassFailure();
  }
};
} // namespace

} // namespace tbc
