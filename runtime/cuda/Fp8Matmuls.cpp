//===- Fp8Matmuls.cpp - Matmuls in fp8 ------------------------------------===//

#include "runtime/cuda/Fp8Matmuls.h"

#include <algorithm>

namespace tbc::cuda {

namespace fp8 = program::fp8;
using fp8::Format;

Result<std::shared_ptr<Fp8Matmuls>> Fp8Matmuls::create(const DevicePtr &device,
                                                       std::shared_ptr<const KernelModule> kernels,
                                                       std::shared_ptr<Matmuls> matmuls,
                                                       std::shared_ptr<Streams> streams) {
  constexpr int ada = 89;
  if (device->capability() < ada)
    return Error{ErrorCode::Usage, device->name() +
                                       " multiplies no matrices in fp8: that begins with compute "
                                       "capability 8.9 (L4, L40S, RTX 4090, H100); leave out "
                                       "--matmul-precision fp8"};
  if (!kernels || !kernels->find(fp8::scaleSymbol(Format::E4M3)))
    return Error{ErrorCode::Usage,
                 "the program has no kernels that make matrices of fp8: it multiplies none, or was "
                 "compiled before there were any; compile it again"};
  std::shared_ptr<Fp8Matmuls> made(new Fp8Matmuls(device));
  made->kernels = std::move(kernels);
  made->matmuls = std::move(matmuls);
  made->streams = std::move(streams);
  return made;
}

/// Returns the sizes of an operand's matrices, for quantization.
static std::vector<int64_t> sizesOf(int64_t count, int64_t batch, int64_t rows, int64_t depth,
                                    int64_t batchStride, int64_t stride, bool isTransposed) {
  // Neighbouring threads read neighbouring elements.
  return {count,
          batch,
          rows,
          depth,
          batchStride,
          isTransposed ? 1 : stride,
          isTransposed ? stride : 1,
          isTransposed};
}

Result<Fp8Matmuls::Operand> Fp8Matmuls::operandOf(kernels::DType type, Format format,
                                                  const std::vector<int64_t> &sizes) {
  Operand operand;
  for (const auto &[kernel, symbol] :
       {std::pair(&operand.amax, fp8::amaxSymbol(type)),
        std::pair(&operand.scale, fp8::scaleSymbol(format)),
        std::pair(&operand.quantise, fp8::quantiseSymbol(format, type))}) {
    *kernel = kernels->find(symbol);
    if (!*kernel)
      return Error{ErrorCode::RankFailed, "the program has no kernel \"" + symbol +
                                              "\", which --matmul-precision fp8 needs; compile it "
                                              "again"};
  }
  operand.bytes = sizes[1] * sizes[2] * sizes[3];
  std::shared_ptr<DeviceMemory> &there = sizesOnDevice[sizes];
  if (!there) {
    auto made = DeviceMemory::allocate(device, fp8::numSizes * 8, "the sizes of a matrix");
    if (!made)
      return made.error();
    there = std::make_shared<DeviceMemory>(std::move(*made));
    sizesBytes += there->bytes();
    if (Status status =
            streams->upload(there->address(), reinterpret_cast<const unsigned char *>(sizes.data()),
                            there->bytes());
        !status)
      return status.error();
  }
  operand.sizes = there;
  return operand;
}

/// Grows the workspace. No running work may use it.
Status Fp8Matmuls::reserve(int64_t bytes) {
  int64_t before = memory.bytes();
  if (bytes <= before)
    return Status::ok();
  if (bytes > fp8::mostWorkspaceBytes)
    return Error{ErrorCode::Usage, "matrices that take more than 2 GiB"};
  if (Status status = streams->wait(); !status) // for uploads
    return status;
  auto allocate = [&](int64_t size) {
    auto made = DeviceMemory::allocate(device, size, "matrices in fp8");
    if (made)
      memory = std::move(*made);
    return made ? Status::ok() : Status(made.error());
  };
  memory = DeviceMemory(); // frees the old one first: both may exceed the memory
  if (allocate(bytes))
    return Status::ok();
  if (Status again = before > 0 ? allocate(before) : Status::ok(); !again)
    return again;
  return Error{ErrorCode::Usage, "no memory to work in"};
}

Status Fp8Matmuls::launch(const LaunchableKernel &kernel, const Stream &stream,
                          std::vector<DeviceAddress> addresses) const {
  std::vector<void *> arguments;
  for (DeviceAddress &address : addresses)
    arguments.push_back(&address);
  if (Status status = kernel.launch(*device, stream, arguments.data()); !status)
    return status;
  return streams->note(kernel.symbol);
}

Status Fp8Matmuls::quantise(const Operand &operand, const Stream &stream, DeviceAddress from,
                            DeviceAddress to, DeviceAddress scales) const {
  DeviceAddress partials = memory.address(), sizes = operand.sizes->address();
  Status status = launch(*operand.amax, stream, {from, sizes, partials});
  if (status)
    status = launch(*operand.scale, stream, {partials, scales});
  return status ? launch(*operand.quantise, stream, {from, sizes, scales, to}) : status;
}

Result<Fp8Matmuls::Enqueue> Fp8Matmuls::find(const Request &request) {
  auto none = [](const std::string &why) { return Error{ErrorCode::Usage, why}; };
  const MatmulShape &given = request.shape;
  if (given.m % fp8::step || given.n % fp8::step || given.k % fp8::step)
    return none("sizes that are no multiples of 16");
  if (request.isGradientA && request.isGradientB)
    return none("two gradients");
  int64_t batchA = given.batchA ? given.batch : 1, batchB = given.batchB ? given.batch : 1;
  if (batchA * given.m * given.k != request.elementsA ||
      batchB * given.n * given.k != request.elementsB)
    return none("operands that are read in part");
  // cuBLASLt derives the type of a bias from the result, except for f32.
  if (given.epilogue != CublasEpilogue::Default && given.result == kernels::DType::F32)
    return none("an epilogue with a result in f32");

  MatmulShape shape = given;
  shape.formatA = request.isGradientA ? Format::E5M2 : Format::E4M3;
  shape.formatB = request.isGradientB ? Format::E5M2 : Format::E4M3;
  shape.strideA = shape.strideB = shape.k;
  shape.batchA = given.batchA ? shape.m * shape.k : 0;
  shape.batchB = given.batchB ? shape.n * shape.k : 0;
  shape.transposedA = false, shape.transposedB = true;
  auto matmul = matmuls->find(shape);
  if (!matmul)
    return matmul.error();
  if (!*matmul)
    return none("shapes for which the library has no way");
  auto a = operandOf(given.input, *shape.formatA,
                     sizesOf(request.elementsA, batchA, given.m, given.k, given.batchA,
                             given.strideA, given.transposedA));
  if (!a)
    return a.error();
  auto b = operandOf(given.input, *shape.formatB,
                     sizesOf(request.elementsB, batchB, given.n, given.k, given.batchB,
                             given.strideB, !given.transposedB));
  if (!b)
    return b.error();
  int64_t roomA = fp8::roomOf(a->bytes);
  if (Status status = reserve(fp8::workspaceBytes(a->bytes, b->bytes)); !status)
    return status.error();
  return Enqueue([this, matmul = *matmul, a = *a, b = *b, roomA](const Stream &stream,
                                                                 const MatmulAddresses &addresses) {
    MatmulAddresses at = addresses;
    DeviceAddress scalesA = memory.address() + DeviceAddress(fp8::scalesAt);
    DeviceAddress scalesB = scalesA + DeviceAddress(fp8::scaleBytes);
    at.a = memory.address() + DeviceAddress(fp8::matricesAt);
    at.b = at.a + DeviceAddress(roomA);
    at.scaleA = scalesA, at.scaleB = scalesB; // their inverses come first
    Status status = quantise(a, stream, addresses.a, at.a, scalesA);
    if (status)
      status = quantise(b, stream, addresses.b, at.b, scalesB);
    return status ? matmul->enqueue(stream, at) : status;
  });
}

} // namespace tbc::cuda
