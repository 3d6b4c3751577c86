//===- Manifest.h - What a run needs besides the Program -------------------===//
//
// Part of tbc. Plain C++. `tbc compile` writes it beside the Program, as run.json: what the inputs
// are, and where the model's file has the initial values, so that whoever runs reads no ONNX.
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

/// What an input tensor of the Program holds.
enum class InputKind {
  Data,
  Label,
  Step,  ///< the number of the step, from 1
  Sample ///< the places of the micro-batch's samples in the global batch, from 0
};

struct Input {
  std::string name; // of the Program's tensor
  InputKind kind = InputKind::Data;
  /// The dim of the tensor along which samples lie; -1 if none does (Step).
  int batchDim = 0;
  /// Of integers: what they stay below; 0: any. Of labels: the one that does not count.
  int64_t below = 0;
  std::optional<int64_t> ignored;
};

/// How a parameter starts where it is not read from a file.
enum class Start { Normal, Ones, Zeros };

/// An initialiser of the model.
struct Initializer {
  std::string name;
  kernels::TensorType type; // in the file; the Program's may be larger, with zeros behind
  Start start = Start::Normal;
  int file = -1; // index in `files`, -1: the model comes without its weights
  int64_t offset = 0, bytes = 0;
  /// 16-bit floats as protobuf varints of their bits, instead of little-endian elements.
  bool isVarint = false;
  /// Where the initializer is in the model's modules ("h.0.fc.weight"), if that is not its name.
  std::string path;
  /// The exporter stored the transpose of the parameter that frameworks call `path`.
  bool isTransposed = false;
  /// Not trained: a running statistic or a table.
  bool isState = false;
};

/// A file that holds initial values; its path is relative to the folder of the manifest, or
/// absolute.
using SourceFile = program::FileSeal;

/// What the kernels of the Program's regions are compiled for: `kernels.so`, as in
/// runtime/abi/CompiledKernel.h, or the images of runtime/abi/CudaKernels.h.
enum class Target { Cpu, Cuda };

/// What the planner says that a rank of a stage takes of its device: its memory plan, and with the
/// context of device and libraries and what an allocator loses.
struct PredictedMemory {
  int64_t program = 0, total = 0; // bytes
};

struct Manifest {
  std::string programHash; // SHA-256 of the Program's file
  /// Which model is trained, whatever its weights and however it is parallelized: checkpoints of
  /// another one are refused. Empty in Programs that were compiled before there was one.
  std::string model;
  Target target = Target::Cpu;
  /// Tokens of a sample, for tokens per second; 0 if samples have none.
  int64_t tokensPerSample = 0;
  /// What a step computes over all ranks, recomputation not counted, and what the plan's cluster
  /// could; 0 where it is not known.
  double modelFlops = 0, peakFlopsPerSecond = 0;
  /// The op of the Program's update that computes the norm of all gradients (before they are
  /// clipped); empty where the step does not clip by norm.
  std::string gradientNorm;
  std::vector<PredictedMemory> memory; // by stage; empty where nobody predicted it
  /// By stage, what the plan calls its devices, where those are of several types; else empty.
  std::vector<std::string> stageDevices;
  std::vector<Input> inputs;
  std::vector<SourceFile> files;
  std::vector<Initializer> initializers;
};

inline constexpr int manifestVersion = 2;
inline constexpr const char *manifestFile = "run.json";
inline constexpr const char *programFile = "program.json";

/// Canonical JSON.
std::string writeManifest(const Manifest &manifest);

/// The inverse. Errors: Usage, naming the field, for anything else.
Result<Manifest> readManifest(std::string_view text);

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_MANIFEST_H
