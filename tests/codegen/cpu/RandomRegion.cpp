//===- RandomRegion.cpp - Small random regions of several ops ---------------===//

#include "tests/codegen/cpu/RandomRegion.h"

#include <array>
#include <vector>

namespace tbc {
namespace {

class RegionText {
public:
  explicit RegionText(std::mt19937 &random) : random(random) {
    constexpr std::array sizes = {1, 2, 3, 5, 8, 17};
    for (int dim = 0; dim < 4; ++dim)
      shape[size_t(dim)] = sizes[pick(sizes.size())];
    tensorType = typeOfColumns(shape.back());
    vectorType = "tensor<" + std::to_string(shape[1]) + "xf32>";
  }

  std::string make() {
    // Only vectors, tensors with broadcast vectors, or both with sums between them.
    hasTensors = pick(3) > 0;
    hasSums = hasTensors && pick(2) > 0;
    size_t numVectors = 1 + pick(3), numTensors = hasTensors ? 1 + pick(3) : 0;
    std::string arguments;
    for (size_t i = 0; i < numVectors + numTensors; ++i) {
      bool isVector = i < numVectors;
      std::string name = "%a" + std::to_string(i);
      arguments += (i > 0 ? ", " : "") + name + ": ";
      arguments += isVector ? vectorType : pick(4) == 0 ? cutOf(name) : tensorType;
      values.push_back({name, isVector, 1}); // an argument may not be a result
    }
    size_t numArguments = values.size();
    for (size_t count = 3 + pick(7); count > 0; --count)
      addOp();
    std::string types, names;
    for (size_t i = numArguments; i < values.size(); ++i) {
      if (values[i].numReaders > 0 && pick(4) > 0)
        continue;
      names += (names.empty() ? "" : ", ") + values[i].name;
      types += (types.empty() ? "" : ", ") + typeOf(values[i]);
    }
    if (std::string joined = join(numArguments); !joined.empty()) {
      names += (names.empty() ? "" : ", ") + joined;
      types += (types.empty() ? "" : ", ") + typeOfColumns(2 * shape.back());
    }
    return "func.func @f(" + arguments + ") -> (" + types + ") {\n" + body + "  return " + names +
           " : " + types + "\n}\n";
  }

private:
  struct Value {
    std::string name;
    bool isVector;
    int numReaders = 0;
  };

  size_t pick(size_t count) { return random() % count; }
  const std::string &typeOf(const Value &value) const {
    return value.isVector ? vectorType : tensorType;
  }

  std::string typeOfColumns(int columns) const {
    std::string sizes;
    for (size_t dim = 0; dim + 1 < shape.size(); ++dim)
      sizes += std::to_string(shape[dim]) + "x";
    return "tensor<" + sizes + std::to_string(columns) + "xf32>";
  }

  /// Cuts a tensor of the columns of argument `name`, and gives it that name. Returns the type of
  /// the argument.
  std::string cutOf(std::string &name) {
    const int before = int(pick(4)), behind = int(pick(4));
    const std::string type = typeOfColumns(before + shape.back() + behind);
    const std::string cut = "%c" + name.substr(1);
    addLine(cut + " = tbc.slice " + name + " {dim = 3 : i64, offset = " + std::to_string(before) +
            " : i64, size = " + std::to_string(shape.back()) + " : i64} : (" + type + ") -> " +
            tensorType);
    name = cut;
    return type;
  }

  /// Joins the columns of two tensors that are no arguments, at times. Returns the name, or "".
  std::string join(size_t numArguments) {
    std::vector<std::string> tensors;
    for (size_t i = numArguments; i < values.size(); ++i)
      if (!values[i].isVector)
        tensors.push_back(values[i].name);
    if (tensors.size() < 2 || pick(2) > 0)
      return "";
    const size_t first = pick(tensors.size() - 1);
    addLine("%joined = tbc.concat " + tensors[first] + ", " + tensors.back() +
            " {dim = 3 : i64} : (" + tensorType + ", " + tensorType + ") -> " +
            typeOfColumns(2 * shape.back()));
    return "%joined";
  }

  /// Returns the name of a value of this kind; both kinds exist by now.
  std::string read(bool isVector) {
    std::vector<Value *> candidates;
    for (Value &value : values)
      if (value.isVector == isVector)
        candidates.push_back(&value);
    Value &value = *candidates[pick(candidates.size())];
    ++value.numReaders;
    return value.name;
  }

  std::string define(bool isVector) {
    values.push_back({"%v" + std::to_string(values.size()), isVector, 0});
    return values.back().name;
  }

  void addLine(const std::string &text) { body += "  " + text + "\n"; }

  void addOp() {
    bool isVector = !hasTensors || pick(2) == 0;
    const std::string &type = isVector ? vectorType : tensorType;
    switch (pick(6)) {
    case 0: {
      constexpr std::array unary = {"neg", "tanh", "abs", "relu"};
      std::string op = unary[pick(unary.size())], x = read(isVector);
      addLine(define(isVector) + " = tbc." + op + " " + x + " : " + type);
      return;
    }
    case 1: {
      std::string number = "%n" + std::to_string(values.size());
      addLine(number +
              " = tbc.factor_size {count = 3 : i64, samples = 2 : i64} : () -> tensor<f32>");
      addLine(define(isVector) + " = tbc.broadcast " + number +
              " {dims = array<i64>} : (tensor<f32>) -> " + type);
      return;
    }
    case 2:
      if (hasTensors) {
        std::string vector = read(true);
        addLine(define(false) + " = tbc.broadcast " + vector + " {dims = array<i64: 1>} : (" +
                vectorType + ") -> " + tensorType);
        return;
      }
      break;
    case 3:
      if (hasSums) {
        std::string tensor = read(false);
        addLine(define(true) + " = tbc.reduce_sum " + tensor + " {dims = array<i64: 0, 2, 3>} : (" +
                tensorType + ") -> " + vectorType);
        return;
      }
      break;
    default:
      break;
    }
    constexpr std::array binary = {"add", "sub", "mul", "maximum"};
    std::string op = binary[pick(binary.size())], x = read(isVector), y = read(isVector);
    addLine(define(isVector) + " = tbc." + op + " " + x + ", " + y + " : " + type);
  }

  std::mt19937 &random;
  std::array<int, 4> shape = {};
  std::string tensorType, vectorType, body;
  bool hasTensors = false, hasSums = false;
  std::vector<Value> values;
};

} // namespace

std::string randomRegion(std::mt19937 &random) { return RegionText(random).make(); }

} // namespace tbc
