//===- CudaKernels.cpp - The contract of compiled GPU kernels -------------===//

#include "runtime/abi/CudaKernels.h"

#include <limits>
#include <nlohmann/json.hpp>

namespace tbc::program {

using Json = nlohmann::ordered_json;

static constexpr const char *format = "tbc-cuda-kernels";
static constexpr int version = 3;

static const char *nameOf(CudaCode code) { return code == CudaCode::Ptx ? "ptx" : "cubin"; }

bool isExecutedBy(const CudaImage &image, int capability) {
  bool isSameMajor = image.architecture / 10 == capability / 10;
  return image.architecture <= capability && (image.code == CudaCode::Ptx || isSameMajor);
}

std::string sumName(kernels::DType slot, kernels::DType value) {
  return "sum of " + std::string(name(slot)) + " and " + std::string(name(value));
}

std::vector<CudaLaunch> CudaKernel::launches() const {
  std::vector<CudaLaunch> list = {{symbol, blocks, threads, sharedBytes}};
  list.insert(list.end(), then.begin(), then.end());
  return list;
}

static Json jsonOf(const CudaLaunch &launch) {
  return {{"symbol", launch.symbol},
          {"blocks", launch.blocks},
          {"threads", launch.threads},
          {"shared_bytes", launch.sharedBytes}};
}

static Json jsonOf(const CudaKernel &kernel) {
  Json json = jsonOf(kernel.launches().front());
  json["workspace_bytes"] = kernel.workspaceBytes;
  json["then"] = Json::array();
  for (const CudaLaunch &launch : kernel.then)
    json["then"].push_back(jsonOf(launch));
  return json;
}

std::string writeCudaKernels(const CudaKernels &kernels) {
  Json json = {{"format", format}, {"version", version}, {"program", kernels.programSha256}};
  for (const char *list : {"images", "kernels", "accumulators"})
    json[list] = Json::array();
  json["host_ops"] = kernels.hostOps;
  for (const CudaImage &image : kernels.images)
    json["images"].push_back({{"architecture", image.architecture},
                              {"code", nameOf(image.code)},
                              {"file", image.file},
                              {"sha256", image.sha256}});
  for (const CudaKernel &kernel : kernels.kernels)
    json["kernels"].push_back(jsonOf(kernel));
  for (const CudaAccumulator &accumulator : kernels.accumulators)
    json["accumulators"].push_back({{"symbol", accumulator.symbol},
                                    {"slot", std::string(name(accumulator.slot))},
                                    {"value", std::string(name(accumulator.value))},
                                    {"threads", accumulator.threads}});
  return json.dump(1) + "\n";
}

namespace {

/// Reads fields; keeps the first error.
class Reader {
public:
  std::string error;

  const Json &field(const Json &object, const char *key) {
    if (object.is_object())
      if (auto found = object.find(key); found != object.end())
        return *found;
    fail("\"" + std::string(key) + "\" is missing");
    return none;
  }
  std::string text(const Json &object, const char *key) {
    const Json &json = field(object, key);
    if (json.is_string())
      return json.get<std::string>();
    fail("\"" + std::string(key) + "\" is no text");
    return {};
  }
  /// An integer from `least` to the largest int.
  int integer(const Json &object, const char *key, int least) {
    const Json &json = field(object, key);
    if (json.is_number_integer() && json >= least && json <= std::numeric_limits<int>::max())
      return json.get<int>();
    fail("\"" + std::string(key) + "\" is no integer from " + std::to_string(least) + " on");
    return least;
  }
  CudaCode code(const Json &object) {
    std::string name = text(object, "code");
    for (CudaCode code : {CudaCode::Ptx, CudaCode::Cubin})
      if (name == nameOf(code))
        return code;
    fail("\"code\" is neither ptx nor cubin");
    return CudaCode::Ptx;
  }
  kernels::DType dtype(const Json &object, const char *key) {
    if (auto parsed = kernels::parseStorableDType(text(object, key)))
      return *parsed;
    fail("\"" + std::string(key) + "\" is no element type");
    return kernels::DType::F32;
  }
  template <typename Launch> void launch(const Json &object, Launch &into) {
    into.symbol = text(object, "symbol");
    into.blocks = integer(object, "blocks", 1);
    into.threads = integer(object, "threads", 1);
    into.sharedBytes = integer(object, "shared_bytes", 0);
  }
  void fail(const std::string &why) {
    if (error.empty())
      error = why;
  }

private:
  Json none;
};

} // namespace

Result<CudaKernels> readCudaKernels(std::string_view text) {
  auto refuse = [](const std::string &why) {
    return Error{ErrorCode::Usage, std::string(cudaKernelsFile) + ": " + why + "; compile again"};
  };
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  Reader reader;
  if (json.is_discarded() || reader.text(json, "format") != format)
    return refuse("it does not list the kernels of a program for GPUs");
  if (int found = reader.integer(json, "version", 0); found != version)
    return refuse("it is of version " + std::to_string(found) + ", this is version " +
                  std::to_string(version));
  CudaKernels kernels;
  kernels.programSha256 = reader.text(json, "program");
  for (const Json &item : reader.field(json, "images")) {
    CudaImage &image = kernels.images.emplace_back();
    image.architecture = reader.integer(item, "architecture", 50);
    image.code = reader.code(item);
    image.file = reader.text(item, "file");
    image.sha256 = reader.text(item, "sha256");
    if (image.file.find('/') != std::string::npos)
      reader.fail("\"" + image.file + "\" is not in its folder");
  }
  for (const Json &item : reader.field(json, "kernels")) {
    CudaKernel &kernel = kernels.kernels.emplace_back();
    reader.launch(item, kernel);
    kernel.workspaceBytes = reader.integer(item, "workspace_bytes", 0);
    for (const Json &launch : reader.field(item, "then"))
      reader.launch(launch, kernel.then.emplace_back());
  }
  for (const Json &item : reader.field(json, "accumulators")) {
    CudaAccumulator &accumulator = kernels.accumulators.emplace_back();
    accumulator.symbol = reader.text(item, "symbol");
    accumulator.slot = reader.dtype(item, "slot");
    accumulator.value = reader.dtype(item, "value");
    accumulator.threads = reader.integer(item, "threads", 1);
  }
  for (const Json &item : reader.field(json, "host_ops")) {
    if (!item.is_string())
      reader.fail("\"host_ops\" is no list of texts");
    else
      kernels.hostOps.push_back(item.get<std::string>());
  }
  if (!reader.error.empty())
    return refuse(reader.error);
  return kernels;
}

} // namespace tbc::program
