//===- Weights.h - Initial values of parameters ---------------------------===//
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

/// Gives ranks their pieces of the initial values: read from the model's files (only the requested
/// elements), or drawn from a seed.
class Weights {
public:
  /// Reads from files; `folder` is that of the manifest. With `checksHashes` every file is read in
  /// full and compared with its hash; otherwise only its size is. Errors: Usage; a file is missing
  /// or has changed, or the model has no weights.
  ///
  /// With `pretrained`, the model's files supply only the initializers that it lacks. The others
  /// need no data there.
  static Result<Weights> open(const Manifest &manifest, const std::string &folder,
                              kernels::Arith arith, bool checksHashes,
                              std::shared_ptr<const Pretrained> pretrained = nullptr);

  /// Draws from Philox, keyed by the index of the element in the model's tensor, so values are
  /// equal under every plan. They are ones or zeros if the manifest says so. Otherwise they are
  /// normal with the deviation sqrt(2 / (first dim + product of the others)). Example: a [300, 500]
  /// matrix has the deviation 0.05. Source: Glorot and Bengio (2010).
  static Weights draw(const Manifest &manifest, kernels::Arith arith, uint64_t seed);

  /// The callback of Executor::loadPieces; valid as long as this object. Several threads may call
  /// it.
  Result<kernels::Tensor> piece(const program::GlobalTensor &tensor,
                                const std::vector<int64_t> &indices,
                                const kernels::TensorType &local) const;

private:
  Weights(const Manifest &manifest, kernels::Arith arith);
  double fromFile(size_t initializer, int64_t element) const;
  float drawn(size_t initializer, int64_t element, double deviation) const;
  double deviationOf(const Initializer &initializer) const;

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
