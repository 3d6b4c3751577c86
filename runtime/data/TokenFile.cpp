//===- TokenFile.cpp - Raw tokens ------------------------------------------===//

#include "runtime/data/Dataset.h"
#include "runtime/data/MappedFile.h"

#include <cstring>

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
  auto tokens = std::make_unique<Tokens>(*file, fields, width);
  if (tokens->numTokens() <= fields[0].elements)
    return Error{ErrorCode::Usage, path + ": " + std::to_string(tokens->numTokens()) +
                                       " tokens are not enough for one sample of " +
                                       std::to_string(fields[0].elements) +
                                       " and the label of the last"};
  return std::unique_ptr<Dataset>(std::move(tokens));
}

} // namespace tbc::data
