//===- Manifest.cpp - Data of a run besides the Program -------------------===//

#include "runtime/train/Manifest.h"

#include <array>
#include <nlohmann/json.hpp>

namespace tbc::train {

using Json = nlohmann::ordered_json;

static constexpr std::array inputKinds = {"data", "label", "step", "sample"};
static constexpr std::array starts = {"normal", "ones", "zeros"};
static constexpr const char *formatName = "tbc-run";

std::string writeManifest(const Manifest &manifest) {
  Json inputs = Json::array(), files = Json::array(), initializers = Json::array();
  for (const Input &input : manifest.inputs) {
    Json line = {{"name", input.name},
                 {"kind", inputKinds[size_t(input.kind)]},
                 {"batch_dim", input.batchDim},
                 {"below", input.below}};
    if (input.ignored)
      line["ignored"] = *input.ignored;
    inputs.push_back(line);
  }
  for (const SourceFile &file : manifest.files) {
    files.push_back({{"path", file.path}, {"bytes", file.bytes}, {"sha256", file.sha256}});
    if (!file.isHashed())
      files.back()["modified_nanoseconds"] = file.modifiedNanoseconds;
  }
  for (const Initializer &initializer : manifest.initializers) {
    Json line = {{"name", initializer.name},
                 {"dtype", std::string(kernels::name(initializer.type.dtype))},
                 {"shape", initializer.type.shape},
                 {"start", starts[size_t(initializer.start)]},
                 {"file", initializer.file}};
    if (initializer.file >= 0) {
      line["offset"] = initializer.offset;
      line["bytes"] = initializer.bytes;
      line["encoding"] = initializer.isVarint ? "varint" : "raw";
    }
    if (!initializer.path.empty())
      line["path"] = initializer.path;
    if (initializer.isTransposed)
      line["transposed"] = true;
    if (initializer.isState)
      line["state"] = true;
    initializers.push_back(line);
  }
  Json json = {{"format", formatName},
               {"version", manifestVersion},
               {"program", manifest.programHash},
               {"tokens_per_sample", manifest.tokensPerSample},
               {"model_flops", manifest.modelFlops},
               {"peak_flops_per_second", manifest.peakFlopsPerSecond},
               {"gradient_norm", manifest.gradientNorm},
               {"inputs", inputs},
               {"files", files},
               {"initializers", initializers}};
  if (!manifest.model.empty())
    json["model"] = manifest.model;
  if (manifest.multipliesInFp8)
    json["multiplies_in_fp8"] = true;
  for (const PredictedMemory &stage : manifest.memory)
    json["predicted_memory"].push_back({{"program", stage.program}, {"total", stage.total}});
  if (!manifest.stageDevices.empty())
    json["stage_devices"] = manifest.stageDevices;
  if (manifest.target == Target::Cuda)
    json["target"] = "cuda";
  return json.dump(1) + "\n";
}

namespace {

/// Reads fields. The first error is kept; after it, fields have defaults.
class Reader {
public:
  std::string error, place;

  void fail(const std::string &why) {
    if (error.empty())
      error = (place.empty() ? "" : place + ": ") + why;
  }
  const Json *field(const Json &object, const char *key) {
    if (object.is_object() && object.contains(key))
      return &object.at(key);
    fail("\"" + std::string(key) + "\" is missing");
    return nullptr;
  }
  std::string text(const Json &object, const char *key) {
    const Json *json = field(object, key);
    if (json && json->is_string())
      return json->get<std::string>();
    fail("\"" + std::string(key) + "\" must be a text");
    return "";
  }
  int64_t number(const Json &object, const char *key, int64_t least) {
    const Json *json = field(object, key);
    if (json && json->is_number_integer() &&
        !(json->is_number_unsigned() && json->get<uint64_t>() > uint64_t(INT64_MAX))) {
      int64_t value = json->get<int64_t>();
      if (value >= least)
        return value;
    }
    fail("\"" + std::string(key) + "\" must be an integer of at least " + std::to_string(least));
    return least;
  }
  double quantity(const Json &object, const char *key) {
    const Json *json = field(object, key);
    if (json && json->is_number() && json->get<double>() >= 0)
      return json->get<double>();
    fail("\"" + std::string(key) + "\" must be a number of at least 0");
    return 0;
  }
  /// Reads an optional field; false if it is missing.
  bool flag(const Json &object, const char *key) {
    if (!object.is_object() || !object.contains(key))
      return false;
    if (!object.at(key).is_boolean())
      fail("\"" + std::string(key) + "\" must be true or false");
    return object.at(key) == true;
  }
  template <typename Names> size_t oneOf(const Json &object, const char *key, const Names &names) {
    std::string word = text(object, key);
    for (size_t i = 0; i < names.size(); ++i)
      if (word == names[i])
        return i;
    fail("\"" + std::string(key) + "\" has no value \"" + word + "\"");
    return 0;
  }
  std::vector<Json> list(const Json &object, const char *key) {
    const Json *json = field(object, key);
    if (json && json->is_array())
      return std::vector<Json>(json->begin(), json->end());
    fail("\"" + std::string(key) + "\" must be a list");
    return {};
  }

