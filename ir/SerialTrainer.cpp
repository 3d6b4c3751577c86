//===- SerialTrainer.cpp - The training step, serially ---------------------===//

#include "ir/SerialTrainer.h"

#include "ir/Evaluate.h"
#include "ir/Interpreter.h"
#include "ir/Roles.h"
#include "runtime/kernels/Kernel.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace tbc {

using kernels::Arith;
using kernels::Tensor;

SerialTrainer::SerialTrainer(ModuleOp module, const kernels::KernelContext &context)
    : module(module), context(context), arith(context.arith) {}

static std::string text(Attribute attr) {
  auto string = dyn_cast_or_null<StringAttr>(attr);
  return string ? string.str() : "";
}
static std::string argName(func::FuncOp function, unsigned i) {
  return text(function.getArgAttr(i, kNameAttr));
}

/// Returns `value` converted to `type`, by the kernel of the cast op.
static Tensor convert(const Tensor &value, const kernels::TensorType &type, Arith arith) {
  if (value.type() == type)
    return value;
  return kernels::findKernel("cast")({arith}, {}, {value}, {type}).front();
}

LogicalResult SerialTrainer::set(const std::string &name, const Tensor &value) {
  auto train = module.lookupSymbol<func::FuncOp>("train");
  for (unsigned i = 0; train && i < train.getNumArguments(); ++i) {
    if (argName(train, i) != name)
      continue;
    kernels::TensorType type = *toKernelType(train.getArgumentTypes()[i]);
    if (value.shape() != type.shape)
      return train.emitError() << "argument \"" << name << "\" is of type "
                               << train.getArgumentTypes()[i] << ", got "
                               << kernels::toString(value.type());
    current[name] = convert(value, type, arith);
    auto update = module.lookupSymbol<func::FuncOp>("update");
    for (unsigned j = 0; update && j < update.getNumArguments(); ++j)
      if (update.getArgAttr(j, kMasterAttr) && text(update.getArgAttr(j, kParameterAttr)) == name)
        current[argName(update, j)] =
            convert(value, *toKernelType(update.getArgumentTypes()[j]), arith);
    return success();
  }
  return module.emitError() << "@train has no argument \"" << name << "\"";
}

Tensor SerialTrainer::optimizerState(func::FuncOp function, unsigned argument) {
  auto [it, isNew] = current.try_emplace(argName(function, argument));
  if (isNew) {
    auto initial = function.getArgAttrOfType<FloatAttr>(argument, kInitialAttr);
    it->second = Tensor::fromDoubles(*toKernelType(function.getArgumentTypes()[argument]), arith,
                                     {initial ? initial.getValueAsDouble() : 0});
  }
  return it->second;
}

LogicalResult SerialTrainer::runMicroBatch(const Tensors &batch) {
  auto train = module.lookupSymbol<func::FuncOp>("train");
  SmallVector<Tensor> inputs;
  for (unsigned i = 0; i < train.getNumArguments(); ++i) {
    std::optional<TensorRole> role = argumentRole(train, i);
    std::string name = argName(train, i);
    if (role == TensorRole::OptimizerState) {
      inputs.push_back(optimizerState(train, i));
      continue;
    }
    bool isKept = role == TensorRole::Parameter || role == TensorRole::State;
    const Tensors &source = isKept ? current : batch;
    auto it = source.find(name);
    if (it == source.end())
      return train.emitError() << "no value is given for "
                               << (role ? stringifyTensorRole(*role) : "") << " \"" << name << "\"";
    inputs.push_back(it->second);
  }
  FailureOr<SmallVector<Tensor>> results = evaluateFunction(train, inputs, context);
  if (failed(results))
    return failure();

  kernels::KernelFn add = kernels::findKernel("add");
  auto accumulate = [&](Tensor &sum, const Tensor &part) {
    sum = sum ? add({arith}, {}, {sum, part}, {part.type()}).front() : part;
  };
  for (auto [i, result] : llvm::enumerate(*results)) {
    std::optional<TensorRole> role = resultRole(train, i);
    std::string name = text(train.getResultAttr(i, kNameAttr));
    if (role == TensorRole::Loss)
      accumulate(lossSum, result);
    else if (role == TensorRole::Count)
      accumulate(countSum, result);
    else if (role == TensorRole::Gradient)
      accumulate(sums[name], result);
    else
      current[name] = result;
  }
  return success();
}

LogicalResult SerialTrainer::update(double learningRate) {
  auto update = module.lookupSymbol<func::FuncOp>("update");
  SmallVector<Tensor> inputs;
  for (auto [i, mlirType] : llvm::enumerate(update.getArgumentTypes())) {
    std::optional<TensorRole> role = argumentRole(update, i);
    std::string name = argName(update, i);
    kernels::TensorType type = *toKernelType(mlirType);
    if (role == TensorRole::LearningRate)
      inputs.push_back(Tensor::fromDoubles(type, arith, {learningRate}));
    else if (role == TensorRole::Gradient)
      inputs.push_back(sums[name]);
    else if (role == TensorRole::Loss)
      inputs.push_back(name == "count" ? countSum : lossSum);
    else if (role == TensorRole::OptimizerState)
      inputs.push_back(optimizerState(update, i));
    else
      inputs.push_back(current[name]);
  }
  FailureOr<SmallVector<Tensor>> results = evaluateFunction(update, inputs, context);
  if (failed(results))
    return failure();
  for (auto [i, result] : llvm::enumerate(*results)) {
    std::string name = text(update.getResultAttr(i, kNameAttr));
    if (resultRole(update, i) == TensorRole::Loss)
      (name == "count" ? countSum : lossSum) = result;
    else
      current[name] = result;
  }
  return success();
}

FailureOr<double> SerialTrainer::step(ArrayRef<Tensors> microBatches, double learningRate) {
  for (StringRef name : {"train", "update"})
    if (!module.lookupSymbol<func::FuncOp>(name))
      return module.emitError() << "has no function @" << name;
  sums.clear();
  lossSum = countSum = {};
  for (const Tensors &batch : microBatches)
    if (failed(runMicroBatch(batch)))
      return failure();
  if (failed(update(learningRate)))
    return failure();
  return lossSum ? lossSum.toDoubles().front() : 0.0;
}

} // namespace tbc
