//===- FakeCublasLt.cpp - cuBLASLt computed in this process ----------------===//

#include "tests/runtime/cuda/FakeCublasLt.h"

#include "runtime/kernels/Tensor.h"
#include "tests/runtime/cuda/Fp8Numbers.h"

#include <algorithm>
#include <cmath>

namespace tbc::test {

using cuda::CublasCode;
using cuda::CudaType;
using kernels::Arith;
using kernels::DType;
using kernels::Tensor;

namespace {

FakeCublasLt *theCublas = nullptr;

struct Matmul {
  cuda::CublasCompute compute;
  CudaType scale;
  bool transposesA = false, transposesB = false;
  cuda::CublasEpilogue epilogue = cuda::CublasEpilogue::Default;
  const void *bias = nullptr, *auxiliary = nullptr;
  const void *scaleA = nullptr, *scaleB = nullptr;
  int64_t auxiliaryStride = 0;

  bool has(cuda::CublasEpilogue bits) const { return uint32_t(epilogue) & uint32_t(bits); }
  bool hasBias() const { return has(cuda::CublasEpilogue::Bias); }
  bool hasAuxiliary() const { return uint32_t(epilogue) & 128; }
  bool isGelu() const { return has(cuda::CublasEpilogue::Gelu); }
  bool isGradient() const { return epilogue == cuda::CublasEpilogue::GeluGradient; }
};

/// gelu in its tanh form (source: NVIDIA's "cuBLAS" manual), and its derivative.
constexpr double geluRoot = 0.7978845608028654, geluCube = 0.044715; // sqrt(2 / pi)
double gelu(double x) { return 0.5 * x * (1 + std::tanh(geluRoot * (x + geluCube * x * x * x))); }
double geluDerivative(double x) {
  double t = std::tanh(geluRoot * (x + geluCube * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * geluRoot * (1 + 3 * geluCube * x * x);
}

/// A column-major matrix, or a batch of them.
struct Layout {
  CudaType type;
  int64_t rows, columns, leading;
  int32_t batch = 1;
  int64_t batchStride = 0;
};

bool isFp8(CudaType type) { return type == CudaType::E4M3 || type == CudaType::E5M2; }

DType dtypeOf(CudaType type) {
  return type == CudaType::BF16  ? DType::BF16
         : type == CudaType::F16 ? DType::F16
         : type == CudaType::F64 ? DType::F64
                                 : DType::F32;
}

template <typename T, typename Handle> T &of(Handle handle) {
  return *reinterpret_cast<T *>(handle);
}

/// Returns the columns of the matrix at this batch index as doubles.
std::vector<std::vector<double>> read(FakeAccess &memory, cuda::DeviceAddress address,
                                      const Layout &layout, int64_t index) {
  DType dtype = dtypeOf(layout.type);
  int64_t width = isFp8(layout.type) ? 1 : kernels::byteWidth(dtype);
  std::vector<std::vector<double>> columns;
  for (int64_t column = 0; column < layout.columns; ++column) {
    int64_t element = index * layout.batchStride + column * layout.leading;
    if (isFp8(layout.type)) {
      auto format =
          layout.type == CudaType::E4M3 ? program::fp8::Format::E4M3 : program::fp8::Format::E5M2;
      const auto *codes =
          memory.read<uint8_t>(address + cuda::DeviceAddress(element), size_t(layout.rows));
      std::vector<double> &numbers = columns.emplace_back();
      for (int64_t row = 0; row < layout.rows; ++row)
        numbers.push_back(numberOf(codes[row], format));
      continue;
    }
    const char *bytes = memory.read<char>(address + cuda::DeviceAddress(element * width),
                                          size_t(layout.rows * width));
    columns.push_back(Tensor::fromBytes({dtype, {layout.rows}}, Arith::Native, bytes).toDoubles());
  }
  return columns;
}

void write(FakeAccess &memory, cuda::DeviceAddress address, const Layout &layout, int64_t index,
           const std::vector<std::vector<double>> &columns) {
  DType dtype = dtypeOf(layout.type);
  int64_t width = kernels::byteWidth(dtype);
  for (int64_t column = 0; column < layout.columns; ++column) {
    int64_t element = index * layout.batchStride + column * layout.leading;
    std::vector<unsigned char> bytes =
        Tensor::fromDoubles({dtype, {layout.rows}}, Arith::Native, columns[size_t(column)])
            .toBytes();
    std::copy(
        bytes.begin(), bytes.end(),
        memory.write<unsigned char>(address + cuda::DeviceAddress(element * width), bytes.size()));
  }
}

constexpr size_t workspaceNeeded = 4096;
constexpr uint64_t firstWay = 42; // id of the first algorithm

} // namespace

FakeCublasLt::FakeCublasLt(FakeDriver &driver) : driver(driver) { theCublas = this; }
FakeCublasLt::~FakeCublasLt() { theCublas = nullptr; }

struct FakeCublasCalls {
#define TBC_ENTER(name)                                                                            \
  std::lock_guard<std::recursive_mutex> guard(theCublas->driver.lock());                           \
  if (theCublas->failing == #name)                                                                 \
  return CublasCode(13)

  static CublasCode create(cuda::CublasHandle *handle) {
    TBC_ENTER(create);
    if (theCublas->startsNot)
      return CublasCode(1); // CUBLAS_STATUS_NOT_INITIALIZED
    ++theCublas->alive;
    *handle = reinterpret_cast<cuda::CublasHandle>(1);
    return CublasCode::Success;
  }
  static CublasCode destroy(cuda::CublasHandle) {
    --theCublas->alive;
    return CublasCode::Success;
  }
  static CublasCode matmulCreate(cuda::MatmulHandle *matmul, cuda::CublasCompute compute,
                                 CudaType scale) {
    TBC_ENTER(matmulCreate);
    ++theCublas->alive;
    *matmul = reinterpret_cast<cuda::MatmulHandle>(new Matmul{compute, scale});
    return CublasCode::Success;
  }
  static CublasCode matmulDestroy(cuda::MatmulHandle matmul) {
    --theCublas->alive;
    delete &of<Matmul>(matmul);
    return CublasCode::Success;
  }
  static CublasCode matmulSet(cuda::MatmulHandle handle, cuda::MatmulAttribute attribute,
                              const void *value, size_t bytes) {
    TBC_ENTER(matmulSet);
    Matmul &matmul = of<Matmul>(handle);
    if (attribute == cuda::MatmulAttribute::Epilogue && bytes == sizeof(uint32_t)) {
      matmul.epilogue = *static_cast<const cuda::CublasEpilogue *>(value);
      return CublasCode::Success;
    }
    if (attribute == cuda::MatmulAttribute::BiasPointer && bytes == sizeof(void *)) {
      matmul.bias = *static_cast<const void *const *>(value);
      return CublasCode::Success;
    }
    if (attribute == cuda::MatmulAttribute::AuxiliaryPointer && bytes == sizeof(void *)) {
      matmul.auxiliary = *static_cast<const void *const *>(value);
      return CublasCode::Success;
    }
    if ((attribute == cuda::MatmulAttribute::ScalePointerA ||
         attribute == cuda::MatmulAttribute::ScalePointerB) &&
        bytes == sizeof(void *)) {
      (attribute == cuda::MatmulAttribute::ScalePointerA ? matmul.scaleA : matmul.scaleB) =
          *static_cast<const void *const *>(value);
      return CublasCode::Success;
    }
    if (attribute == cuda::MatmulAttribute::AuxiliaryStride && bytes == sizeof(int64_t)) {
      matmul.auxiliaryStride = *static_cast<const int64_t *>(value);
      return CublasCode::Success;
    }
    auto operation = *static_cast<const int32_t *>(value);
    bool isKnown = attribute == cuda::MatmulAttribute::TransposeA ||
                   attribute == cuda::MatmulAttribute::TransposeB;
    if (bytes != sizeof(int32_t) || !isKnown || operation < 0 || operation > 1) {
      theCublas->driver.complain("cuBLASLt is told what it does not know");
      return CublasCode::InvalidValue;
    }
    (attribute == cuda::MatmulAttribute::TransposeA ? matmul.transposesA : matmul.transposesB) =
        operation;
    return CublasCode::Success;
  }
  static CublasCode layoutCreate(cuda::LayoutHandle *layout, CudaType type, uint64_t rows,
                                 uint64_t columns, int64_t leading) {
    TBC_ENTER(layoutCreate);
    ++theCublas->alive;
    *layout = reinterpret_cast<cuda::LayoutHandle>(
        new Layout{type, int64_t(rows), int64_t(columns), leading});
    return CublasCode::Success;
  }
  static CublasCode layoutDestroy(cuda::LayoutHandle layout) {
    --theCublas->alive;
    delete &of<Layout>(layout);
    return CublasCode::Success;
  }
  static CublasCode layoutSet(cuda::LayoutHandle handle, cuda::LayoutAttribute attribute,
                              const void *value, size_t bytes) {
    TBC_ENTER(layoutSet);
    Layout &layout = of<Layout>(handle);
    if (attribute == cuda::LayoutAttribute::BatchCount && bytes == sizeof(int32_t))
      layout.batch = *static_cast<const int32_t *>(value);
    else if (attribute == cuda::LayoutAttribute::StridedBatchOffset && bytes == sizeof(int64_t))
      layout.batchStride = *static_cast<const int64_t *>(value);
    else
      theCublas->driver.complain("cuBLASLt is told what it does not know");
    return CublasCode::Success;
  }
  static CublasCode preferenceCreate(cuda::PreferenceHandle *preference) {
    TBC_ENTER(preferenceCreate);
    ++theCublas->alive;
    *preference = reinterpret_cast<cuda::PreferenceHandle>(new uint64_t(0));
    return CublasCode::Success;
  }
  static CublasCode preferenceDestroy(cuda::PreferenceHandle preference) {
    --theCublas->alive;
    delete &of<uint64_t>(preference);
    return CublasCode::Success;
  }
  static CublasCode preferenceSet(cuda::PreferenceHandle preference,
                                  cuda::PreferenceAttribute attribute, const void *value,
                                  size_t bytes) {
    TBC_ENTER(preferenceSet);
    if (attribute == cuda::PreferenceAttribute::ReductionSchemeMask && bytes == sizeof(uint32_t) &&
        *static_cast<const uint32_t *>(value) == cuda::reductionSchemeNone) {
      ++theCublas->withoutParts;
      return CublasCode::Success;
    }
    if (attribute != cuda::PreferenceAttribute::MaxWorkspaceBytes || bytes != sizeof(uint64_t))
      theCublas->driver.complain("cuBLASLt is told what it does not know");
    of<uint64_t>(preference) = *static_cast<const uint64_t *>(value);
    return CublasCode::Success;
  }

  /// Returns the fault of the descriptors, or null if they are valid.
  static const char *wrong(const Matmul &matmul, const Layout &a, const Layout &b,
                           const Layout &c) {
    int64_t m = matmul.transposesA ? a.columns : a.rows;
    int64_t k = matmul.transposesA ? a.rows : a.columns;
    int64_t n = matmul.transposesB ? b.rows : b.columns;
    int64_t kOfB = matmul.transposesB ? b.columns : b.rows;
    for (const Layout *layout : {&a, &b, &c})
      if (layout->leading < layout->rows || layout->rows < 1 || layout->columns < 1)
        return "a leading dimension is smaller than a column";
    if (k != kOfB || m != c.rows || n != c.columns)
      return "matrices do not fit";
    if (a.batch != c.batch || b.batch != c.batch)
      return "batches do not fit";
    if (isFp8(a.type) || isFp8(b.type)) {
      // Layouts that NVIDIA's "cuBLAS" manual lists for compute capability 8.9 and later.
      if (!isFp8(a.type) || !isFp8(b.type) || isFp8(c.type) ||
          (a.type == CudaType::E5M2 && b.type == CudaType::E5M2))
        return "types of fp8 do not fit";
      if (!matmul.transposesA || matmul.transposesB)
        return "matrices of fp8 are not laid out as it takes them";
      for (int64_t size : {m, n, k, a.leading, b.leading, a.batchStride, b.batchStride})
        if (size % 16 != 0)
          return "matrices of fp8 are not aligned";
      for (const void *scale : {matmul.scaleA, matmul.scaleB})
        if (!scale || uintptr_t(scale) % 16 != 0)
          return "scales of fp8 are nowhere, or not aligned";
    } else if (a.type != b.type || (c.type != a.type && c.type != CudaType::F32)) {
      return "types do not fit";
    }
    if (matmul.compute != cuda::CublasCompute::F32 || matmul.scale != CudaType::F32)
      return "sums are not of f32";
    bool hasEpilogue = matmul.epilogue != cuda::CublasEpilogue::Default;
    if (hasEpilogue && c.batch != 1)
      return "an epilogue of a batch";
    if (matmul.hasBias() && (!matmul.bias || uintptr_t(matmul.bias) % 256 != 0))
      return "a bias is nowhere";
    if (matmul.hasAuxiliary() &&
        (!matmul.auxiliary || uintptr_t(matmul.auxiliary) % 256 != 0 ||
         matmul.auxiliaryStride % 8 != 0 || matmul.auxiliaryStride < c.rows))
      return "an auxiliary matrix is nowhere, or its rows are";
    return nullptr;
  }
  static CublasCode chooseAlgorithms(cuda::CublasHandle, cuda::MatmulHandle matmul,
                                     cuda::LayoutHandle a, cuda::LayoutHandle b,
                                     cuda::LayoutHandle c, cuda::LayoutHandle d,
                                     cuda::PreferenceHandle preference, int numAsked,
                                     cuda::MatmulChoice *choices, int *numFound) {
    TBC_ENTER(chooseAlgorithms);
    ++theCublas->asked;
    *numFound = 0;
    bool hasEpilogue = of<Matmul>(matmul).epilogue != cuda::CublasEpilogue::Default;
    if (theCublas->isUnable || (theCublas->hasNoEpilogues && hasEpilogue))
      return CublasCode::NotSupported;
    bool isGelu = of<Matmul>(matmul).isGelu() || of<Matmul>(matmul).isGradient();
    if (theCublas->ofFp8WithGelu && isGelu && isFp8(of<Layout>(a).type))
      return *theCublas->ofFp8WithGelu;
    if (c != d || numAsked < 1)
      return CublasCode::InvalidValue;
    if (const char *why = wrong(of<Matmul>(matmul), of<Layout>(a), of<Layout>(b), of<Layout>(c))) {
      theCublas->driver.complain(std::string("cuBLASLt: ") + why);
      return CublasCode::InvalidValue;
    }
    if (of<uint64_t>(preference) < workspaceNeeded)
      return CublasCode::NotSupported;
    *numFound = std::min(numAsked, int(theCublas->ways.size()));
    for (int way = 0; way < *numFound; ++way) {
      choices[way] = {};
      choices[way].algorithm.data[0] = firstWay + uint64_t(way);
      choices[way].workspaceBytes = workspaceNeeded;
    }
    return CublasCode::Success;
  }
  static CublasCode matmul(cuda::CublasHandle, cuda::MatmulHandle handle, const void *alpha,
                           const void *aData, cuda::LayoutHandle aLayout, const void *bData,
                           cuda::LayoutHandle bLayout, const void *beta, const void *cData,
                           cuda::LayoutHandle cLayout, void *dData, cuda::LayoutHandle dLayout,
                           const cuda::MatmulAlgorithm *algorithm, void *workspace,
                           size_t workspaceBytes, cuda::StreamHandle stream) {
    TBC_ENTER(matmul);
    Matmul matmul = of<Matmul>(handle);
    Layout a = of<Layout>(aLayout), b = of<Layout>(bLayout), d = of<Layout>(dLayout);
    auto addressOf = [](const void *pointer) {
      return cuda::DeviceAddress(reinterpret_cast<uintptr_t>(pointer));
    };
    for (const void *pointer : {aData, bData, static_cast<const void *>(dData)})
      if (addressOf(pointer) % 256 != 0)
        theCublas->driver.complain("cuBLASLt: an address is no multiple of 256");
    const float addedPart = *static_cast<const float *>(beta);
    size_t way = size_t(algorithm->data[0] - firstWay);
    if (wrong(matmul, a, b, d) || way >= theCublas->ways.size() ||
        workspaceBytes < workspaceNeeded || cLayout != dLayout ||
        *static_cast<const float *>(alpha) != 1 ||
        (addedPart == 0 ? cData != dData : addedPart != 1 || addressOf(cData) % 256 != 0))
      return CublasCode::InvalidValue;
    if (theCublas->ways[way] < 0)
      return CublasCode::NotSupported;
    ++theCublas->multiplied;
    ++theCublas->matmulsByWay[way];
    theCublas->multipliedInFp8 += isFp8(a.type);
    theCublas->gradientsInFp8 += a.type == CudaType::E5M2 || b.type == CudaType::E5M2;
    ++theCublas->epilogues[{matmul.epilogue, addedPart == 1}];
    theCublas->driver.enqueue(stream, "cuBLASLt", {}, [=](FakeAccess &memory) {
      memory.write<char>(addressOf(workspace), workspaceBytes);
      for (int64_t index = 0; index < d.batch; ++index) {
        auto left = read(memory, addressOf(aData), a, index);
        auto right = read(memory, addressOf(bData), b, index);
        double scale = 1;
        if (isFp8(a.type))
          for (const void *pointer : {matmul.scaleA, matmul.scaleB})
            scale *= double(*memory.read<float>(addressOf(pointer), 1));
        int64_t depth = matmul.transposesA ? a.rows : a.columns;
        std::vector<std::vector<double>> result, auxiliary, added;
        std::vector<double> bias(size_t(d.rows), 0.0);
        Layout ofAuxiliary{d.type, d.rows, d.columns, matmul.auxiliaryStride};
        if (matmul.hasBias())
          bias = read(memory, addressOf(matmul.bias), {d.type, d.rows, 1, d.rows}, 0)[0];
        if (addedPart == 1)
          added = read(memory, addressOf(cData), d, index);
        if (matmul.isGradient())
          auxiliary = read(memory, addressOf(matmul.auxiliary), ofAuxiliary, 0);
        for (int64_t column = 0; column < d.columns; ++column) {
          std::vector<double> &to = result.emplace_back();
          for (int64_t row = 0; row < d.rows; ++row) {
            double sum = 0;
            for (int64_t i = 0; i < depth; ++i)
              sum += (matmul.transposesA ? left[row][i] : left[i][row]) *
                     (matmul.transposesB ? right[i][column] : right[column][i]);
            sum = sum * scale + bias[size_t(row)] + (added.empty() ? 0 : added[column][row]);
            if (matmul.isGradient())
              sum *= geluDerivative(auxiliary[column][row]);
            to.push_back(sum);
          }
        }
        if (matmul.isGelu() && matmul.hasAuxiliary())
          write(memory, addressOf(matmul.auxiliary), ofAuxiliary, 0, result);
        if (matmul.isGelu())
          for (std::vector<double> &column : result)
            std::transform(column.begin(), column.end(), column.begin(), gelu);
        write(memory, addressOf(dData), d, index, result);
      }
    });
    theCublas->driver.pass(stream, theCublas->ways[way]);
    return CublasCode::Success;
  }
#undef TBC_ENTER
  static size_t getVersion() { return 120300; }
  static const char *getStatusString(CublasCode code) {
    return int(code) == 1    ? "not initialized"
           : int(code) == 13 ? "execution failed"
                             : "invalid value";
  }
};

const cuda::CublasLt &FakeCublasLt::table() {
  static const cuda::CublasLt cublas = [] {
    cuda::CublasLt table;
#define TBC_SET(name, symbol, ...) table.name = FakeCublasCalls::name;
    TBC_CUBLASLT_FUNCTIONS(TBC_SET)
#undef TBC_SET
    table.getVersion = FakeCublasCalls::getVersion;
    table.getStatusString = FakeCublasCalls::getStatusString;
    return table;
  }();
  return cublas;
}

} // namespace tbc::test