  Manifest manifest(const Json &json);

private:
  Input input(const Json &json);
  SourceFile file(const Json &json);
  Initializer initializer(const Json &json, const std::vector<SourceFile> &files);
};

Input Reader::input(const Json &json) {
  Input input;
  place = "inputs";
  input.name = text(json, "name");
  place = "input \"" + input.name + "\"";
  input.kind = InputKind(oneOf(json, "kind", inputKinds));
  input.batchDim = int(std::min<int64_t>(number(json, "batch_dim", -1), 1000));
  input.below = number(json, "below", 0);
  if (json.is_object() && json.contains("ignored"))
    input.ignored = number(json, "ignored", INT64_MIN);
  return input;
}

SourceFile Reader::file(const Json &json) {
  SourceFile file;
  place = "files";
  file.path = text(json, "path");
  file.bytes = number(json, "bytes", 0);
  file.sha256 = text(json, "sha256");
  if (!file.isHashed())
    file.modifiedNanoseconds = number(json, "modified_nanoseconds", 0);
  return file;
}

Initializer Reader::initializer(const Json &json, const std::vector<SourceFile> &files) {
  Initializer initializer;
  place = "initializers";
  initializer.name = text(json, "name");
  place = "initializer \"" + initializer.name + "\"";
  std::optional<kernels::DType> dtype = kernels::parseStorableDType(text(json, "dtype"));
  if (!dtype)
    fail("\"dtype\" is no element type");
  initializer.type.dtype = dtype.value_or(kernels::DType::F32);
  int64_t elements = 1;
  for (const Json &size : list(json, "shape")) {
    int64_t value = size.is_number_integer() ? size.get<int64_t>() : -1;
    if (value < 0 || __builtin_mul_overflow(elements, value, &elements) ||
        elements > int64_t(1) << 48) {
      fail("\"shape\" must be sizes");
      return initializer;
    }
    initializer.type.shape.push_back(value);
  }
  initializer.start = Start(oneOf(json, "start", starts));
  if (json.is_object() && json.contains("path"))
    initializer.path = text(json, "path");
  initializer.isTransposed = flag(json, "transposed");
  initializer.isState = flag(json, "state");
  if (initializer.isTransposed && initializer.type.shape.size() != 2)
    fail("only matrices can be transposed");
  initializer.file = int(std::min<int64_t>(number(json, "file", -1), INT32_MAX));
  if (initializer.file < 0)
    return initializer;
  initializer.offset = number(json, "offset", 0);
  initializer.bytes = number(json, "bytes", 0);
  static constexpr std::array encodings = {"raw", "varint"};
  initializer.isVarint = oneOf(json, "encoding", encodings) == 1;
  if (size_t(initializer.file) >= files.size()) {
    fail("there is no file " + std::to_string(initializer.file));
    return initializer;
  }
  const SourceFile &source = files[initializer.file];
  if (initializer.offset > source.bytes || initializer.bytes > source.bytes - initializer.offset)
    fail("it lies beyond the end of its file");
  if (!initializer.isVarint &&
      initializer.bytes != elements * kernels::byteWidth(initializer.type.dtype))
    fail("its bytes do not make its shape");
  if (initializer.isVarint && kernels::byteWidth(initializer.type.dtype) != 2)
    fail("varints hold 16-bit floats only");
  return initializer;
}

Manifest Reader::manifest(const Json &json) {
  Manifest manifest;
  if (text(json, "format") != formatName)
    fail("it is no manifest of tbc");
  if (int64_t version = number(json, "version", 0); version != manifestVersion)
    fail("version " + std::to_string(version) + "; this tbc reads version " +
         std::to_string(manifestVersion) + ": compile again");
  manifest.programHash = text(json, "program");
  if (json.contains("model"))
    manifest.model = text(json, "model");
  static constexpr std::array targets = {"cpu", "cuda"};
  if (json.contains("target")) // missing in programs for CPUs
    manifest.target = Target(oneOf(json, "target", targets));
  manifest.tokensPerSample = number(json, "tokens_per_sample", 0);
  manifest.multipliesInFp8 = flag(json, "multiplies_in_fp8");
  manifest.modelFlops = quantity(json, "model_flops");
  manifest.peakFlopsPerSecond = quantity(json, "peak_flops_per_second");
  manifest.gradientNorm = text(json, "gradient_norm");
  if (json.contains("predicted_memory")) // missing in programs without a prediction
    for (const Json &stage : list(json, "predicted_memory"))
      manifest.memory.push_back({number(stage, "program", 0), number(stage, "total", 0)});
  if (json.contains("stage_devices")) // only in plans for heterogeneous devices
    for (const Json &stage : list(json, "stage_devices")) {
      if (!stage.is_string())
        fail("\"stage_devices\" must be a list of texts");
      manifest.stageDevices.push_back(stage.is_string() ? stage.get<std::string>() : "");
    }
  for (const Json &line : list(json, "inputs"))
    manifest.inputs.push_back(input(line));
  place.clear();
  for (const Json &line : list(json, "files"))
    manifest.files.push_back(file(line));
  place.clear();
  for (const Json &line : list(json, "initializers"))
    manifest.initializers.push_back(initializer(line, manifest.files));
  return manifest;
}

} // namespace

Result<Manifest> readManifest(std::string_view text) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded())
    return Error{ErrorCode::Usage, "it is no JSON"};
  Reader reader;
  Manifest manifest = reader.manifest(json);
  if (!reader.error.empty())
    return Error{ErrorCode::Usage, reader.error};
  return manifest;
}

} // namespace tbc::train
