//===- RealModels.h - The models of the project, with something changed ---===//

#ifndef TBC_TESTS_HOSTILE_REALMODELS_H
#define TBC_TESTS_HOSTILE_REALMODELS_H

#include <string>
#include <vector>

namespace tbc::test {

/// The names of the models in models/, the small ones first.
const std::vector<std::string> &realModels();

/// Mutation number `i` of a model: one to three changes, the same ones each time. `what` says
/// which.
std::string mutatedModel(size_t which, int i, std::string &what);

} // namespace tbc::test

#endif // TBC_TESTS_HOSTILE_REALMODELS_H
