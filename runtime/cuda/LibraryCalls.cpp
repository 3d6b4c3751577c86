//===- LibraryCalls.cpp - What NVIDIA's libraries do of a program ----------===//

#include "runtime/cuda/LibraryCalls.h"

namespace tbc::cuda {

using program::BlockId;
using program::Instruction;
using program::Region;
using program::ValueId;

Status LibraryCalls::prepare(BlockId id) {
  const program::Block &block = code().block(id);
  if (!products)
    return Status::ok();
  Epilogues found = findEpilogues(code(), block);
  for (const auto &[why, count] : found.apart)
    apart[why] += count;
  for (const Epilogue &epilogue : found.list)
    if (Status status = prepareEpilogue(id, epilogue); !status)
      return status;
  for (const Region &region : block.regions)
    if (region.count == 1 && instructionAt(id, region.first).op == "einsum" &&
        !isLeftOut(id, region.first))
      if (Status status = prepareProduct(id, region.first); !status)
        return status;
  return Status::ok();
}

const LibraryCalls::Call *LibraryCalls::find(BlockId id, int first) const {
  auto block = blocks.find(id);
  if (block == blocks.end())
    return nullptr;
  auto call = block->second.calls.find(first);
  return call == block->second.calls.end() ? nullptr : &call->second;
}

bool LibraryCalls::isLeftOut(BlockId id, int instruction) const {
  auto block = blocks.find(id);
  return block != blocks.end() && block->second.leftOut.count(instruction) > 0;
}

Error LibraryCalls::at(BlockId id, int index, const Error &error) const {
  return {error.code, describe(program, stage, id, index) + ": " + error.message};
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

Result<EinsumProduct> LibraryCalls::einsumOf(const Instruction &einsum,
                                             const kernels::TensorType &result) const {
  return productOf(einsum.attrs, typeOf(einsum.operands[0]), typeOf(einsum.operands[1]), result);
}

/// An einsum by itself is a product of matrices, maybe.
Status LibraryCalls::prepareProduct(BlockId id, int index) {
  const Instruction &einsum = instructionAt(id, index);
  auto found = einsumOf(einsum, typeOf(einsum.results[0]));
  if (!found) {
    ++noProducts[found.error().message];
    return Status::ok();
  }
  auto product = products->find(found->shape);
  if (!product)
    return at(id, index, product.error());
  if (!*product) {
    ++noProducts["the library has no way"];
    return Status::ok();
  }
  ++numProducts;
  ValueId a = einsum.operands[found->swaps ? 1 : 0], b = einsum.operands[found->swaps ? 0 : 1];
  blocks[id].calls[index] = [product = *product, a, b, c = einsum.results[0]](
                                const Stream &stream, const AddressOf &addressOf) {
    return product->enqueue(stream, addressOf(a), addressOf(b), addressOf(c));
  };
  return Status::ok();
}

/// What cuBLASLt calls it.
static CublasEpilogue kindOf(const Epilogue &e) {
  switch (e.function) {
  case Epilogue::Function::Identity:
  case Epilogue::Function::Cast:
    return e.bias ? CublasEpilogue::Bias : CublasEpilogue::Default;
  case Epilogue::Function::Gelu:
    if (e.geluInput)
      return e.bias ? CublasEpilogue::GeluAuxiliaryBias : CublasEpilogue::GeluAuxiliary;
    return e.bias ? CublasEpilogue::GeluBias : CublasEpilogue::Gelu;
  case Epilogue::Function::GeluGradient:
    return CublasEpilogue::GeluGradient;
  }
  return CublasEpilogue::Default;
}

/// A product with what follows, if the library can; else the two are done apart.
Status LibraryCalls::prepareEpilogue(BlockId id, const Epilogue &e) {
  const Instruction &einsum = instructionAt(id, e.einsum);
  kernels::TensorType type = typeOf(einsum.results[0]);
  type.dtype = typeOf(e.result).dtype;
  auto found = einsumOf(einsum, type);
  if (!found)
    return Status::ok(); // prepareProduct says why
  ProductShape shape = found->shape;
  shape.epilogue = kindOf(e);
  shape.adds = e.added.has_value();
  bool isDense = shape.batch == 1 && shape.strideC == shape.n &&
                 shape.m * shape.n == kernels::numElements(type.shape);
  if (!isDense && e.function != Epilogue::Function::Cast) {
    ++apart["a product that is a batch"];
    return Status::ok();
  }
  if (e.bias && kernels::numElements(typeOf(*e.bias).shape) != shape.n) {
    ++apart["a bias that is not along its rows"];
    return Status::ok();
  }
  constexpr int64_t auxiliaryStep = 8; // of CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD
  if (e.geluInput && shape.n % auxiliaryStep != 0) {
    ++apart["rows that are no multiple of 8"];
    return Status::ok();
  }
  auto product = products->find(shape);
  if (!product)
    return at(id, e.einsum, product.error());
  if (!*product) {
    ++apart["the library has no way"];
    return Status::ok();
  }
  ++numProducts;
  ++epilogues[e.name()];
  blocks[id].leftOut.insert(e.leftOut.begin(), e.leftOut.end());
  ValueId a = einsum.operands[found->swaps ? 1 : 0], b = einsum.operands[found->swaps ? 0 : 1];
  blocks[id].calls[e.region.first] = [product = *product, e, a, b](const Stream &stream,
                                                                   const AddressOf &addressOf) {
    auto place = [&](const std::optional<ValueId> &value) {
      return value ? addressOf(*value) : DeviceAddress(0);
    };
    return product->enqueue(stream, {addressOf(a), addressOf(b), addressOf(e.result), place(e.bias),
                                     place(e.geluInput), place(e.added)});
  };
  return Status::ok();
}

std::vector<std::string> LibraryCalls::sentences() const {
  std::vector<std::string> list;
  if (!products)
    return list;
  std::string others;
  for (const auto &[why, count] : noProducts)
    others += (others.empty() ? "" : ", ") + std::to_string(count) + " for " + why;
  list.push_back("matrix products: " + std::to_string(numProducts) + " by cuBLASLt" +
                 (others.empty() ? "" : "; by plain kernels " + others));
  if (!epilogues.empty())
    list.push_back("with their product, by cuBLASLt: " + describe(epilogues));
  if (!apart.empty())
    list.push_back("apart from their product: " + describe(apart));
  return list;
}

} // namespace tbc::cuda
