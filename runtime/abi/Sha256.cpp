//===- Sha256.cpp - SHA-256 (FIPS 180-4) -----------------------------------===//

#include "runtime/abi/Sha256.h"

#include <array>
#include <cstdint>

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

} // namespace

std::string sha256Hex(std::string_view bytes) {
  std::array<uint32_t, 8> hash = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  size_t whole = bytes.size() / 64 * 64;
  for (size_t i = 0; i < whole; i += 64)
    foldBlock(reinterpret_cast<const unsigned char *>(bytes.data()) + i, hash);

  // The rest, a 1 bit, zeros, and the length in bits, big-endian, at the end of the last block.
  std::string tail(bytes.substr(whole));
  tail += '\x80';
  tail.resize((tail.size() + 8 + 63) / 64 * 64, '\0');
  uint64_t bits = uint64_t(bytes.size()) * 8;
  for (int i = 0; i < 8; ++i)
    tail[tail.size() - 1 - i] = static_cast<char>(bits >> (8 * i));
  for (size_t i = 0; i < tail.size(); i += 64)
    foldBlock(reinterpret_cast<const unsigned char *>(tail.data()) + i, hash);

  std::string text;
  for (uint32_t word : hash)
    for (int shift = 28; shift >= 0; shift -= 4)
      text += "0123456789abcdef"[word >> shift & 15];
  return text;
}

/// The bytes that pairs of hexadecimal digits stand for.
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
