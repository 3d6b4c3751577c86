//===- OpCost.h - Cost of a Program's instructions ---------------------------===//

#ifndef TBC_TOOLS_DRIVER_OPCOST_H
#define TBC_TOOLS_DRIVER_OPCOST_H

#include "tools/roofline/Roofline.h"

#include "mlir/IR/MLIRContext.h"

#include <memory>

namespace tbc::driver {

/// Rebuilds the op of an instruction and asks its CostOpInterface. So `tbc program show --roofline`
/// and the planner count the same.
class OpCosts {
public:
  OpCosts();

  /// Returns the cost of an instruction. Errors: Usage; there is no such op, it has no cost, or the
  /// op lacks one of the attributes.
  Result<roofline::OpCost> of(const program::Stage &stage,
                              const program::Instruction &instruction) const;

private:
  std::unique_ptr<mlir::MLIRContext> context;
};

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_OPCOST_H
