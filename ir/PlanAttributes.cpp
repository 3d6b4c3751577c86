//===- PlanAttributes.cpp - Text and verifiers of the attributes of Plan.td -===//

#include "ir/Plan.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace tbc {

using EmitError = llvm::function_ref<InFlightDiagnostic()>;

//===----------------------------------------------------------------------===//
// Axes
//===----------------------------------------------------------------------===//

/// "tp", or "tp":(2)4 for a part.
static ParseResult parseAxis(AsmParser &parser, AxisAttr &axis) {
  SMLoc loc = parser.getCurrentLocation();
  std::string name;
  int64_t pre = 1, size = 0;
  if (parser.parseString(&name))
    return failure();
  if (succeeded(parser.parseOptionalColon()) && (parser.parseLParen() || parser.parseInteger(pre) ||
                                                 parser.parseRParen() || parser.parseInteger(size)))
    return failure();
  axis = parser.getChecked<AxisAttr>(loc, parser.getContext(), StringRef(name), pre, size);
  return success(bool(axis));
}

static void printAxis(AsmPrinter &printer, AxisAttr axis) {
  printer << '"' << axis.getName() << '"';
  if (axis.getSize() != 0)
    printer << ":(" << axis.getPre() << ')' << axis.getSize();
}

/// ["dp", "tp":(2)4].
static ParseResult parseAxes(AsmParser &parser, ArrayAttr &axes) {
  SmallVector<Attribute> list;
  auto parseOne = [&]() -> ParseResult {
    AxisAttr axis;
    if (parseAxis(parser, axis))
      return failure();
    list.push_back(axis);
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseOne))
    return failure();
  axes = ArrayAttr::get(parser.getContext(), list);
  return success();
}

static void printAxes(AsmPrinter &printer, ArrayAttr axes) {
  printer << '[';
  llvm::interleaveComma(axes.getAsRange<AxisAttr>(), printer.getStream(),
                        [&](AxisAttr axis) { printAxis(printer, axis); });
  printer << ']';
}

static bool areAxes(ArrayAttr axes) {
  return axes && llvm::all_of(axes, [](Attribute attr) { return llvm::isa<AxisAttr>(attr); });
}

/// Checks that no use of an axis stands twice, and no whole axis beside another use of it. Other
/// overlaps of parts are found once the mesh is known (`reshard::whyInvalid`).
static LogicalResult verifyUnique(EmitError emitError, ArrayRef<AxisAttr> axes) {
  llvm::StringSet<> names, whole;
  llvm::DenseSet<AxisAttr> seen;
  for (AxisAttr axis : axes) {
    bool isFirst = names.insert(axis.getName()).second;
    if (!seen.insert(axis).second || whole.contains(axis.getName()) ||
        (axis.getSize() == 0 && !isFirst))
      return emitError() << "axis \"" << axis.getName() << "\" stands twice";
    if (axis.getSize() == 0)
      whole.insert(axis.getName());
  }
  return success();
}

static void append(SmallVector<AxisAttr> &all, ArrayAttr axes) {
  llvm::append_range(all, axes.getAsRange<AxisAttr>());
}

LogicalResult AxisAttr::verify(EmitError emitError, StringRef name, int64_t pre, int64_t size) {
  if (name.empty())
    return emitError() << "a mesh axis needs a name";
  if (pre < 1 || size < 0 || size == 1)
    return emitError() << "\"" << name << "\":(" << pre << ")" << size
                       << " is no part of an axis: pre is at least 1 and size at least 2";
  return success();
}

Attribute AxisAttr::parse(AsmParser &parser, Type) {
  AxisAttr axis;
  if (parser.parseLess() || parseAxis(parser, axis) || parser.parseGreater())
    return {};
  return axis;
}

void AxisAttr::print(AsmPrinter &printer) const {
  printer << '<';
  printAxis(printer, *this);
  printer << '>';
}

//===----------------------------------------------------------------------===//
// Mesh
//===----------------------------------------------------------------------===//

LogicalResult MeshAttr::verify(EmitError emitError, ArrayRef<StringAttr> names,
                               ArrayRef<int64_t> sizes) {
  if (names.size() != sizes.size())
    return emitError() << "a mesh has a size for each of its axes";
  llvm::StringSet<> seen;
  for (auto [name, size] : llvm::zip_equal(names, sizes)) {
    if (!seen.insert(name.getValue()).second)
      return emitError() << "the mesh has two axes \"" << name.getValue() << "\"";
    if (size < 1)
      return emitError() << "axis \"" << name.getValue() << "\" has size " << size
                         << "; it must be at least 1";
  }
  return success();
}

Attribute MeshAttr::parse(AsmParser &parser, Type) {
  SMLoc loc = parser.getCurrentLocation();
  SmallVector<StringAttr> names;
  SmallVector<int64_t> sizes;
  auto parseOne = [&]() -> ParseResult {
    std::string name;
    if (parser.parseString(&name) || parser.parseEqual() ||
        parser.parseInteger(sizes.emplace_back()))
      return failure();
    names.push_back(StringAttr::get(parser.getContext(), name));
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::LessGreater, parseOne))
    return {};
  return parser.getChecked<MeshAttr>(loc, parser.getContext(), ArrayRef<StringAttr>(names),
                                     ArrayRef<int64_t>(sizes));
}

