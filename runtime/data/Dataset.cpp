//===- Dataset.cpp - Samples of training and evaluation -------------------===//

#include "runtime/data/Dataset.h"
#include "runtime/kernels/Random.h"

#include <algorithm>

namespace tbc::data {

/// The only integer input that is not a label, or -1.
static int tokenField(const std::vector<Field> &fields) {
  int found = -1;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].isLabel)
      continue;
    if (found >= 0 || kernels::isFloat(fields[i].dtype))
      return -1;
    found = int(i);
  }
  return found;
}

bool isLanguageModel(const std::vector<Field> &fields) {
  int tokens = tokenField(fields);
  if (tokens < 0 || fields.size() != 2)
    return false;
  const Field &labels = fields[1 - tokens];
  return labels.elements == fields[tokens].elements && !kernels::isFloat(labels.dtype);
}

namespace {

class Synthetic : public Dataset {
public:
  Synthetic(std::vector<Field> fields, uint64_t seed)
      : fields(std::move(fields)), seed(seed), isShifted(isLanguageModel(this->fields)),
        tokens(tokenField(this->fields)) {}
  int64_t numSamples() const override { return 0; }

  Result<double> value(size_t number, int64_t sample, int64_t element) const override {
    const Field &field = fields[number];
    if (isShifted && field.isLabel)
      return integer(fields[tokens], size_t(tokens), sample, element + 1);
    if (kernels::isFloat(field.dtype))
      return double(word(number, sample, element) >> 8) / double(1 << 23) - 1;
    return integer(field, number, sample, element);
  }

private:
  double integer(const Field &field, size_t number, int64_t sample, int64_t element) const {
    int64_t bound = field.below ? field.below : 2;
    return double((uint64_t(word(number, sample, element)) * uint64_t(bound)) >> 32);
  }
  uint32_t word(size_t field, int64_t sample, int64_t element) const {
    return kernels::philox(
        {uint32_t(element), uint32_t(sample), uint32_t(uint64_t(sample) >> 32), uint32_t(field)},
        {uint32_t(seed), uint32_t(seed >> 32)})[0];
  }

  std::vector<Field> fields;
  uint64_t seed;
  bool isShifted;
  int tokens;
};

} // namespace

std::unique_ptr<Dataset> makeSynthetic(std::vector<Field> fields, uint64_t seed) {
  return std::make_unique<Synthetic>(std::move(fields), seed);
}

Result<std::unique_ptr<Dataset>> openDataset(const std::vector<std::string> &sources,
                                             const std::vector<Field> &fields, bool wideTokens,
                                             uint64_t seed) {
  auto usage = [](const std::string &why) { return Error{ErrorCode::Usage, "--data: " + why}; };
  if (sources.size() == 1 && sources[0] == "synthetic")
    return makeSynthetic(fields, seed);
  std::string names;
  for (const Field &field : fields)
    names += (names.empty() ? "" : ", ") + field.name;
  if (sources.size() == 1 && sources[0].find('=') == std::string::npos) {
    if (!isLanguageModel(fields))
      return usage("a file of tokens is for a language model; this one takes " + names +
                   ", give NAME=FILE.npy for each");
    return openTokens(sources[0], fields, wideTokens);
  }
  std::vector<std::string> paths(fields.size());
  for (const std::string &source : sources) {
    size_t equals = source.find('=');
    std::string name = source.substr(0, equals);
    auto found = std::find_if(fields.begin(), fields.end(),
                              [&](const Field &field) { return field.name == name; });
    if (equals == std::string::npos || found == fields.end())
      return usage("\"" + source + "\" names no input; this model takes " + names);
    std::string &path = paths[size_t(found - fields.begin())];
    if (!path.empty())
      return usage("\"" + name + "\" is given twice");
    path = source.substr(equals + 1);
  }
  for (size_t i = 0; i < fields.size(); ++i)
    if (paths[i].empty())
      return usage("input \"" + fields[i].name + "\" has no file; this model takes " + names);
  return openArrays(paths, fields);
}

} // namespace tbc::data
