//===- ExecutorSizes.h - Sizes that the axes of an executor divide --------===//

#ifndef TBC_PLANNER_PINS_EXECUTORSIZES_H
#define TBC_PLANNER_PINS_EXECUTORSIZES_H

#include "planner/devices/Executor.h"
#include "planner/pins/Pins.h"

#include <string>
#include <vector>

namespace tbc::planner {

/// The sizes of a model that an executor splits over axes of the mesh. Each axis must divide its
/// sizes, or the executor cannot run the plan. tbc's own Programs have none: an op whose sizes an
/// axis does not divide stays whole there.
struct ExecutorSizes {
  struct Size {
    Axis axis = Axis::Tensor;
    int64_t size = 1;
    std::string text; // Example: "12 groups of 64 columns of h.0.attn.q.weight"
  };

  std::string executor;
  std::vector<Size> list;
  /// Whether the layers of the model are those of the executor. Otherwise its parameters have no
  /// split over tp that it knows, and tp stays 1 unless the user asks for it.
  bool knowsLayers = true;

  /// Returns the sizes of `graph` for `executor`. `followsLayout`: ops without pins follow its
  /// layout over tp (PinnedOps::followsLayout).
  static ExecutorSizes make(const reshard::Graph &graph, const Job &job, const Executor &executor,
                            bool followsLayout);

  /// Whether a search may try `mesh`. `isAsked`: the user asks for tp by name.
  bool allows(const MeshShape &mesh, bool isAsked) const;
  /// Errors: Usage for an axis that the pins ask for and that does not divide a size, with the
  /// flag, the size and the possible ones. `mesh`: the pinned one.
  Status check(const Pins &pins, const MeshShape &mesh, int64_t gpus) const;
};

} // namespace tbc::planner

#endif // TBC_PLANNER_PINS_EXECUTORSIZES_H
