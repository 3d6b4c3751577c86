//===- Matmul.cpp - A matmul by oneDNN ------------------------------------===//

#include "runtime/cpu/Matmul.h"
#include "runtime/cpu/Dnnl.h"
#include "runtime/kernels/KernelError.h"

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

} // namespace

std::shared_ptr<const Matmul> Matmul::find(const MatmulShape &shape) {
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
