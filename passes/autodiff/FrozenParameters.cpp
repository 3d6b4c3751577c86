//===- FrozenParameters.cpp - Which parameters are trained -----------------===//

#include "passes/autodiff/FrozenParameters.h"

#include "ir/Tbc.h"

#include "llvm/Support/GlobPattern.h"

using namespace mlir;

namespace tbc {

/// Whether `glob` matches the initialiser's name or the module path of an argument.
static bool matches(const llvm::GlobPattern &glob, func::FuncOp train, unsigned index) {
  for (StringRef attrName : {StringRef(kNameAttr), StringRef("tbc.display_name")})
    if (auto name = train.getArgAttrOfType<StringAttr>(index, attrName))
      if (glob.match(name.getValue()))
        return true;
  return false;
}

FailureOr<SmallVector<bool>> findTrained(func::FuncOp train, ArrayRef<std::string> freeze) {
  SmallVector<bool> isTrained;
  for (BlockArgument arg : train.getArguments()) {
    auto role = train.getArgAttrOfType<StringAttr>(arg.getArgNumber(), kRoleAttr);
    isTrained.push_back(role && role.getValue() == "param" &&
                        isa<FloatType>(tensorType(arg).getElementType()));
    if (isTrained.back() && !train.getArgAttr(arg.getArgNumber(), kNameAttr))
      return train.emitError() << "parameter " << arg.getArgNumber() << " has no name";
  }
  SmallVector<bool> isParameter = isTrained;
  for (const std::string &text : freeze) {
    llvm::Expected<llvm::GlobPattern> glob = llvm::GlobPattern::create(text);
    if (!glob)
      return train.emitError() << "the glob \"" << text
                               << "\" is malformed: " << llvm::toString(glob.takeError());
    bool matchesAny = false;
    for (unsigned i = 0; i < isTrained.size(); ++i) {
      if (!isParameter[i] || !matches(*glob, train, i))
        continue;
      matchesAny = true;
      isTrained[i] = false;
    }
    if (!matchesAny)
      return train.emitError() << "the glob \"" << text << "\" to freeze matches no parameter";
  }
  return isTrained;
}

} // namespace tbc
