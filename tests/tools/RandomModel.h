//===- RandomModel.h - Random training graphs, for end-to-end tests -------===//
//
// Random models of 20 to 60 ops, put through the same passes as an imported model:
// - matmuls and contractions of two values, elementwise ops, norms, softmax, attention,
//   convolutions, batch norm, experts, reductions;
// - reshapes that merge and split dims (including the batch), transposes, concats and slices,
//   embeddings and gathers, dropout;
// - values used often and late, shared and unused parameters, several inputs, branches without a
//   batch.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_TOOLS_RANDOMMODEL_H
#define TBC_TESTS_TOOLS_RANDOMMODEL_H

#include "tools/driver/Context.h"

#include <memory>
#include <string>

namespace tbc::test {

struct RandomModel {
  std::unique_ptr<mlir::MLIRContext> context;
  std::unique_ptr<driver::TrainingStep> step;
  std::string text; // of @model, for messages
  int64_t numOps = 0;
};

/// Returns the model of a seed. The same seed gives the same model, optimizer and settings. Errors:
/// a pass refused the model, which is a bug.
Result<RandomModel> makeRandomModel(uint64_t seed);

} // namespace tbc::test

#endif // TBC_TESTS_TOOLS_RANDOMMODEL_H
