//===- Evaluate.cpp - The meaning of an op, by its reference kernel --------===//

#include "ir/Evaluate.h"
#include "ir/ElementTypes.h"

#include "runtime/kernels/Kernel.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Diagnostics.h"

using namespace mlir;

namespace tbc {

using kernels::Tensor;

std::optional<kernels::TensorType> toKernelType(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || !tensor.hasStaticShape())
    return std::nullopt;
  std::optional<DType> dtype = dtypeOf(tensor.getElementType());
  if (!dtype || !isStorable(*dtype))
    return std::nullopt;
  return kernels::TensorType{*dtype, {tensor.getShape().begin(), tensor.getShape().end()}};
}

/// The elements of `elements`; one for a splat.
static kernels::AttrValue denseValue(DenseElementsAttr elements) {
  bool isFloat = isa<FloatType>(elements.getElementType());
  std::vector<double> doubles;
  std::vector<int64_t> ints;
  bool isUnsigned = elements.getElementType().isUnsignedInteger() ||
                    elements.getElementType().isSignlessInteger(1);
  auto append = [&](auto value) {
    if constexpr (std::is_same_v<decltype(value), APFloat>) {
      bool losesInfo;
      value.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &losesInfo);
      doubles.push_back(value.convertToDouble());
    } else {
      ints.push_back(isUnsigned ? int64_t(value.getZExtValue()) : value.getSExtValue());
    }
  };
  if (elements.isSplat()) {
    if (isFloat)
      append(elements.getSplatValue<APFloat>());
    else
      append(elements.getSplatValue<APInt>());
  } else if (isFloat) {
    for (APFloat value : elements.getValues<APFloat>())
      append(value);
  } else {
    for (APInt value : elements.getValues<APInt>())
      append(value);
  }
  if (isFloat)
    return doubles;
  return ints;
}

/// Returns `attr` as an attribute of kernels, or nullopt.
static std::optional<kernels::AttrValue> toKernelAttr(Attribute attr) {
  // A bool is an integer attribute too.
  if (auto value = dyn_cast<BoolAttr>(attr))
    return value.getValue();
  if (auto value = dyn_cast<IntegerAttr>(attr))
    return value.getValue().getSExtValue();
  if (auto value = dyn_cast<FloatAttr>(attr))
    return value.getValueAsDouble();
  if (auto value = dyn_cast<StringAttr>(attr))
    return value.getValue().str();
  if (auto value = dyn_cast<DenseI64ArrayAttr>(attr))
    return std::vector<int64_t>(value.asArrayRef().begin(), value.asArrayRef().end());
  if (auto value = dyn_cast<DenseF64ArrayAttr>(attr))
    return std::vector<double>(value.asArrayRef().begin(), value.asArrayRef().end());
  if (auto value = dyn_cast<DenseElementsAttr>(attr))
    return denseValue(value);
  if (auto value = dyn_cast<ArrayAttr>(attr)) {
    std::vector<std::string> strings;
    for (Attribute element : value) {
      auto string = dyn_cast<StringAttr>(element);
      if (!string)
        return std::nullopt;
      strings.push_back(string.getValue().str());
    }
    return strings;
  }
  return std::nullopt;
}

FailureOr<kernels::Attrs> toKernelAttrs(Operation *op) {
  kernels::Attrs attrs;
  for (NamedAttribute named : op->getAttrs()) {
    if (named.getName().getValue().contains('.'))
      continue;
    std::optional<kernels::AttrValue> value = toKernelAttr(named.getValue());
    if (!value)
      return op->emitOpError() << "has an attribute \"" << named.getName().getValue()
                               << "\" of a kind that kernels do not know: " << named.getValue();
    attrs.set(named.getName().str(), std::move(*value));
  }
  return attrs;
}

FailureOr<SmallVector<kernels::Tensor>> evaluateOp(Operation *op,
                                                   ArrayRef<kernels::Tensor> operands,
                                                   const kernels::KernelContext &context) {
  StringRef mnemonic = op->getName().stripDialect();
  kernels::KernelFn kernel = nullptr;
  if (op->getName().getDialectNamespace() == "tbc")
    kernel = kernels::findKernel({mnemonic.data(), mnemonic.size()});
  if (!kernel)
    return op->emitOpError("has no reference kernel, so it cannot be evaluated");

  FailureOr<kernels::Attrs> attrs = toKernelAttrs(op);
  if (failed(attrs))
    return failure();
  std::vector<kernels::TensorType> types;
  for (Type type : op->getResultTypes()) {
    std::optional<kernels::TensorType> kernelType = toKernelType(type);
    if (!kernelType)
      return op->emitOpError() << "has a result of type " << type << ", which no tensor has";
    types.push_back(*kernelType);
  }

  std::vector<kernels::Tensor> results;
  try {
    results = kernel(context, *attrs, {operands.begin(), operands.end()}, types);
  } catch (const kernels::KernelError &error) {
    return op->emitOpError() << "cannot be evaluated: " << error.what();
  }
  if (results.size() != types.size())
    return op->emitOpError() << "has " << types.size() << " results, its kernel made "
                             << results.size();
  for (auto [i, result] : llvm::enumerate(results))
    if (result.type() != types[i])
      return op->emitOpError() << "has result " << i << " of type " << op->getResult(i).getType()
                               << ", its kernel made " << kernels::toString(result.type());
  return SmallVector<kernels::Tensor>(results.begin(), results.end());
}

/// Returns the results of `op`, or none if they depend on data.
static FailureOr<SmallVector<Tensor>> evaluateWithoutData(Operation *op) {
  SmallVector<Tensor> operands;
  for (Value operand : op->getOperands()) {
    Operation *producer = operand.getDefiningOp();
    if (!producer)
      return failure();
    FailureOr<SmallVector<Tensor>> made = evaluateWithoutData(producer);
    if (failed(made))
      return failure();
    operands.push_back((*made)[cast<OpResult>(operand).getResultNumber()]);
  }
  return evaluateOp(op, operands, {kernels::Arith::Native});
}

DenseElementsAttr dataIndependentInteger(Operation *op) {
  if (op->getNumResults() != 1)
    return {};
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  if (!type.getElementType().isSignlessInteger(64) || type.getNumElements() != 1)
    return {};
  FailureOr<SmallVector<Tensor>> made = evaluateWithoutData(op);
  if (failed(made))
    return {};
  return DenseElementsAttr::get(type, ArrayRef<int64_t>((*made)[0].data<int64_t>()));
}

} // namespace tbc
