//===- Manifest.h - Data of a run besides the Program ---------------------===//
//
// Part of tbc. Plain C++. `tbc compile` writes it beside the Program, as run.json. It describes the
// inputs, and the position of the initial values in the model's files. So a run reads no ONNX.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_TRAIN_MANIFEST_H
#define TBC_RUNTIME_TRAIN_MANIFEST_H

#include "runtime/abi/Seal.h"
#include "runtime/kernels/Tensor.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tbc::train {

/// The content of an input tensor of the Program.
enum class InputKind {
  Data,
  Label,
  Step,  ///< the number of the step, from 1
  Sample ///< the indices of the micro-batch's samples in the global batch, from 0
};

struct Input {
  std::string name; // the Program's tensor
  InputKind kind = InputKind::Data;
  /// The dim of samples, or -1 if there is no such dim (Step).
  int batchDim = 0;
  /// Integers must be below this bound; 0: any. `ignored` is the label that the loss ignores.
  int64_t below = 0;
  std::optional<int64_t> ignored;
};

/// The initial values of a parameter that is not read from a file.
enum class Start { Normal, Ones, Zeros };

/// An initializer of the model.
struct Initializer {
  std::string name;
  kernels::TensorType type; // in the file; the Program's type may be larger, padded with zeros
  Start start = Start::Normal;
  int file = -1; // index in `files`; -1: the model comes without its weights
  int64_t offset = 0, bytes = 0;
  /// 16-bit floats as protobuf varints of their bits, instead of little-endian elements.
  bool isVarint = false;
  /// The path of the initializer in the model's modules ("h.0.fc.weight"), if it differs from its
  /// name.
  std::string path;
  /// The exporter stored the transpose of the parameter with this `path`.
  bool isTransposed = false;
  /// Not trained: a running statistic or a table.
  bool isState = false;
};

/// A file with initial values. Its path is relative to the folder of the manifest, or absolute.
using SourceFile = program::FileSeal;

/// The target of the compiled regions: `kernels.so` (runtime/abi/CompiledKernel.h), or the images
/// of runtime/abi/CudaKernels.h.
enum class Target { Cpu, Cuda };

/// Bytes of device memory that the planner predicts for a rank of a stage. `program` is its memory
/// plan. `total` adds the context of device and libraries, and the allocator's loss.
struct PredictedMemory {
  int64_t program = 0, total = 0; // bytes
};

struct Manifest {
  std::string programHash; // SHA-256 of the Program's file
  /// Identifies the trained model, for any weights and any parallelization. A checkpoint of another
  /// model is refused. Empty in Programs compiled before this field existed.
  std::string model;
  Target target = Target::Cpu;
  /// Tokens of a sample, for tokens per second; 0 if samples have none.
  int64_t tokensPerSample = 0;
  /// The FLOPs of a step over all ranks, without recomputation, and the peak FLOP/s of the plan's
  /// cluster; 0 if unknown.
  double modelFlops = 0, peakFlopsPerSecond = 0;
  /// The id of the update's op for the norm of all gradients (before clipping); empty if the step
  /// does not clip by norm.
  std::string gradientNorm;
  /// Whether the plan has matmuls that read 8 bits; a run may ask for something else.
  bool multipliesInFp8 = false;
  std::vector<PredictedMemory> memory; // by stage; empty without a prediction
  /// The plan's name for the devices of each stage, if the cluster is heterogeneous; otherwise
  /// empty.
  std::vector<std::string> stageDevices;
  std::vector<Input> inputs;
  std::vector<SourceFile> files;
  std::vector<Initializer> initializers;
};

inline constexpr int manifestVersion = 2;
inline constexpr const char *manifestFile = "run.json";
inline constexpr const char *programFile = "program.json";

/// Returns canonical JSON.
std::string writeManifest(const Manifest &manifest);

/// The inverse. Errors: Usage, naming the field, for any other text.
Result<Manifest> readManifest(std::string_view text);

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_MANIFEST_H
