//===- FakeCublasLt.h - cuBLASLt that multiplies in this process -----------===//
//
// A table of functions for runtime/cuda on the streams of the FakeDriver. What a product is stands
// in its descriptors alone: the operation reads and writes the elements that these say, column by
// column, so that a wrong one is a wrong number. What the library would refuse or get wrong
// silently (leading dimensions, dims that do not fit, addresses of little alignment, a workspace
// that is too small) is refused, and complained about.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_RUNTIME_CUDA_FAKECUBLASLT_H
#define TBC_TESTS_RUNTIME_CUDA_FAKECUBLASLT_H

#include "runtime/cuda/CublasLt.h"
#include "tests/runtime/cuda/FakeDriver.h"

#include <optional>

namespace tbc::test {

/// One at a time in a process, with a FakeDriver that outlives it.
class FakeCublasLt {
public:
  explicit FakeCublasLt(FakeDriver &driver);
  ~FakeCublasLt();
  FakeCublasLt(const FakeCublasLt &) = delete;
  FakeCublasLt &operator=(const FakeCublasLt &) = delete;

  static const cuda::CublasLt &table();

  /// From now on there is no way to multiply, or the function of this name fails.
  void hasNoWay() { isUnable = true; }
  void hasNoWayWithEpilogues() { hasNoEpilogues = true; }
  /// There is none for fp8 with gelu or its gradient, which it says by this code.
  void refusesFp8WithGelu(cuda::CublasCode code) { ofFp8WithGelu = code; }
  void fail(const std::string &function) { failing = function; }
  /// It is built for another major of CUDA than the driver, and does not start.
  void isOfAnotherMajor() { startsNot = true; }
  /// From now on there are so many ways for each product, in this order: the seconds that each
  /// takes; negative, it is refused when it is to multiply.
  void hasWays(std::vector<double> secondsOfEach) { ways = std::move(secondsOfEach); }
  /// How often a way was taken.
  int numProductsBy(size_t way) const {
    auto found = productsByWay.find(way);
    return found == productsByWay.end() ? 0 : found->second;
  }
  /// How often it was asked how to multiply, and did.
  int numAsked() const { return asked; }
  int numProducts() const { return multiplied; }
  int numProductsInFp8() const { return multipliedInFp8; }
  /// Of these, with a matrix in e5m2.
  int numGradientsInFp8() const { return gradientsInFp8; }
  /// Of how many it was said that no sum may be taken in parts.
  int numWithoutParts() const { return withoutParts; }
  /// How often with an epilogue, and with a matrix that is added or not.
  const std::map<std::pair<cuda::CublasEpilogue, bool>, int> &productsByEpilogue() const {
    return epilogues;
  }
  int numProducts(cuda::CublasEpilogue epilogue, bool adds) const {
    auto found = epilogues.find({epilogue, adds});
    return found == epilogues.end() ? 0 : found->second;
  }
  /// Handles, descriptors and layouts that were made and not given back.
  int numAlive() const { return alive; }

private:
  friend struct FakeCublasCalls;
  FakeDriver &driver;
  bool isUnable = false, hasNoEpilogues = false, startsNot = false;
  std::map<std::pair<cuda::CublasEpilogue, bool>, int> epilogues;
  std::optional<cuda::CublasCode> ofFp8WithGelu;
  std::string failing;
  std::vector<double> ways = {0};
  std::map<size_t, int> productsByWay;
  int withoutParts = 0;
  int multipliedInFp8 = 0, gradientsInFp8 = 0;
  int asked = 0, multiplied = 0, alive = 0;
};

} // namespace tbc::test

#endif // TBC_TESTS_RUNTIME_CUDA_FAKECUBLASLT_H
