//===- Scan.h - Bounded scan of an ONNX file before parsing ----------------===//
//
// Part of tbc. Plain C++, no protobuf.
//
// Protobuf expands hostile input a hundredfold (10 MB of empty nodes become 742 MB) and copies
// every weight. The scan walks the wire format of the mapped file once, under limits on size,
// nesting, counts and estimated memory. It writes a *skeleton*: the same model without
// documentation, type annotations and unknown fields, and without tensor payloads over 1 KiB. Only
// the skeleton is given to protobuf.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_SCAN_H
#define TBC_FRONTEND_ONNX_SCAN_H

#include "runtime/data/MappedFile.h"

#include <map>
#include <string>

namespace tbc::frontend {

/// Metadata keys of torch.onnx: the kind of a value in the exported program (PARAMETER, BUFFER,
/// CONSTANT_TENSOR ...), and the names of its source values at export.
inline constexpr const char *kInputKindKey = "pkg.torch.export.graph_signature.InputSpec.kind";
inline constexpr const char *kFoldedFromKey = "pkg.onnxscript.optimizer.folded_from";
/// Metadata key of a node: the call in PyTorch that torch's newer exporter has written it from.
inline constexpr const char *kTorchCallKey = "pkg.torch.onnx.fx_node";
/// Metadata key of a node: the stack trace of its call. Kept if it calls `apply` of something, or
/// begins in a function that the exporter made.
inline constexpr const char *kStackTraceKey = "pkg.torch.onnx.stack_trace";
inline constexpr const char *kApplyCall = ".apply(";
inline constexpr const char *kGeneratedFrame = "File \"<eval_with_key>.";
/// The key of the graph's list of all parameters and buffers of the module.
inline constexpr const char *kSignatureKey = "pkg.torch.export.ExportedProgram.graph_signature";

struct ScanLimits {
  uint64_t fileBytes = uint64_t(2) << 30;
  uint64_t nodes = 1000000;
  uint64_t listElements = 1000000;
  unsigned graphDepth = 16;
  unsigned rank = 16;
  uint64_t nameBytes = 4096;
  uint64_t attributeStringBytes = uint64_t(1) << 20;
  /// Estimated memory of the parsed skeleton: `memoryPerByte` x file + `memoryBase`.
  uint64_t memoryPerByte = 2, memoryBase = uint64_t(48) << 20;
  /// Tensor payloads over this many bytes stay in the file.
  uint64_t inlineBytes = 1024;
};

/// The location of a tensor's data in the file.
struct Payload {
  /// The field number of TensorProto: 4 float, 5 int32, 7 int64, 9 raw, 10 double, 11 uint64.
  unsigned field = 0;
  uint64_t offset = 0, bytes = 0;
};

struct ScannedModel {
  data::MappedFile file;
  /// A ModelProto. A tensor with a payload carries `segment` = {begin = offset, end = offset +
  /// bytes} in the file, the key of `payloads`.
  std::string skeleton;
  std::map<uint64_t, Payload> payloads;
  /// The signature of the exported program, as torch prints it; empty if the file has none. A line
  /// per tensor: "p_fc_weight: PARAMETER target='fc.weight'".
  std::string signature;
};

/// Scans `file`. Rejects files that are not ONNX models, naming the byte, the message and the
/// limit.
Result<ScannedModel> scanModel(data::MappedFile file, const ScanLimits &limits = {});

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_SCAN_H
