//===- Gpu.h - A kernel, its buffers and its launch, for tests -------------===//

#ifndef TBC_TESTS_PTX_GPU_H
#define TBC_TESTS_PTX_GPU_H

#include "tests/ptx/Executor.h"

#include <cstring>

namespace tbc::ptx {

/// A device with one module.
class Gpu {
public:
  /// `body` becomes kernel `k` with 64-bit parameters p0, p1 …. It has registers 0 to 39 of every
  /// type: %p, %h (b16), %r (b32), %f (f32), %d (f64), %x (b64). Declarations may precede it.
  explicit Gpu(const std::string &body, int numParameters = 4, const std::string &before = "")
      : executor(memory) {
    std::string text =
        ".version 8.0\n.target sm_90\n.address_size 64\n" + before + ".visible .entry k(";
    for (int p = 0; p < numParameters; ++p)
      text += std::string(p ? ", " : "") + ".param .u64 p" + std::to_string(p);
    text += ")\n{\n.reg .pred %p<40>;\n.reg .b16 %h<40>;\n.reg .b32 %r<40>;\n.reg .f32 %f<40>;\n"
            ".reg .f64 %d<40>;\n.reg .b64 %x<40>;\n" +
            body + "\nret;\n}\n";
    loaded = load(parse(text), memory, 0xc000000000000000);
  }

  /// Returns the address of a new unwritten buffer of `bytes` bytes.
  uint64_t buffer(size_t bytes) {
    uint64_t begin = next;
    constexpr uint64_t alignment = 256;
    next += (bytes + 2 * alignment) / alignment * alignment;
    memory.add(begin, bytes);
    return begin;
  }
  template <typename T> uint64_t upload(const std::vector<T> &values) {
    uint64_t begin = buffer(values.size() * sizeof(T));
    memory.write(begin, values.data(), values.size() * sizeof(T));
    return begin;
  }
  template <typename T> std::vector<T> download(uint64_t begin, size_t count) {
    std::vector<T> values(count);
    memory.read(begin, values.data(), count * sizeof(T));
    return values;
  }

  Counts run(const std::vector<uint64_t> &arguments, Dims blocks = {}, Dims threads = {32, 1, 1}) {
    launch.blocks = blocks, launch.threads = threads;
    launch.arguments.clear();
    for (uint64_t argument : arguments) {
      std::vector<unsigned char> bytes(sizeof argument);
      std::memcpy(bytes.data(), &argument, sizeof argument);
      launch.arguments.push_back(bytes);
    }
    return executor.run(loaded, "k", launch);
  }
  /// Returns the fault of a launch, or an empty text.
  std::string fault(const std::vector<uint64_t> &arguments, Dims blocks = {},
                    Dims threads = {32, 1, 1}) {
    try {
      run(arguments, blocks, threads);
    } catch (const Fault &found) {
      return found.what();
    }
    return "";
  }

  Memory memory;
  Launch launch;
  Executor executor;
  LoadedModule loaded;

private:
  uint64_t next = 0xd000000000000000;
};

} // namespace tbc::ptx

#endif // TBC_TESTS_PTX_GPU_H
