//===- Buffers.h - What the blocks of a step allocate ----------------------===//
//
// Plain C++. The partitioner's walk over the step, without its IR: which buffers every block makes,
// in the order of its instructions, and so how long each lives. What comes out is what the memory
// plan of the compiled Program is made from.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_CORE_BUFFERS_H
#define TBC_PLANNER_CORE_BUFFERS_H

#include "planner/core/Plan.h"
#include "planner/reshard/Overlap.h"
#include "runtime/memory/Arena.h"

#include <map>
#include <set>
#include <vector>

namespace tbc::planner {

/// Values of the block; parameters gathered from their stored shards; operands in another sharding
/// than their value's home, and what collectives make on the way.
enum class BufferKind { Transient, Gathered, Collective };
inline constexpr int numBufferKinds = 3;

/// The buffers that one block makes beside what slots hold.
struct BlockBuffers {
  /// By buffer; times are numbers of instructions.
  std::vector<memory::Lifetime> lifetimes;
  std::vector<BufferKind> kinds;
  /// By instruction: the graph op for which it is there; -1: the first of the block, if any.
  std::vector<int> opOf;
};

/// A piece of the model and a phase of it.
using BlockKey = std::pair<int, reshard::Phase>; // chunk, phase

/// What a stage keeps for a micro-batch, in one slot.
struct KeptSlot {
  enum class Kind { Input, Residual, Gathered };
  Kind kind = Kind::Residual;
  int stage = 0;
  int64_t bytes = 0;
  bool isOnHost = false;
  std::set<BlockKey> users; // that write or read it: each copies it once where it is on the host
};

struct StepBuffers {
  std::map<BlockKey, BlockBuffers> blocks;
  std::vector<KeptSlot> kept;
};

/// Walks all blocks of the step that `derivation` derives of `graph` and `assignment`.
StepBuffers stepBuffers(const reshard::Graph &graph, const reshard::Assignment &assignment,
                        const reshard::Derivation &derivation,
                        const reshard::Overlap &overlap = {});

/// The buffers of a stage's update: of each parameter in turn the gradient completed and scaled,
/// the old and the new value on the state's shard, the new moments where the step may be skipped.
/// States that lie on the host have their old and new value there as well.
/// With clipping by norm or loss scaling all completed gradients live until they are used.
BlockBuffers updateBuffers(const reshard::Graph &graph, const reshard::Assignment &assignment,
                           const reshard::Derivation &derivation, const reshard::Overlap &overlap,
                           const Job &job, int stage);

} // namespace tbc::planner

#endif // TBC_PLANNER_CORE_BUFFERS_H
