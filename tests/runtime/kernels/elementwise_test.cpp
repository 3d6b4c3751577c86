//===- elementwise_test.cpp - Kernels that may overwrite operands -----------===//
//
// An elementwise kernel may write its result over an operand. So an element of a result must not
// depend on another element of an operand.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Kernel.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <set>

namespace tbc::kernels {
namespace {

/// Operands and results by letter: tensors of floats (f), integers (i) and booleans (b), scalars of
/// floats (s), integers (n) and booleans (c). Example: "ff" and "f" for an addition.
struct Signature {
  std::string operands, results;
  Attrs attrs;
};

Attrs attrsOf(std::initializer_list<std::pair<const char *, AttrValue>> entries) {
  Attrs attrs;
  for (const auto &[name, value] : entries)
    attrs.set(name, value);
  return attrs;
}

Signature signatureOf(const std::string &op) {
  static const std::set<std::string> binary = {"add", "sub",     "mul",     "div",
                                               "pow", "maximum", "minimum", "relu_grad"};
  Attrs adam =
      attrsOf({{"beta1", 0.9}, {"beta2", 0.99}, {"epsilon", 1e-8}, {"weight_decay", 0.01}});
  static const std::map<std::string, std::pair<std::string, std::string>> special = {
      {"not", {"b", "b"}},
      {"and", {"bb", "b"}},
      {"or", {"bb", "b"}},
      {"bitwise_and", {"ii", "i"}},
      {"bitwise_or", {"ii", "i"}},
      {"bitwise_xor", {"ii", "i"}},
      {"is_nan", {"f", "b"}},
      {"compare", {"ff", "b"}},
      {"select", {"bff", "f"}},
      {"sgd", {"ffs", "f"}},
      {"sgd_momentum", {"fffs", "ff"}},
      {"adam", {"ffffsn", "fff"}},
      {"adamw", {"ffffsn", "fff"}},
      {"adagrad", {"fffsn", "ff"}},
      {"divide_by_root", {"ff", "f"}},
      {"muon_momentum", {"ff", "ff"}},
      {"divide_by_norm", {"ff", "f"}},
      {"weighted_sum", {"ff", "f"}},
      {"muon_step", {"ffs", "f"}},
      {"factored_moment", {"ffn", "f"}},
      {"factored_direction", {"ffff", "f"}},
      {"root_direction", {"ff", "f"}},
      {"adafactor_step", {"ffsssn", "f"}},
      {"scale_by", {"fs", "f"}},
      {"clip_value", {"f", "f"}},
      {"update_if", {"ffc", "f"}}};
  Signature signature{"f", "f", {}};
  if (auto found = special.find(op); found != special.end())
    signature = {found->second.first, found->second.second, {}};
  else if (binary.count(op))
    signature.operands = "ff";
  if (op == "compare")
    signature.attrs = attrsOf({{"predicate", std::string("lt")}});
  else if (op == "sgd")
    signature.attrs = attrsOf({{"weight_decay", 0.01}});
  else if (op == "sgd_momentum")
    signature.attrs = attrsOf({{"momentum", 0.9}, {"nesterov", true}, {"weight_decay", 0.01}});
  else if (op == "muon_momentum")
    signature.attrs = attrsOf({{"momentum", 0.9}, {"nesterov", true}});
  else if (op == "adagrad")
    signature.attrs = attrsOf({{"rate_decay", 0.1}, {"epsilon", 1e-10}, {"weight_decay", 0.01}});
  else if (op == "divide_by_norm" || op == "divide_by_root")
    signature.attrs = attrsOf({{"epsilon", 1e-7}});
  else if (op == "weighted_sum")
    signature.attrs = attrsOf({{"alpha", 0.5}, {"beta", -2.0}});
  else if (op == "muon_step")
    signature.attrs = attrsOf({{"scale", 2.0}, {"weight_decay", 0.01}});
  else if (op == "factored_moment")
    signature.attrs = attrsOf({{"count", int64_t(4)}, {"beta2_decay", -0.8}});
  else if (op == "factored_direction")
    signature.attrs = attrsOf({{"count", int64_t(2)}, {"epsilon", 1e-7}});
  else if (op == "root_direction")
    signature.attrs = attrsOf({{"epsilon", 1e-7}});
  else if (op == "adafactor_step")
    signature.attrs = attrsOf(
        {{"count", int64_t(6)}, {"clip_threshold", 1.5}, {"epsilon", 0.5}, {"weight_decay", 0.1}});
  else if (op == "adam" || op == "adamw")
    signature.attrs = adam;
  else if (op == "clip_value")
    signature.attrs = attrsOf({{"limit", 0.5}});
  return signature;
}

constexpr int64_t count = 6;

TensorType typeOf(char letter) {
  bool isTensor = letter == 'f' || letter == 'i' || letter == 'b';
  Shape shape = isTensor ? Shape{2, count / 2} : Shape{};
  if (letter == 'f' || letter == 's')
    return {DType::F64, shape};
  return {letter == 'i' || letter == 'n' ? DType::I64 : DType::Bool, shape};
}

/// Returns an operand with distinct elements. `changed` is the index of an altered element.
Tensor operand(char letter, size_t number, int64_t changed = -1) {
  TensorType type = typeOf(letter);
  std::vector<double> values;
  for (int64_t i = 0; i < numElements(type.shape); ++i) {
    double value = 0.1 + 0.11 * double(i) + 0.03 * double(number);
    if (type.dtype == DType::I64)
      value = double(3 + i);
    if (type.dtype == DType::Bool)
      value = double((i + int64_t(number)) % 2);
    if (i == changed)
      value = type.dtype == DType::Bool ? 1 - value : value + (type.dtype == DType::I64 ? 8 : 0.37);
    values.push_back(value);
  }
  return Tensor::fromDoubles(type, Arith::F64, values);
}

std::vector<std::vector<double>> run(const std::string &op, const Signature &signature,
                                     size_t changedOperand, int64_t changedElement) {
  std::vector<Tensor> operands;
  std::vector<TensorType> types;
  for (size_t k = 0; k < signature.operands.size(); ++k)
    operands.push_back(
        operand(signature.operands[k], k, k == changedOperand ? changedElement : -1));
  for (char letter : signature.results)
    types.push_back(typeOf(letter));
  std::vector<std::vector<double>> results;
  for (const Tensor &result : findKernel(op)(Arith::F64, signature.attrs, operands, types))
    results.push_back(result.toDoubles());
  return results;
}

TEST(Elementwise, AnElementDependsOnNoOtherElement) {
  int kernels = 0, dependences = 0;
  for (const std::string &op : kernelNames()) {
    if (!isElementwiseKernel(op))
      continue;
    ++kernels;
    Signature signature = signatureOf(op);
    auto plain = run(op, signature, 0, -1);
    for (size_t k = 0; k < signature.operands.size(); ++k)
      for (int64_t i = 0; i < numElements(typeOf(signature.operands[k]).shape); ++i) {
        if (typeOf(signature.operands[k]).shape.empty())
          continue; // a scalar affects all elements
        auto changed = run(op, signature, k, i);
        for (size_t r = 0; r < plain.size(); ++r)
          for (int64_t j = 0; j < count; ++j) {
            dependences += i == j && changed[r][j] != plain[r][j];
            EXPECT_TRUE(i == j || changed[r][j] == plain[r][j])
                << op << ": element " << j << " of result " << r << " depends on element " << i
                << " of operand " << k;
          }
      }
  }
  EXPECT_GT(kernels, 30);
  EXPECT_GT(dependences, 200);
}

TEST(Elementwise, OthersAreNotDeclaredSo) {
  for (const char *op : {"einsum", "softmax", "transpose", "square_sum", "no such op"})
    EXPECT_FALSE(isElementwiseKernel(op)) << op;
}

} // namespace
} // namespace tbc::kernels
