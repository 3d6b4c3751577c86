//===- Dataset.h - Samples of training and evaluation ----------------------===//
//
// Part of tbc. Plain C++. A data set is a number of samples, each with one value per element of
// each input of the model. Ranks ask for their own elements, so no element is read twice. The
// content of a sample does not depend on the rank.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_DATA_DATASET_H
#define TBC_RUNTIME_DATA_DATASET_H

#include "runtime/abi/Status.h"
#include "runtime/kernels/DType.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tbc::data {

/// An input of the model, or its labels.
struct Field {
  std::string name;
  kernels::DType dtype = kernels::DType::F32;
  int64_t elements = 1; // of one sample
  bool isLabel = false;
  /// Integers must be at least 0 and below this (rows of a table, classes); 0: any.
  int64_t below = 0;
  /// The label that does not count; it is allowed.
  std::optional<int64_t> ignored;
};

class Dataset {
public:
  virtual ~Dataset() = default;
  /// 0: endless.
  virtual int64_t numSamples() const = 0;
  /// Element `element` (row-major within the sample) of field number `field` of sample `sample`.
  /// Integers are exact. Errors: Usage, with file and offset, for a value that the model cannot
  /// take.
  virtual Result<double> value(size_t field, int64_t sample, int64_t element) const = 0;
};

/// Whether labels are the next tokens: one integer input beside labels of as many elements.
bool isLanguageModel(const std::vector<Field> &fields);

/// Random numbers of Philox, keyed by the seed, at (sample, element, field): uniform in [-1, 1) for
/// floats, below the bound for integers (2 without one). Labels of a language model are the tokens
/// shifted by one. Endless.
std::unique_ptr<Dataset> makeSynthetic(std::vector<Field> fields, uint64_t seed);

/// Opens the data of `--data`: "synthetic"; FILE, raw little-endian tokens of 16 bits (32 with
/// `wideTokens`) for a language model: sample k has n + 1 tokens from token k * n on; or one
/// "NAME=FILE.npy" per field, with samples along the first dim. Errors: Usage, naming the file and
/// the place in it.
Result<std::unique_ptr<Dataset>> openDataset(const std::vector<std::string> &sources,
                                             const std::vector<Field> &fields, bool wideTokens,
                                             uint64_t seed);

/// The two kinds of files, for openDataset.
Result<std::unique_ptr<Dataset>> openTokens(const std::string &path,
                                            const std::vector<Field> &fields, bool wideTokens);
Result<std::unique_ptr<Dataset>> openArrays(const std::vector<std::string> &paths, // per field
                                            const std::vector<Field> &fields);

} // namespace tbc::data

#endif // TBC_RUNTIME_DATA_DATASET_H
