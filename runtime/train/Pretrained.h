//===- Pretrained.h - Initial values from safetensors ----------------------===//
//
// Part of tbc. Plain C++. Reads a model's weights from files of Hugging Face.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_TRAIN_PRETRAINED_H
#define TBC_RUNTIME_TRAIN_PRETRAINED_H

#include "runtime/checkpoint/Safetensors.h"
#include "runtime/train/Manifest.h"

#include <optional>
#include <string>
#include <vector>

namespace tbc::train {

/// Initial values by name, from one safetensors file or from the shards listed in an index.
///
/// - An initializer takes the tensor with its name, otherwise the tensor with its module path
///   (`Initializer::path`).
/// - Two names also match if one is the other without its leading modules, and the match is unique.
///   Example: "transformer.h.0.mlp.c_fc.weight" takes "h.0.mlp.c_fc.weight".
/// - If the exporter stored an initializer transposed (`Initializer::isTransposed`), it takes the
///   transpose of a matrix found by path. Otherwise shapes must be equal.
class Pretrained {
public:
  /// `path`: a .safetensors file, an index (model.safetensors.index.json), or a folder with
  /// model.safetensors.index.json or model.safetensors.
  ///
  /// Errors: Usage, naming file and tensor: a file is missing or damaged; a trained initializer has
  /// no tensor or several; shape or element type differ.
  static Result<Pretrained> open(const std::string &path, const Manifest &manifest);

  /// Whether initializer `number` of the manifest has a tensor. Only a state may lack one.
  bool has(size_t number) const { return tensors[number].has_value(); }

  /// Returns element `element` of initializer `number`, in row-major order of the initializer's
  /// shape.
  double at(size_t number, int64_t element) const;

  /// The tensor of an initializer.
  struct Source {
    size_t file = 0; // index in contents()
    checkpoint::Entry entry;
    bool isTransposed = false;
  };
  /// Returns the tensor that initializer `number` takes, if it has one.
  const Source &source(size_t number) const { return *tensors[number]; }

  /// The files and their paths.
  const std::vector<checkpoint::SafetensorsFile> &contents() const { return files; }
  const std::vector<std::string> &paths() const { return filePaths; }

  /// Unused tensors of the files, sorted.
  const std::vector<std::string> &unused() const { return leftOver; }

private:
  std::vector<checkpoint::SafetensorsFile> files;
  std::vector<std::string> filePaths;
  std::vector<std::optional<Source>> tensors; // by initializer
  std::vector<std::string> leftOver;
};

/// Returns the type of the elements of a tensor in a file; nullopt for others than those of tbc.
std::optional<kernels::DType> dtypeOf(const checkpoint::Entry &entry);

} // namespace tbc::train

#endif // TBC_RUNTIME_TRAIN_PRETRAINED_H
