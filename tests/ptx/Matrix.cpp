//===- Matrix.cpp - ldmatrix and mma ---------------------------------------===//
//
// Fragments as of the PTX ISA, "Warp-level matrix instructions". All lanes of a warp take part.
//
//===----------------------------------------------------------------------===//

#include "tests/ptx/Formats.h"
#include "tests/ptx/Lanes.h"

namespace tbc::ptx {
namespace {

constexpr int matrixRows = 8, matrixRowBytes = 16;

void needWholeWarp(Warp &warp, const Instruction &i) {
  if (warp.lanes != allLanes)
    warp.fail(i, "a matrix instruction without all lanes of the warp");
}

//===----------------------------------------------------------------------===//
// ldmatrix
//===----------------------------------------------------------------------===//

constexpr uint8_t isTransposed = 2; // of Instruction::variant

/// Returns lane `lane`'s two elements of an 8 x 8 matrix of 16-bit elements, given its rows.
/// Without .trans: elements 2 (lane % 4) and the next one of row lane / 4; with it the same of its
/// transpose.
uint32_t fragmentOf(unsigned char *const *rows, int lane, bool transposed) {
  uint16_t pair[2];
  for (int element = 0; element < 2; ++element) {
    int line = lane / 4, place = 2 * (lane % 4) + element;
    const unsigned char *row = rows[transposed ? place : line];
    std::memcpy(&pair[element], row + size_t(transposed ? line : place) * sizeof(uint16_t),
                sizeof(uint16_t));
  }
  return uint32_t(pair[0]) | uint32_t(pair[1]) << 16;
}

/// at[0] is the base of the address, at[1] to at[count] are results. Lane 8 m + r has the address
/// of row r of matrix m. With fewer than four matrices the addresses of the other lanes are not
/// used.
void loadMatrix(Warp &warp, const Instruction &i) {
  needWholeWarp(warp, i);
  uint64_t addresses[warpLanes];
  unsigned char *pointers[warpLanes];
  warp.addresses(i, i.at[0], addresses);
  for (int lane = matrixRows * i.count; lane < warpLanes; ++lane)
    addresses[lane] = addresses[lane % (matrixRows * i.count)];
  warp.access(i, AccessKind::Read, addresses, matrixRowBytes, pointers);
  for (int matrix = 0; matrix < i.count; ++matrix)
    each<uint32_t>(warp, i.at[size_t(matrix) + 1], [&](int lane) {
      return fragmentOf(pointers + ptrdiff_t(matrix) * matrixRows, lane,
                        (i.variant & isTransposed) != 0);
    });
}

void decodeLoadMatrix(Decoder &d) {
  if (!d.take("sync") || !d.take("aligned") || !d.take("m8n8"))
    d.fail("ldmatrix of another form");
  Instruction &i = d.instruction;
  int count = d.take("x4") ? 4 : d.take("x2") ? 2 : d.take("x1") ? 1 : 0;
  if (count == 0)
    d.fail("ldmatrix without a number of matrices");
  bool transposed = d.take("trans");
  takeAddress(d, 1);
  if (d.type() != Type::B16 || i.space != Space::Shared)
    d.fail("ldmatrix of other elements, or of other than shared memory");
  i.variant |= transposed ? isTransposed : 0;
  i.count = uint8_t(count);
  i.bytes = matrixRowBytes;
  const Operand &to = d.operand(0);
  std::vector<Operand> elements =
      count > 1 || to.kind == Operand::Kind::Vector ? to.elements : std::vector<Operand>{to};
  if (int(elements.size()) != count)
    d.fail("ldmatrix into another number of registers");
  for (int element = 0; element < count; ++element)
    i.at[size_t(element) + 1] = d.write(elements[size_t(element)], 4);
  i.action = loadMatrix;
}

//===----------------------------------------------------------------------===//
// mma
//===----------------------------------------------------------------------===//

constexpr int tileRows = 16, tileColumns = 8, tileDepth = 16;

/// Places of fragments in Instruction::at.
constexpr size_t atResult = 0, atA = 4, atB = 8, atC = 10;

double element(uint32_t pair, bool isSecond, const Format &format) {
  return decode(isSecond ? pair >> 16 : pair & 0xffff, format);
}

/// D = A B + C of m16n8k16 with A by rows, B by columns, in f32. Lane 4 g + t has of A, in register
/// r, row g + 8 (r % 2) and columns 2 t + 8 (r / 2) and the next; of B, in register r, column g and
/// rows 2 t + 8 r and the next; of C and D, in register r, row g + 8 (r / 2) and column 2 t + r
/// % 2.
template <const Format *format> void multiply(Warp &warp, const Instruction &i) {
  needWholeWarp(warp, i);
  warp.block.run.counts.matrixFlops += uint64_t(2) * tileRows * tileColumns * tileDepth;
  double a[tileRows][tileDepth], b[tileDepth][tileColumns];
  for (int lane = 0; lane < warpLanes; ++lane) {
    int g = lane / 4, t = lane % 4;
    for (int r = 0; r < 4; ++r)
      for (int second = 0; second < 2; ++second)
        a[g + 8 * (r % 2)][2 * t + 8 * (r / 2) + second] =
            element(warp.at<uint32_t>(i.at[atA + size_t(r)])[lane], second != 0, *format);
    for (int r = 0; r < 2; ++r)
      for (int second = 0; second < 2; ++second)
        b[2 * t + 8 * r + second][g] =
            element(warp.at<uint32_t>(i.at[atB + size_t(r)])[lane], second != 0, *format);
  }
  float results[4][warpLanes];
  for (int lane = 0; lane < warpLanes; ++lane)
    for (int r = 0; r < 4; ++r) {
      int row = lane / 4 + 8 * (r / 2), column = 2 * (lane % 4) + r % 2;
      double sum = double(warp.at<float>(i.at[atC + size_t(r)])[lane]);
      for (int k = 0; k < tileDepth; ++k)
        sum += a[row][k] * b[k][column];
      results[r][lane] = float(sum);
    }
  for (int r = 0; r < 4; ++r)
    each<float>(warp, i.at[atResult + size_t(r)], [&](int lane) { return results[r][lane]; });
}

void decodeMultiply(Decoder &d) {
  if (!d.take("sync") || !d.take("aligned") || !d.take("m16n8k16") || !d.take("row") ||
      !d.take("col"))
    d.fail("mma of another form");
  Type result = d.type(), a = d.type(), b = d.type(), sum = d.type();
  if (result != Type::F32 || sum != Type::F32 || a != b || (a != Type::BF16 && a != Type::F16))
    d.fail("mma of these types");
  Instruction &i = d.instruction;
  const size_t sizes[] = {4, 4, 2, 4};
  size_t next = 0;
  for (size_t index = 0; index < 4; ++index) {
    const Operand &fragment = d.operand(index);
    if (fragment.kind != Operand::Kind::Vector || fragment.elements.size() != sizes[index])
      d.fail("mma of another number of registers");
    for (const Operand &part : fragment.elements)
      i.at[next++] = index == 0 ? d.write(part, 4) : d.read(part, 4);
  }
  i.action = a == Type::BF16 ? multiply<&brainFormat> : multiply<&halfFormat>;
}

} // namespace

const DecodeTable &matrixInstructions() {
  static const DecodeTable table = {{"ldmatrix", decodeLoadMatrix}, {"mma", decodeMultiply}};
  return table;
}

} // namespace tbc::ptx
