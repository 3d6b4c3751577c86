//===- Memory.cpp - Memory with a written mark per byte --------------------===//

#include "tests/ptx/Memory.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <sstream>
#include <stdexcept>
#include <sys/mman.h>
#include <utility>

namespace tbc::ptx {

SparseBytes::SparseBytes(size_t bytes) : numBytes(bytes) {
  if (bytes == 0)
    return;
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw std::bad_alloc();
  begin = static_cast<unsigned char *>(memory);
}

SparseBytes::~SparseBytes() {
  if (begin)
    munmap(begin, numBytes);
}

SparseBytes::SparseBytes(SparseBytes &&other) noexcept
    : begin(std::exchange(other.begin, nullptr)), numBytes(std::exchange(other.numBytes, 0)) {}

SparseBytes &SparseBytes::operator=(SparseBytes &&other) noexcept {
  std::swap(begin, other.begin);
  std::swap(numBytes, other.numBytes);
  return *this;
}

Block &Memory::add(uint64_t begin, size_t bytes) {
  return blocks.insert_or_assign(begin, Block(begin, bytes)).first->second;
}

void Memory::remove(uint64_t begin) { blocks.erase(begin); }

Block *Memory::find(uint64_t address) {
  auto next = blocks.upper_bound(address);
  if (next == blocks.begin())
    return nullptr;
  Block &block = std::prev(next)->second;
  return address < block.end() ? &block : nullptr;
}

std::string Memory::nearest(uint64_t address) const {
  auto next = blocks.upper_bound(address);
  std::ostringstream text;
  text << std::hex;
  if (next == blocks.begin())
    return "no allocation lies before it";
  const Block &block = std::prev(next)->second;
  text << "the allocation before it is [0x" << block.begin << ", 0x" << block.end() << ")";
  return text.str();
}

void Memory::write(uint64_t address, const void *from, size_t bytes) {
  Block *block = find(address);
  if (!block || bytes > block->end() - address)
    throw std::out_of_range("bytes outside of an allocation are written");
  std::memcpy(block->bytes.data() + (address - block->begin), from, bytes);
  std::memset(block->written.data() + (address - block->begin), 1, bytes);
}

void Memory::read(uint64_t address, void *to, size_t bytes) {
  Block *block = find(address);
  if (!block || bytes > block->end() - address)
    throw std::out_of_range("bytes outside of an allocation are read");
  std::memcpy(to, block->bytes.data() + (address - block->begin), bytes);
}

Touches::Page &Touches::find(uint64_t number) {
  auto [found, isNew] = byNumber.emplace(number, numUsed);
  if (isNew) {
    if (numUsed == pages.size())
      pages.push_back(std::make_unique<Page>());
    Page &page = *pages[numUsed++];
    page.number = number;
    std::memset(page.writers, 0, sizeof page.writers);
    std::memset(page.readers, 0, sizeof page.readers);
  }
  last = pages[found->second].get();
  return *last;
}

std::vector<Touches::Range> Touches::ranges(bool ofWrites) const {
  std::vector<size_t> order(numUsed);
  for (size_t i = 0; i < numUsed; ++i)
    order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return pages[a]->number < pages[b]->number; });
  std::vector<Range> found;
  for (size_t index : order) {
    const Page &page = *pages[index];
    for (uint64_t i = 0; i < pageBytes; ++i) {
      bool isTouched = ofWrites ? page.writers[i] != 0 : page.readers[i] != 0 && !page.writers[i];
      if (!isTouched)
        continue;
      uint64_t address = page.number * pageBytes + i;
      if (!found.empty() && found.back().end == address)
        ++found.back().end;
      else
        found.push_back({address, address + 1});
    }
  }
  return found;
}

} // namespace tbc::ptx
