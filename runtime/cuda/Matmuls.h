//===- Matmuls.h - Einsums as matmuls of cuBLASLt -------------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CUDA_MATMULS_H
#define TBC_RUNTIME_CUDA_MATMULS_H

#include "runtime/abi/Fp8Kernels.h"
#include "runtime/cuda/CublasLt.h"
#include "runtime/cuda/Device.h"
#include "runtime/cuda/Streams.h"
#include "runtime/kernels/Matmuls.h"

#include <map>
#include <optional>
#include <tuple>
#include <vector>

namespace tbc::cuda {

/// A matmul c = a * b for each index of a batch. Matrices are row-major, or column-major if
/// transposed. Sums are in f32. cuBLASLt, whose matrices are column-major, gets the same product of
/// the transposed matrices. Example: a [4 x 8] times b [8 x 3] has m = 4, n = 3, k = 8.
struct MatmulShape {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  /// Elements from one row to the next; for a transposed matrix, from column to column.
  int64_t strideA = 0, strideB = 0, strideC = 0;
  /// Elements from one index of the batch to the next; 0 for an operand without batch.
  int64_t batchA = 0, batchB = 0, batchC = 0;
  bool transposedA = false, transposedB = false;
  kernels::DType input = kernels::DType::F32, result = kernels::DType::F32;
  /// c = epilogue(a * b + added), without a batch and with dense rows of c. A bias lies along n.
  /// All other operands have c's type and layout.
  CublasEpilogue epilogue = CublasEpilogue::Default;
  bool adds = false;
  /// Set for both operands or neither. `input` is then their type before rounding. a is [m][k] and
  /// b, which is transposed, is [n][k].
  std::optional<program::fp8::Format> formatA = {}, formatB = {};

  auto key() const {
    return std::tie(m, n, k, batch, strideA, strideB, strideC, batchA, batchB, batchC, transposedA,
                    transposedB, input, result, epilogue, adds, formatA, formatB);
  }
  bool operator<(const MatmulShape &o) const { return key() < o.key(); }
};

/// An einsum as one matmul; `swaps`: with its operands swapped. Errors: Usage, with the reason if
/// it is not one matmul. Reasons: a sum over several loops, several batch loops, types without
/// matmul (f64, integers), or no loop to sum over.
struct EinsumMatmul {
  MatmulShape shape;
  bool swaps = false;
};
Result<EinsumMatmul> matmulOf(const kernels::Attrs &attrs, const kernels::TensorType &lhs,
                              const kernels::TensorType &rhs, const kernels::TensorType &result);

/// The addresses of a matmul's matrices; 0 for absent ones. `added` may be c. The scales are f32
/// factors of fp8 operands.
struct MatmulAddresses {
  DeviceAddress a = 0, b = 0, c = 0;
  DeviceAddress bias = 0, auxiliary = 0, added = 0;
  DeviceAddress scaleA = 0, scaleB = 0;
};

/// A matmul of one shape with its algorithm. The library's heuristic chooses it, or the first call
/// does by timing (MatmulBenchmark.cpp).
class Matmul {
public:
  ~Matmul();
  Matmul(const Matmul &) = delete;
  Matmul &operator=(const Matmul &) = delete;

  /// Enqueues the matmul in the stream. Addresses are multiples of 256. Only a first call that
  /// times algorithms waits for the stream.
  Status enqueue(const Stream &stream, const MatmulAddresses &addresses);
  Status enqueue(const Stream &stream, DeviceAddress a, DeviceAddress b, DeviceAddress c) {
    return enqueue(stream, {a, b, c});
  }

private:
  friend class Matmuls;
  explicit Matmul(const CublasLt &library) : library(library) {}
  CublasCode multiply(const Stream &stream, const MatmulAddresses &addresses) const;
  void take(const MatmulChoice &choice);
  Status chooseFastest(const Stream &stream, const MatmulAddresses &addresses);
  Result<std::optional<double>> timeOf(const MatmulChoice &choice, const Stream &stream,
                                       const MatmulAddresses &addresses);
  /// Sets the addresses of bias, auxiliary matrix and scales.
  Status place(const MatmulAddresses &addresses) const;

  const CublasLt library;
  CublasHandle handle = nullptr; // owned by its Matmuls
  MatmulHandle matmul = nullptr;
  LayoutHandle layoutA = nullptr, layoutB = nullptr, layoutC = nullptr;
  MatmulAlgorithm algorithm{};
  DeviceAddress workspace = 0;
  size_t workspaceBytes = 0;
  CublasEpilogue epilogue = CublasEpilogue::Default;
  bool isScaled = false;
  int64_t resultBytes = 0;

  // For timing.
  DevicePtr device;
  std::shared_ptr<Streams> timedIn;
  std::vector<MatmulChoice> candidates; // the heuristic's choice first; empty: decided
  bool isTimed = false, hasNoRoom = false;
  double firstSeconds = 0, seconds = 0; // per matmul: of the heuristic's choice, of the fastest
  int64_t numCalls = 0;                 // so far
};

/// The matmuls of a device, used in one stream: they share one workspace.
class Matmuls {
public:
  /// `isDeterministic`: no split sums. Errors: RankFailed, for refusals of cuBLASLt or the driver.
  /// `timedIn`: if it is given, the first matmul of each shape, in one of these streams, times the
  /// library's best few algorithms. A recorded step cannot wait; there the heuristic's choice is
  /// used.
  static Result<std::shared_ptr<Matmuls>> create(const DevicePtr &device, const CublasLt &library,
                                                 bool isDeterministic = false,
                                                 std::shared_ptr<Streams> timedIn = nullptr);
  ~Matmuls();
  Matmuls(const Matmuls &) = delete;
  Matmuls &operator=(const Matmuls &) = delete;

  /// Returns the matmul of this shape; the library is asked once per shape. Null: the library has
  /// no algorithm. Errors: RankFailed for other refusals.
  Result<Matmul *> find(const MatmulShape &shape);
  /// Describes the time saved by timing the matmuls so far; empty without timing.
  std::string gain() const;
  /// Returns the number of requested shapes.
  size_t numShapes() const { return matmuls.size(); }

private:
  Matmuls(DevicePtr device, const CublasLt &library, bool isDeterministic,
          std::shared_ptr<Streams> timedIn)
      : device(std::move(device)), library(library), isDeterministic(isDeterministic),
        timedIn(std::move(timedIn)) {}
  Result<std::unique_ptr<Matmul>> make(const MatmulShape &shape);
  Status describeEpilogue(Matmul &matmul, const MatmulShape &shape) const;
  Result<bool> chooseAlgorithm(Matmul &matmul) const;

  DevicePtr device;
  const CublasLt library;
  const bool isDeterministic;
  const std::shared_ptr<Streams> timedIn;
  CublasHandle handle = nullptr;
  DeviceMemory workspace;
  std::map<MatmulShape, std::unique_ptr<Matmul>> matmuls;
};

/// Returns success, or RankFailed with `what` and the library's sentence for the code.
Status checkCublas(const CublasLt &library, CublasCode code, const std::string &what);

} // namespace tbc::cuda

#endif // TBC_RUNTIME_CUDA_MATMULS_H
