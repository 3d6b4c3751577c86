//===- CompileCudaKernels.cpp - Compile kernel sources to GPU images --------===//

#include "codegen/cuda/CompileCudaKernels.h"

#include "codegen/cuda/LowerPtx.h"
#include "runtime/abi/Sha256.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace tbc::cuda {

namespace fs = std::filesystem;

std::string findAssembler() {
  if (auto found = llvm::sys::findProgramByName("ptxas"))
    return *found;
  const char *home = std::getenv("CUDA_HOME");
  std::string folders[] = {home ? std::string(home) + "/bin" : "", "/usr/local/cuda/bin"};
  for (const std::string &folder : folders)
    if (std::string path = folder + "/ptxas"; !folder.empty() && llvm::sys::fs::can_execute(path))
      return path;
  return "";
}

static Status writeBytes(const std::string &path, const std::string &bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  return file ? Status::ok() : Error{ErrorCode::Other, "cannot write " + path};
}

static Result<std::string> readBytes(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  if (!file)
    return Error{ErrorCode::Other, "cannot read " + path};
  return bytes.str();
}

/// Assembles one file into another.
static Status assemble(const std::string &assembler, int architecture, const std::string &ptx,
                       const std::string &output) {
  std::string log = output + ".log", message;
  std::string name = "--gpu-name=sm_" + std::to_string(architecture);
  int code = llvm::sys::ExecuteAndWait(
      assembler, {assembler, name, "-o", output, ptx}, std::nullopt,
      {llvm::StringRef(), llvm::StringRef(log), llvm::StringRef(log)}, 0, 0, &message);
  auto text = llvm::MemoryBuffer::getFile(log);
  std::string said = text ? (*text)->getBuffer().str() : "";
  llvm::sys::fs::remove(log);
  if (code != 0)
    return Error{ErrorCode::Other,
                 assembler + " could not assemble " + ptx + ": " + message + said};
  return Status::ok();
}

namespace {

class Images {
public:
  Images(program::CudaKernels list, std::string folder)
      : list(std::move(list)), folder(std::move(folder)) {}

  Status addPtx(const CudaSources &sources, int architecture) {
    std::vector<std::string> texts;
    for (const region::KernelSource &source : sources.sources)
      texts.push_back(source.text);
    Result<std::string> ptx = lowerToPtx(texts, architecture);
    if (!ptx)
      return ptx.error();
    std::string file = fileOf(architecture, "ptx");
    list.images.push_back({architecture, program::CudaCode::Ptx, file, sha256Hex(*ptx)});
    return writeBytes(pathOf(file), *ptx);
  }

  Status addMachineCode(const std::string &assembler, int architecture) {
    std::string file = fileOf(architecture, "cubin");
    if (Status status =
            assemble(assembler, architecture, pathOf(fileOf(architecture, "ptx")), pathOf(file));
        !status)
      return status;
    Result<std::string> bytes = readBytes(pathOf(file));
    if (!bytes)
      return bytes.error();
    list.images.push_back({architecture, program::CudaCode::Cubin, file, sha256Hex(*bytes)});
    return Status::ok();
  }

  Status writeList() const {
    return writeBytes(pathOf(program::cudaKernelsFile), program::writeCudaKernels(list));
  }

  program::CudaKernels list;

private:
  static std::string fileOf(int architecture, const std::string &ending) {
    return "kernels.sm_" + std::to_string(architecture) + "." + ending;
  }
  std::string pathOf(const std::string &file) const { return (fs::path(folder) / file).string(); }

  std::string folder;
};

} // namespace

Result<program::CudaKernels> compileCudaKernels(const CudaSources &sources,
                                                const CudaTarget &target,
                                                const std::string &programHash,
                                                const std::string &folder,
                                                const std::string &assembler) {
  Images images(sources.list, folder);
  images.list.programSha256 = programHash;
  for (int architecture : target.architectures) {
    Status status = images.addPtx(sources, architecture);
    if (status && !assembler.empty())
      status = images.addMachineCode(assembler, architecture);
    if (!status)
      return status.error();
  }
  if (Status status = images.writeList(); !status)
    return status.error();
  return images.list;
}

Status removeCudaKernels(const std::string &folder) {
  std::string path = (fs::path(folder) / program::cudaKernelsFile).string();
  if (!fs::exists(path))
    return Status::ok();
  std::vector<std::string> files;
  if (Result<std::string> text = readBytes(path))
    if (auto list = program::readCudaKernels(*text))
      for (const program::CudaImage &image : list->images)
        files.push_back((fs::path(folder) / image.file).string());
  files.push_back(path);
  for (const std::string &file : files) {
    std::error_code error;
    fs::remove(file, error);
    if (error)
      return Error{ErrorCode::Other, "cannot remove " + file + ": " + error.message()};
  }
  return Status::ok();
}

} // namespace tbc::cuda
