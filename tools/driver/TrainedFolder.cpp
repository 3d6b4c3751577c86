//===- TrainedFolder.cpp - Trained weights in the form of pretrained ones ---===//

#include "tools/driver/TrainedFolder.h"

#include "runtime/comm/Wire.h"
#include "runtime/train/Pretrained.h"
#include "tools/driver/TrainedModel.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <unistd.h>

namespace tbc::driver {

using checkpoint::Checkpoint;
using checkpoint::Entry;
using checkpoint::SafetensorsFile;
using kernels::Tensor;
using train::Pretrained;

namespace fs = std::filesystem;

/// Files of more bytes are weights in another format, not descriptions of the model.
constexpr uintmax_t mostDescriptionBytes = 64 << 20;

static bool describesModel(const fs::directory_entry &file) {
  std::error_code ignored;
  const std::string kind = file.path().extension().string();
  bool isText = kind == ".json" || kind == ".txt" || kind == ".model" || kind == ".jinja";
  return isText && file.is_regular_file(ignored) && file.file_size(ignored) <= mostDescriptionBytes;
}

/// Returns the bytes of the trained initializer in the form of `entry`; none if the step does not
/// have it.
static Result<std::vector<unsigned char>> trainedBytes(Checkpoint &checkpoint,
                                                       const train::Initializer &initializer,
                                                       const Pretrained::Source &source) {
  frontend::ParameterSource parameter;
  parameter.name = initializer.name;
  parameter.isState = initializer.isState;
  parameter.shape = initializer.type.shape;
  parameter.dtype = train::dtypeOf(source.entry).value_or(initializer.type.dtype);
  Result<Tensor> weight = weightOf(checkpoint, parameter);
  if (!weight)
    return weight.error();
  if (!*weight)
    return std::vector<unsigned char>();
  return comm::encode(source.isTransposed ? transposed(*weight, source.entry.shape) : *weight);
}

namespace {

/// Writes one file after another.
class Writer {
public:
  Writer(const Pretrained &original, const train::Manifest &manifest, Checkpoint &checkpoint)
      : original(original), manifest(manifest), checkpoint(checkpoint) {
    for (size_t i = 0; i < manifest.initializers.size(); ++i)
      if (original.has(i))
        takenBy.try_emplace(original.source(i).entry.name, i);
  }

  Status write(size_t number, const fs::path &folder) {
    const SafetensorsFile &file = original.contents()[number];
    std::vector<Entry> entries;
    for (const auto &[name, entry] : file.entries)
      entries.push_back(entry);
    std::sort(entries.begin(), entries.end(),
              [](const Entry &a, const Entry &b) { return a.offset < b.offset; });
    const std::vector<Entry> before = entries; // with offsets of the original
    fs::path path = folder / fs::path(original.paths()[number]).filename();
    return checkpoint::writeSafetensors(path.string(), entries, file.metadata,
                                        [&](size_t i) { return bytesOf(file, before[i]); });
  }

  FolderCounts counts;

private:
  Result<std::vector<unsigned char>> bytesOf(const SafetensorsFile &file, const Entry &entry) {
    ++counts.all;
    auto taken = takenBy.find(entry.name);
    if (taken != takenBy.end()) {
      auto bytes = trainedBytes(checkpoint, manifest.initializers[taken->second],
                                original.source(taken->second));
      if (!bytes || !bytes->empty()) {
        ++counts.trained;
        return bytes;
      }
    }
    const unsigned char *begin = file.elements(entry);
    return std::vector<unsigned char>(begin, begin + entry.bytes);
  }

  const Pretrained &original;
  const train::Manifest &manifest;
  Checkpoint &checkpoint;
  std::map<std::string, size_t> takenBy; // initializers by name of the tensor
};

} // namespace

/// Copies the files that describe the model.
static Status copyDescriptions(const std::string &original, const fs::path &folder) {
  std::error_code error;
  if (!fs::is_directory(original, error))
    return Status::ok();
  for (const fs::directory_entry &file : fs::directory_iterator(original, error)) {
    if (!describesModel(file))
      continue;
    fs::copy_file(file.path(), folder / file.path().filename(), error);
    if (error)
      break;
  }
  if (error)
    return Error{ErrorCode::Other, "cannot copy the files of " + original + ": " + error.message()};
  return Status::ok();
}

Result<FolderCounts> writeTrainedFolder(const std::string &original,
                                        const train::Manifest &manifest, Checkpoint &checkpoint,
                                        const std::string &output) {
  if (kernels::isModular(checkpoint.arith()))
    return Error{ErrorCode::Usage, "the checkpoint was computed in residues, which are no weights"};
  const std::string &trainedOf = checkpoint.progress().model;
  if (!trainedOf.empty() && !manifest.model.empty() && trainedOf != manifest.model)
    return Error{ErrorCode::Usage, "the Program is not of the model that the checkpoint is of"};
  std::error_code error;
  if (fs::exists(output, error) &&
      !(fs::is_directory(output, error) && fs::is_empty(output, error)))
    return Error{ErrorCode::Usage, output + " is there already; name a new folder"};
  auto opened = Pretrained::open(original, manifest);
  if (!opened)
    return opened.error();
  // It appears under its name when it is complete.
  fs::path folder =
      fs::path(output).lexically_normal().string() + ".new-" + std::to_string(getpid());
  if (!fs::create_directory(folder, error))
    return Error{ErrorCode::Other, "cannot create " + folder.string() + ": " + error.message()};
  Writer writer(*opened, manifest, checkpoint);
  Status status = copyDescriptions(original, folder);
  for (size_t i = 0; status && i < opened->contents().size(); ++i)
    status = writer.write(i, folder);
  if (status) {
    fs::rename(folder, output, error);
    if (error)
      status = Error{ErrorCode::Other, "cannot create " + output + ": " + error.message()};
  }
  if (!status) {
    fs::remove_all(folder, error);
    return status.error();
  }
  return writer.counts;
}

} // namespace tbc::driver
