//===- kernel_gate.cpp - Judges the kernels of a Program for GPUs ----------===//
//
// usage: kernel-gate PROGRAM_FOLDER CLUSTER
//
// Prints a JSON list with one entry per judged kernel (Gate.h) and all its counts. Library calls
// are not judged. Exit code: 0; 1 if the executor refuses a kernel; 2 if a folder or cluster cannot
// be used.
//
//===----------------------------------------------------------------------===//

#include "runtime/abi/Region.h"
#include "runtime/abi/Seal.h"
#include "runtime/train/Manifest.h"
#include "tests/gate/Gate.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

using namespace tbc;

namespace {

using Json = nlohmann::ordered_json;

struct Input {
  program::Program program;
  program::CudaKernels kernels;
  train::Manifest manifest;
  std::string ptx;
  planner::Cluster cluster;
  roofline::Processor processor;
};

Error usage(const std::string &why) { return {ErrorCode::Usage, why}; }

Result<std::string> ptxOf(const program::SealedFolder &folder, const program::CudaKernels &kernels,
                          int capability) {
  const program::CudaImage *best = nullptr;
  for (const program::CudaImage &image : kernels.images)
    if (image.code == program::CudaCode::Ptx && isExecutedBy(image, capability) &&
        (!best || image.architecture > best->architecture))
      best = &image;
  if (!best)
    return usage("the program has no PTX for sm_" + std::to_string(capability));
  return folder.text(best->file);
}

Result<Input> read(const std::string &path, const std::string &clusterName) {
  Input input;
  auto cluster = planner::loadCluster(clusterName);
  if (!cluster)
    return cluster.error();
  auto processor = roofline::processorOf(*cluster);
  if (!processor)
    return usage("the multiprocessors of " + clusterName + " are not known");
  input.cluster = *cluster, input.processor = *processor;
  auto folder = program::SealedFolder::open(path);
  if (!folder)
    return folder.error();
  auto programText = folder->text(train::programFile);
  auto kernelsText = folder->text(program::cudaKernelsFile);
  auto manifestText = folder->text(train::manifestFile);
  if (!programText || !kernelsText || !manifestText)
    return usage(path + " is no Program for GPUs");
  auto program = program::readProgram(*programText);
  auto kernels = program::readCudaKernels(*kernelsText);
  auto manifest = train::readManifest(*manifestText);
  if (!program || !kernels || !manifest)
    return usage(path + " cannot be read");
  auto ptx = ptxOf(*folder, *kernels, processor->capability);
  if (!ptx)
    return ptx.error();
  input.program = *program, input.kernels = *kernels, input.manifest = *manifest, input.ptx = *ptx;
  return input;
}

/// Judges each kernel of a Program once, even if it is launched several times.
class Judge {
public:
  explicit Judge(const Input &input)
      : input(input), device(gate::deviceOf(input.cluster, input.processor)), sampler(input.ptx) {
    for (const program::CudaKernel &kernel : input.kernels.kernels)
      kernels[kernel.symbol] = &kernel;
    for (const train::Input &given : input.manifest.inputs)
      below[given.name] = given.below;
  }

