//===- Matmul.cpp - A matmul by oneDNN ------------------------------------===//

#include "runtime/cpu/Matmul.h"
#include "runtime/cpu/Dnnl.h"
#include "runtime/cpu/ScratchMemory.h"
#include "runtime/kernels/KernelError.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace tbc::cpu {

using kernels::DType;

namespace {

dnnl::memory::data_type typeOf(DType dtype) {
  return dtype == DType::BF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc matrix(int64_t rows, int64_t columns, int64_t stride, bool isTransposed,
                          DType dtype) {
  dnnl::memory::dims strides =
      isTransposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return {{rows, columns}, typeOf(dtype), strides};
}

class DnnlMatmul : public Matmul {
public:
  explicit DnnlMatmul(const MatmulShape &shape)
      : a(matrix(shape.m, shape.k, shape.strideA, shape.transposedA, shape.input)),
        b(matrix(shape.k, shape.n, shape.strideB, shape.transposedB, shape.input)),
        c(matrix(shape.m, shape.n, shape.strideC, false, shape.result)) {
    dnnl::primitive_attr attributes = withOwnScratchpad();
    if (shape.accumulates) {
      dnnl::post_ops after;
      after.append_sum(1.0f);
      attributes.set_post_ops(after);
    }
    dnnl::matmul::primitive_desc description({a, b, c}, attributes, dnnlEngine());
    scratch = description.scratchpad_desc();
    isReference = isPlainLoop(description.impl_info_str());
    product = dnnl::matmul(description);
  }

  bool isSlow() const { return isReference; }

  void run(const void *from, const void *with, void *to) const override {
    const dnnl::engine &engine = dnnlEngine();
    product.execute(
        dnnlStream(),
        {{DNNL_ARG_SRC, dnnl::memory(a, engine, const_cast<void *>(from))},
         {DNNL_ARG_WEIGHTS, dnnl::memory(b, engine, const_cast<void *>(with))},
         {DNNL_ARG_DST, dnnl::memory(c, engine, to)},
         {DNNL_ARG_SCRATCHPAD, dnnl::memory(scratch, engine, threadScratch(scratch.get_size()))}});
  }

private:
  dnnl::memory::desc a, b, c, scratch;
  dnnl::matmul product;
  bool isReference = false;
};

/// Whether oneDNN's GEMM for AVX2 reads operands in place, without packing them
/// (nocopy_checker_avx2 in src/cpu/x64/gemm/gemm_driver.cpp; its other conditions follow from this
/// one).
bool isReadInPlace(const MatmulShape &shape) {
  bool isF32 = shape.input == DType::F32 && shape.result == DType::F32;
  return isF32 && !hasAvx512() && 1.0 / double(shape.m) + 1.0 / double(shape.n) >= 0.0038;
}

/// Whether rows of k at this stride fall on few sets of the caches. Each element must be used often
/// enough to pay for its copy. Steps with micro-batches on a Zen 3: with 100 uses a Llama of 100
/// tokens takes 7 % less, with 64 uses a BERT takes 4 % more.
bool isWorthStaging(int64_t stride, int64_t period, int64_t uses) {
  return stride % period == 0 && uses >= 96;
}

/// With a transposed `a`, a few elements of each row are read at a time, so strides matter more.
int64_t badPeriod(const MatmulShape &shape) { return shape.transposedA ? 128 : 256; }

bool stagesA(const MatmulShape &shape) {
  return shape.transposedA && isWorthStaging(shape.strideA, badPeriod(shape), shape.n);
}

bool stagesB(const MatmulShape &shape) {
  return !shape.transposedB && isWorthStaging(shape.strideB, badPeriod(shape), shape.m);
}

/// A matmul in slices of k. Operands whose rows of k lie badly are copied to padded rows, a slice
/// at a time, so that the copy is still in the cache when it is read.
class StagedMatmul : public Matmul {
public:
  explicit StagedMatmul(const MatmulShape &shape) : shape(shape) {
    int64_t count = (shape.k + mostSlice - 1) / mostSlice;
    slice = (shape.k + count - 1) / count;
    first = product(slice, shape.accumulates);
    middle = product(slice, true);
    last = product(shape.k - (count - 1) * slice, true);
  }

  bool isSlow() const { return !first || !middle || !last; }

  void run(const void *from, const void *with, void *to) const override {
    const auto *a = static_cast<const float *>(from), *b = static_cast<const float *>(with);
    // From one row of k to the next.
    int64_t stepA = shape.transposedA ? shape.strideA : 1;
    int64_t stepB = shape.transposedB ? 1 : shape.strideB;
    float *copyA = copyOfThread(), *copyB = copyA + (stagesA(shape) ? slice * padded(shape.m) : 0);
    for (int64_t k = 0; k < shape.k; k += slice) {
      int64_t rows = std::min(slice, shape.k - k);
      const float *sliceA = a + k * stepA, *sliceB = b + k * stepB;
      if (stagesA(shape))
        sliceA = staged(sliceA, rows, shape.m, shape.strideA, copyA);
      if (stagesB(shape))
        sliceB = staged(sliceB, rows, shape.n, shape.strideB, copyB);
      const auto &product = k == 0 ? first : rows == slice ? middle : last;
      product->run(sliceA, sliceB, to);
    }
  }

private:
  /// Copies of both operands take at most some 4 MiB.
  static constexpr int64_t mostSlice = 1024;

  /// A stride of rows that fall on different sets of the caches.
  static int64_t padded(int64_t columns) { return (columns + 31) / 32 * 32 + 16; }

  std::shared_ptr<const Matmul> product(int64_t k, bool accumulates) const {
    MatmulShape part = shape;
    part.k = k;
    part.accumulates = accumulates;
    if (stagesA(shape))
      part.strideA = padded(shape.m);
    if (stagesB(shape))
      part.strideB = padded(shape.n);
    return primitiveOf<Matmul, DnnlMatmul>(part);
  }

  float *copyOfThread() const {
    static thread_local ScratchMemory memory;
    int64_t columns =
        (stagesA(shape) ? padded(shape.m) : 0) + (stagesB(shape) ? padded(shape.n) : 0);
    return reinterpret_cast<float *>(memory.atLeast(size_t(slice * columns) * sizeof(float)));
  }

  static const float *staged(const float *from, int64_t rows, int64_t columns, int64_t stride,
                             float *to) {
    for (int64_t row = 0; row < rows; ++row)
      std::memcpy(to + row * padded(columns), from + row * stride, size_t(columns) * sizeof(float));
    return to;
  }

  MatmulShape shape;
  int64_t slice;
  std::shared_ptr<const Matmul> first, middle, last;
};

} // namespace

std::shared_ptr<const Matmul> Matmul::find(const MatmulShape &shape) {
  if (isReadInPlace(shape) && (stagesA(shape) || stagesB(shape)))
    return primitiveOf<Matmul, StagedMatmul>(shape);
  return primitiveOf<Matmul, DnnlMatmul>(shape);
}

void multiplyOnce(const MatmulShape &shape, const float *a, const float *b, float *c) {
  dnnl::status status = dnnl::sgemm(
      shape.transposedA ? 'T' : 'N', shape.transposedB ? 'T' : 'N', shape.m, shape.n, shape.k, 1.0f,
      a, shape.strideA, b, shape.strideB, shape.accumulates ? 1.0f : 0.0f, c, shape.strideC);
  if (status == dnnl::status::out_of_memory)
    throw std::bad_alloc();
  kernels::require(status == dnnl::status::success, "oneDNN refuses a product of matrices");
}

} // namespace tbc::cpu
