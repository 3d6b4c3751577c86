//===- torch_gradients_test.cpp - Gradients against PyTorch ----------------===//
//
// torch_gradients.py computes PyTorch's gradients (torch_gradients.txt) from the cases printed
// here.
//
//===----------------------------------------------------------------------===//

#include "tests/ir/CaseGradient.h"

#include "llvm/ADT/StringExtras.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <map>
#include <sstream>

using namespace tbc;
using kernels::Tensor;

namespace {

/// The table has 11 digits.
constexpr double kTolerance = 1e-10;

std::string keyOf(const OpCase &opCase, const CaseGradient &gradient) {
  std::string wanted = llvm::join(
      llvm::map_range(gradient.wanted, [](unsigned i) { return std::to_string(i); }), " ");
  return "CASE " + opCase.mnemonic + "|" + opCase.operands + "|" + opCase.results + "|" +
         opCase.attributes + "|" + wanted;
}

void print(std::ostream &out, const Tensor &tensor) {
  out << std::setprecision(17);
  if (tensor.holds<double>())
    for (double value : tensor.data<double>())
      out << value << " ";
  else
    for (int64_t value : tensor.data<int64_t>())
      out << value << " ";
  out << "\n";
}

/// The lines after each key.
const std::map<std::string, std::vector<std::string>> &table() {
  static const std::map<std::string, std::vector<std::string>> result = [] {
    std::map<std::string, std::vector<std::string>> read;
    std::ifstream file(TBC_SOURCE_DIR "/tests/ir/torch_gradients.txt");
    std::string line, key;
    while (std::getline(file, line)) {
      if (line.rfind("CASE ", 0) == 0)
        read[key = line];
      else if (!key.empty())
        read[key].push_back(line);
    }
    return read;
  }();
  return result;
}

/// The case with f64 for f32: constants such as sqrt(1/2) are rounded to the precision of their op.
OpCase inDoubles(OpCase opCase) {
  for (std::string *types : {&opCase.operands, &opCase.results})
    for (size_t at; (at = types->find("f32")) != std::string::npos;)
      types->replace(at, 3, "f64");
  return opCase;
}

class TorchGradient : public testing::TestWithParam<OpCase> {};

TEST_P(TorchGradient, IsOurs) {
  OpCase opCase = inDoubles(GetParam());
  CaseGradient gradient;
  ASSERT_NO_FATAL_FAILURE(computeGradient(opCase, gradient));
  std::string key = keyOf(opCase, gradient);
  if (const char *path = std::getenv("TBC_PRINT_GRADIENT_CASES")) {
    std::ofstream out(path, std::ios::app);
    out << key << "\n";
    for (const Tensor &operand : gradient.operands)
      print(out, operand);
    print(out, gradient.cotangent);
    ASSERT_TRUE(out.flush());
    GTEST_SKIP() << "printed";
  }
  auto entry = table().find(key);
  ASSERT_NE(entry, table().end()) << key << " is not in tests/ir/torch_gradients.txt; "
                                  << "tests/ir/torch_gradients.py says how to add it";
  ASSERT_EQ(entry->second.size(), gradient.gradients.size());
  for (auto [line, ours] : llvm::zip_equal(entry->second, gradient.gradients)) {
    std::istringstream numbers(line);
    for (double value : ours.data<double>()) {
      double expected;
      ASSERT_TRUE(numbers >> expected) << "too few numbers";
      EXPECT_NEAR(value, expected, kTolerance * std::max(1.0, std::abs(expected)));
    }
    std::string rest;
    EXPECT_FALSE(numbers >> rest) << "too many numbers";
  }
}

INSTANTIATE_TEST_SUITE_P(All, TorchGradient, testing::ValuesIn(differentiableCases()),
                         [](const testing::TestParamInfo<OpCase> &info) {
                           return info.param.mnemonic + "_" + std::to_string(info.index);
                         });

} // namespace
