//===- Machine.cpp - Cores, memory, limits -----------------------------------===//

#include "tools/doctor/Doctor.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sched.h>
#include <sstream>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <thread>
#include <unistd.h>

namespace tbc::doctor {

static std::string gibibytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", bytes / double(int64_t(1) << 30));
  return text;
}

static std::string firstLine(const std::string &path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Returns the cores allowed by a container's quota; 0 without a quota. Example: "150000 100000" in
/// cpu.max means 1.5 cores. Source: Linux, cgroup-v2.rst, cpu.max.
static double quotaCores() {
  std::istringstream text(firstLine("/sys/fs/cgroup/cpu.max"));
  std::string quota;
  double period = 0;
  text >> quota >> period;
  return quota.empty() || quota == "max" || period <= 0 ? 0 : std::atof(quota.c_str()) / period;
}

static Finding cores() {
  Finding finding{"cores", State::Ok, "", ""};
  cpu_set_t set;
  int usable = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
  int online = int(std::thread::hardware_concurrency());
  finding.found = std::to_string(usable) + " usable";
  double quota = quotaCores();
  if (online > usable)
    finding.found += " of " + std::to_string(online);
  if (quota > 0 && quota < usable) {
    char text[48];
    std::snprintf(text, sizeof text, ", a quota of %.1f", quota);
    finding.found += text;
    finding.state = State::Problem;
    finding.advice = "the container's quota stops all threads when it is used up; start no more "
                     "ranks and threads than the quota has cores";
  }
  return finding;
}

static Finding vectorUnits() {
  Finding finding{"vector units", State::Ok, "", ""};
  std::ifstream file("/proc/cpuinfo");
  std::string line, flags;
  while (flags.empty() && std::getline(file, line))
    if (line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0)
      flags = line.substr(line.find(':') + 1) + " ";
  for (const char *name :
       {"avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve", "bf16"})
    if (flags.find(" " + std::string(name) + " ") != std::string::npos)
      finding.found += (finding.found.empty() ? "" : ", ") + std::string(name);
  if (finding.found.empty()) {
    finding.found = "none that tbc looks for";
    finding.state = State::Problem;
    finding.advice = "kernels will be slow; in a virtual machine pass the host's processor through";
  }
  return finding;
}

static Finding memory() {
  Finding finding{"memory", State::Ok, "", ""};
  std::ifstream file("/proc/meminfo"); // in KiB
  std::string key, unit;
  double kib = 0, total = 0, available = 0;
  while (file >> key >> kib && std::getline(file, unit)) {
    if (key == "MemTotal:")
      total = 1024 * kib;
    if (key == "MemAvailable:")
      available = 1024 * kib;
  }
  finding.found = gibibytes(available) + " of " + gibibytes(total) + " available";
  std::string limit = firstLine("/sys/fs/cgroup/memory.max");
  if (!limit.empty() && limit != "max") {
    finding.found += ", this container's limit " + gibibytes(std::atof(limit.c_str()));
    available = std::min(available, std::atof(limit.c_str()));
  }
  constexpr double least = double(int64_t(1) << 30);
  if (available < least) {
    finding.state = State::Problem;
    finding.advice = "less than 1 GiB; end other programs, or plan for less with --memory-limit";
  }
  return finding;
}

static Finding fileDescriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  Finding finding{"file descriptors", State::Ok, std::to_string(limit.rlim_cur) + " per process",
                  ""};
  // While ranks connect, each has two descriptors per other rank, beside its files.
  if (limit.rlim_cur < 1024) {
    finding.state = State::Problem;
    finding.advice = "jobs of more than some " + std::to_string(limit.rlim_cur / 2) +
                     " ranks cannot connect; raise it: ulimit -n 4096";
  }
  return finding;
}

static Finding space() {
  std::error_code error;
  std::string folder = std::filesystem::temp_directory_path(error).string();
  Finding finding{"temporary files", State::Ok, "", ""};
  struct statvfs status{};
  if (error || statvfs(folder.c_str(), &status) != 0 || access(folder.c_str(), W_OK) != 0) {
    finding.state = State::Problem;
    finding.found = folder + " cannot be written";
    finding.advice = "set TMPDIR to a folder that can";
    return finding;
  }
  double bytes = double(status.f_bavail) * double(status.f_frsize);
  finding.found = gibibytes(bytes) + " free in " + folder;
  if (bytes < 1 << 28) {
    finding.state = State::Problem;
    finding.advice = "make room, or set TMPDIR to another folder";
  }
  return finding;
}

std::vector<Finding> examineMachine() {
  return {cores(), vectorUnits(), memory(), fileDescriptors(), space()};
}

} // namespace tbc::doctor
