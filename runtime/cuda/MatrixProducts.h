//===- MatrixProducts.h - Einsums by cuBLASLt ------------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_MATRIXPRODUCTS_H
#define TBC_RUNTIME_CUDA_MATRIXPRODUCTS_H

#include "runtime/abi/Fp8Kernels.h"
#include "runtime/cuda/CublasLt.h"
#include "runtime/cuda/Device.h"
#include "runtime/cuda/Streams.h"
#include "runtime/kernels/Products.h"

#include <map>
#include <optional>
#include <tuple>
#include <vector>

namespace tbc::cuda {

/// c = a * b for each index of a batch: all row-major, or of a transposed one column-major. Sums
/// are taken in f32. What cuBLASLt is told is the same product of the transposed matrices, as its
/// own are column-major.
struct ProductShape {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  /// Elements from one row to the next, of a transposed one from column to column.
  int64_t strideA = 0, strideB = 0, strideC = 0;
  /// Elements from one index of the batch to the next; of an operand that has none, 0.
  int64_t batchA = 0, batchB = 0, batchC = 0;
  bool transposedA = false, transposedB = false;
  kernels::DType input = kernels::DType::F32, result = kernels::DType::F32;
  /// c = epilogue(a * b + added), without a batch and with dense rows of c; a bias lies along n. Of
  /// c's type and, but for the bias, its places are all others.
  CublasEpilogue epilogue = CublasEpilogue::Default;
  bool adds = false;
  /// Of both operands or of none, of which `input` is then what they were: a is [m][k] and b, which
  /// is transposed, [n][k].
  std::optional<program::fp8::Format> formatA = {}, formatB = {};

  auto key() const {
    return std::tie(m, n, k, batch, strideA, strideB, strideC, batchA, batchB, batchC, transposedA,
                    transposedB, input, result, epilogue, adds, formatA, formatB);
  }
  bool operator<(const ProductShape &o) const { return key() < o.key(); }
};

/// What an einsum is as one product; `swaps`: of its operands in the other order. An error of code
/// Usage says why it is none: a sum over several loops, several loops around it, types that have no
/// product (f64, integers), nothing to multiply.
struct EinsumProduct {
  ProductShape shape;
  bool swaps = false;
};
Result<EinsumProduct> productOf(const kernels::Attrs &attrs, const kernels::TensorType &lhs,
                                const kernels::TensorType &rhs, const kernels::TensorType &result);

/// Where the matrices of a product are; 0 for what it does not have. `added` may be c. Scales: an
/// f32 by which elements of fp8 are multiplied.
struct ProductAddresses {
  DeviceAddress a = 0, b = 0, c = 0;
  DeviceAddress bias = 0, auxiliary = 0, added = 0;
  DeviceAddress scaleA = 0, scaleB = 0;
};

/// A product of one shape, as cuBLASLt does it best: as it says, or as its first call finds where
/// that is to time it (ProductBenchmark.cpp).
class MatrixProduct {
public:
  ~MatrixProduct();
  MatrixProduct(const MatrixProduct &) = delete;
  MatrixProduct &operator=(const MatrixProduct &) = delete;

  /// Puts it into the stream. Addresses are multiples of 256. A first call that times the ways to
  /// do it waits for the stream; no other does.
  Status enqueue(const Stream &stream, const ProductAddresses &addresses);
  Status enqueue(const Stream &stream, DeviceAddress a, DeviceAddress b, DeviceAddress c) {
    return enqueue(stream, {a, b, c});
  }

private:
  friend class MatrixProducts;
  explicit MatrixProduct(const CublasLt &library) : library(library) {}
  CublasCode multiply(const Stream &stream, const ProductAddresses &addresses) const;
  void take(const MatmulChoice &choice);
  Status chooseFastest(const Stream &stream, const ProductAddresses &addresses);
  Result<std::optional<double>> timeOf(const MatmulChoice &choice, const Stream &stream,
                                       const ProductAddresses &addresses);
  /// Tells the library where bias, auxiliary matrix and scales are.
  Status place(const ProductAddresses &addresses) const;

  const CublasLt library;
  CublasHandle handle = nullptr; // of its MatrixProducts
  MatmulHandle matmul = nullptr;
  LayoutHandle layoutA = nullptr, layoutB = nullptr, layoutC = nullptr;
  MatmulAlgorithm algorithm{};
  DeviceAddress workspace = 0;
  size_t workspaceBytes = 0;
  CublasEpilogue epilogue = CublasEpilogue::Default;
  bool isScaled = false;
  int64_t resultBytes = 0;

  // Where products are timed.
  DevicePtr device;
  std::shared_ptr<Streams> timedIn;
  std::vector<MatmulChoice> candidates; // the library's first before others; empty: it is chosen
  bool isTimed = false, hasNoRoom = false;
  double firstSeconds = 0, seconds = 0; // of one product: the library's first, the one chosen
  int64_t numCalls = 0;                 // so far
};

/// The products of a device, used in one stream: they share the memory that they work in.
class MatrixProducts {
public:
  /// `isDeterministic`: no sum is taken in parts side by side. Errors: RankFailed, what cuBLASLt or
  /// the driver refuses.
  /// `timedIn`: where it is given, the library is asked for its best few ways to do a shape, and
  /// the first product of it, which is in one of these streams, times them. Outside of a step that
  /// is recorded, which cannot wait: there the library's first is taken.
  static Result<std::shared_ptr<MatrixProducts>> create(const DevicePtr &device,
                                                        const CublasLt &library,
                                                        bool isDeterministic = false,
                                                        std::shared_ptr<Streams> timedIn = nullptr);
  ~MatrixProducts();
  MatrixProducts(const MatrixProducts &) = delete;
  MatrixProducts &operator=(const MatrixProducts &) = delete;

  /// How to do it is asked once per shape; this keeps what it finds. Null: the library has none.
  /// Errors: RankFailed, what it refuses otherwise.
  Result<MatrixProduct *> find(const ProductShape &shape);
  /// What timing saves of the products that were done so far; empty where none was timed.
  std::string gain() const;
  /// How many shapes were asked for.
  size_t numShapes() const { return products.size(); }

private:
  MatrixProducts(DevicePtr device, const CublasLt &library, bool isDeterministic,
                 std::shared_ptr<Streams> timedIn)
      : device(std::move(device)), library(library), isDeterministic(isDeterministic),
        timedIn(std::move(timedIn)) {}
  Result<std::unique_ptr<MatrixProduct>> make(const ProductShape &shape);
  Status describeEpilogue(MatrixProduct &product, const ProductShape &shape) const;
  Result<bool> chooseAlgorithm(MatrixProduct &product) const;

  DevicePtr device;
  const CublasLt library;
  const bool isDeterministic;
  const std::shared_ptr<Streams> timedIn;
  CublasHandle handle = nullptr;
  DeviceMemory workspace;
  std::map<ProductShape, std::unique_ptr<MatrixProduct>> products;
};

/// Success, or an error of code RankFailed: `what` and the library's sentence for the code.
Status checkCublas(const CublasLt &library, CublasCode code, const std::string &what);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_MATRIXPRODUCTS_H