  Json run() {
    std::map<std::string, Json> rows;
    std::vector<std::string> order;
    for (const roofline::Launch &launch :
         roofline::launchesOf(input.program, &input.kernels, input.processor.capability)) {
      if (launch.by != roofline::By::Kernel || launch.symbol.empty())
        continue;
      if (rows.emplace(launch.symbol, Json()).second) {
        order.push_back(launch.symbol);
        rows[launch.symbol] = rowOf(launch);
      }
      if (!rows[launch.symbol].is_null())
        rows[launch.symbol]["launches"] =
            rows[launch.symbol].value("launches", int64_t(0)) + launch.perStep;
    }
    Json list = Json::array();
    for (const std::string &symbol : order)
      if (!rows[symbol].is_null())
        list.push_back(rows[symbol]);
    return list;
  }

private:
  /// Returns null if the kernel is not judged.
  Json rowOf(const roofline::Launch &launch) {
    const program::CudaKernel &kernel = *kernels.at(launch.symbol);
    std::vector<gate::Buffer> buffers = buffersOf(launch);
    double bytes = double(kernel.workspaceBytes);
    for (const gate::Buffer &buffer : buffers)
      bytes += double(program::sizeBytes(buffer.type));
    // If there are several launches, the numbers are those of the longest.
    std::vector<gate::Sample> samples = sampler.samples(kernel, buffers);
    std::vector<gate::Verdict> verdicts;
    std::set<std::string> failed;
    double seconds = 0, idealSeconds = 0;
    bool isJudged = false;
    for (const gate::Sample &one : samples) {
      const gate::Verdict &judged = verdicts.emplace_back(gate::judge(one, bytes, device));
      isJudged |= judged.isJudged;
      seconds += judged.seconds, idealSeconds += judged.idealSeconds;
      for (gate::Criterion criterion : judged.failed)
        failed.insert(name(criterion));
    }
    if (!isJudged)
      return nullptr;
    auto longest = std::max_element(verdicts.begin(), verdicts.end(),
                                    [](auto &a, auto &b) { return a.seconds < b.seconds; });
    const gate::Verdict &verdict = *longest;
    const gate::Sample &sample = samples[size_t(longest - verdicts.begin())];
    return {{"kernel", launch.what},
            {"result", largestResult(launch)},
            {"place", launch.place(input.program)},
            {"symbol", launch.symbol},
            {"blocks", sample.blocks},
            {"threads", sample.threads},
            {"moved_bytes", verdict.movedBytes},
            {"bytes_in_flight", verdict.bytesInFlight},
            {"needed_in_flight", device.bytesNeededInFlight()},
            {"instructions_per_byte", verdict.instructionsPerByte},
            {"balance", device.instructionsPerByte()},
            {"sector_ratio", verdict.sectorRatio},
            {"local_bytes", verdict.localBytes},
            {"is_cut", sample.counts.isCut},
            {"seconds", seconds},
            {"ideal_seconds", idealSeconds},
            {"failed", failed}};
  }

  /// Returns a type such as "768x50304xbf16", or an empty text for a kernel without results.
  std::string largestResult(const roofline::Launch &launch) const {
    const program::Stage &stage = input.program.stages[size_t(launch.stage)];
    const kernels::TensorType *largest = nullptr;
    for (program::ValueId value : launch.results)
      if (const kernels::TensorType &type = stage.values[size_t(value)];
          !largest || program::sizeBytes(type) > program::sizeBytes(*largest))
        largest = &type;
    return largest ? kernels::toString(*largest) : "";
  }

  std::vector<gate::Buffer> buffersOf(const roofline::Launch &launch) const {
    const program::Stage &stage = input.program.stages[size_t(launch.stage)];
    const program::Block &block = stage.block(launch.block);
    program::Region region{launch.instructions.front(), int(launch.instructions.size()), "", 1};
    program::RegionValues values = program::regionValues(block, region);
    std::vector<program::ValueId> all = values.operands;
    all.insert(all.end(), values.results.begin(), values.results.end());
    // A computed index: assume it indexes the shortest matrix possible.
    int64_t shortest = 0;
    for (program::ValueId value : all)
      if (const kernels::TensorType &type = stage.values[size_t(value)];
          kernels::isFloat(type.dtype) && type.shape.size() > 1 &&
          (shortest == 0 || type.shape[0] < shortest))
        shortest = type.shape[0];
    std::vector<gate::Buffer> buffers;
    for (program::ValueId value : all) {
      int64_t limit = limitOf(stage, block, value);
      buffers.push_back({stage.values[size_t(value)], limit > 0 ? limit : shortest});
    }
    return buffers;
  }

  /// Returns the exclusive upper limit of an input's integers, or 0 if it is not given.
  int64_t limitOf(const program::Stage &stage, const program::Block &block,
                  program::ValueId value) const {
    for (const program::Argument &argument : block.arguments) {
      const program::Slot &slot = stage.slots[size_t(argument.slot)];
      if (argument.value != value || slot.tensor < 0)
        continue;
      auto found = below.find(input.program.tensors[size_t(slot.tensor)].name);
      return found == below.end() ? 0 : found->second;
    }
    return 0;
  }

  const Input &input;
  const gate::Device device;
  gate::Sampler sampler;
  std::map<std::string, const program::CudaKernel *> kernels;
  std::map<std::string, int64_t> below;
};

} // namespace

int main(int argc, char **argv) {
  if (argc != 3) {
    std::cerr << "usage: kernel-gate PROGRAM_FOLDER CLUSTER\n";
    return 2;
  }
  auto input = read(argv[1], argv[2]);
  if (!input) {
    std::cerr << "kernel-gate: " << input.error().message << "\n";
    return 2;
  }
  try {
    std::cout << Judge(*input).run().dump(1) << "\n";
  } catch (const ptx::Fault &fault) {
    std::cerr << "kernel-gate: " << fault.what() << "\n";
    return 1;
  }
  return 0;
}
