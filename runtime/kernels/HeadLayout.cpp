//===- HeadLayout.cpp - The rows of an attention's tensor in memory --------===//

#include "runtime/kernels/HeadLayout.h"

#include "runtime/kernels/PackedAttention.h"
#include "runtime/kernels/Support.h"

#include <cctype>

namespace tbc::kernels {

static bool hasLetter(const Attrs &attrs, char letter) {
  return attrs.has("token_major") &&
         attrs.getString("token_major").find(letter) != std::string::npos;
}

static bool isMerged(const Attrs &attrs, char tensor) {
  return hasLetter(attrs, char(std::toupper(tensor)));
}

bool HeadLayout::isTokenMajorIn(const Attrs &attrs, char tensor) {
  return isMerged(attrs, tensor) || hasLetter(attrs, tensor);
}

HeadLayout::HeadLayout(const Attrs &attrs, char tensor, const Shape &shape)
    : HeadLayout(0, 0, 0, 0, isTokenMajorIn(attrs, tensor)) {
  if (tensor != 'o' && attrs.has(std::string(packedWidthAttr))) {
    takePacked(attrs, tensor, shape);
    return;
  }
  const bool merges = isMerged(attrs, tensor);
  require(shape.size() == (merges ? 3 : 4), [&] {
    return std::string("attention needs ") + tensor + " of rank " + (merges ? "3" : "4");
  });
  batch = shape[0], tokens = shape[isTokenMajor ? 1 : 2], width = shape.back();
  heads = merges ? attrs.getInt(tensor == 'k' || tensor == 'v' ? "key_heads" : "heads")
                 : shape[isTokenMajor ? 2 : 1];
  columns = heads * width;
  if (!merges)
    return;
  columns = width;
  require(heads > 0 && width % heads == 0, [&] {
    return std::to_string(heads) + " heads do not divide a dim of " + std::to_string(width);
  });
  width /= heads;
}

/// The columns of a packed tensor are those of all query heads, of all key heads, and of the values
/// of the key heads.
void HeadLayout::takePacked(const Attrs &attrs, char tensor, const Shape &shape) {
  require(shape.size() == 3, "packed attention needs x [b, s, c]");
  const int64_t queryHeads = attrs.getInt("heads"), keyHeads = attrs.getInt("key_heads");
  const int64_t keyWidth = attrs.getInt(std::string(packedWidthAttr));
  const int64_t beforeValues = (queryHeads + keyHeads) * keyWidth;
  batch = shape[0], tokens = shape[1], columns = shape[2];
  isTokenMajor = true;
  require(keyHeads > 0 && columns >= beforeValues && (columns - beforeValues) % keyHeads == 0, [&] {
    return std::to_string(columns) + " columns are not those of " + std::to_string(queryHeads) +
           " query heads and " + std::to_string(keyHeads) + " key heads";
  });
  heads = tensor == 'q' ? queryHeads : keyHeads;
  width = tensor == 'v' ? (columns - beforeValues) / keyHeads : keyWidth;
  first = tensor == 'q' ? 0 : tensor == 'k' ? queryHeads * keyWidth : beforeValues;
}

HeadLayout layoutOfMerge(const Attrs &attrs, const Shape &o, const Shape &m) {
  require(m.size() == 3, "attention_merge needs m [b, h, s]");
  const int64_t rows = numElements(m);
  require(rows == 0 || numElements(o) % rows == 0,
          "attention_merge needs a row of o for each of m");
  return {m[0], m[1], m[2], rows ? numElements(o) / rows : 0, attrs.getBool("token_major", false)};
}

} // namespace tbc::kernels
