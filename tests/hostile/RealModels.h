//===- RealModels.h - Mutations of the project's models -------------------===//

#ifndef TBC_TESTS_HOSTILE_REALMODELS_H
#define TBC_TESTS_HOSTILE_REALMODELS_H

#include <string>
#include <vector>

namespace tbc::test {

/// Returns the names of the models in models/, the small ones first.
const std::vector<std::string> &realModels();

/// Returns mutation number `i` of a model: one to three changes, the same ones each time. Describes
/// them in `what`.
std::string mutatedModel(size_t which, int i, std::string &what);

} // namespace tbc::test

#endif // TBC_TESTS_HOSTILE_REALMODELS_H
