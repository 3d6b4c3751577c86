//===- CompiledKernels.cpp - The compiled kernels of a program, loaded ----===//

#include "runtime/cpu/CompiledKernels.h"

#include <dlfcn.h>
#include <fstream>
#include <set>
#include <sstream>

namespace tbc::cpu {

/// Returns the features of the first processor in /proc/cpuinfo.
static std::string presentFeatures() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0)
      return line.substr(line.find(':') + 1);
  return "";
}

std::string CompiledKernels::missingFeatures(const std::string &features,
                                             const std::string &present) {
  std::istringstream have(present), want(features);
  std::set<std::string> known;
  for (std::string feature; have >> feature;)
    known.insert(feature);
  std::string missing;
  for (std::string feature; want >> feature;)
    if (!known.count(feature))
      missing += (missing.empty() ? "" : " ") + feature;
  return missing;
}

void CompiledKernels::Unload::operator()(void *library) const { dlclose(library); }

Result<std::shared_ptr<const CompiledKernels>>
CompiledKernels::open(const program::OpenFile &file, const std::string &programHash) {
  auto refused = [&](const std::string &why) {
    return Error{ErrorCode::Usage, file.path() + " " + why};
  };
  auto kernels = std::make_shared<CompiledKernels>();
  kernels->file = file;
  kernels->library.reset(dlopen(file.descriptorPath().c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!kernels->library)
    return refused(std::string("cannot be loaded: ") + dlerror());
  auto text = [&](const char *symbol) {
    const void *address = dlsym(kernels->library.get(), symbol);
    return std::string(address ? static_cast<const char *>(address) : "");
  };
  if (text(program::kernelsVersionSymbol) != program::kernelsVersion)
    return refused("holds kernels of version \"" + text(program::kernelsVersionSymbol) +
                   "\", this tbc runs version \"" + program::kernelsVersion + "\"; compile again");
  if (text(program::kernelsProgramSymbol) != programHash)
    return refused("belongs to another program.json; compile again");
  std::string missing = missingFeatures(text(program::kernelsCpuFeaturesSymbol), presentFeatures());
  if (!missing.empty())
    return refused("is for CPUs with " + missing +
                   ", which this one has not; compile on this machine, or with --cpu x86-64-v3");
  return std::shared_ptr<const CompiledKernels>(kernels);
}

program::CompiledKernel CompiledKernels::find(const std::string &symbol) const {
  return reinterpret_cast<program::CompiledKernel>(dlsym(library.get(), symbol.c_str()));
}

} // namespace tbc::cpu
