//===- Registry.cpp - The native kernel of each op ------------------------===//

#include "runtime/cpu/Families.h"
#include "runtime/cpu/Floats.h"

namespace tbc::cpu {

using kernels::DType;

namespace {

NativeKernel findExactly(std::string_view op, const kernels::Attrs &attrs, const Types &operands,
                         const Types &results) {
  static constexpr NativeKernelMaker makers[] = {
      makeEinsum,          makeConvolution, makePooling,       makeMovement,   makeAttention,
      makePackedAttention, makeElementwise, makeNormalization, makeVocabulary, makeExperts};
  for (NativeKernelMaker maker : makers)
    if (NativeKernel kernel = maker(op, attrs, operands, results))
      return kernel;
  return nullptr;
}

Types widened(Types types) {
  for (kernels::TensorType &type : types)
    if (type.dtype == DType::BF16)
      type.dtype = DType::F32;
  return types;
}

/// Converts the elements of a bf16 tensor to f32, or of an f32 tensor to bf16.
void convert(Threads &threads, const void *from, void *to, int64_t size, bool widens) {
  threads.runRanges(size, pieceBytes / 4, [&](int64_t begin, int64_t end) {
    if (widens)
      vectors().fromBF16(static_cast<const uint16_t *>(from) + begin,
                         static_cast<float *>(to) + begin, end - begin);
    else
      vectors().toBF16(static_cast<const float *>(from) + begin,
                       static_cast<uint16_t *>(to) + begin, end - begin);
  });
}

/// Wraps a kernel of f32: bf16 operands and results are converted copies.
NativeKernel onCopies(const NativeKernel &kernel, const Types &operands, const Types &results) {
  return [=](Threads &threads, const Buffers &buffers) {
    std::vector<std::vector<float>> copies;
    auto copyOf = [&](const kernels::TensorType &type) -> std::vector<float> & {
      return copies.emplace_back(size_t(kernels::numElements(type.shape)));
    };
    Buffers wide = buffers;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].dtype != DType::BF16)
        continue;
      std::vector<float> &copy = copyOf(operands[i]);
      convert(threads, buffers.operands[i], copy.data(), int64_t(copy.size()), true);
      wide.operands[i] = copy.data();
    }
    for (size_t r = 0; r < results.size(); ++r)
      if (results[r].dtype == DType::BF16)
        wide.results[r] = copyOf(results[r]).data();
    kernel(threads, wide);
    for (size_t r = 0; r < results.size(); ++r)
      if (results[r].dtype == DType::BF16)
        convert(threads, wide.results[r], buffers.results[r],
                kernels::numElements(results[r].shape), false);
  };
}

} // namespace

NativeKernel findNativeKernel(std::string_view op, const kernels::Attrs &attrs,
                              const Types &operands, const Types &results) {
  if (NativeKernel kernel = findExactly(op, attrs, operands, results))
    return kernel;
  Types wideOperands = widened(operands), wideResults = widened(results);
  if (wideOperands == operands && wideResults == results)
    return nullptr;
  // Families with bf16 have refused it: this processor has no bf16 matmul.
  if (NativeKernel kernel = findExactly(op, attrs, wideOperands, wideResults))
    return onCopies(kernel, operands, results);
  return nullptr;
}

} // namespace tbc::cpu
