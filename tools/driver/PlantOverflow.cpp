//===- PlantOverflow.cpp - Plant a gradient overflow in a run in residues ---===//

#include "tools/driver/Verify.h"

#include <algorithm>
#include <random>

namespace tbc::driver {

static const std::string gradientSuffix = ".grad";

static bool endsWith(const std::string &text, const std::string &suffix) {
  return text.size() > suffix.size() &&
         text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

/// Returns the indices of nonzero elements. Zeros are skipped, because padding and many others
/// share that value.
static std::vector<int64_t> nonZero(const kernels::Tensor &tensor) {
  std::vector<int64_t> places;
  const std::vector<kernels::Residue> &values = tensor.data<kernels::Residue>();
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i].v != 0)
      places.push_back(int64_t(i));
  return places;
}

Result<PlantedOverflow> plantOverflow(TrainingStep &step, const planner::Plan &plan,
                                      const RunData &data, uint64_t seed,
                                      const std::string &parameter) {
  RunData first = data;
  first.steps.resize(1);
  auto record = runSerial(step, plan, first, kernels::Arith::Residue61);
  if (!record)
    return record.error();
  std::vector<std::string> names;
  for (const auto &[name, value] : *record) {
    bool isWanted = parameter.empty() || name == parameter + gradientSuffix;
    if (isWanted && endsWith(name, gradientSuffix) && !nonZero(value).empty())
      names.push_back(name);
  }
  if (names.empty())
    return Error{ErrorCode::Other, "no gradient has an element to plant an overflow in"};
  std::mt19937_64 random(seed);
  const std::string &name = names[random() % names.size()];
  const kernels::Tensor &gradient = record->at(name);
  std::vector<int64_t> places = nonZero(gradient);
  PlantedOverflow planted;
  planted.parameter = name.substr(0, name.size() - gradientSuffix.size());
  planted.element = places[random() % places.size()];
  planted.context = kernels::Arith::Residue61;
  planted.context.notFinite = gradient.data<kernels::Residue>()[planted.element];
  return planted;
}

} // namespace tbc::driver
