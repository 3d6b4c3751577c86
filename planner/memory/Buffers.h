//===- Buffers.h - Buffers allocated by the blocks of a step --------------===//
//
// Plain C++. Repeats the partitioner's walk over the step without its IR. It lists the buffers of
// every block in the order of its instructions, and so their lifetimes. The memory plan of the
// compiled Program is made from the same buffers.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_MEMORY_BUFFERS_H
#define TBC_PLANNER_MEMORY_BUFFERS_H

#include "planner/plan/Job.h"
#include "planner/reshard/Kernels.h"
#include "planner/reshard/Launches.h"
#include "planner/reshard/Overlap.h"
#include "runtime/memory/Arena.h"

#include <map>
#include <optional>
#include <set>
#include <vector>

namespace tbc::planner {

/// Transient: values of the block. Gathered: parameters gathered from their stored shards.
/// Collective: operands in another sharding than their value's home, and intermediate results of
/// collectives.
enum class BufferKind { Transient, Gathered, Collective };
inline constexpr int numBufferKinds = 3;

/// The buffers of one block, without the contents of slots.
struct BlockBuffers {
  /// By buffer; times are indices of instructions.
  std::vector<memory::Lifetime> lifetimes;
  std::vector<BufferKind> kinds;
  /// By instruction: its graph op; -1: the first op of the block, if any.
  std::vector<int> opOf;
};

using reshard::BlockKey;

/// A value kept by a stage for a micro-batch, in one slot.
struct KeptSlot {
  enum class Kind { Input, Residual, Gathered };
  Kind kind = Kind::Residual;
  int stage = 0;
  int64_t bytes = 0;
  bool isOnHost = false;
  std::set<BlockKey> users; // its writers and readers; each copies it once if it is on the host
};

struct StepBuffers {
  std::map<BlockKey, BlockBuffers> blocks;
  /// Of the last backward of chunk 0, if that completes gradients.
  std::optional<BlockBuffers> lastBackward;
  std::vector<KeptSlot> kept;
};

/// Walks all blocks of the step that `derivation` derives of `graph` and `assignment`. `kernels`:
/// planKernels() of these; null: planned here.
StepBuffers stepBuffers(const reshard::Graph &graph, const reshard::Assignment &assignment,
                        const reshard::Derivation &derivation, const reshard::Overlap &overlap = {},
                        const reshard::BlockKernels *kernels = nullptr);

/// Returns the buffers of the update of stage `stage`. For each parameter in turn: the completed
/// and scaled gradient, the old and the new value on the state's shard, and the new moments if the
/// step may be skipped. States on the host also have their old and new value there. With clipping
/// by norm or loss scaling, all completed gradients live until their use.
BlockBuffers updateBuffers(const reshard::Graph &graph, const reshard::Assignment &assignment,
                           const reshard::Derivation &derivation, const reshard::Overlap &overlap,
                           const Job &job, int stage);

/// Returns the kernels that step the parameters of stage `stage`, in order, without those on whole
/// matrices (MatrixUpdate). A kernel may share a launch (reshard::joinLaunches) if its new
/// parameter is stored as it is computed, and no state is on the host. Codes are those of
/// codegen/cuda, if the optimizer's constants are the same for all parameters.
std::vector<reshard::LaunchedKernel> updateKernels(const reshard::Graph &graph,
                                                   const reshard::Assignment &assignment,
                                                   const reshard::Derivation &derivation,
                                                   const reshard::Overlap &overlap, const Job &job,
                                                   int stage);

} // namespace tbc::planner

#endif // TBC_PLANNER_MEMORY_BUFFERS_H
