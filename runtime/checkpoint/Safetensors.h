//===- Safetensors.h - Tensors in a file -----------------------------------===//
//
// Part of tbc. Plain C++. Format: https://github.com/huggingface/safetensors: the length of the
// header in 8 bytes, little-endian; the header, JSON of {"NAME": {"dtype", "shape",
// "data_offsets"}} and "__metadata__"; the elements, little-endian, without gaps.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_CHECKPOINT_SAFETENSORS_H
#define TBC_RUNTIME_CHECKPOINT_SAFETENSORS_H

#include "runtime/data/MappedFile.h"
#include "runtime/kernels/Tensor.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tbc::checkpoint {

/// A tensor in a file. Floats of the F64 arithmetic are stored as F64, residues as U64, for every
/// dtype; the index of the checkpoint names the arithmetic.
struct Entry {
  std::string name;
  std::string dtype; // "F32", "BF16", "U64" …
  kernels::Shape shape;
  int64_t offset = 0, bytes = 0; // of its elements, in the file
};

/// Returns the dtype under which tensors of `dtype` held in `arith` are stored.
std::string storedType(kernels::DType dtype, kernels::Arith arith);

/// Whether a file has a checksum per tensor, to identify a damaged one.
enum class Sums { None, PerTensor };

/// Writes a new file, tensor by tensor. `content` returns the bytes of each entry in turn, and once
/// more before this with sums. Offsets and bytes of entries are set here. The file is on the disk
/// (fsync) on return. Errors: Other, with `shown` (by default `path`) and the reason, also for a
/// full disk; those of `content`.
Status writeSafetensors(const std::string &path, std::vector<Entry> entries,
                        const std::map<std::string, std::string> &metadata,
                        const std::function<Result<std::vector<unsigned char>>(size_t)> &content,
                        Sums sums = Sums::None, const std::string &shown = "");

/// A file opened for reading.
struct SafetensorsFile {
  data::MappedFile file;
  std::map<std::string, Entry> entries;
  std::map<std::string, std::string> metadata;

  const unsigned char *elements(const Entry &entry) const { return file.data() + entry.offset; }
};

/// Errors: CheckpointUnreadable, with the file and its defect.
Result<SafetensorsFile> readSafetensors(const std::string &path);

/// Returns the damaged tensors of a damaged file with sums, for a message. Example: "\"fc1.weight\"
/// and 2 more tensors". Empty if its header has no sums.
std::string damagedTensors(const std::string &path);

} // namespace tbc::checkpoint

#endif // TBC_RUNTIME_CHECKPOINT_SAFETENSORS_H
