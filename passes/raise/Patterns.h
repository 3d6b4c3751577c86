//===- Patterns.h - The patterns of the raising pass -----------------------===//

#ifndef TBC_PASSES_RAISE_PATTERNS_H
#define TBC_PASSES_RAISE_PATTERNS_H

#include "mlir/IR/PatternMatch.h"

namespace tbc::raise {

void addGeluPatterns(mlir::RewritePatternSet &patterns);
void addSiluPatterns(mlir::RewritePatternSet &patterns);

} // namespace tbc::raise

#endif // TBC_PASSES_RAISE_PATTERNS_H
