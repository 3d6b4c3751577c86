//===- Emulator.cpp - The emulated GPUs of this process --------------------===//

#include "tests/emulated/Emulator.h"

#include "tests/ptx/Executor.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace tbc::emulated {

using cuda::DriverCode;
using test::FakeKernel;
using test::FakeLaunch;

namespace {

int numberOf(const char *variable, int otherwise) {
  const char *text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}

/// Device memory and loaded modules.
class Device : public test::FakeMemory {
public:
  unsigned char *allocate(cuda::DeviceAddress address, size_t bytes) override {
    return memory.add(address, bytes).bytes.data();
  }
  void release(cuda::DeviceAddress address) override { memory.remove(address); }
  void willWrite(cuda::DeviceAddress address, size_t bytes) override {
    ptx::Block *block = memory.find(address);
    std::memset(block->written.data() + (address - block->begin), 1, bytes);
  }

  DriverCode load(const char *image, std::map<std::string, FakeKernel> &kernels) {
    std::string text = image;
    if (text.compare(0, 4,
                     "\x7f"
                     "ELF") == 0)
      return DriverCode::NoBinaryForGpu; // machine code, which is not executed
    auto loaded = std::make_shared<ptx::LoadedModule>();
    try {
      *loaded = ptx::load(ptx::parse(text), memory, nextGlobals);
    } catch (const ptx::Fault &fault) {
      say(fault.what());
      return DriverCode::InvalidImage;
    }
    constexpr uint64_t alignment = 4096;
    nextGlobals += (uint64_t(loaded->module.globalBytes) + 2 * alignment) / alignment * alignment;
    for (const auto &[name, kernel] : loaded->module.kernels) {
      FakeKernel made;
      for (const ptx::Parameter &parameter : kernel.parameters)
        made.argumentBytes.push_back(size_t(parameter.bytes));
      made.maxThreads = kernel.maxThreads;
      made.staticSharedBytes = kernel.sharedBytes;
      made.run = [this, loaded, name = name](FakeLaunch &launch) { run(*loaded, name, launch); };
      kernels[name] = made;
    }
    return DriverCode::Success;
  }

private:
  void run(ptx::LoadedModule &loaded, const std::string &name, FakeLaunch &given) {
    ptx::Launch launch;
    launch.blocks.x = given.gridX, launch.threads.x = given.blockX;
    launch.dynamicSharedBytes = given.sharedBytes;
    launch.arguments = given.arguments;
    ptx::Counts counts;
    try {
      counts = executor.run(loaded, name, launch);
    } catch (const ptx::Fault &fault) {
      say(fault.what());
      driver().lose(DriverCode::LaunchFailed);
      return;
    }
    // Reports the touched ranges to the race checker of streams. The access also checks that they
    // lie in device memory.
    for (bool isWrite : {false, true})
      for (ptx::Touches::Range range : executor.touches().ranges(isWrite)) {
        if (memory.find(range.begin)->begin < firstAllocation)
          continue; // variables of the module
        if (isWrite)
          given.memory.write<char>(range.begin, range.end - range.begin);
        else
          given.memory.read<char>(range.begin, range.end - range.begin);
      }
    if (const char *file = std::getenv("TBC_EMULATED_STATISTICS"))
      std::ofstream(file, std::ios::app)
          << "{\"kernel\":\"" << name << "\",\"blocks\":" << launch.blocks.x
          << ",\"threads\":" << launch.threads.x
          << ",\"warp_instructions\":" << counts.warpInstructions
          << ",\"lane_instructions\":" << counts.laneInstructions
          << ",\"loaded_bytes\":" << counts.loadedBytes
          << ",\"stored_bytes\":" << counts.storedBytes << ",\"sectors\":" << counts.sectors
          << "}\n";
  }

  static constexpr uint64_t firstAllocation = 0xd000000000000000;
  ptx::Memory memory;
  ptx::Executor executor{memory};
  uint64_t nextGlobals = 0xc000000000000000;
};

} // namespace

void say(const std::string &text) { std::fprintf(stderr, "emulated GPU: %s\n", text.c_str()); }

test::FakeDriver &driver() {
  // Never destroyed, because destructors of other globals may still call it.
  static auto &device = *new Device();
  static auto &made = *new test::FakeDriver([] {
    test::FakeOptions options;
    options.numDevices = numberOf("TBC_EMULATED_GPUS", 2);
    options.capability = numberOf("TBC_EMULATED_CAPABILITY", 100);
    options.deviceBytes = size_t(80) << 30;
    options.name = "Emulated GPU";
    options.memory = &device;
    options.load = [](const char *image, std::map<std::string, FakeKernel> &kernels) {
      return device.load(image, kernels);
    };
    options.onComplaint = say;
    options.freeWaits = true;
    options.poll = std::chrono::milliseconds(1);
    options.patience = std::chrono::minutes(10);
    return options;
  }());
  return made;
}

const cuda::Driver &driverTable() {
  driver();
  return test::FakeDriver::table();
}

} // namespace tbc::emulated
