//===- FormRegions.h - Compile the kernels of a Program ---------------------===//

#ifndef TBC_CODEGEN_REGION_FORMREGIONS_H
#define TBC_CODEGEN_REGION_FORMREGIONS_H

#include "codegen/EmitProgram.h"
#include "codegen/region/Kernel.h"
#include "runtime/abi/Region.h"

#include <map>

namespace tbc::region {

/// What a compiled kernel reads and writes, and by result, then operand, whether the result may lie
/// over the operand.
struct Overwrites {
  program::RegionValues values;
  std::vector<std::vector<bool>> mayOverwrite;
};

/// The kernels of the regions of a Program.
struct RegionKernels {
  std::vector<KernelSource> sources; // the distinct functions, in the order of their first use
  /// Regions of several instructions for which there is no kernel. Their instructions are executed
  /// one by one.
  int64_t apart = 0;
  /// By stage and block, then the region's first instruction.
  std::map<std::pair<int, program::BlockId>, std::map<int, Overwrites>> overwrites;

  /// Whether the kernel of instruction `at` may compute `result` over `operand`; true without a
  /// compiled kernel.
  bool mayOverwrite(const program::Program &program, int stage, program::BlockId id, int at,
                    program::ValueId result, program::ValueId operand) const;
};

/// Two neighbouring regions that are one kernel for some targets.
enum class Joins {
  None,
  /// A nest that reduces rows, and one behind it with sums over these rows (Domain::columnSums), if
  /// they have a value in common. Example: the gradients of a norm's input and of its scale.
  ColumnSums,
};

/// Makes the kernels of the regions of every block, which are those of the IR (kKernelAttr), and
/// adds a region for every other instruction with a kernel of one nest of loops. A region without a
/// kernel is removed. `origins`: from `emitProgram`; its context must be prepared
/// (`prepareContext`). The memory plan is made afterwards (planMemory), with `mayOverwrite`.
RegionKernels formRegions(program::Program &program, const EmittedOps &origins, const EmitFn &emit,
                          Joins joins = Joins::None);

} // namespace tbc::region

#endif // TBC_CODEGEN_REGION_FORMREGIONS_H
