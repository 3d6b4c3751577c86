//===- Matmul.cpp - A matrix product by oneDNN --------------------------------===//

#include "runtime/cpu/Matmul.h"

#include <dnnl.hpp>

#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <string>

namespace tbc::cpu {

using kernels::DType;

namespace {

const dnnl::engine &engine() {
  static const dnnl::engine theEngine(dnnl::engine::kind::cpu, 0);
  return theEngine;
}

/// Streams on CPUs hold no state, but each thread gets its own all the same.
dnnl::stream &stream() {
  static thread_local dnnl::stream theStream(engine());
  return theStream;
}

dnnl::memory::data_type typeOf(DType dtype) {
  return dtype == DType::BF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc matrix(int64_t rows, int64_t columns, int64_t stride, bool isTransposed,
                          DType dtype) {
  dnnl::memory::dims strides =
      isTransposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return {{rows, columns}, typeOf(dtype), strides};
}

/// Of the thread, at least so large: oneDNN's own may only be used by the thread that made the
/// primitive.
void *scratchpad(size_t bytes) {
  struct Buffer {
    void *memory = nullptr;
    size_t bytes = 0;
    ~Buffer() { std::free(memory); }
  };
  static thread_local Buffer buffer;
  if (buffer.bytes < bytes) {
    std::free(buffer.memory);
    size_t rounded = (bytes + 4095) / 4096 * 4096;
    buffer.memory = std::aligned_alloc(4096, rounded);
    buffer.bytes = buffer.memory ? rounded : 0;
    if (!buffer.memory)
      throw std::bad_alloc();
  }
  return buffer.memory;
}

class DnnlMatmul : public Matmul {
public:
  explicit DnnlMatmul(const MatmulShape &shape)
      : a(matrix(shape.m, shape.k, shape.strideA, shape.transposedA, shape.input)),
        b(matrix(shape.k, shape.n, shape.strideB, shape.transposedB, shape.input)),
        c(matrix(shape.m, shape.n, shape.strideC, false, shape.result)) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (shape.accumulates) {
      dnnl::post_ops after;
      after.append_sum(1.0f);
      attributes.set_post_ops(after);
    }
    dnnl::matmul::primitive_desc description({a, b, c}, attributes, engine());
    scratch = description.scratchpad_desc();
    isReference = std::string(description.impl_info_str()).find("ref") == 0;
    product = dnnl::matmul(description);
  }

  /// oneDNN has a plain loop for what it has no kernel for: ours is no slower, and exact.
  bool isSlow() const { return isReference; }

  void run(const void *from, const void *with, void *to) const override {
    product.execute(
        stream(),
        {{DNNL_ARG_SRC, dnnl::memory(a, engine(), const_cast<void *>(from))},
         {DNNL_ARG_WEIGHTS, dnnl::memory(b, engine(), const_cast<void *>(with))},
         {DNNL_ARG_DST, dnnl::memory(c, engine(), to)},
         {DNNL_ARG_SCRATCHPAD, dnnl::memory(scratch, engine(), scratchpad(scratch.get_size()))}});
  }

private:
  dnnl::memory::desc a, b, c, scratch;
  dnnl::matmul product;
  bool isReference = false;
};

} // namespace

std::shared_ptr<const Matmul> Matmul::find(const MatmulShape &shape) {
  static std::mutex mutex;
  static std::map<MatmulShape, std::shared_ptr<const Matmul>> known;
  std::lock_guard<std::mutex> lock(mutex);
  auto found = known.find(shape);
  if (found != known.end())
    return found->second;
  std::shared_ptr<const Matmul> made;
  try {
    auto candidate = std::make_shared<DnnlMatmul>(shape);
    if (!candidate->isSlow())
      made = candidate;
  } catch (const dnnl::error &error) {
    if (error.status != dnnl_unimplemented)
      throw;
  }
  known[shape] = made;
  return made;
}

} // namespace tbc::cpu
