//===- FakeCublasLt.h - cuBLASLt computed in this process ------------------===//
//
// A table of functions for runtime/cuda on the streams of the FakeDriver. A matmul is defined by
// its descriptors alone. The fake reads and writes exactly the elements described, column by
// column, so a wrong descriptor gives a wrong number. It refuses everything the library would
// refuse or silently compute wrongly, and adds a complaint:
//
// - leading dimensions or dims that do not fit
// - addresses with too little alignment
// - a workspace that is too small
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_RUNTIME_CUDA_FAKECUBLASLT_H
#define TBC_TESTS_RUNTIME_CUDA_FAKECUBLASLT_H

#include "runtime/cuda/CublasLt.h"
#include "tests/runtime/cuda/FakeDriver.h"

#include <optional>

namespace tbc::test {

/// At most one exists in a process. Its FakeDriver must outlive it.
class FakeCublasLt {
public:
  explicit FakeCublasLt(FakeDriver &driver);
  ~FakeCublasLt();
  FakeCublasLt(const FakeCublasLt &) = delete;
  FakeCublasLt &operator=(const FakeCublasLt &) = delete;

  static const cuda::CublasLt &table();

  /// From now on the heuristics find no algorithm, or the function of this name fails.
  void hasNoWay() { isUnable = true; }
  void hasNoWayWithEpilogues() { hasNoEpilogues = true; }
  /// The heuristics return this code for an fp8 matmul with gelu or its gradient.
  void refusesFp8WithGelu(cuda::CublasCode code) { ofFp8WithGelu = code; }
  void fail(const std::string &function) { failing = function; }
  /// Pretends to be built for another CUDA major than the driver's, and does not start.
  void isOfAnotherMajor() { startsNot = true; }
  /// From now on every matmul has these algorithms, in this order. `secondsOfEach` is the time of
  /// each. A negative time: the algorithm fails when it runs.
  void hasWays(std::vector<double> secondsOfEach) { ways = std::move(secondsOfEach); }
  /// Returns how often algorithm `way` ran.
  int numMatmulsBy(size_t way) const {
    auto found = matmulsByWay.find(way);
    return found == matmulsByWay.end() ? 0 : found->second;
  }
  /// Returns the number of heuristic queries, and of matmuls that ran.
  int numAsked() const { return asked; }
  int numMatmuls() const { return multiplied; }
  int numMatmulsInFp8() const { return multipliedInFp8; }
  /// Returns how many of the fp8 matmuls had an e5m2 operand.
  int numGradientsInFp8() const { return gradientsInFp8; }
  /// Returns how many matmuls forbade split sums (split-K).
  int numWithoutParts() const { return withoutParts; }
  /// Counts of matmuls by epilogue and by whether a matrix is added (beta).
  const std::map<std::pair<cuda::CublasEpilogue, bool>, int> &matmulsByEpilogue() const {
    return epilogues;
  }
  int numMatmuls(cuda::CublasEpilogue epilogue, bool adds) const {
    auto found = epilogues.find({epilogue, adds});
    return found == epilogues.end() ? 0 : found->second;
  }
  /// Returns the number of handles, descriptors and layouts not yet destroyed.
  int numAlive() const { return alive; }

private:
  friend struct FakeCublasCalls;
  FakeDriver &driver;
  bool isUnable = false, hasNoEpilogues = false, startsNot = false;
  std::map<std::pair<cuda::CublasEpilogue, bool>, int> epilogues;
  std::optional<cuda::CublasCode> ofFp8WithGelu;
  std::string failing;
  std::vector<double> ways = {0};
  std::map<size_t, int> matmulsByWay;
  int withoutParts = 0;
  int multipliedInFp8 = 0, gradientsInFp8 = 0;
  int asked = 0, multiplied = 0, alive = 0;
};

} // namespace tbc::test

#endif // TBC_TESTS_RUNTIME_CUDA_FAKECUBLASLT_H
