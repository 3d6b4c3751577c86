//===- TokenFile.cpp - Raw tokens ------------------------------------------===//

#include "runtime/data/Dataset.h"
#include "runtime/data/MappedFile.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace tbc::data {

namespace {

class Tokens : public Dataset {
public:
  Tokens(MappedFile file, std::vector<Field> fields, int64_t width)
      : file(std::move(file)), fields(std::move(fields)), width(width) {}

  int64_t numTokens() const { return int64_t(file.size()) / width; }
  int64_t numSamples() const override { return (numTokens() - 1) / fields[0].elements; }

  Result<double> value(size_t number, int64_t sample, int64_t element) const override {
    const Field &field = fields[number];
    int64_t at = sample * field.elements + element + (field.isLabel ? 1 : 0);
    uint32_t token = 0;
    std::memcpy(&token, file.data() + at * width, size_t(width));
    if (field.below && token >= field.below)
      return Error{ErrorCode::Usage, file.path() + ": token " + std::to_string(token) +
                                         " at byte " + std::to_string(at * width) +
                                         " is beyond the vocabulary of " +
                                         std::to_string(field.below)};
    return double(token);
  }

private:
  MappedFile file;
  std::vector<Field> fields;
  int64_t width;
};

} // namespace

/// Returns why a file that begins as an array of numpy is not one of raw tokens, or "". Its header
/// would be read as tokens.
static std::string whyArray(const MappedFile &file, const std::string &input) {
  const std::string_view text = file.text();
  if (text.substr(0, 6) == "\x93NUMPY")
    return "it is a .npy array, not raw tokens; name its input: --data " + input + "=" +
           file.path();
  if (text.substr(0, 4) == std::string_view("PK\x03\x04"))
    return "it is an archive such as .npz, not raw tokens; write each array by numpy.save, and "
           "name its input: --data " +
           input + "=FILE.npy";
  return "";
}

/// Whether tokens of `width` bytes are halves of wider ones: of the first 512 pairs every second
/// token is 0, and a fourth or more of the others are not. Example: 7 0 12 0 3 0 … in 16 bits is
/// 7 12 3 … in 32. A file of fewer than 32 pairs is not judged.
static bool holdsHalves(const MappedFile &file, size_t width) {
  constexpr size_t least = 32, most = 512;
  const std::string_view text = file.text();
  const size_t pairs = std::min(most, text.size() / (2 * width));
  size_t numUsed = 0;
  auto isZero = [&](size_t token) {
    return text.substr(token * width, width).find_first_not_of('\0') == std::string_view::npos;
  };
  for (size_t pair = 0; pair < pairs; ++pair) {
    if (!isZero(2 * pair + 1))
      return false;
    numUsed += isZero(2 * pair) ? 0 : 1;
  }
  return pairs >= least && 4 * numUsed >= pairs;
}

Result<std::unique_ptr<Dataset>> openTokens(const std::string &path,
                                            const std::vector<Field> &fields, bool wideTokens) {
  Result<MappedFile> file = MappedFile::open(path, ErrorCode::Usage);
  if (!file)
    return file.error();
  if (std::string why = whyArray(*file, fields[0].name); !why.empty())
    return Error{ErrorCode::Usage, path + ": " + why};
  int64_t width = wideTokens ? 4 : 2;
  if (file->size() % size_t(width) != 0)
    return Error{ErrorCode::Usage, path + ": " + std::to_string(file->size()) +
                                       " bytes are not a whole number of tokens of " +
                                       std::to_string(width) + " bytes (--token-bits says which)"};
  if (holdsHalves(*file, size_t(width)))
    return Error{ErrorCode::Usage,
                 path + ": every second token of " + std::to_string(8 * width) +
                     " bits is 0, as in a file of wider tokens; " +
                     (wideTokens ? "write them in 32 bits" : "give --token-bits 32, if it has 32")};
  auto tokens = std::make_unique<Tokens>(*file, fields, width);
  if (tokens->numTokens() <= fields[0].elements)
    return Error{ErrorCode::Usage, path + ": " + std::to_string(tokens->numTokens()) +
                                       " tokens are not enough for one sample of " +
                                       std::to_string(fields[0].elements) +
                                       " and the label of the last"};
  return std::unique_ptr<Dataset>(std::move(tokens));
}

} // namespace tbc::data
