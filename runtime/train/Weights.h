//===- Weights.h - Where parameters start ----------------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_TRAIN_WEIGHTS_H
#define TBC_RUNTIME_TRAIN_WEIGHTS_H

#include "runtime/data/MappedFile.h"
#include "runtime/exec/Executor.h"
#include "runtime/train/Manifest.h"
#include "runtime/train/Pretrained.h"

#include <map>
#include <memory>

namespace tbc::train {

/// Gives ranks their pieces of the initial values: from the model's files, of which only what is
/// asked for is read, or drawn from a seed.
class Weights {
public:
  /// From files; `folder` is that of the manifest. With `checksHashes` every file is read in full
  /// and compared; else its size alone is. Errors: Usage, naming the file, where it is missing or
  /// has changed, or where the model has no weights.
  ///
  /// With `pretrained`, only the initializers that it does not have come from the model's files;
  /// the others need no data there.
  static Result<Weights> open(const Manifest &manifest, const std::string &folder,
                              kernels::Arith arith, bool checksHashes,
                              std::shared_ptr<const Pretrained> pretrained = nullptr);

  /// Drawn from Philox at the number of the element in the model's tensor, so the same under every
  /// plan: ones or zeros where the manifest says so, else normal with the deviation
  /// sqrt(2 / (first dim + product of the others)). Source: Glorot and Bengio (2010).
  static Weights draw(const Manifest &manifest, kernels::Arith arith, uint64_t seed);

  /// For Executor::loadPieces; valid as long as this.
  Result<kernels::Tensor> piece(const program::GlobalTensor &tensor,
                                const std::vector<int64_t> &indices,
                                const kernels::TensorType &local) const;

private:
  Weights(const Manifest &manifest, kernels::Arith arith);
  double fromFile(size_t initializer, int64_t element) const;
  double drawn(size_t initializer, int64_t element) const;

  Manifest manifest;
  kernels::Arith arith;
  std::map<std::string, size_t> byName;
  std::vector<data::MappedFile> files;
  std::map<size_t, std::vector<uint16_t>> decoded; // of varints
  std::shared_ptr<const Pretrained> pretrained;    // may be null
  bool isDrawn = false;
  uint64_t seed = 0;
};

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_WEIGHTS_H
