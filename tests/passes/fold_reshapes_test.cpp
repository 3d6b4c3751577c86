//===- fold_reshapes_test.cpp - Folding reshapes keeps all results ---------===//

#include "ir/Evaluate.h"
#include "ir/Interpreter.h"
#include "ir/Movement.h"
#include "passes/layout/FoldReshapes.h"
#include "tests/passes/FoldFixture.h"

#include "gtest/gtest.h"

#include <random>

using namespace mlir;

namespace tbc {
namespace {

TEST(FoldReshapes, ExamplesMeanTheSameAfterwards) {
  EXPECT_EQ(foldExamples<ReshapeOp>("fold_reshapes.mlir", foldReshapes),
            2 - 1 + 2); // heads has one more: it merges in two places
}

/// Writes functions over x[2, 3, 4], whose first dims are merged at random for each op.
class RandomChain {
public:
  explicit RandomChain(unsigned seed) : random(seed) {}

  std::string text() {
    std::string value = "%x";
    for (int i = 0; i < 6; ++i) {
      if (random() % 2)
        value = regroup(value);
      value = op(value);
    }
    value = regroup(value);
    return "func.func @model(%x: " + type({2, 3, 4}) +
           ", %w: tensor<4x4xf32>, %b: tensor<4xf32>) -> " + type(shape) + " {\n" + body +
           "  return " + value + " : " + type(shape) + "\n}\n";
  }

private:
  using Shape = std::vector<int64_t>;

  static std::string type(const Shape &shape) {
    std::string text = "tensor<";
    for (int64_t size : shape)
      text += std::to_string(size) + "x";
    return text + "f32>";
  }
  static std::string list(const Shape &numbers) {
    std::string text;
    for (int64_t number : numbers)
      text += (text.empty() ? "" : ", ") + std::to_string(number);
    return text;
  }
  std::string add(const std::string &op) {
    std::string name = "%v" + std::to_string(next++);
    body += "  " + name + " = " + op + "\n";
    return name;
  }

  std::string regroup(const std::string &value) {
    const std::vector<Shape> forms = {{2, 3, 4}, {6, 4}, {3, 2, 4}};
    Shape to = forms[random() % forms.size()];
    if (to == shape)
      return value;
    // Factors of both: a split and a merge of 2, 3 and 3, 2 needs the product between them.
    bool isMerge = to.size()<shape.size(), isSplit = to.size()> shape.size();
    if (!isMerge && !isSplit)
      return value;
    const Shape &sizes = isMerge ? shape : to;
    Shape apart(3, 1), merged = {2, 1};
    std::string result = add("tbc.reshape " + value + " {sizes = array<i64: " + list(sizes) +
                             ">, in = array<i64: " + list(isMerge ? apart : merged) +
                             ">, out = array<i64: " + list(isMerge ? merged : apart) + ">} : (" +
                             type(shape) + ") -> " + type(to));
    shape = to;
    return result;
  }

  std::string op(const std::string &value) {
    std::string here = type(shape);
    Shape labels;
    switch (random() % 5) {
    case 0: {
      for (int64_t i = 0; i < int64_t(shape.size()); ++i)
        labels.push_back(i);
      Shape out = labels;
      out.back() = 7;
      return add("tbc.einsum " + value + ", %w {lhs_labels = array<i64: " + list(labels) +
                 ">, rhs_labels = array<i64: " + std::to_string(labels.back()) +
                 ", 7>, out_labels = array<i64: " + list(out) + ">} : (" + here +
                 ", tensor<4x4xf32>) -> " + here);
    }
    case 1: {
      std::string bias =
          add("tbc.broadcast %b {dims = array<i64: " + std::to_string(shape.size() - 1) +
              ">} : (tensor<4xf32>) -> " + here);
      return add("tbc.add " + value + ", " + bias + " : " + here);
    }
    case 2:
      return add("tbc.mul " + value + ", " + value + " : " + here);
    case 3: {
      std::string other = add("tbc.neg " + value + " : " + here);
      return add("tbc.sub " + other + ", " + value + " : " + here);
    }
    default:
      return add("tbc.tanh " + value + " : " + here);
    }
  }

  std::mt19937 random;
  Shape shape = {2, 3, 4};
  std::string body;
  int next = 0;
};

TEST(FoldReshapes, RandomChainsMeanTheSameAfterwards) {
  int64_t folded = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::string text = RandomChain(seed).text();
    SCOPED_TRACE(text);
    ParsedModule module(text);
    ASSERT_TRUE(module) << module.messages;
    folded += foldAndCompare<ReshapeOp>(module.function("model"), foldReshapes);
  }
  EXPECT_GT(folded, 100);
}

} // namespace
} // namespace tbc
