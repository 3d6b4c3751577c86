//===- UseBatchStatistics.cpp - Batch norm in training form ----------------===//

#include "passes/decompose/UseBatchStatistics.h"

#include "ir/Normalization.h"
#include "ir/Roles.h"
#include "passes/Passes.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;

namespace tbc {

#define GEN_PASS_DEF_USEBATCHSTATISTICSPASS
#include "passes/Passes.h.inc"

/// Returns the new values of `states` too, after the function's other results.
static void returnStates(func::FuncOp function,
                         const llvm::MapVector<BlockArgument, Value> &states) {
  Builder builder(function.getContext());
  Operation *terminator = function.getBody().front().getTerminator();
  SmallVector<Value> values(terminator->getOperands());
  SmallVector<DictionaryAttr> attrs;
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    attrs.push_back(function.getResultAttrDict(i));
  for (auto [state, value] : states) {
    values.push_back(value);
    auto name = function.getArgAttr(state.getArgNumber(), kNameAttr);
    attrs.push_back(builder.getDictionaryAttr(
        {namedRole(function.getContext(), TensorRole::State),
         builder.getNamedAttr(kNameAttr, name ? name : builder.getStringAttr(""))}));
  }
  terminator->setOperands(values);
  function.setType(
      builder.getFunctionType(function.getArgumentTypes(), ValueRange(values).getTypes()));
  function.setAllResultAttrs(attrs);
}

LogicalResult useBatchStatistics(func::FuncOp function) {
  llvm::MapVector<BlockArgument, Value> states;
  // The latest value of a state, or null if `value` is no state.
  auto stateOf = [&](Value value) -> Value * {
    auto argument = dyn_cast<BlockArgument>(value);
    if (!argument)
      return nullptr;
    if (argumentRole(function, argument.getArgNumber()) != TensorRole::State)
      return nullptr;
    return &states.insert({argument, argument}).first->second;
  };

  // ONNX asks for the population variance; PyTorch trains with the unbiased one.
  for (BatchNormTrainOp norm : function.getOps<BatchNormTrainOp>())
    norm.setUnbiased(true);
  SmallVector<BatchNormOp> norms(function.getOps<BatchNormOp>());
  for (BatchNormOp norm : norms) {
    bool areStates = stateOf(norm.getMean()) && stateOf(norm.getVariance());
    if (!areStates)
      return norm.emitOpError(
          "has running statistics that are no state of the model, so it cannot be "
          "trained");
    OpBuilder builder(norm);
    Value *mean = stateOf(norm.getMean()), *variance = stateOf(norm.getVariance());
    auto train = builder.create<BatchNormTrainOp>(norm.getLoc(), norm.getInput(), norm.getScale(),
                                                  norm.getBias(), *mean, *variance,
                                                  norm.getEpsilon(), norm.getMomentum());
    train->setDiscardableAttrs(norm->getDiscardableAttrDictionary());
    *mean = train.getNewMean();
    *variance = train.getNewVariance();
    norm.getResult().replaceAllUsesWith(train.getResult());
    norm.erase();
  }
  if (!states.empty())
    returnStates(function, states);
  return success();
}

namespace {
struct UseBatchStatistics : impl::UseBatchStatisticsPassBase<UseBatchStatistics> {
  void runOnOperation() override {
    if (failed(useBatchStatistics(getOperation())))
      signalPassFailure();
  }
};
} // namespace

} // namespace tbc
