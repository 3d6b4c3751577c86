//===- GpuChoice.cpp - Choose and open the GPU of a rank ----------------------===//

#include "tools/tbc-run/GpuChoice.h"

#include "runtime/cuda/CublasLt.h"
#include "runtime/cuda/CudaMachine.h"
#include "runtime/cuda/CudnnOps.h"
#include "runtime/cuda/Nccl.h"
#include "runtime/cuda/StartLibraries.h"
#include "runtime/exec/Peers.h"
#include "runtime/launch/Environment.h"
#include "runtime/launch/Say.h"

#include <cstdlib>

namespace tbc::cli {

bool usesGpus(const train::LoadedProgram &loaded, const RunOptions &options) {
  return loaded.manifest.target == train::Target::Cuda && options.kernels == "native" &&
         (options.arith == "native" || options.arith == "residue251");
}

Status checkGpuLibraries(int64_t numRanks, const RunOptions &options) {
  auto onCpus = [&](const Error &error) {
    return Error{error.code,
                 "the program is compiled for GPUs: " + error.message +
                     ". To run it on CPUs, compile with --target cpu" +
                     (options.arith == "native" ? "" : ", or give --kernels reference")};
  };
  if (Status status = cuda::findDriver(); !status)
    return onCpus(status.error());
  if (numRanks > 1 && options.communicator != "gloo")
    if (auto nccl = cuda::loadNccl(); !nccl)
      return onCpus(nccl.error());
  return Status::ok();
}

Result<int> gpuOfRank(int64_t localRank, int count, bool mayBeOwn) {
  if (localRank < count)
    return int(localRank);
  if (count == 1 && mayBeOwn)
    return 0;
  return Error{ErrorCode::Usage,
               "this is rank number " + std::to_string(localRank) + " of this machine, of which " +
                   std::to_string(count) + (count == 1 ? " GPU is" : " GPUs are") +
                   " visible; start fewer ranks here, or look at CUDA_VISIBLE_DEVICES"};
}

Result<cuda::DevicePtr> openGpu(int64_t localRank, bool isStartedHere) {
  auto driver = cuda::loadDriver();
  if (!driver)
    return driver.error();
  int count = 0;
  if (Status status = checkDriver(*driver, driver->deviceGetCount(&count), "counting GPUs");
      !status)
    return status.error();
  bool isChosen = launch::systemVariable("CUDA_VISIBLE_DEVICES").has_value();
  Result<int> ordinal = gpuOfRank(localRank, count, isChosen && !isStartedHere);
  if (!ordinal)
    return ordinal.error();
  return cuda::Device::open(*driver, *ordinal);
}

/// Whether any instruction may use cuDNN.
static bool asksForCudnn(const program::Program &program) {
  for (const program::Stage &stage : program.stages)
    for (program::BlockId id : stage.blocks())
      for (const program::Instruction &instruction : stage.block(id).instructions)
        if (cuda::isCudnnOp(instruction.op))
          return true;
  return false;
}

Status checkGpuOptions(const train::LoadedProgram &loaded, const RunOptions &options) {
  auto usage = [](const std::string &why) { return Status(Error{ErrorCode::Usage, why}); };
  bool isOnGpus = usesGpus(loaded, options);
  if (options.checksItself && isOnGpus)
    return usage(
        "--self-check compares kernels of CPUs; this program is for GPUs: compile the plan "
        "with --target cpu to check it");
  if (options.checksItself && (options.kernels != "native" || options.arith != "native"))
    return usage("--self-check compares native kernels with the reference kernels; leave out "
                 "--kernels and --arith");
  if (isOnGpus && options.commDtype == "bf16")
    return usage("--comm-dtype bf16 is for programs for CPUs; this one is for GPUs");
  if (isOnGpus && !options.compression.empty() && options.communicator == "gloo")
    return usage("--compress-gradients on GPUs sends what they choose over NCCL; leave out "
                 "--communicator gloo");
  if (!isOnGpus && options.communicator == "nccl")
    return usage("--communicator nccl connects GPUs, and this run uses none; compile the plan with "
                 "--target cuda");
  if (options.isBenchmark && options.isDeterministic)
    return usage("--benchmark takes what is fastest in the run, which may differ from run to run, "
                 "and --deterministic has every run alike; leave out one of them");
  if (options.isBenchmark && !isOnGpus)
    return usage("--benchmark times what cuBLASLt does on GPUs, and this run uses none; leave it "
                 "out, or compile the plan with --target cuda");
  if (options.isBenchmark && options.arith != "native")
    return usage("--benchmark times what cuBLASLt does, which computes nothing with --arith " +
                 options.arith + "; leave out one of them");
  bool isInFp8 = options.matmulPrecision == "fp8";
  if (isInFp8 && !isOnGpus)
    return usage("--matmul-precision fp8 is for GPUs, and this run uses none; leave it out, or "
                 "compile the plan with --target cuda");
  if (isInFp8 && options.arith != "native")
    return usage("--matmul-precision fp8 rounds what --arith " + options.arith +
                 " keeps; leave out one of them");
  if (options.cudaGraphs != "on")
    return Status::ok();
  if (!isOnGpus)
    return usage("--cuda-graphs on is for GPUs, and this run uses none; compile the plan with "
                 "--target cuda");
  if (options.train.detectsAnomalies)
    return usage("--detect-anomaly looks at every result, which a step that is one CUDA graph does "
                 "not show; leave out --cuda-graphs on");
  return Status::ok();
}

void fixNcclAlgorithms() {
  setenv("NCCL_ALGO", "Ring", /*overwrite=*/0);
  setenv("NCCL_PROTO", "Simple", /*overwrite=*/0);
}

void preparePipelines(const program::Program &program) {
  if (runtime::peersOf(program).messages.empty())
    return;
  setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  setenv("NCCL_RUNTIME_CONNECT", "0", /*overwrite=*/0);
}

bool registersMemory() { return launch::systemVariable("TBC_NCCL_REGISTER").value_or("1") != "0"; }

/// Adds the libraries that compute beside tbc's kernels. The speaker reports missing ones; every
/// rank reports those that fail to start on its GPU.
static Status addLibraries(cuda::CudaOptions &options, const program::Program &program,
                           const RunOptions &runOptions, bool isSpeaker) {
  std::vector<std::string> refusals;
  auto cublas = cuda::startedCublasLt(options.device, refusals);
  if (cublas) {
    options.cublas = *cublas;
    for (const std::string &refusal : refusals)
      launch::say("cuBLASLt " + versionOf(*cublas) + " multiplies matrices instead: " + refusal);
  } else if (runOptions.matmulPrecision == "fp8")
    return Error{cublas.error().code, "--matmul-precision fp8: " + cublas.error().message};
  else if (isSpeaker || !refusals.empty())
    launch::say(std::string("plain kernels multiply matrices, slowly") +
                (runOptions.isBenchmark ? ", and --benchmark has nothing to time: " : ": ") +
                cublas.error().message);
  if (!asksForCudnn(program))
    return Status::ok();
  auto cudnn = cuda::startedCudnn(options.device);
  if (cudnn)
    options.cudnn = *cudnn;
  else if (isSpeaker || cudnn.error().code == ErrorCode::RankFailed)
    launch::say("plain kernels do attention and convolution, slowly: " + cudnn.error().message);
  return Status::ok();
}

Result<runtime::MachineMaker> gpuMachine(const train::LoadedProgram &loaded,
                                         const RunOptions &runOptions,
                                         const cuda::DevicePtr &device,
                                         const std::shared_ptr<cuda::HostWatch> &watch,
                                         const cuda::Nccl *nccl, bool isSpeaker) {
  auto kernels = cuda::KernelModule::load(
      device, [&](const std::string &name) { return loaded.files.text(name); },
      loaded.manifest.programHash);
  if (!kernels)
    return kernels.error();
  cuda::CudaOptions options;
  options.device = device;
  if (runOptions.arith != "native") {
    if (isSpeaker)
      launch::say(
          "the host executes all kernels, in exact numbers, slowly; memory plan, streams and "
          "messages are the GPUs'");
  } else {
    std::string ops;
    for (const std::string &op : (*kernels)->hostOps())
      ops += (ops.empty() ? "" : ", ") + op;
    if (isSpeaker && !ops.empty())
      launch::say("the host executes what has no kernel for GPUs, slowly: " + ops);
    if (Status status = addLibraries(options, loaded.program, runOptions, isSpeaker); !status)
      return status.error();
  }
  if (isSpeaker && runOptions.cudaGraphs == "auto" && runOptions.train.detectsAnomalies)
    launch::say("steps are not CUDA graphs: --detect-anomaly looks at every result");
  if (isSpeaker)
    options.say = launch::say;
  options.kernels = *kernels;
  options.watch = watch;
  options.isDeterministic = runOptions.isDeterministic;
  options.isBenchmark = runOptions.isBenchmark;
  options.multipliesInFp8 = runOptions.matmulPrecision == "fp8";
  if (nccl && nccl->registerMemory && registersMemory())
    options.registrar = nccl;
  options.graphs = runOptions.cudaGraphs == "off" || runOptions.train.detectsAnomalies
                       ? cuda::GraphUse::Off
                   : runOptions.cudaGraphs == "on" ? cuda::GraphUse::On
                                                   : cuda::GraphUse::Auto;
  return cuda::cudaMachine(options);
}

} // namespace tbc::cli
