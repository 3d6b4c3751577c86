//===- Ties.cpp - Parameters stored twice ----------------------------------===//

#include "frontend/onnx/Ties.h"

#include "frontend/onnx/Elements.h"
#include "frontend/onnx/Sources.h"

#include <algorithm>
#include <cstring>

namespace tbc::frontend {

namespace {

/// Smaller matrices may be equal by chance.
constexpr int64_t minCopyElements = 64;

/// Reads the elements of a parameter in place.
class Elements {
public:
  explicit Elements(const ParameterSource &source)
      : data(source.encoding == ParameterSource::Encoding::Raw ? bytesOf(source) : nullptr),
        columns(source.shape.empty() ? 1 : source.shape.back()),
        width(kernels::byteWidth(source.dtype)) {}

  bool areThere() const { return data != nullptr; }
  const uint8_t *at(int64_t row, int64_t column) const {
    return data + (row * columns + column) * width;
  }
  const uint8_t *begin() const { return data; }

private:
  const uint8_t *data;
  int64_t columns, width;
};

Shape transposed(const Shape &shape) { return {shape[1], shape[0]}; }

/// Whether the matrix `a` equals `b`, or `b` transposed, element for element.
bool areEqual(const ParameterSource &source, const Elements &a, const Elements &b,
              bool isTransposed) {
  if (!isTransposed)
    return std::memcmp(a.begin(), b.begin(), size_t(source.bytes)) == 0;
  size_t width = kernels::byteWidth(source.dtype);
  for (int64_t i = 0; i < source.shape[0]; ++i)
    for (int64_t j = 0; j < source.shape[1]; ++j)
      if (std::memcmp(a.at(i, j), b.at(j, i), width) != 0)
        return false;
  return true;
}

size_t findParameter(const Parameters &parameters, const std::string &name) {
  auto find = [&](auto has) {
    return size_t(std::find_if(parameters.params.begin(), parameters.params.end(), has) -
                  parameters.params.begin());
  };
  size_t at = find([&](const ParameterSource &source) { return source.name == name; });
  return at < parameters.params.size()
             ? at
             : find([&](const ParameterSource &source) { return source.displayName == name; });
}

void join(Parameters &parameters, const std::string &text) {
  auto fail = [&](const std::string &why) { throw UsageError("--tie " + text + ": " + why); };
  size_t equals = text.find('=');
  if (equals == std::string::npos)
    fail("expected A=B or A=B^T");
  std::string names[] = {text.substr(0, equals), text.substr(equals + 1)};
  size_t count = parameters.params.size();
  bool isTransposed = names[1].size() > 2 && names[1].substr(names[1].size() - 2) == "^T" &&
                      findParameter(parameters, names[1]) == count;
  if (isTransposed)
    names[1].resize(names[1].size() - 2);
  size_t found[2];
  for (int i = 0; i < 2; ++i) {
    for (const Tie &tie : parameters.ties)
      if (tie.name == names[i])
        fail("'" + names[i] + "' is tied to '" + tie.source + "' already; name that one");
    found[i] = findParameter(parameters, names[i]);
    if (found[i] == count)
      fail("the model has no parameter '" + names[i] + "'; tbc check lists them");
  }
  const ParameterSource &a = parameters.params[found[0]], &b = parameters.params[found[1]];
  if (found[0] == found[1])
    fail("both names mean the parameter '" + a.name + "'");
  if (isTransposed && b.shape.size() != 2)
    fail("'" + b.name + "' is no matrix, so it has no transpose");
  Shape expected = isTransposed ? transposed(b.shape) : b.shape;
  if (a.dtype != b.dtype || a.shape != expected)
    fail("'" + a.name + "' is " + kernels::toString({a.dtype, a.shape}) + ", but '" + names[1] +
         (isTransposed ? "' transposed is " : "' is ") + kernels::toString({b.dtype, expected}));
  Elements left(a), right(b);
  if (left.areThere() && right.areThere() && !areEqual(a, left, right, isTransposed))
    fail("the file holds different data for the two, so they are not one parameter");
  parameters.ties.push_back({a.name, b.name, isTransposed});
  parameters.params.erase(parameters.params.begin() + int64_t(found[0]));
}

void warn(Parameters &parameters, const ParameterSource &copy, const ParameterSource &original,
          bool isTransposed, const std::string &what) {
  std::string tie = copy.name + "=" + original.name + (isTransposed ? "^T" : "");
  parameters.warnings.push_back("'" + copy.name + "' " + what + " '" + original.name + "'" +
                                (isTransposed ? " transposed" : "") +
                                "; they are trained as two parameters unless --tie '" + tie +
                                "' joins them");
}

/// Returns the tables used in row lookups.
std::set<std::string> findTables(const Model &model) {
  std::set<std::string> tables;
  forEachNode(model.nodes, [&](const GraphNode &node) {
    if (node.proto->op_type() == "Gather" && node.proto->input_size() == 2)
      tables.insert(node.proto->input(0));
  });
  return tables;
}

} // namespace

void joinTies(Parameters &parameters, const std::vector<std::string> &ties) {
  for (const std::string &text : ties)
    join(parameters, text);
}

void joinCopies(Parameters &parameters,
                const std::vector<std::pair<std::string, std::string>> &copies) {
  for (const auto &[name, source] : copies) {
    size_t count = parameters.params.size(), copy = findParameter(parameters, name),
           original = findParameter(parameters, source);
    if (copy == count || original == count || copy == original)
      continue;
    const ParameterSource &a = parameters.params[copy], &b = parameters.params[original];
    if (a.dtype != b.dtype || b.shape.size() != 2 || a.shape != transposed(b.shape))
      continue;
    Elements left(a), right(b);
    bool areThere = left.areThere() && right.areThere();
    if (areThere ? !areEqual(a, left, right, true) : b.shape[0] == b.shape[1])
      continue;
    parameters.notes.push_back("'" + name + "' is '" + source +
                               "' transposed, as the file says: they are one parameter");
    parameters.ties.push_back({name, b.name, true});
    parameters.params.erase(parameters.params.begin() + int64_t(copy));
  }
}

/// Whether two parts of a parameter have the same of its elements in the same order. Two parts of
/// zeros may be at two places of it, unless both are all of it.
static bool areOnePart(const ParameterSource &a, const ParameterSource &b, bool areWhole) {
  if (a.dtype != b.dtype || a.shape != b.shape)
    return false;
  const Elements left(a), right(b);
  if (left.areThere() && right.areThere())
    return areEqual(a, left, right, false) && (areWhole || !isUniform(a));
  const bool isSquare = a.shape.size() == 2 && a.shape[0] == a.shape[1];
  return areWhole && !isSquare; // a square may be transposed
}

void joinParts(Parameters &parameters, const PartsOfParameters &parts) {
  size_t joined = 0;
  std::string example;
  for (const auto &[whole, list] : parts) {
    std::vector<RoleFinder::Part> kept;
    for (const RoleFinder::Part &part : list) {
      const size_t copy = findParameter(parameters, part.name);
      if (copy == parameters.params.size() || parameters.params[copy].name != part.name)
        continue;
      auto original = std::find_if(kept.begin(), kept.end(), [&](const RoleFinder::Part &other) {
        return areOnePart(parameters.params[copy],
                          parameters.params[findParameter(parameters, other.name)],
                          part.isWhole && other.isWhole);
      });
      if (original == kept.end()) {
        kept.push_back(part);
        continue;
      }
      if (joined++ == 0)
        example = "'" + part.name + "' and '" + original->name + "' of '" + whole + "'";
      parameters.ties.push_back({part.name, original->name, false});
      parameters.params.erase(parameters.params.begin() + int64_t(copy));
    }
  }
  if (joined == 1)
    parameters.notes.push_back(example + " are copies, as the file says: they are one parameter");
  if (joined > 1)
    parameters.notes.push_back(std::to_string(joined) + " tensors are copies of others, such as " +
                               example +
                               ", as the file says: each is one parameter with its "
                               "original");
}

namespace {

/// The parameters that one node alone reads, in the order of its inputs.
struct OwnWeights {
  std::string type;
  std::vector<size_t> parameters;
};

std::vector<OwnWeights> ownWeightsOf(const Model &model, const Parameters &parameters) {
  std::map<std::string, size_t> indices, reads;
  for (size_t i = 0; i < parameters.params.size(); ++i)
    indices[parameters.params[i].name] = i;
  forEachNode(model.nodes, [&](const GraphNode &node) {
    for (const std::string &input : node.proto->input())
      ++reads[input];
  });
  std::vector<OwnWeights> found;
  forEachNode(model.nodes, [&](const GraphNode &node) {
    OwnWeights own{node.proto->op_type(), {}};
    for (const std::string &input : node.proto->input())
      if (auto it = indices.find(input); it != indices.end() && reads[input] == 1)
        own.parameters.push_back(it->second);
    if (!own.parameters.empty())
      found.push_back(std::move(own));
  });
  return found;
}

/// Whether the weights of two nodes are equal, and not all of equal numbers.
bool areOneLayer(const Parameters &parameters, const OwnWeights &a, const OwnWeights &b) {
  if (a.type != b.type || a.parameters.size() != b.parameters.size())
    return false;
  bool tells = false;
  for (size_t i = 0; i < a.parameters.size(); ++i) {
    const ParameterSource &x = parameters.params[a.parameters[i]];
    const ParameterSource &y = parameters.params[b.parameters[i]];
    const Elements left(x), right(y);
    if (x.dtype != y.dtype || x.shape != y.shape || !left.areThere() || !right.areThere() ||
        !areEqual(x, left, right, false))
      return false;
    tells |= kernels::numElements(x.shape) >= minCopyElements && !isUniform(x);
  }
  return tells;
}

} // namespace

void joinCalls(const Model &model, Parameters &parameters) {
  if (model.proto->producer_name() != "jax2onnx")
    return;
  std::vector<OwnWeights> layers;
  std::map<size_t, std::string> originals; // by parameter
  for (OwnWeights &own : ownWeightsOf(model, parameters)) {
    auto first = std::find_if(layers.begin(), layers.end(), [&](const OwnWeights &other) {
      return areOneLayer(parameters, own, other);
    });
    if (first == layers.end()) {
      layers.push_back(std::move(own));
      continue;
    }
    for (size_t i = 0; i < own.parameters.size(); ++i)
      originals[own.parameters[i]] = parameters.params[first->parameters[i]].name;
  }
  if (originals.empty())
    return;
  const auto &[index, original] = *originals.begin();
  parameters.warnings.push_back(
      "jax2onnx stores the weights of a layer again for each of its calls: " +
      std::to_string(originals.size()) +
      " tensors are one parameter with those of the first call, " + "such as '" +
      parameters.params[index].name + "' with '" + original +
      "'. Layers that begin with equal weights are joined too: begin them with different ones");
  for (auto it = originals.rbegin(); it != originals.rend(); ++it) {
    parameters.ties.push_back({parameters.params[it->first].name, it->second, false});
    parameters.params.erase(parameters.params.begin() + int64_t(it->first));
  }
}

void warnOfCopies(const Model &model, Parameters &parameters) {
  std::set<std::string> tables = findTables(model);
  // Matrices of one size, by the sorted pair of their dims.
  std::map<std::tuple<DType, int64_t, int64_t>, std::vector<size_t>> groups;
  for (size_t i = 0; i < parameters.params.size(); ++i) {
    const ParameterSource &source = parameters.params[i];
    if (source.shape.size() == 2 && kernels::numElements(source.shape) >= minCopyElements)
      groups[{source.dtype, std::min(source.shape[0], source.shape[1]),
              std::max(source.shape[0], source.shape[1])}]
          .push_back(i);
  }
  std::vector<ParameterSource> params = parameters.params;
  for (const auto &[key, members] : groups) {
    if (members.size() < 2)
      continue;
    std::vector<Elements> elements;
    std::vector<bool> uniform;
    for (size_t member : members) {
      elements.emplace_back(params[member]);
      uniform.push_back(elements.back().areThere() && isUniform(params[member]));
    }
    std::set<size_t> copies;
    for (size_t i = 0; i < members.size(); ++i)
      for (size_t j = i + 1; j < members.size(); ++j) {
        const ParameterSource &a = params[members[i]], &b = params[members[j]];
        bool bothThere = elements[i].areThere() && elements[j].areThere();
        if (copies.count(i) || copies.count(j))
          continue;
        if (bothThere) {
          for (bool isTransposed : {false, true})
            if ((isTransposed ? transposed(a.shape) : a.shape) == b.shape && !uniform[i] &&
                areEqual(b, elements[j], elements[i], isTransposed)) {
              warn(parameters, b, a, isTransposed, "holds the data of");
              copies.insert(j);
              break;
            }
          continue;
        }
        // Without data, decides by names: the exporter stores a second, transposed copy of a tied
        // table.
        for (auto [table, copy] : {std::pair(&a, &b), std::pair(&b, &a)})
          if (tables.count(table->name) && table->shape[0] != table->shape[1] &&
              copy->shape == transposed(table->shape) && copy->name.rfind("onnx::MatMul_", 0) == 0)
            warn(parameters, *copy, *table, true, "may be a copy of");
      }
  }
}

} // namespace tbc::frontend
