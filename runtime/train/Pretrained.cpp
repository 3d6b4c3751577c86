//===- Pretrained.cpp - Initial values from safetensors --------------------===//

#include "runtime/train/Pretrained.h"
#include "runtime/train/Elements.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace tbc::train {

using checkpoint::Entry;
using checkpoint::SafetensorsFile;
using kernels::DType;
using kernels::Shape;
using Json = nlohmann::json;

namespace fs = std::filesystem;

static constexpr const char *indexName = "model.safetensors.index.json";
static constexpr const char *singleName = "model.safetensors";

static Error usage(const std::string &message) {
  return {ErrorCode::Usage, "--init-weights: " + message};
}

/// The files listed in an index, each once.
static Result<std::vector<std::string>> readIndex(const std::string &path) {
  Result<data::MappedFile> file = data::MappedFile::open(path, ErrorCode::Usage);
  if (!file)
    return usage(file.error().message);
  Json json = Json::parse(file->text(), nullptr, false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    return usage(path + " is no index of safetensors: it has no object \"weight_map\"");
  std::set<std::string> names;
  for (const auto &[tensor, name] : json["weight_map"].items()) {
    if (!name.is_string() ||
        fs::path(name.get<std::string>()).filename() != name.get<std::string>())
      return usage(path + ": the file of \"" + tensor + "\" is no name of a file in its folder");
    names.insert(name.get<std::string>());
  }
  std::vector<std::string> paths;
  for (const std::string &name : names)
    paths.push_back((fs::path(path).parent_path() / name).string());
  return paths;
}

static Result<std::vector<std::string>> filesOf(const std::string &path) {
  std::error_code error;
  if (!fs::is_directory(path, error))
    return fs::path(path).extension() == ".json" ? readIndex(path)
                                                 : Result<std::vector<std::string>>({path});
  std::string index = (fs::path(path) / indexName).string();
  if (fs::exists(index, error))
    return readIndex(index);
  std::string single = (fs::path(path) / singleName).string();
  if (fs::exists(single, error))
    return std::vector<std::string>{single};
  return usage("the folder " + path + " has neither " + indexName + " nor " + singleName);
}

/// Whether `longer` is `shorter` with leading modules: "a.b.weight" and "b.weight".
static bool endsWithModules(const std::string &longer, const std::string &shorter) {
  return longer.size() > shorter.size() + 1 &&
         longer.compare(longer.size() - shorter.size(), shorter.size(), shorter) == 0 &&
         longer[longer.size() - shorter.size() - 1] == '.';
}

namespace {

/// The tensors of all files, by name.
struct Tensor {
  size_t file = 0;
  const Entry *entry = nullptr;
};
using Tensors = std::map<std::string, Tensor>;

} // namespace

/// Returns the tensor called `name`, otherwise the only one that differs in leading modules.
/// Errors: Usage, if several differ so.
static Result<const Tensor *> find(const Tensors &tensors, const std::string &name) {
  auto exact = tensors.find(name);
  if (exact != tensors.end())
    return &exact->second;
  const Tensor *found = nullptr;
  // A name of one part ("weight") would match in every module.
  if (name.find('.') == std::string::npos)
    return found;
  for (const auto &[other, tensor] : tensors) {
    bool hasModule = other.find('.') != std::string::npos;
    if (!hasModule || (!endsWithModules(name, other) && !endsWithModules(other, name)))
      continue;
    if (found)
      return usage("both \"" + found->entry->name + "\" and \"" + other + "\" may be \"" + name +
                   "\"");
    found = &tensor;
  }
  return found;
}

std::optional<DType> dtypeOf(const Entry &entry) {
  std::string name = entry.dtype;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return char(tolower(c)); });
  return kernels::parseStorableDType(name);
}

static std::string text(const Shape &shape) {
  std::string text;
  for (int64_t size : shape)
    text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

Result<Pretrained> Pretrained::open(const std::string &path, const Manifest &manifest) {
  Pretrained result;
  Result<std::vector<std::string>> paths = filesOf(path);
  if (!paths)
    return paths.error();
  for (const std::string &file : *paths) {
    Result<SafetensorsFile> opened = checkpoint::readSafetensors(file);
    if (!opened)
      return usage(opened.error().message);
    result.files.push_back(std::move(*opened));
    result.filePaths.push_back(file);
  }
  Tensors tensors;
  for (size_t file = 0; file < result.files.size(); ++file)
    for (const auto &[name, entry] : result.files[file].entries)
      if (!tensors.try_emplace(name, Tensor{file, &entry}).second)
        return usage("two files have a tensor \"" + name + "\", the second is " + (*paths)[file]);

  std::set<std::string> used;
  std::vector<std::string> missing;
  for (const Initializer &initializer : manifest.initializers) {
    result.tensors.emplace_back();
    Result<const Tensor *> tensor = find(tensors, initializer.name);
    bool isByPath = tensor && !*tensor && !initializer.path.empty();
    if (isByPath)
      tensor = find(tensors, initializer.path);
    if (!tensor)
      return tensor.error();
    if (!*tensor) {
      if (!initializer.isState)
        missing.push_back(initializer.path.empty() ? initializer.name : initializer.path);
      continue;
    }
    const Entry &entry = *(*tensor)->entry;
    Source source{(*tensor)->file, entry, isByPath && initializer.isTransposed};
    std::optional<DType> dtype = dtypeOf(entry);
    if (!dtype || kernels::isFloat(*dtype) != kernels::isFloat(initializer.type.dtype))
      return usage("tensor \"" + entry.name + "\" has elements of type " + entry.dtype + "; \"" +
                   initializer.name + "\" of the model has " +
                   std::string(kernels::name(initializer.type.dtype)));
    Shape shape = entry.shape;
    if (source.isTransposed)
      std::reverse(shape.begin(), shape.end());
    if (shape != initializer.type.shape)
      return usage("tensor \"" + entry.name + "\" has shape " + text(entry.shape) + "; \"" +
                   initializer.name + "\" of the model has " + text(initializer.type.shape) +
                   (source.isTransposed ? " and is stored transposed" : ""));
    used.insert(entry.name);
    result.tensors.back() = std::move(source);
  }
  if (!missing.empty()) {
    std::string list;
    for (size_t i = 0; i < missing.size() && i < 5; ++i)
      list += (i ? ", " : "") + missing[i];
    if (missing.size() > 5)
      list += " and " + std::to_string(missing.size() - 5) + " more";
    return usage(path + " has no tensor for " + list +
                 "; rename the tensors of the file, or start from the " + "model's own weights");
  }
  for (const auto &[name, tensor] : tensors)
    if (!used.count(name))
      result.leftOver.push_back(name);
  return result;
}

double Pretrained::at(size_t number, int64_t element) const {
  const Source &source = *tensors[number];
  if (source.isTransposed) {
    // The initializer is [columns, rows] of the stored matrix [rows, columns].
    int64_t rows = source.entry.shape[0], columns = source.entry.shape[1];
    element = element % rows * columns + element / rows;
  }
  DType dtype = *dtypeOf(source.entry);
  return elementAt(dtype,
                   files[source.file].elements(source.entry) + element * kernels::byteWidth(dtype));
}

} // namespace tbc::train
