//===- CompileKernels.cpp - Compile kernel sources to a shared object -------===//

#include "codegen/cpu/CompileKernels.h"

#include "codegen/cpu/LowerKernel.h"
#include "runtime/abi/CompiledKernel.h"
#include "runtime/abi/TemporaryFolder.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

#include <atomic>
#include <optional>
#include <thread>

namespace tbc::cpu {

using namespace region;
namespace {

Status writeBytes(const std::string &path, const std::string &bytes) {
  std::error_code error;
  llvm::raw_fd_ostream stream(path, error);
  if (!error) {
    stream << bytes;
    stream.close();
    error = stream.error();
    stream.clear_error(); // else its destructor ends the program
  }
  if (error)
    return Error{ErrorCode::Other, "cannot write " + path + ": " + error.message()};
  return Status::ok();
}

/// Returns the objects of all sources, in order. `numFound`: the number of cache hits.
Result<std::vector<std::string>> lowerAll(const std::vector<KernelSource> &sources,
                                          const CpuTarget &target, const KernelCache *cache,
                                          size_t &numFound) {
  std::vector<std::string> objects(sources.size());
  std::atomic<size_t> found{0};
  size_t numThreads = std::min<size_t>(std::max(1U, std::thread::hardware_concurrency()),
                                       std::max<size_t>(sources.size(), 1));
  std::vector<std::optional<Error>> errors(numThreads);
  std::atomic<size_t> next{0};
  auto work = [&](size_t thread) {
    KernelLowering lowering(target);
    for (size_t i = next++; i < sources.size() && !errors[thread]; i = next++) {
      std::string key = cache ? KernelCache::keyOf(sources[i].text, target) : "";
      if (std::optional<std::string> known = cache ? cache->find(key) : std::nullopt) {
        objects[i] = std::move(*known);
        ++found;
        continue;
      }
      Result<std::string> object = lowering.lower(sources[i].text);
      if (!object) {
        errors[thread] = object.error();
        continue;
      }
      objects[i] = std::move(*object);
      if (cache)
        cache->put(key, objects[i]);
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < numThreads; ++i)
    threads.emplace_back(work, i);
  work(0);
  for (std::thread &thread : threads)
    thread.join();
  for (const std::optional<Error> &error : errors)
    if (error)
      return *error;
  numFound = found;
  if (cache && numFound < sources.size())
    cache->trim();
  return objects;
}

Status link(const std::vector<std::string> &objects, const std::string &path) {
  std::string linker;
  for (const char *name : {"ld.lld-19", "ld.lld"})
    if (auto found = llvm::sys::findProgramByName(name); found && linker.empty())
      linker = *found;
  if (linker.empty())
    return Error{ErrorCode::Other,
                 "compiled kernels are linked by ld.lld, which is not in PATH; install lld-19, or "
                 "compile with --no-kernels"};
  Result<TemporaryFolder> folder = TemporaryFolder::make("tbc-kernels");
  if (!folder)
    return folder.error();
  std::string output = path + ".new";
  // Writing to a mapped file on a full disk ends the linker by a signal; a write is an error.
  std::vector<std::string> arguments = {linker,
                                        "-shared",
                                        "-O1",
                                        "--gc-sections",
                                        "--build-id=none",
                                        "--hash-style=gnu",
                                        "--no-mmap-output-file",
                                        "-z",
                                        "noexecstack",
                                        "-o",
                                        output};
  for (size_t i = 0; i < objects.size(); ++i) {
    arguments.push_back(folder->file(std::to_string(i) + ".o"));
    if (Status status = writeBytes(arguments.back(), objects[i]); !status)
      return status;
  }
  std::string log = folder->file("log"), message;
  std::vector<llvm::StringRef> views(arguments.begin(), arguments.end());
  int code = llvm::sys::ExecuteAndWait(
      linker, views, std::nullopt, {llvm::StringRef(), llvm::StringRef(log), llvm::StringRef(log)},
      0, 0, &message);
  if (code != 0) {
    auto text = llvm::MemoryBuffer::getFile(log);
    return Error{ErrorCode::Other, linker + " could not link " + path + ": " + message +
                                       (text ? (*text)->getBuffer().str() : "")};
  }
  if (std::error_code error = llvm::sys::fs::rename(output, path))
    return Error{ErrorCode::Other, "cannot write " + path + ": " + error.message()};
  return Status::ok();
}

} // namespace

Result<size_t> compileKernels(const std::vector<KernelSource> &sources, const CpuTarget &target,
                              const std::string &programHash, const std::string &path,
                              const KernelCache *cache) {
  size_t numFound = 0;
  auto objects = lowerAll(sources, target, cache, numFound);
  if (!objects)
    return objects.error();
  auto texts =
      KernelLowering(target).defineTexts({{program::kernelsVersionSymbol, program::kernelsVersion},
                                          {program::kernelsProgramSymbol, programHash},
                                          {program::kernelsCpuFeaturesSymbol, target.features}});
  if (!texts)
    return texts.error();
  objects->push_back(std::move(*texts));
  if (Status status = link(*objects, path); !status)
    return status.error();
  return numFound;
}

} // namespace tbc::cpu
