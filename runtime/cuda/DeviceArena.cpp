//===- DeviceArena.cpp - The arenas of a rank with a GPU -------------------===//

#include "runtime/cuda/DeviceArena.h"
#include "runtime/exec/Machine.h"

#include <algorithm>
#include <cstring>

namespace tbc::cuda {

static void require(const Status &status) {
  if (!status)
    throw runtime::MachineError(status.error());
}

std::unique_ptr<DeviceArena>
DeviceArena::create(DeviceMemory memory, std::shared_ptr<Streams> streams, kernels::Arith arith) {
  return std::unique_ptr<DeviceArena>(
      new DeviceArena(std::move(memory), std::move(streams), arith));
}

static kernels::Tensor tensorFrom(const kernels::TensorType &type, kernels::Arith arith,
                                  const unsigned char *bytes) {
  return arith == kernels::Arith::Residue251 ? kernels::Tensor::residuesFromBytes(type, bytes)
                                             : kernels::Tensor::fromBytes(type, arith, bytes);
}

void DeviceArena::store(int64_t offset, const kernels::Tensor &tensor) {
  std::vector<unsigned char> bytes = tensor.toBytes();
  require(streams->upload(at(offset), bytes.data(), int64_t(bytes.size())));
}

kernels::Tensor DeviceArena::load(int64_t offset, const kernels::TensorType &type) const {
  std::vector<unsigned char> bytes(size_t(program::sizeBytes(type)));
  require(streams->download(bytes.data(), at(offset), int64_t(bytes.size())));
  return tensorFrom(type, arith, bytes.data());
}

void DeviceArena::zero(int64_t offset, const kernels::TensorType &type) {
  require(streams->clear(at(offset), program::sizeBytes(type)));
}

//===----------------------------------------------------------------------===//
// On the host
//===----------------------------------------------------------------------===//

Result<std::unique_ptr<PinnedArena>> PinnedArena::create(const DevicePtr &device,
                                                         std::shared_ptr<Streams> streams,
                                                         int64_t bytes, kernels::Arith arith) {
  Result<PinnedMemory> memory = PinnedMemory::allocate(device, bytes);
  if (!memory)
    return memory.error();
  return std::unique_ptr<PinnedArena>(
      new PinnedArena(std::move(*memory), std::move(streams), arith));
}

void PinnedArena::store(int64_t offset, const kernels::Tensor &tensor) {
  std::vector<unsigned char> bytes = tensor.toBytes();
  require(streams->finishHostCopies());
  std::copy(bytes.begin(), bytes.end(), at(offset));
}

kernels::Tensor PinnedArena::load(int64_t offset, const kernels::TensorType &type) const {
  require(streams->finishHostCopies());
  return tensorFrom(type, arith, at(offset));
}

void PinnedArena::zero(int64_t offset, const kernels::TensorType &type) {
  require(streams->finishHostCopies());
  std::memset(at(offset), 0, size_t(program::sizeBytes(type)));
}

} // namespace tbc::cuda
