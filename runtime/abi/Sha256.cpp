//===- Sha256.cpp - SHA-256 (FIPS 180-4) -----------------------------------===//

#include "runtime/abi/Sha256.h"

#include <algorithm>
#include <array>
#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace tbc {
namespace {

// FIPS 180-4, 4.2.2: the first 32 bits of the fractional parts of the cube roots of the first 64
// primes.
constexpr std::array<uint32_t, 64> roundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t rotateRight(uint32_t x, int n) { return (x >> n) | (x << (32 - n)); }

/// FIPS 180-4, 6.2.2: folds one block of 64 bytes into `hash`.
void foldBlock(const unsigned char *block, std::array<uint32_t, 8> &hash) {
  std::array<uint32_t, 64> w;
  for (int t = 0; t < 16; ++t)
    w[t] = uint32_t(block[4 * t]) << 24 | uint32_t(block[4 * t + 1]) << 16 |
           uint32_t(block[4 * t + 2]) << 8 | block[4 * t + 3];
  for (int t = 16; t < 64; ++t) {
    uint32_t s0 = rotateRight(w[t - 15], 7) ^ rotateRight(w[t - 15], 18) ^ (w[t - 15] >> 3);
    uint32_t s1 = rotateRight(w[t - 2], 17) ^ rotateRight(w[t - 2], 19) ^ (w[t - 2] >> 10);
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = hash;
  for (int t = 0; t < 64; ++t) {
    uint32_t s1 = rotateRight(e, 6) ^ rotateRight(e, 11) ^ rotateRight(e, 25);
    uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + roundConstants[t] + w[t];
    uint32_t s0 = rotateRight(a, 2) ^ rotateRight(a, 13) ^ rotateRight(a, 22);
    uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  std::array<uint32_t, 8> add = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i)
    hash[i] += add[i];
}

#if defined(__x86_64__)
/// Whether the processor has the SHA extensions: CPUID leaf 7, EBX bit 29.
bool hasShaInstructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned leaf = 7, shaBit = 1U << 29;
  return __get_cpuid_count(leaf, 0, &a, &b, &c, &d) != 0 && (b & shaBit) != 0;
}

/// `foldBlock` of `count` blocks by the SHA extensions. Source: Intel 64 and IA-32 Architectures
/// Software Developer's Manual, SHA256RNDS2. The state is kept as two vectors, {a, b, e, f} and {c,
/// d, g, h}, from the highest element down.
__attribute__((target("sha,sse4.1"))) void
foldBlocksByInstructions(const unsigned char *blocks, size_t count, std::array<uint32_t, 8> &hash) {
  const __m128i bigEndian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  auto load = [](const void *from) { return _mm_loadu_si128(static_cast<const __m128i *>(from)); };
  __m128i low = _mm_shuffle_epi32(load(&hash[0]), 0xb1),
          high = _mm_shuffle_epi32(load(&hash[4]), 0x1b);
  __m128i abef = _mm_alignr_epi8(low, high, 8), cdgh = _mm_blend_epi16(high, low, 0xf0);
  for (; count > 0; --count, blocks += 64) {
    const __m128i before[2] = {abef, cdgh};
    __m128i w[4]; // the last 16 words of the message schedule
    for (int i = 0; i < 4; ++i)
      w[i] = _mm_shuffle_epi8(load(blocks + 16 * i), bigEndian);
    for (int i = 0; i < 16; ++i) { // four rounds each
      __m128i words = _mm_add_epi32(w[i & 3], load(&roundConstants[4 * i]));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, words);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(words, 0x0e));
      __m128i next = _mm_sha256msg1_epu32(w[i & 3], w[(i + 1) & 3]);
      next = _mm_add_epi32(next, _mm_alignr_epi8(w[(i + 3) & 3], w[(i + 2) & 3], 4));
      w[i & 3] = _mm_sha256msg2_epu32(next, w[(i + 3) & 3]);
    }
    abef = _mm_add_epi32(abef, before[0]);
    cdgh = _mm_add_epi32(cdgh, before[1]);
  }
  low = _mm_shuffle_epi32(abef, 0x1b), high = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i *>(&hash[0]), _mm_blend_epi16(low, high, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i *>(&hash[4]), _mm_alignr_epi8(high, low, 8));
}
#endif

void foldBlocks(const char *bytes, size_t count, bool mayUseInstructions,
                std::array<uint32_t, 8> &hash) {
  const auto *blocks = reinterpret_cast<const unsigned char *>(bytes);
#if defined(__x86_64__)
  static const bool hasInstructions = hasShaInstructions();
  if (hasInstructions && mayUseInstructions)
    return foldBlocksByInstructions(blocks, count, hash);
#endif
  for (size_t i = 0; i < count; ++i)
    foldBlock(blocks + 64 * i, hash);
}

} // namespace

Sha256::Sha256(bool mayUseInstructions)
    : hash{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
           0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19},
      mayUseInstructions(mayUseInstructions) {}

void Sha256::add(std::string_view bytes) {
  numBytes += bytes.size();
  if (!rest.empty()) {
    size_t taken = std::min(bytes.size(), blockBytes - rest.size());
    rest += bytes.substr(0, taken);
    bytes.remove_prefix(taken);
    if (rest.size() < blockBytes)
      return;
    foldBlocks(rest.data(), 1, mayUseInstructions, hash);
    rest.clear();
  }
  size_t whole = bytes.size() / blockBytes;
  foldBlocks(bytes.data(), whole, mayUseInstructions, hash);
  rest = bytes.substr(whole * blockBytes);
}

std::string Sha256::hex() const {
  // The last blocks: the remaining bytes, a 1 bit, zeros, and the length in bits, big-endian.
  std::string tail = rest;
  tail += '\x80';
  tail.resize((tail.size() + 8 + blockBytes - 1) / blockBytes * blockBytes, '\0');
  uint64_t bits = numBytes * 8;
  for (int i = 0; i < 8; ++i)
    tail[tail.size() - 1 - i] = static_cast<char>(bits >> (8 * i));
  std::array<uint32_t, 8> last = hash;
  foldBlocks(tail.data(), tail.size() / blockBytes, mayUseInstructions, last);

  std::string text;
  for (uint32_t word : last)
    for (int shift = 28; shift >= 0; shift -= 4)
      text += "0123456789abcdef"[word >> shift & 15];
  return text;
}

std::string sha256Hex(std::string_view bytes) {
  Sha256 sum;
  sum.add(bytes);
  return sum.hex();
}

/// Returns the bytes of pairs of hexadecimal digits.
static std::string fromHex(const std::string &digits) {
  auto value = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes += char(value(digits[i]) * 16 + value(digits[i + 1]));
  return bytes;
}

std::string hmacSha256Hex(std::string_view key, std::string_view message) {
  constexpr size_t blockBytes = 64;
  std::string block(key.size() > blockBytes ? fromHex(sha256Hex(key)) : std::string(key));
  block.resize(blockBytes, '\0');
  std::string inner = block, outer = block;
  for (size_t i = 0; i < blockBytes; ++i) {
    inner[i] = char(inner[i] ^ 0x36);
    outer[i] = char(outer[i] ^ 0x5c);
  }
  return sha256Hex(outer + fromHex(sha256Hex(inner + std::string(message))));
}

bool equalInConstantTime(std::string_view a, std::string_view b) {
  if (a.size() != b.size())
    return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

} // namespace tbc
