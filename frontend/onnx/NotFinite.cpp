//===- NotFinite.cpp - Tensors of a model with NaN or infinity -------------===//

#include "frontend/onnx/NotFinite.h"

#include "frontend/onnx/Batch.h"
#include "frontend/onnx/Sources.h"
#include "ir/Elementwise.h"
#include "ir/Movement.h"

#include <cmath>
#include <set>

using namespace mlir;

namespace tbc::frontend {

namespace {

/// Finds the first element that is not finite; a NaN counts before all infinities.
class Finder {
public:
  /// Returns whether to go on: until the first NaN.
  bool add(double element) {
    if (!std::isfinite(element) && (first < 0 || std::isnan(element))) {
      first = position;
      value = element;
    }
    ++position;
    return !std::isnan(element);
  }
  bool hasFound() const { return first >= 0; }
  bool isNan() const { return std::isnan(value); }

  /// Example: "is NaN at [2, 3]"; without a place for a single number.
  std::string text(llvm::ArrayRef<int64_t> shape) const {
    std::string place;
    int64_t rest = first;
    for (int64_t size : llvm::reverse(shape)) {
      place = std::to_string(rest % size) + (place.empty() ? "" : ", ") + place;
      rest /= size;
    }
    return std::string(isNan()     ? "is NaN"
                       : value > 0 ? "is infinite"
                                   : "is -infinite") +
           (place.empty() ? "" : " at [" + place + "]");
  }

private:
  int64_t position = 0, first = -1;
  double value = 0;
};

} // namespace

/// Whether `value` is read only where a number is NaN already, as in torch.xlogy(x, y):
/// where(isnan(y), nan, x * log(y)).
static bool standsForNan(mlir::Value value) {
  return llvm::all_of(value.getUses(), [](OpOperand &use) {
    Operation *reader = use.getOwner();
    if (isa<BroadcastOp, CastOp, ReshapeOp>(reader))
      return standsForNan(reader->getResult(0));
    auto select = dyn_cast<SelectOp>(reader);
    if (!select || use.getOperandNumber() != 1)
      return false;
    mlir::Value where = select.getPred();
    while (auto broadcast = where.getDefiningOp<BroadcastOp>())
      where = broadcast.getInput();
    return where.getDefiningOp<IsNanOp>() != nullptr;
  });
}

static void addConstants(ModuleOp module, std::vector<NotFinite> &found) {
  std::set<std::string> known; // a step has a constant in several functions
  module.walk([&](ConstantOp op) {
    auto elements = dyn_cast<DenseFPElementsAttr>(op.getValue());
    if (!elements)
      return;
    Finder finder;
    auto add = [&](const APFloat &element) {
      bool isInexact = false;
      APFloat wide = element;
      wide.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &isInexact);
      return finder.add(wide.convertToDouble());
    };
    if (elements.isSplat())
      add(elements.getSplatValue<APFloat>());
    else
      for (const APFloat &element : elements.getValues<APFloat>())
        if (!add(element))
          break;
    if (!finder.hasFound() || (finder.isNan() && standsForNan(op)))
      return;
    NotFinite tensor;
    tensor.isNan = finder.isNan();
    tensor.text = "the constant that " + nodeOf(op, "an op") + " reads or makes " +
                  finder.text(elements.getType().getShape());
    if (known.insert(tensor.text).second)
      found.push_back(std::move(tensor));
  });
}

std::vector<NotFinite> notFiniteTensors(const ImportedModel &model, int64_t mostElements) {
  std::vector<NotFinite> found;
  addConstants(ModuleOp(*model.module), found);
  for (const ParameterSource &source : model.parameters) {
    const int64_t elements = kernels::numElements(source.shape);
    if (!source.present || !kernels::isFloat(source.dtype) || elements > mostElements)
      continue;
    mostElements -= elements;
    Finder finder;
    forEachElement(source, [&](double element) { return finder.add(element); });
    if (finder.hasFound())
      found.push_back({"initializer '" + source.name + "' " + finder.text(source.shape),
                       finder.isNan(), !source.isState});
  }
  return found;
}

std::string textOf(const std::vector<NotFinite> &tensors) {
  constexpr size_t mostShown = 3;
  std::string text;
  for (size_t i = 0; i < tensors.size() && i < mostShown; ++i)
    text += (i > 0 ? ", " : "") + tensors[i].text;
  if (tensors.size() > mostShown)
    text += ", and " + std::to_string(tensors.size() - mostShown) + " more";
  return text;
}

} // namespace tbc::frontend