void MeshAttr::print(AsmPrinter &printer) const {
  printer << '<';
  llvm::interleaveComma(
      llvm::zip_equal(getNames(), getSizes()), printer.getStream(), [&](auto axis) {
        printer << '"' << std::get<0>(axis).getValue() << "\"=" << std::get<1>(axis);
      });
  printer << '>';
}

//===----------------------------------------------------------------------===//
// Strategy
//===----------------------------------------------------------------------===//

LogicalResult StrategyAttr::verify(EmitError emitError, ArrayRef<int64_t> loops, ArrayAttr axes) {
  if (!axes || loops.size() != axes.size())
    return emitError() << "a strategy has axes for each of its loops";
  llvm::DenseSet<int64_t> seen;
  for (auto [loop, attr] : llvm::zip_equal(loops, axes)) {
    auto list = llvm::dyn_cast<ArrayAttr>(attr);
    if (!areAxes(list) || list.empty())
      return emitError() << "loop " << loop << " has no list of axes";
    if (loop < 0 || !seen.insert(loop).second)
      return emitError() << "loop " << loop << " is negative or stands twice";
    // One axis may lie on several loops if they stream (`reshard::LoopKind::Streamed`).
    SmallVector<AxisAttr> ofLoop;
    append(ofLoop, list);
    if (failed(verifyUnique(emitError, ofLoop)))
      return failure();
  }
  return success();
}

Attribute StrategyAttr::parse(AsmParser &parser, Type) {
  SMLoc loc = parser.getCurrentLocation();
  SmallVector<int64_t> loops;
  SmallVector<Attribute> axes;
  auto parseOne = [&]() -> ParseResult {
    if (parser.parseInteger(loops.emplace_back()) || parser.parseEqual())
      return failure();
    ArrayAttr ofLoop;
    if (parseAxes(parser, ofLoop))
      return failure();
    axes.push_back(ofLoop);
    return success();
  };
  if (parser.parseLess() ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Braces, parseOne) ||
      parser.parseGreater())
    return {};
  return parser.getChecked<StrategyAttr>(loc, parser.getContext(), ArrayRef<int64_t>(loops),
                                         ArrayAttr::get(parser.getContext(), axes));
}

void StrategyAttr::print(AsmPrinter &printer) const {
  printer << "<{";
  llvm::interleaveComma(llvm::zip_equal(getLoops(), getAxes()), printer.getStream(),
                        [&](auto entry) {
                          printer << std::get<0>(entry) << " = ";
                          printAxes(printer, llvm::cast<ArrayAttr>(std::get<1>(entry)));
                        });
  printer << "}>";
}

//===----------------------------------------------------------------------===//
// Sharding
//===----------------------------------------------------------------------===//

static ParseResult parseFactorAxes(AsmParser &parser, FactorAxesAttr &entry) {
  SMLoc loc = parser.getCurrentLocation();
  StringRef keyword;
  int64_t factor = 0;
  ArrayAttr axes;
  if (parser.parseKeyword(&keyword))
    return failure();
  if (!keyword.consume_front("f") || keyword.getAsInteger(10, factor))
    return parser.emitError(loc, "expected a factor such as f7");
  if (parser.parseEqual() || parseAxes(parser, axes))
    return failure();
  entry = parser.getChecked<FactorAxesAttr>(loc, parser.getContext(), factor, axes);
  return success(bool(entry));
}

static void printFactorAxes(AsmPrinter &printer, FactorAxesAttr entry) {
  printer << 'f' << entry.getFactor() << " = ";
  printAxes(printer, entry.getAxes());
}

LogicalResult FactorAxesAttr::verify(EmitError emitError, int64_t factor, ArrayAttr axes) {
  if (factor < 0)
    return emitError() << "factor " << factor << " is negative";
  if (!areAxes(axes) || axes.empty())
    return emitError() << "factor " << factor << " has no list of axes";
  return success();
}

Attribute FactorAxesAttr::parse(AsmParser &parser, Type) {
  FactorAxesAttr entry;
  if (parser.parseLess() || parseFactorAxes(parser, entry) || parser.parseGreater())
    return {};
  return entry;
}

void FactorAxesAttr::print(AsmPrinter &printer) const {
  printer << '<';
  printFactorAxes(printer, *this);
  printer << '>';
}

