//===- Memory.h - Memory with a written mark per byte ----------------------===//
//
// Device memory of the emulated GPU. A block is a reservation, and only touched pages cost memory.
// So a tensor of 2^31 elements fits a small machine.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_PTX_MEMORY_H
#define TBC_TESTS_PTX_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace tbc::ptx {

/// Zero bytes of the host that cost memory only once they are written.
class SparseBytes {
public:
  SparseBytes() = default;
  /// Throws std::bad_alloc if the host has no addresses left.
  explicit SparseBytes(size_t bytes);
  ~SparseBytes();
  SparseBytes(SparseBytes &&other) noexcept;
  SparseBytes &operator=(SparseBytes &&other) noexcept;

  unsigned char *data() const { return begin; }
  size_t size() const { return numBytes; }

private:
  unsigned char *begin = nullptr;
  size_t numBytes = 0;
};

/// An allocation. Each byte has a mark: written (1) or not (0).
struct Block {
  uint64_t begin = 0;
  SparseBytes bytes, written;

  Block() = default;
  Block(uint64_t begin, size_t size) : begin(begin), bytes(size), written(size) {}
  size_t size() const { return bytes.size(); }
  uint64_t end() const { return begin + bytes.size(); }
};

/// The allocations of a device, by address.
class Memory {
public:
  /// Adds a block at this address, which must not overlap another block.
  Block &add(uint64_t begin, size_t bytes);
  void remove(uint64_t begin);
  /// Returns the block at the address, or null.
  Block *find(uint64_t address);
  /// Describes the block around the address or nearest before it, for messages.
  std::string nearest(uint64_t address) const;

  // Accesses by the host. Throw std::out_of_range if the bytes are not all in one block.
  void write(uint64_t address, const void *from, size_t bytes);
  void read(uint64_t address, void *to, size_t bytes);

private:
  std::map<uint64_t, Block> blocks;
};

/// The bytes of global memory touched by each block of threads in one launch.
class Touches {
public:
  static constexpr uint64_t pageBytes = 4096;
  /// Marks of a byte: 0 (untouched), several readers, several atomic operations, or 1 + a block.
  static constexpr uint32_t several = 0xffffffff, atomics = 0xfffffffe;
  struct Page {
    uint64_t number = 0;
    uint32_t writers[pageBytes], readers[pageBytes];
  };

  void clear() {
    byNumber.clear();
    numUsed = 0;
    last = nullptr;
  }
  Page &page(uint64_t address) {
    uint64_t number = address / pageBytes;
    return last && last->number == number ? *last : find(number);
  }
  struct Range {
    uint64_t begin, end;
  };
  /// Returns the ranges written, or only read, in order. Untouched bytes are not included.
  std::vector<Range> ranges(bool ofWrites) const;

private:
  Page &find(uint64_t number);
  std::unordered_map<uint64_t, size_t> byNumber;
  std::vector<std::unique_ptr<Page>> pages; // reused by the next launch
  size_t numUsed = 0;
  Page *last = nullptr;
};

} // namespace tbc::ptx

#endif // TBC_TESTS_PTX_MEMORY_H
