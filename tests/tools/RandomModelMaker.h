//===- RandomModelMaker.h - The parts of a random model -------------------===//
//
// Internal to RandomModel.h. RandomModel.cpp draws arguments and joins values to a loss;
// RandomModelOps.cpp has the kinds of ops.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_TOOLS_RANDOMMODELMAKER_H
#define TBC_TESTS_TOOLS_RANDOMMODELMAKER_H

#include "frontend/onnx/Import.h"
#include "ir/Roles.h"

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace tbc::test {

/// A dim as the product of its parts. The part `batch` represents only the batch.
struct RandomDim {
  std::vector<int64_t> parts;
  int64_t size() const;
  bool hasBatch() const;
  bool isBatch() const;
};
using RandomDims = std::vector<RandomDim>;

/// A value of the function, by default of 32-bit floats.
struct RandomValue {
  std::string name;
  RandomDims dims;
  std::string element = "f32";
  int uses = 0;
  std::string type() const;
};

class RandomModelMaker {
public:
  explicit RandomModelMaker(uint64_t seed) : random(seed) {}

  /// The size of the batch in all types.
  static constexpr int64_t batch = 97;

  /// Returns the text of @model and fills the fields below.
  std::string make();
  std::vector<frontend::ParameterSource> parameters;
  std::string loss, frozen;
  int64_t numOps = 0;

private:
  int64_t below(int64_t n) { return int64_t(random() % uint64_t(n)); }
  bool oneIn(int64_t n) { return below(n) == 0; }
  template <typename T> const T &oneOf(const std::vector<T> &list) {
    return list[size_t(below(int64_t(list.size())))];
  }
  int64_t someSize() { return oneOf(std::vector<int64_t>{2, 3, 4, 4, 5, 6, 6, 8, 8, 12}); }

  // Arguments.
  RandomValue argument(TensorRole role, RandomDims dims, const std::string &element = "f32",
                       int64_t batchDim = -1, int64_t sequenceDim = -1);
  /// Returns a parameter of this shape: an old or a new one.
  RandomValue parameter(const RandomDims &dims);
  RandomValue newParameter(const RandomDims &dims, bool isState = false);
  void addInputs();

  /// Writes an op. Its result joins `values` only by keep().
  RandomValue op(const std::string &mnemonic, const std::vector<RandomValue> &operands,
                 RandomDims result, const std::string &attributes = "",
                 const std::string &element = "f32");
  std::vector<RandomValue> ops(const std::string &mnemonic,
                               const std::vector<RandomValue> &operands,
                               const std::vector<RandomDims> &results,
                               const std::string &attributes, const std::string &element = "f32");
  bool keep(RandomValue value);
  /// Returns an old value, often a recent or unused one; counts as a use.
  RandomValue pick();
  /// Returns the index of an old value of exactly these dims, or -1.
  int64_t findLike(const RandomDims &dims);
  RandomValue use(int64_t index);

  // Each adds an op of its kind; false if the drawn value does not suit.
  bool addOp();
  bool unary();
  bool binary();
  bool bias();
  bool select();
  bool matmul();
  bool contraction();
  bool softmax();
  bool norm();
  bool batchNorm();
  bool reduction();
  bool reshape();
  bool transpose();
  bool concat();
  bool slice();
  bool pad();
  bool embedding();
  bool positions();
  bool gather();
  bool attention();
  bool experts();
  bool convolution();
  bool dropout();
  bool constant();
  bool runningSum();
  bool parameterValue();

  RandomValue broadcast(const RandomValue &value, const RandomDims &dims,
                        const std::vector<int64_t> &at);
  /// Reshapes `value`. `in`: the parts of each of its dims; `out`: the number of parts in each dim
  /// of the result.
  RandomValue regroup(const RandomValue &value, const std::vector<std::vector<int64_t>> &in,
                      const std::vector<int64_t> &out);
  /// Makes the batch a dim of its own.
  RandomValue partBatch(const RandomValue &value);
  /// Sums over all dims but the batch; over all dims if `withBatch`.
  RandomValue reduced(const RandomValue &value, bool withBatch);
  RandomValue logits();
  void joinLeaves(RandomValue &logits);
  std::vector<int64_t> freeDims(const RandomDims &dims) const; // without the batch
  std::vector<int64_t> shuffled(int64_t n);

  std::mt19937_64 random;
  std::vector<RandomValue> values, integerInputs;
  std::map<std::string, std::vector<std::string>> byType; // parameters
  std::string inputs, params, states, body;
  int64_t numArguments = 0;
  /// Either the batch is merged with other dims, or dims are sums of parts. With both, the batch
  /// could not be identified, and the model would be refused.
  bool mergesBatch = false;
};

/// Example: "array<i64: 1, 2>".
std::string arrayText(const std::vector<int64_t> &numbers);
int64_t elementsOf(const RandomDims &dims); // the batch counts as 1
bool isSame(const RandomDim &a, const RandomDim &b);
bool areSame(const RandomDims &a, const RandomDims &b);

} // namespace tbc::test

#endif // TBC_TESTS_TOOLS_RANDOMMODELMAKER_H
