//===- OpCost.cpp - Cost of a Program's instructions -------------------------===//

#include "tools/driver/OpCost.h"

#include "ir/ElementTypes.h"
#include "ir/Evaluate.h"
#include "ir/Tbc.h"
#include "tools/driver/Context.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

namespace tbc::driver {

/// The inverse of `toKernelAttrs`, except for dense values.
static Attribute attributeOf(const kernels::AttrValue &value, Builder &builder) {
  struct Visitor {
    Builder &builder;
    Attribute operator()(bool value) const { return builder.getBoolAttr(value); }
    Attribute operator()(int64_t value) const { return builder.getI64IntegerAttr(value); }
    Attribute operator()(double value) const { return builder.getF64FloatAttr(value); }
    Attribute operator()(const std::string &value) const { return builder.getStringAttr(value); }
    Attribute operator()(const std::vector<int64_t> &value) const {
      return builder.getDenseI64ArrayAttr(value);
    }
    Attribute operator()(const std::vector<double> &value) const {
      return builder.getDenseF64ArrayAttr(value);
    }
    Attribute operator()(const std::vector<std::string> &value) const {
      SmallVector<StringRef> list(value.begin(), value.end());
      return builder.getStrArrayAttr(list);
    }
  };
  return std::visit(Visitor{builder}, value);
}

OpCosts::OpCosts() : context(makeContext()) {}

Result<roofline::OpCost> OpCosts::of(const program::Stage &stage,
                                     const program::Instruction &instruction) const {
  if (instruction.op == "constant")
    return roofline::OpCost{0, reshard::KernelClass::None}; // its value is dense
  auto refuse = [&](const std::string &why) {
    return Error{ErrorCode::Usage, instruction.op + " " + why};
  };
  Builder builder(context.get());
  Location location = builder.getUnknownLoc();
  OperationState state(location, "tbc." + instruction.op);
  if (!state.name.isRegistered())
    return refuse("is no op of this tbc; compile the plan again");
  auto typeOf = [&](program::ValueId value) -> Type {
    const kernels::TensorType &type = stage.values[size_t(value)];
    return RankedTensorType::get(type.shape, elementTypeOf(type.dtype, builder.getContext()));
  };
  mlir::Block arguments;
  for (program::ValueId value : instruction.operands)
    state.operands.push_back(arguments.addArgument(typeOf(value), location));
  for (program::ValueId value : instruction.results)
    state.types.push_back(typeOf(value));
  for (const auto &[name, value] : instruction.attrs.entries())
    state.addAttribute(name, attributeOf(value, builder));
  OwningOpRef<Operation *> op = Operation::create(state);
  FailureOr<kernels::Attrs> attrs = toKernelAttrs(op.get());
  if (failed(attrs) || !(*attrs == instruction.attrs))
    return refuse("has attributes that this tbc does not know; compile the plan again");
  auto cost = dyn_cast<CostOpInterface>(op.get());
  if (!cost)
    return refuse("has no cost");
  return roofline::OpCost{cost.getFlops(), cost.getKernelClass(), cost.getOwnKernel()};
}

} // namespace tbc::driver
