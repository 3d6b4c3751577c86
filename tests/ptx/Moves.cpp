//===- Moves.cpp - mov, cvta and queries of addresses ----------------------===//

#include "tests/ptx/Lanes.h"

namespace tbc::ptx {
namespace {

template <typename T> void move(Warp &warp, const Instruction &i) {
  const T *a = warp.at<T>(i.at[1]);
  each<T>(warp, i.at[0], [=](int lane) { return a[lane]; });
}
void movePredicate(Warp &warp, const Instruction &i) { setMask(warp, i.at[0], warp.mask(i.at[1])); }

/// Packs `count` parts into one value at[0]; the parts follow.
template <typename Part, typename Whole> void pack(Warp &warp, const Instruction &i) {
  constexpr int parts = sizeof(Whole) / sizeof(Part);
  each<Whole>(warp, i.at[0], [&](int lane) {
    Whole whole = 0;
    for (int part = 0; part < parts; ++part)
      whole |= Whole(warp.at<Part>(i.at[size_t(1 + part)])[lane]) << (8 * sizeof(Part) * part);
    return whole;
  });
}
/// Unpacks into the parts; the whole follows them.
template <typename Part, typename Whole> void unpack(Warp &warp, const Instruction &i) {
  constexpr int parts = sizeof(Whole) / sizeof(Part);
  Whole whole[warpLanes];
  std::memcpy(whole, warp.at<Whole>(i.at[size_t(parts)]), sizeof whole);
  for (int part = 0; part < parts; ++part)
    each<Part>(warp, i.at[size_t(part)],
               [&](int lane) { return Part(whole[lane] >> (8 * sizeof(Part) * part)); });
}

void decodeMove(Decoder &d) {
  Type type = d.type();
  int bytes = bytesOf(type);
  Instruction &i = d.instruction;
  bool packs = d.operand(1).kind == Operand::Kind::Vector;
  bool unpacks = d.operand(0).kind == Operand::Kind::Vector;
  if (packs || unpacks) {
    const Operand &vector = d.operand(packs ? 1 : 0);
    int parts = int(vector.elements.size()), width = bytes / parts;
    if (packs)
      i.at[0] = d.write(0, bytes);
    for (int part = 0; part < parts; ++part) {
      const Operand &element = vector.elements[size_t(part)];
      i.at[size_t(part + packs)] = packs ? d.read(element, width) : d.write(element, width);
    }
    if (unpacks)
      i.at[size_t(parts)] = d.read(1, bytes);
    if (bytes == 4 && parts == 2)
      i.action = packs ? pack<uint16_t, uint32_t> : unpack<uint16_t, uint32_t>;
    else if (bytes == 8 && parts == 2)
      i.action = packs ? pack<uint32_t, uint64_t> : unpack<uint32_t, uint64_t>;
    else if (bytes == 8 && parts == 4)
      i.action = packs ? pack<uint16_t, uint64_t> : unpack<uint16_t, uint64_t>;
    else
      d.fail("mov of a vector of these parts");
    return;
  }
  i.at[0] = d.write(0, bytes);
  i.at[1] = d.read(1, bytes);
  i.action = bytes == 0   ? movePredicate
             : bytes == 2 ? move<uint16_t>
             : bytes == 4 ? move<uint32_t>
                          : move<uint64_t>;
}

/// Adds the offset of an address window.
template <typename T> void addOffset(Warp &warp, const Instruction &i) {
  const T *a = warp.at<T>(i.at[1]);
  each<T>(warp, i.at[0], [&](int lane) { return T(uint64_t(a[lane]) + uint64_t(i.offset)); });
}
uint64_t windowOf(const std::string &space) {
  return space == "shared"  ? sharedWindow
         : space == "local" ? localWindow
         : space == "const" ? constWindow
                            : 0;
}
void decodeConvertAddress(Decoder &d) {
  bool isTo = d.take("to");
  d.take("cta");
  std::string space = d.oneOf({"global", "shared", "local", "const", "shared::cta"});
  uint64_t window = windowOf(space == "shared::cta" ? "shared" : space);
  if (bytesOf(d.type()) != 8)
    d.fail("cvta of 32 bits");
  takeOperands(d, 8, 1);
  d.instruction.offset = int64_t(isTo ? 0 - window : window);
  d.instruction.action = addOffset<uint64_t>;
}

void isInSpace(Warp &warp, const Instruction &i) {
  const auto *a = warp.at<uint64_t>(i.at[1]);
  uint32_t bits = 0;
  for (int lane = 0; lane < warpLanes; ++lane) {
    uint64_t high = a[lane] >> 56;
    bool isWindow =
        high == sharedWindow >> 56 || high == localWindow >> 56 || high == constWindow >> 56;
    bool isThere = i.offset ? high == uint64_t(i.offset) >> 56 : !isWindow;
    bits |= uint32_t(isThere) << lane;
  }
  setMask(warp, i.at[0], bits);
}
void decodeIsInSpace(Decoder &d) {
  d.instruction.offset = int64_t(windowOf(d.oneOf({"global", "shared", "local", "const"})));
  d.instruction.at[0] = d.write(0, 0);
  d.instruction.at[1] = d.read(1, 8);
  d.instruction.action = isInSpace;
}

} // namespace

const DecodeTable &moveInstructions() {
  static const DecodeTable table = {
      {"mov", decodeMove},
      {"cvta", decodeConvertAddress},
      {"isspacep", decodeIsInSpace},
  };
  return table;
}

} // namespace tbc::ptx
