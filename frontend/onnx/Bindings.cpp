//===- Bindings.cpp - Numbers for the symbolic dims of a model -------------===//

#include "frontend/onnx/Bindings.h"

#include "frontend/onnx/PositionTables.h"
#include "frontend/onnx/Suggest.h"
#include "frontend/onnx/Value.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <functional>
#include <set>

namespace tbc::frontend {

Shape BoundInput::atBatch(int64_t batch) const {
  Shape result = shape;
  for (size_t i = 0; i < result.size(); ++i)
    if (isBatch[i])
      result[i] = batch;
  return result;
}

int64_t BoundInput::batchDim() const {
  auto it = std::find(isBatch.begin(), isBatch.end(), true);
  return it == isBatch.end() ? -1 : it - isBatch.begin();
}

namespace {

using Dim = onnx::TensorShapeProto::Dimension;

const onnx::TypeProto::Tensor &tensorTypeOf(const onnx::ValueInfoProto &input) {
  if (!input.type().has_tensor_type() || !input.type().tensor_type().has_shape())
    throw ImportError("input '" + input.name() + "' is not a tensor of known rank");
  return input.type().tensor_type();
}

bool isInteger(const onnx::TypeProto::Tensor &type) {
  return type.elem_type() == onnx::TensorProto::INT64 ||
         type.elem_type() == onnx::TensorProto::INT32 ||
         type.elem_type() == onnx::TensorProto::UINT64 ||
         type.elem_type() == onnx::TensorProto::UINT32;
}

/// The meaning of the symbols in a model's inputs.
struct Symbols {
  std::string batch, seq;
  /// Without a batch symbol: the fixed size of the first dim.
  int64_t fixedBatch = 0;
  std::set<std::string> all;
};

Symbols findSymbols(const Model &model) {
  Symbols symbols;
  for (const onnx::ValueInfoProto *input : model.inputs)
    for (const Dim &dim : tensorTypeOf(*input).shape().dim())
      if (!dim.dim_param().empty())
        symbols.all.insert(dim.dim_param());
  for (const onnx::ValueInfoProto *input : model.inputs) {
    const auto &dims = tensorTypeOf(*input).shape().dim();
    if (dims.size() == 0)
      continue;
    if (symbols.batch.empty())
      symbols.batch = dims[0].dim_param();
    if (symbols.fixedBatch == 0 && dims[0].dim_param().empty())
      symbols.fixedBatch = dims[0].dim_value();
  }
  // The length of a KV cache is not the sequence length.
  auto mayBeSeq = [&](const std::string &name) {
    return name != symbols.batch && name.find('+') == std::string::npos &&
           name.find("past") == std::string::npos;
  };
  for (const onnx::ValueInfoProto *input : model.inputs) {
    const onnx::TypeProto::Tensor &type = tensorTypeOf(*input);
    if (symbols.seq.empty() && isInteger(type) && type.shape().dim_size() == 2 &&
        mayBeSeq(type.shape().dim(1).dim_param()))
      symbols.seq = type.shape().dim(1).dim_param();
  }
  for (const std::string &name : symbols.all)
    if (symbols.seq.empty() && mayBeSeq(name) && name.find("seq") != std::string::npos)
      symbols.seq = name;
  return symbols;
}

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

/// Whether the dim `symbol` belongs to a KV cache input.
bool isPastDim(const onnx::ValueInfoProto &input, const std::string &symbol) {
  return contains(input.name(), "past") && contains(symbol, "past");
}

/// The size of a dim "a + b"; `sizeOf` returns the size of each part.
std::optional<int64_t>
sumOf(const std::string &symbol,
      const std::function<std::optional<int64_t>(const std::string &)> &sizeOf) {
  int64_t sum = 0;
  size_t begin = 0;
  while (begin <= symbol.size()) {
    size_t end = std::min(symbol.find('+', begin), symbol.size());
    std::string part = symbol.substr(begin, end - begin);
    part.erase(std::remove(part.begin(), part.end(), ' '), part.end());
    std::optional<int64_t> size;
    if (!part.empty() && part.size() < 10 &&
        part.find_first_not_of("0123456789") == std::string::npos)
      size = std::stoll(part);
    else if (!part.empty())
      size = sizeOf(part);
    if (!size || __builtin_add_overflow(sum, *size, &sum))
      return std::nullopt;
    begin = end + 1;
  }
  return sum;
}

/// The constant of an input, by option or by default.
std::optional<double> constantFor(const onnx::ValueInfoProto &input, const ImportOptions &options,
                                  std::vector<std::string> &warnings) {
  auto it = options.fix.find(input.name());
  if (it != options.fix.end()) {
    if (it->second == "ones")
      return 1;
    if (it->second == "zeros")
      return 0;
    if (it->second == "input")
      return std::nullopt;
    throw UsageError("--fix " + input.name() + "=" + it->second +
                     ": expected ones, zeros or input (to keep it)");
  }
  if (options.fixedShapes)
    return std::nullopt;
  std::optional<double> value;
  if (contains(input.name(), "attention_mask"))
    value = 1;
  else if (contains(input.name(), "token_type"))
    value = 0;
  if (value)
    warnings.push_back("input '" + input.name() + "' is held at " +
                       (*value == 1 ? "ones" : "zeros") + "; --fix " + input.name() +
                       "=input keeps it an input");
  return value;
}

/// Whether an input is a list of positions without an option.
bool isPositionIds(const onnx::ValueInfoProto &input, const ImportOptions &options) {
  return !options.fixedShapes && !options.fix.count(input.name()) &&
         contains(input.name(), "position_ids") && isInteger(tensorTypeOf(input)) &&
         tensorTypeOf(input).shape().dim_size() > 0;
}

/// The inputs whose positions are known: masks that are held at ones, and lists of positions.
std::set<std::string> positionInputs(const Model &model, const ImportOptions &options) {
  std::set<std::string> names;
  std::vector<std::string> unused;
  for (const onnx::ValueInfoProto *input : model.inputs)
    if (constantFor(*input, options, unused) == 1.0 || isPositionIds(*input, options))
      names.insert(input->name());
  return names;
}

/// The constant elements of `input`; ImportError unless they have its type.
Known elementsFor(const BoundInput &input, const kernels::Tensor &tensor) {
  kernels::TensorType type{input.dtype, input.shape};
  if (tensor.type() != type)
    throw ImportError("input '" + input.name + "' of type " + kernels::toString(type) +
                      " is held at a tensor of type " + kernels::toString(tensor.type()));
  return kernels::isFloat(input.dtype) ? Known::ofReals(input.shape, tensor.data<double>())
                                       : Known::ofInts(input.shape, tensor.data<int64_t>());
}

int64_t checkSize(const std::string &what, int64_t size) {
  constexpr int64_t largest = int64_t(1) << 40;
  if (size < 1 || size > largest)
    throw ImportError(what + " is " + std::to_string(size) + "; expected 1 to 2^40");
  return size;
}

} // namespace

namespace {

/// Gives every dim of every input a size.
class Binder {
public:
  Binder(const Model &model, const ImportOptions &options)
      : model(model), options(options), symbols(findSymbols(model)) {}

