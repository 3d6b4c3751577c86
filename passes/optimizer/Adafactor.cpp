//===- Adafactor.cpp - Steps with factored second moments -------------------===//

#include "passes/optimizer/Adafactor.h"

#include "ir/Optimizer.h"

#include <limits>

using namespace mlir;

namespace tbc {

SmallVector<FactoredState, 2> factoredStates(RankedTensorType parameter) {
  ArrayRef<int64_t> shape = parameter.getShape();
  if (shape.size() < 2)
    return {{"variance", SmallVector<int64_t>(shape)}};
  SmallVector<int64_t> rows(shape.drop_back()), columns(shape.drop_back(2));
  columns.push_back(shape.back());
  return {{"row_var", rows}, {"col_var", columns}};
}

namespace {

class FactoredStepBuilder {
public:
  using Taken = function_ref<Value(Value old, Value replacement)>;

  FactoredStepBuilder(Formula &f, Value gathered, ArrayRef<int64_t> shape, ArrayRef<Value> states,
                      Value step, const AdafactorOptions &options, Taken taken)
      : f(f), gathered(gathered), type(tensorType(gathered)), shape(shape), states(states),
        step(step), options(options), taken(taken) {}

  FactoredStep run() { return type.getRank() < 2 ? ofVector() : ofMatrices(); }

private:
  FloatAttr number(double value) { return f.builder.getF64FloatAttr(value); }
  IntegerAttr size(int64_t dim) { return f.builder.getI64IntegerAttr(shape[dim]); }

  FloatAttr epsilon() {
    const bool isDouble = wideElementType(type).isF64();
    return number(options.epsilon.value_or(isDouble ? std::numeric_limits<double>::epsilon()
                                                    : std::numeric_limits<float>::epsilon()));
  }

  /// Returns the squares of all elements. Each caller squares anew, so that its kernel reads the
  /// narrow tensor.
  Value squares() {
    Value wide = f.wide(gathered);
    return f.mul(wide, wide);
  }

  Value newMoment(Value sums, Value moment, IntegerAttr count) {
    return f.make<FactoredMomentOp>(sums, moment, step, count, number(options.beta2Decay));
  }

  FactoredStep ofVector() {
    Value moment = newMoment(squares(), states[0], f.builder.getI64IntegerAttr(1));
    Value newState = taken(states[0], moment);
    return {f.make<RootDirectionOp>(f.wide(gathered), moment, epsilon()), {newState}};
  }

  FactoredStep ofMatrices() {
    const int64_t rows = type.getRank() - 2, columns = rows + 1;
    Value ofRows = f.sum(squares(), {columns}), ofColumns = f.sum(squares(), {rows});
    Value row = newMoment(ofRows, states[0], size(columns));
    Value newRow = taken(states[0], row);
    // Right behind its moments, so that both are one kernel.
    Value total = f.sum(row, {rows});
    Value column = newMoment(ofColumns, states[1], size(rows));
    Value newColumn = taken(states[1], column);
    Value wide = f.wide(gathered);
    Value direction = f.make<FactoredDirectionOp>(
        wide, f.repeat(row, wide, {columns}), f.repeat(column, wide, {rows}),
        f.repeat(total, wide, {rows, columns}), size(rows), epsilon());
    return {direction, {newRow, newColumn}};
  }

  Formula &f;
  Value gathered;
  RankedTensorType type;
  ArrayRef<int64_t> shape; // without padding
  ArrayRef<Value> states;
  Value step;
  const AdafactorOptions &options;
  Taken taken;
};

} // namespace

FactoredStep buildFactoredStep(Formula &f, Value gradient, ArrayRef<int64_t> shape,
                               ArrayRef<Value> states, Value step, const AdafactorOptions &options,
                               function_ref<Value(Value old, Value replacement)> taken) {
  Value gathered = f.make<GatherMatricesOp>(gradient);
  FactoredStep result = FactoredStepBuilder(f, gathered, shape, states, step, options, taken).run();
  result.direction = f.make<ShardMatricesOp>(result.direction);
  return result;
}

Value buildAdafactorStep(Formula &f, Value value, Value direction, ArrayRef<int64_t> shape,
                         Value rate, Value step, double weightDecay,
                         const AdafactorOptions &options) {
  auto totals = f.builder.create<SquareTotalsOp>(f.loc, ValueRange{value, direction});
  auto number = [&](double x) { return f.builder.getF64FloatAttr(x); };
  return f.make<AdafactorStepOp>(
      value, direction, totals.getTotals()[0], totals.getTotals()[1], rate, step,
      f.builder.getI64IntegerAttr(ShapedType::getNumElements(shape)), number(options.clipThreshold),
      number(options.epsilon2), number(weightDecay));
}

} // namespace tbc
