//===- FunctionBuilder.cpp - Functions with a growing signature ------------===//

#include "passes/partition/LocalBlock.h"

#include "ir/Host.h"

using namespace mlir;

namespace tbc {

FunctionBuilder::FunctionBuilder(ModuleOp module, std::string name)
    : bodyBuilder(module.getContext()) {
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  func = builder.create<func::FuncOp>(module.getLoc(), name, builder.getFunctionType({}, {}));
  bodyBuilder.setInsertionPointToEnd(func.addEntryBlock());
}

DictionaryAttr FunctionBuilder::attributes(TensorRole role, StringRef name, int peer,
                                           bool isOnHost) {
  SmallVector<NamedAttribute> attrs = {
      namedRole(bodyBuilder.getContext(), role),
      bodyBuilder.getNamedAttr(kNameAttr, bodyBuilder.getStringAttr(name))};
  if (peer >= 0)
    attrs.push_back(bodyBuilder.getNamedAttr(kPeerAttr, bodyBuilder.getI64IntegerAttr(peer)));
  if (isOnHost)
    attrs.push_back(bodyBuilder.getNamedAttr(kOnHostAttr, bodyBuilder.getUnitAttr()));
  return bodyBuilder.getDictionaryAttr(attrs);
}

Value FunctionBuilder::addArgument(Type type, TensorRole role, StringRef name, int peer) {
  argAttrs.push_back(attributes(role, name, peer));
  return func.getBody().front().addArgument(type, func.getLoc());
}

void FunctionBuilder::addResult(Value value, TensorRole role, StringRef name, int peer) {
  resultAttrs.push_back(attributes(role, name, peer));
  results.push_back(value);
}

Value FunctionBuilder::fetchArgument(Type type, TensorRole role, StringRef name) {
  argAttrs.push_back(attributes(role, name, -1, /*isOnHost=*/true));
  Value stored = func.getBody().front().addArgument(type, func.getLoc());
  return bodyBuilder.create<FetchOp>(func.getLoc(), type, stored);
}

Value FunctionBuilder::offload(Value value) {
  return bodyBuilder.create<OffloadOp>(value.getLoc(), value.getType(), value);
}

void FunctionBuilder::addHostResult(Value value, TensorRole role, StringRef name) {
  resultAttrs.push_back(attributes(role, name, -1, /*isOnHost=*/true));
  results.push_back(value);
}

void FunctionBuilder::finish() {
  bodyBuilder.create<func::ReturnOp>(func.getLoc(), results);
  SmallVector<Type> argTypes(func.getBody().front().getArgumentTypes()), resultTypes;
  for (Value result : results)
    resultTypes.push_back(result.getType());
  func.setFunctionType(bodyBuilder.getFunctionType(argTypes, resultTypes));
  func.setAllArgAttrs(argAttrs);
  func.setAllResultAttrs(resultAttrs);
}

} // namespace tbc