LogicalResult ShardingAttr::verify(EmitError emitError, ArrayAttr dims, ArrayAttr partial,
                                   bool isMax, ArrayAttr flat) {
  SmallVector<AxisAttr> all;
  for (Attribute attr : dims) {
    auto dim = llvm::dyn_cast<ArrayAttr>(attr);
    if (!dim ||
        !llvm::all_of(dim, [](Attribute entry) { return llvm::isa<FactorAxesAttr>(entry); }))
      return emitError() << "a dim of a sharding is a list of factors";
    for (FactorAxesAttr entry : dim.getAsRange<FactorAxesAttr>())
      append(all, entry.getAxes());
  }
  if (!areAxes(partial) || !areAxes(flat))
    return emitError() << "partial and flat are lists of axes";
  if (isMax && partial.empty())
    return emitError() << "partial_max names no axis";
  append(all, partial);
  append(all, flat);
  return verifyUnique(emitError, all);
}

static ArrayAttr parseDims(AsmParser &parser) {
  SmallVector<Attribute> dims;
  auto parseDim = [&]() -> ParseResult {
    SmallVector<Attribute> entries;
    auto parseEntry = [&]() -> ParseResult {
      FactorAxesAttr entry;
      if (parseFactorAxes(parser, entry))
        return failure();
      entries.push_back(entry);
      return success();
    };
    if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Braces, parseEntry))
      return failure();
    dims.push_back(ArrayAttr::get(parser.getContext(), entries));
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseDim))
    return {};
  return ArrayAttr::get(parser.getContext(), dims);
}

Attribute ShardingAttr::parse(AsmParser &parser, Type) {
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess())
    return {};
  ArrayAttr dims = parseDims(parser);
  if (!dims)
    return {};
  ArrayAttr none = ArrayAttr::get(parser.getContext(), {}), partial = none, flat = none;
  bool isMax = false;
  while (succeeded(parser.parseOptionalComma())) {
    StringRef key;
    SMLoc keyLoc = parser.getCurrentLocation();
    ArrayAttr axes;
    if (parser.parseKeyword(&key) || parser.parseEqual() || parseAxes(parser, axes))
      return {};
    if ((key == "partial" || key == "partial_max") && partial.empty()) {
      partial = axes;
      isMax = key == "partial_max";
    } else if (key == "flat" && flat.empty()) {
      flat = axes;
    } else {
      parser.emitError(keyLoc, "expected partial, partial_max or flat, each at most once");
      return {};
    }
  }
  if (parser.parseGreater())
    return {};
  return parser.getChecked<ShardingAttr>(loc, parser.getContext(), dims, partial, isMax, flat);
}

void ShardingAttr::print(AsmPrinter &printer) const {
  printer << "<[";
  llvm::interleaveComma(getDims().getAsRange<ArrayAttr>(), printer.getStream(), [&](ArrayAttr dim) {
    printer << '{';
    llvm::interleaveComma(dim.getAsRange<FactorAxesAttr>(), printer.getStream(),
                          [&](FactorAxesAttr entry) { printFactorAxes(printer, entry); });
    printer << '}';
  });
  printer << ']';
  if (!getPartial().empty()) {
    printer << (getIsMax() ? ", partial_max = " : ", partial = ");
    printAxes(printer, getPartial());
  }
  if (!getFlat().empty()) {
    printer << ", flat = ";
    printAxes(printer, getFlat());
  }
  printer << '>';
}

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

LogicalResult ParameterPlanAttr::verify(EmitError emitError, int64_t zero, bool, ArrayAttr zeroAxes,
                                        ArrayAttr reduceAxes) {
  if (zero < 0 || zero > 3)
    return emitError() << "zero = " << zero << "; it is 0 to 3";
  if (!areAxes(zeroAxes) || !areAxes(reduceAxes))
    return emitError() << "zero_axes and reduce_axes are lists of axes";
  SmallVector<AxisAttr> all;
  append(all, zeroAxes);
  append(all, reduceAxes);
  return verifyUnique(emitError, all);
}

Attribute ParameterPlanAttr::parse(AsmParser &parser, Type) {
  SMLoc loc = parser.getCurrentLocation();
  int64_t zero = 0;
  bool keepGathered = false;
  ArrayAttr zeroAxes, reduceAxes;
  if (parser.parseLess() || parser.parseKeyword("zero") || parser.parseEqual() ||
      parser.parseInteger(zero) || parser.parseComma())
    return {};
  if (succeeded(parser.parseOptionalKeyword("keep_gathered"))) {
    keepGathered = true;
    if (parser.parseComma())
      return {};
  }
  if (parser.parseKeyword("zero_axes") || parser.parseEqual() || parseAxes(parser, zeroAxes) ||
      parser.parseComma() || parser.parseKeyword("reduce_axes") || parser.parseEqual() ||
      parseAxes(parser, reduceAxes) || parser.parseGreater())
    return {};
  return parser.getChecked<ParameterPlanAttr>(loc, parser.getContext(), zero, keepGathered,
                                              zeroAxes, reduceAxes);
}

void ParameterPlanAttr::print(AsmPrinter &printer) const {
  printer << "<zero = " << getZero() << (getKeepGathered() ? ", keep_gathered" : "")
          << ", zero_axes = ";
  printAxes(printer, getZeroAxes());
  printer << ", reduce_axes = ";
  printAxes(printer, getReduceAxes());
  printer << '>';
}

} // namespace tbc
