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

/// A tensor in a file. Floats of the F64 arithmetic are stored as F64, residues as U64, whatever
/// their dtype is; who reads them knows.
struct Entry {
  std::string name;
  std::string dtype; // "F32", "BF16", "U64" …
  kernels::Shape shape;
  int64_t offset = 0, bytes = 0; // of its elements, in the file
};

/// The dtype under which tensors of `dtype` held in `arith` are stored.
std::string storedType(kernels::DType dtype, kernels::Arith arith);

/// Whether a file says the sum of each tensor's bytes, so that a damaged one can be named.
enum class Sums { None, PerTensor };

/// Writes a new file, tensor by tensor: `content` gives the bytes of each entry (whose offset and
/// bytes are worked out here) when its turn comes, and with sums once more before. The file is on
/// the disk (fsync) on return. Errors: Other, naming path and reason, also for a full disk; what
/// `content` returns.
Status writeSafetensors(const std::string &path, std::vector<Entry> entries,
                        const std::map<std::string, std::string> &metadata,
                        const std::function<Result<std::vector<unsigned char>>(size_t)> &content,
                        Sums sums = Sums::None);

/// A file opened for reading.
struct SafetensorsFile {
  data::MappedFile file;
  std::map<std::string, Entry> entries;
  std::map<std::string, std::string> metadata;

  const unsigned char *elements(const Entry &entry) const { return file.data() + entry.offset; }
};

/// Errors: CheckpointUnreadable, naming the file and what is wrong with it.
Result<SafetensorsFile> readSafetensors(const std::string &path);

/// Of a file written with sums that is known to be damaged, the tensors that are not what was
/// written, for a message: "\"fc1.weight\" and 2 more tensors". Empty where its header does not
/// say.
std::string damagedTensors(const std::string &path);

} // namespace tbc::checkpoint

#endif // TBC_RUNTIME_CHECKPOINT_SAFETENSORS_H
