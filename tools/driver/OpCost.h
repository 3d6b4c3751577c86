//===- OpCost.h - What an instruction of a Program computes ------------------===//

#ifndef TBC_TOOLS_DRIVER_OPCOST_H
#define TBC_TOOLS_DRIVER_OPCOST_H

#include "tools/roofline/Roofline.h"

#include "mlir/IR/MLIRContext.h"

#include <memory>

namespace tbc::driver {

/// Makes the op of an instruction again and asks it, so that `tbc program show --roofline` counts
/// what the planner counts (CostOpInterface).
class OpCosts {
public:
  OpCosts();

  /// Errors: Usage; there is no such op, it has no cost, or attributes that the op does not have.
  Result<roofline::OpCost> of(const program::Stage &stage,
                              const program::Instruction &instruction) const;

private:
  std::unique_ptr<mlir::MLIRContext> context;
};

} // namespace tbc::driver

#endif // TBC_TOOLS_DRIVER_OPCOST_H
