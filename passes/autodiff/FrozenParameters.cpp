//===- FrozenParameters.cpp - Trained and frozen parameters ----------------===//

#include "passes/autodiff/FrozenParameters.h"

#include "ir/Roles.h"

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

static bool isParameter(func::FuncOp train, unsigned index) {
  return argumentRole(train, index) == TensorRole::Parameter &&
         isa<FloatType>(tensorType(train.getArgument(index)).getElementType());
}

FailureOr<SmallVector<bool>> matchParameters(func::FuncOp train, ArrayRef<std::string> globs,
                                             StringRef flag) {
  SmallVector<bool> matched(train.getNumArguments(), false);
  for (const std::string &text : globs) {
    llvm::Expected<llvm::GlobPattern> glob = llvm::GlobPattern::create(text);
    if (!glob)
      return train.emitError() << flag << ": the glob \"" << text
                               << "\" is malformed: " << llvm::toString(glob.takeError());
    bool matchesAny = false;
    for (unsigned i = 0; i < matched.size(); ++i) {
      if (!isParameter(train, i) || !matches(*glob, train, i))
        continue;
      matchesAny = true;
      matched[i] = true;
    }
    if (!matchesAny)
      return train.emitError() << flag << ": the glob \"" << text << "\" matches no parameter";
  }
  return matched;
}

FailureOr<SmallVector<bool>> findTrained(func::FuncOp train, ArrayRef<std::string> freeze) {
  FailureOr<SmallVector<bool>> isFrozen = matchParameters(train, freeze, "--freeze");
  if (failed(isFrozen))
    return failure();
  SmallVector<bool> isTrained;
  for (unsigned i = 0; i < train.getNumArguments(); ++i) {
    isTrained.push_back(isParameter(train, i) && !(*isFrozen)[i]);
    if (isTrained.back() && !train.getArgAttr(i, kNameAttr))
      return train.emitError() << "parameter " << i << " has no name";
  }
  return isTrained;
}

} // namespace tbc