  Bindings run();

private:
  std::optional<int64_t> given(const std::string &name) const {
    auto it = options.dims.find(name);
    return it == options.dims.end() ? std::nullopt : std::optional<int64_t>(it->second);
  }
  void warn(const std::string &warning) { bindings.warnings.push_back(warning); }
  void checkDims() const;
  void checkInputs() const;
  void chooseBatch();
  void chooseSequence();
  bool bindInput(const onnx::ValueInfoProto &input);
  void chooseContent(const onnx::ValueInfoProto &input, BoundInput &bound, bool isEmpty);

  /// One dim of an input.
  struct DimOf {
    const onnx::ValueInfoProto &input;
    int number;
    bool isTokens; // dim 1 of integers of rank 2
    const Dim &dim() const { return tensorTypeOf(input).shape().dim(number); }
    const std::string &symbol() const { return dim().dim_param(); }
    std::string text() const {
      return "dim " + std::to_string(number) + " of input '" + input.name() + "'";
    }
  };
  bool isBatch(const DimOf &of) const;
  std::optional<int64_t> sizeOf(const DimOf &of, bool isBatch) const;
  std::optional<int64_t> sizeOfSum(const std::string &symbol) const;
  std::optional<int64_t> assumedSize(const DimOf &of, bool &isBatch);
  /// Appends the dim to `bound`. Returns whether it is taken as empty.
  bool bindDim(const DimOf &of, BoundInput &bound);

