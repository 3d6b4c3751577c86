//===- LoadsStores.cpp - ld and st -----------------------------------------===//

#include "tests/ptx/Lanes.h"

#include <algorithm>

namespace tbc::ptx {
namespace {

/// at[0] is the base of the address (or -1), at[1] to at[count] are the registers of the elements.
template <typename Element, typename Register> void load(Warp &warp, const Instruction &i) {
  uint64_t addresses[warpLanes];
  unsigned char *pointers[warpLanes];
  warp.addresses(i, i.at[0], addresses);
  warp.access(i, AccessKind::Read, addresses, int(sizeof(Element)) * i.count, pointers);
  for (int element = 0; element < i.count; ++element) {
    auto *to = warp.at<Register>(i.at[size_t(element) + 1]);
    for (int lane = 0; lane < warpLanes; ++lane)
      if (warp.lanes >> lane & 1) {
        Element value;
        std::memcpy(&value, pointers[lane] + size_t(element) * sizeof value, sizeof value);
        to[lane] = Register(value); // NOLINT(bugprone-signed-char-misuse): by its sign
      }
  }
}

template <typename Element, typename Register> void store(Warp &warp, const Instruction &i) {
  uint64_t addresses[warpLanes];
  unsigned char *pointers[warpLanes];
  warp.addresses(i, i.at[0], addresses);
  warp.access(i, AccessKind::Write, addresses, int(sizeof(Element)) * i.count, pointers);
  for (int pass = 0; pass < 2; ++pass)
    for (int element = 0; element < i.count; ++element) {
      const auto *from = warp.at<Register>(i.at[size_t(element) + 1]);
      for (int lane = 0; lane < warpLanes; ++lane)
        if (warp.lanes >> lane & 1) {
          auto value = Element(from[lane]);
          unsigned char *to = pointers[lane] + size_t(element) * sizeof value;
          if (pass == 0)
            std::memcpy(to, &value, sizeof value);
          else if (std::memcmp(to, &value, sizeof value) != 0)
            warp.fail(i, "another lane stores another value to the same address", lane);
        }
    }
}

/// ld.param: loads the same value in all lanes, or each lane its own at an address that is computed
/// (the address of a parameter is its offset).
template <typename Element, typename Register>
void loadParameter(Warp &warp, const Instruction &i) {
  const std::vector<unsigned char> &bytes = warp.block.run.parameters;
  uint64_t begins[warpLanes];
  if (i.at[0] >= 0)
    warp.addresses(i, i.at[0], begins);
  else
    std::fill_n(begins, warpLanes, uint64_t(i.offset));
  for (int lane = 0; lane < warpLanes; ++lane)
    if (warp.lanes >> lane & 1) {
      if (begins[lane] % sizeof(Element) != 0)
        warp.fail(i, "it reads a parameter at an offset that is no multiple of its bytes", lane);
      if (begins[lane] > bytes.size() ||
          sizeof(Element) * size_t(i.count) > bytes.size() - begins[lane])
        warp.fail(i, "it reads outside of the parameters", lane);
    }
  for (int element = 0; element < i.count; ++element)
    each<Register>(warp, i.at[size_t(element) + 1], [&](int lane) {
      Element value{};
      if (warp.lanes >> lane & 1)
        std::memcpy(&value, bytes.data() + begins[lane] + size_t(element) * sizeof value,
                    sizeof value);
      return Register(value);
    });
}

enum class Kind { Load, Store, Parameter };

template <typename Element, typename Register> Action actionOf(Kind kind) {
  return kind == Kind::Load    ? load<Element, Register>
         : kind == Kind::Store ? store<Element, Register>
                               : loadParameter<Element, Register>;
}
/// Elements are sign- or zero-extended to the register.
template <typename Element> Action actionOf(Kind kind, int registerBytes) {
  constexpr bool isSigned = std::is_signed_v<Element>;
  if (registerBytes == 8)
    return actionOf<Element, std::conditional_t<isSigned, int64_t, uint64_t>>(kind);
  if constexpr (sizeof(Element) <= 4)
    if (registerBytes == 4)
      return actionOf<Element, std::conditional_t<isSigned, int32_t, uint32_t>>(kind);
  if constexpr (sizeof(Element) <= 2)
    if (registerBytes == 2)
      return actionOf<Element, std::conditional_t<isSigned, int16_t, uint16_t>>(kind);
  return nullptr;
}

Action actionOf(Kind kind, Type type, int registerBytes) {
  bool isSignedType = isSigned(type);
  switch (bytesOf(type)) {
  case 1:
    return isSignedType ? actionOf<int8_t>(kind, registerBytes)
                        : actionOf<uint8_t>(kind, registerBytes);
  case 2:
    return isSignedType ? actionOf<int16_t>(kind, registerBytes)
                        : actionOf<uint16_t>(kind, registerBytes);
  case 4:
    return isSignedType ? actionOf<int32_t>(kind, registerBytes)
                        : actionOf<uint32_t>(kind, registerBytes);
  case 8:
    return isSignedType ? actionOf<int64_t>(kind, registerBytes)
                        : actionOf<uint64_t>(kind, registerBytes);
  default:
    return nullptr;
  }
}

void decodeAccess(Decoder &d, bool isLoad) {
  Instruction &i = d.instruction;
  takeOrder(d);
  takeAddress(d, isLoad ? 1 : 0);
  if (i.space == Space::Param && !isLoad)
    d.fail("st.param");
  int count = d.take("v2") ? 2 : d.take("v4") ? 4 : d.take("v8") ? 8 : 1;
  Type type = d.type();
  i.count = uint8_t(count);
  i.bytes = uint8_t(bytesOf(type));
  const Operand &value = d.operand(isLoad ? 0 : 1);
  if ((value.kind == Operand::Kind::Vector) != (count > 1) ||
      (count > 1 && int(value.elements.size()) != count))
    d.fail(d.opcode + " of another number of elements");
  std::vector<Operand> elements = count > 1 ? value.elements : std::vector<Operand>{value};
  int width = 0;
  for (const Operand &element : elements)
    if (element.kind == Operand::Kind::Register)
      width = element.width;
  if (width == 0)
    width = std::max(bytesOf(type), 2);
  for (int element = 0; element < count; ++element)
    i.at[size_t(element) + 1] = isLoad ? d.write(elements[size_t(element)], width)
                                       : d.read(elements[size_t(element)], width);
  Kind kind = !isLoad ? Kind::Store : i.space == Space::Param ? Kind::Parameter : Kind::Load;
  i.action = actionOf(kind, type, width);
  if (i.space == Space::Global || i.space == Space::Generic)
    i.traffic = isLoad ? Traffic::Load : Traffic::Store;
  if (!i.action)
    d.fail(d.opcode + " between this type and this register");
}

void nothing(Warp &, const Instruction &) {}

} // namespace

void takeOrder(Decoder &d) {
  for (const char *word : {"weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "cta",
                           "cluster", "gpu", "sys", "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt"})
    d.take(word);
  for (const char *word : {"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first",
                           "L1::evict_last", "L1::no_allocate", "L2::evict_first", "L2::evict_last",
                           "L2::evict_normal", "L2::64B", "L2::128B", "L2::256B"})
    d.take(word);
}

void takeAddress(Decoder &d, size_t index) {
  static const std::map<std::string, Space> spaces = {
      {"global", Space::Global}, {"shared", Space::Shared}, {"local", Space::Local},
      {"param", Space::Param},   {"const", Space::Const},   {"shared::cta", Space::Shared}};
  Instruction &i = d.instruction;
  for (const auto &[name, space] : spaces)
    if (d.take(name))
      i.space = space;
  const Operand &address = d.operand(index);
  if (address.kind != Operand::Kind::Address)
    d.fail(d.opcode + " without an address");
  i.offset = address.offset;
  i.at[0] = address.at;
  if (address.at >= 0) {
    i.reads.push_back(address.at);
    if (address.width != 4 && address.width != 8)
      d.fail(d.opcode + " of an address of this width");
    i.variant |= address.width == 4 ? 1 : 0;
    return;
  }
  // A global variable. Its address is known when the module is loaded.
  if (address.space == Space::Global) {
    i.at[0] = d.frame.constant(uint64_t(address.offset), 8, /*isGlobal=*/true);
    i.offset = 0;
  }
  if (i.space == Space::Generic)
    i.space = address.space;
  if (i.space != address.space)
    d.fail(d.opcode + " of a variable in another kind of memory");
}

const DecodeTable &accessInstructions() {
  static const DecodeTable table = {
      {"ld", [](Decoder &d) { decodeAccess(d, true); }},
      {"ldu", [](Decoder &d) { decodeAccess(d, true); }},
      {"st", [](Decoder &d) { decodeAccess(d, false); }},
      // Only a hint.
      {"prefetch",
       [](Decoder &d) {
         d.take("global"), d.take("L1"), d.take("L2");
         d.instruction.action = nothing;
       }},
  };
  return table;
}

} // namespace tbc::ptx
