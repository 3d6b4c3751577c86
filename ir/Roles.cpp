//===- Roles.cpp - Purposes of tensors and phases of ops -------------------===//

#include "ir/Roles.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;

namespace tbc {

using reshard::Phase;

static std::optional<TensorRole> roleIn(Attribute attr) {
  auto role = llvm::dyn_cast_or_null<TensorRoleAttr>(attr);
  return role ? std::optional(role.getValue()) : std::nullopt;
}

std::optional<TensorRole> argumentRole(func::FuncOp function, unsigned index) {
  return roleIn(function.getArgAttr(index, kRoleAttr));
}

std::optional<TensorRole> resultRole(func::FuncOp function, unsigned index) {
  return roleIn(function.getResultAttr(index, kRoleAttr));
}

NamedAttribute namedRole(MLIRContext *context, TensorRole role) {
  return NamedAttribute(StringAttr::get(context, kRoleAttr), TensorRoleAttr::get(context, role));
}

Phase phaseOf(Operation *op) {
  auto phase = op->getAttrOfType<PhaseAttr>(kPhaseAttr);
  return phase ? phase.getValue() : Phase::Forward;
}

void setPhase(Operation *op, Phase phase) {
  op->setAttr(kPhaseAttr, PhaseAttr::get(op->getContext(), phase));
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

/// Parses "<WORD>" with a word that `find` knows. Error: another word; it lists `words`.
template <typename Value>
static std::optional<Value> parseWord(AsmParser &parser, StringRef kind, ArrayRef<StringRef> words,
                                      llvm::function_ref<std::optional<Value>(StringRef)> find) {
  StringRef word;
  if (parser.parseLess())
    return std::nullopt;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseKeyword(&word))
    return std::nullopt;
  std::optional<Value> value = find(word);
  if (!value)
    parser.emitError(loc) << "\"" << word << "\" is no " << kind << "; expected one of "
                          << llvm::join(words, ", ");
  if (!value || parser.parseGreater())
    return std::nullopt;
  return value;
}

Attribute TensorRoleAttr::parse(AsmParser &parser, Type) {
  SmallVector<StringRef> words;
  for (uint32_t i = 0; i <= getMaxEnumValForTensorRole(); ++i)
    words.push_back(stringifyTensorRole(TensorRole(i)));
  auto find = [](StringRef word) { return symbolizeTensorRole(word); };
  std::optional<TensorRole> role = parseWord<TensorRole>(parser, "role", words, find);
  return role ? TensorRoleAttr::get(parser.getContext(), *role) : TensorRoleAttr();
}

void TensorRoleAttr::print(AsmPrinter &printer) const {
  printer << '<' << stringifyTensorRole(getValue()) << '>';
}

static StringRef phaseText(Phase phase) {
  switch (phase) {
  case Phase::Forward:
    return "fwd";
  case Phase::Backward:
    return "bwd";
  case Phase::Weight:
    return "wgt";
  }
  llvm_unreachable("no phase");
}

Attribute PhaseAttr::parse(AsmParser &parser, Type) {
  auto find = [](StringRef word) -> std::optional<Phase> {
    for (Phase phase : {Phase::Forward, Phase::Backward, Phase::Weight})
      if (word == phaseText(phase))
        return phase;
    return std::nullopt;
  };
  std::optional<Phase> phase = parseWord<Phase>(parser, "phase", {"fwd", "bwd", "wgt"}, find);
  return phase ? PhaseAttr::get(parser.getContext(), *phase) : PhaseAttr();
}

void PhaseAttr::print(AsmPrinter &printer) const { printer << '<' << phaseText(getValue()) << '>'; }

//===----------------------------------------------------------------------===//
// Verifiers. An attribute of another kind would read as absent.
//===----------------------------------------------------------------------===//

LogicalResult TbcDialect::verifyOperationAttribute(Operation *op, NamedAttribute attr) {
  if (attr.getName() == kPhaseAttr && !llvm::isa<PhaseAttr>(attr.getValue()))
    return op->emitOpError() << "has tbc.phase = " << attr.getValue()
                             << "; a phase is #tbc.phase<fwd>, #tbc.phase<bwd> or #tbc.phase<wgt>";
  if (attr.getName() == kRoleAttr)
    return op->emitOpError("has tbc.role, which belongs to arguments and results of functions");
  return success();
}

/// Verifies an attribute of argument or result (`kind`) `index` of a function.
static LogicalResult verifyRole(Operation *function, StringRef kind, unsigned index,
                                NamedAttribute attr) {
  if (attr.getName() == kRoleAttr && !llvm::isa<TensorRoleAttr>(attr.getValue()))
    return function->emitOpError() << "has tbc.role = " << attr.getValue() << " on " << kind << " "
                                   << index << "; a role is written #tbc.role<param>";
  if (attr.getName() == kPhaseAttr)
    return function->emitOpError()
           << "has tbc.phase on " << kind << " " << index << "; it belongs to ops";
  return success();
}

LogicalResult TbcDialect::verifyRegionArgAttribute(Operation *op, unsigned, unsigned index,
                                                   NamedAttribute attr) {
  return verifyRole(op, "argument", index, attr);
}

LogicalResult TbcDialect::verifyRegionResultAttribute(Operation *op, unsigned, unsigned index,
                                                      NamedAttribute attr) {
  return verifyRole(op, "result", index, attr);
}

} // namespace tbc