  const Model &model;
  const ImportOptions &options;
  const Symbols symbols;
  Bindings bindings;
};

} // namespace

void Binder::checkDims() const {
  for (const auto &[name, size] : options.dims)
    if (!symbols.all.count(name)) {
      std::string known;
      for (const std::string &symbol : symbols.all)
        known += (known.empty() ? "" : ", ") + symbol;
      throw UsageError("--dim " + name + ": the model has no such dim; it has " +
                       (known.empty() ? "none" : known) +
                       suggestion(name, {symbols.all.begin(), symbols.all.end()}));
    }
}

void Binder::checkInputs() const {
  std::vector<std::string> names;
  for (const onnx::ValueInfoProto *input : model.inputs)
    names.push_back(input->name());
  auto isInput = [&](const std::string &name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const auto &entry : options.fix)
    if (!isInput(entry.first))
      throw UsageError("--fix " + entry.first + ": the model has no such input" +
                       suggestion(entry.first, names));
  for (const auto &entry : options.known)
    if (!isInput(entry.first))
      throw ImportError("input '" + entry.first + "' is held constant, but the model has none");
}

void Binder::chooseBatch() {
  if (symbols.batch.empty() && !options.fixedShapes)
    bindings.exportedBatch = symbols.fixedBatch;
  int64_t fallback = symbols.batch.empty() && symbols.fixedBatch > 0 ? symbols.fixedBatch : 2;
  bindings.batch = options.batch > 0 ? options.batch : given(symbols.batch).value_or(fallback);
  checkSize("the batch", bindings.batch);
}

void Binder::chooseSequence() {
  if (symbols.seq.empty()) {
    if (options.seq >= 0)
      warn("--seq " + std::to_string(options.seq) +
           " changes nothing: no input has a symbolic dim that is the sequence; export with one");
    return;
  }
  std::optional<int64_t> seq = given(symbols.seq);
  if (options.seq >= 0 && seq.value_or(options.seq) != options.seq)
    throw UsageError("--seq " + std::to_string(options.seq) + " contradicts --dim " + symbols.seq +
                     "=" + std::to_string(*seq) + ", which is the sequence; leave one out");
  if (options.seq >= 0)
    seq = options.seq;
  if (!seq) {
    std::set<std::string> others;
    for (const onnx::ValueInfoProto *input : model.inputs)
      if (llvm::none_of(tensorTypeOf(*input).shape().dim(),
                        [&](const Dim &dim) { return dim.dim_param() == symbols.seq; }))
        others.insert(input->name());
    std::optional<int64_t> table =
        positionTableLength(model, positionInputs(model, options), others);
    seq = table.value_or(4096);
    std::string length = "sequence length " + std::to_string(*seq) +
                         (table ? ", the length of the position table" : ", the default") +
                         "; --seq chooses another";
    warn(length);
    bindings.lengthHint = " (" + length + ", such as the length of the export)";
  }
  bindings.seq = checkSize("the sequence length", *seq);
}

bool Binder::isBatch(const DimOf &of) const {
  if (options.fixedShapes)
    return false;
  if (!of.symbol().empty())
    return of.symbol() == symbols.batch;
  return symbols.batch.empty() && of.number == 0 && of.dim().dim_value() == symbols.fixedBatch;
}

/// Returns the size that the model or the user gives.
std::optional<int64_t> Binder::sizeOf(const DimOf &of, bool isBatch) const {
  if (isBatch)
    return bindings.batch;
  if (of.symbol().empty())
    return of.dim().has_dim_value() ? std::optional<int64_t>(of.dim().dim_value()) : std::nullopt;
  return of.symbol() == symbols.seq ? bindings.seq : given(of.symbol());
}

/// Returns the size of a sum of symbols. Example: "past + seq" without a cache is the sequence.
std::optional<int64_t> Binder::sizeOfSum(const std::string &symbol) const {
  return sumOf(symbol, [&](const std::string &part) {
    return part == symbols.seq      ? std::optional<int64_t>(bindings.seq)
           : contains(part, "past") ? std::optional(given(part).value_or(0))
                                    : given(part);
  });
}

/// Returns a size with a warning. Exporters give an input its own symbols where they cannot prove
/// that sizes are equal.
std::optional<int64_t> Binder::assumedSize(const DimOf &of, bool &isBatch) {
  if (options.fixedShapes)
    return std::nullopt;
  const std::string choice = "; --dim " + of.symbol() + "=SIZE ";
  if (of.number == 0 && !symbols.batch.empty()) {
    isBatch = true;
    warn(of.text() + " ('" + of.symbol() + "') is taken for the batch" + choice +
         "gives it a size");
    return bindings.batch;
  }
  if (!of.isTokens || symbols.seq.empty())
    return std::nullopt;
  warn("the length of input '" + of.input.name() + "' ('" + of.symbol() + "') is " +
       std::to_string(bindings.seq) + ", as the sequence length" + choice + "chooses another");
  return bindings.seq;
}

bool Binder::bindDim(const DimOf &of, BoundInput &bound) {
  const std::string &symbol = of.symbol();
  bool isBatched = isBatch(of);
  std::optional<int64_t> size = sizeOf(of, isBatched);
  if (!isBatched && !options.fixedShapes &&
      (symbols.seq.empty() ? of.isTokens && symbol.empty() : symbol == symbols.seq))
    bound.sequenceDim = of.number;
  const bool isPast = !size && !options.fixedShapes && isPastDim(of.input, symbol);
  if (isPast)
    size = 0;
  else if (!size && contains(symbol, "+"))
    size = sizeOfSum(symbol);
  if (!size)
    size = assumedSize(of, isBatched);
  if (!size)
    throw ImportError(
        of.text() + " has no size" +
        (symbol.empty() ? "; export the model with one" : ": give --dim " + symbol + "=SIZE"));
  bool mayBeEmpty = *size == 0 && (isPast || options.known.count(bound.name));
  bound.shape.push_back(mayBeEmpty ? 0 : checkSize(of.text(), *size));
  bound.isBatch.push_back(isBatched);
  return isPast;
}

/// Chooses the content of an input that is held constant.
void Binder::chooseContent(const onnx::ValueInfoProto &input, BoundInput &bound, bool isEmpty) {
  if (auto it = options.known.find(bound.name); it != options.known.end()) {
    bound.elements = elementsFor(bound, it->second);
  } else if (isEmpty) {
    bound.constant = 0;
  } else if (isPositionIds(input, options)) {
    bound.isPositions = true;
    warn("input '" + bound.name + "' is held at 0, 1, 2 ...; --fix " + bound.name +
         "=input keeps it an input");
  } else {
    bound.constant = constantFor(input, options, bindings.warnings);
  }
}

/// Binds the dims of an input. Returns whether it is taken as empty.
bool Binder::bindInput(const onnx::ValueInfoProto &input) {
  const onnx::TypeProto::Tensor &type = tensorTypeOf(input);
  const int rank = type.shape().dim_size();
  BoundInput bound;
  bound.name = input.name();
  bound.dtype = dtypeOfOnnx(type.elem_type(), "input '" + input.name() + "'");
  if (rank > int(ScanLimits().rank))
    throw ImportError("input '" + input.name() + "' has rank " + std::to_string(rank));
  bool isEmpty = false;
  for (int i = 0; i < rank; ++i)
    isEmpty |= bindDim({input, i, i == 1 && isInteger(type) && rank == 2}, bound);
  chooseContent(input, bound, isEmpty);
  bindings.inputs.push_back(bound);
  return isEmpty;
}

Bindings Binder::run() {
  checkDims();
  checkInputs();
  chooseBatch();
  chooseSequence();
  std::vector<std::string> emptyInputs;
  for (const onnx::ValueInfoProto *input : model.inputs)
    if (bindInput(*input))
      emptyInputs.push_back(input->name());
  if (!emptyInputs.empty())
    warn("input '" + emptyInputs[0] + "'" +
         (emptyInputs.size() > 1 ? " (and " + std::to_string(emptyInputs.size() - 1) + " more) are"
                                 : " is") +
         " taken as empty: training starts without a cache; --dim gives the past a length");
  return std::move(bindings);
}

Bindings bindInputs(const Model &model, const ImportOptions &options) {
  return Binder(model, options).run();
}

static bool isPrime(int64_t n) {
  for (int64_t d = 2; d * d <= n; ++d)
    if (n % d == 0)
      return false;
  return true;
}

std::pair<int64_t, int64_t> chooseMarkers(const Model &model, const Bindings &bindings) {
  std::set<int64_t> sizes{bindings.seq};
  for (const auto &[name, tensor] : model.initializers)
    sizes.insert(tensor->dims().begin(), tensor->dims().end());
  for (const BoundInput &input : bindings.inputs)
    for (size_t i = 0; i < input.shape.size(); ++i)
      if (!input.isBatch[i])
        sizes.insert(input.shape[i]);
  std::vector<int64_t> markers;
  constexpr int64_t lastCandidate = 20011;
  for (int64_t candidate = 10007; markers.size() < 2; candidate += 2) {
    if (candidate > lastCandidate)
      throw ImportError("the dims of its input and initializer tensors are multiples of every "
                        "prime from 10007 to " +
                        std::to_string(lastCandidate) + ", which stand for the batch at import");
    bool divides = !isPrime(candidate) ||
                   std::any_of(sizes.begin(), sizes.end(),
                               [&](int64_t size) { return size != 0 && size % candidate == 0; });
    if (!divides)
      markers.push_back(candidate);
  }
  return {markers[0], markers[1]};
}

} // namespace tbc::frontend
