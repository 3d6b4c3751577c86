//===- Software.cpp - Launchers and linker -----------------------------------===//

#include "tools/doctor/Doctor.h"

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <unistd.h>

namespace tbc::doctor {

/// Returns the path of `program` in PATH; empty if it is missing.
static std::string pathOf(const std::string &program) {
  const char *path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  std::string folder;
  while (std::getline(folders, folder, ':')) {
    std::filesystem::path candidate = std::filesystem::path(folder) / program;
    std::error_code error;
    if (std::filesystem::is_regular_file(candidate, error) && access(candidate.c_str(), X_OK) == 0)
      return candidate.string();
  }
  return "";
}

/// Returns a finding for the first of `programs` that exists.
static Finding oneOf(const std::string &name, const std::vector<std::string> &programs,
                     const std::string &advice) {
  for (const std::string &program : programs)
    if (std::string path = pathOf(program); !path.empty())
      return {name, State::Ok, path, ""};
  return {name, State::Missing, "none", advice};
}

static Finding launchers() {
  Finding finding{"launchers", State::Ok, "tbc run", ""};
  for (const char *program : {"mpirun", "srun", "torchrun"})
    if (!pathOf(program).empty())
      finding.found += ", " + std::string(program);
  return finding;
}

std::vector<Finding> examineSoftware() {
  return {launchers(),
          oneOf("linker", {"ld.lld-19", "ld.lld"},
                "only for compiled kernels: install lld-19; without it tbc compile makes none")};
}

} // namespace tbc::doctor
