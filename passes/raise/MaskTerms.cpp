//===- MaskTerms.cpp - The terms of a mask ---------------------------------===//

#include "passes/raise/MaskTerms.h"

#include "passes/raise/Match.h"

#include "ir/Elementwise.h"
#include "ir/Flags.h"
#include "ir/HidingNumber.h"
#include "ir/Movement.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallPtrSet.h"

#include <cmath>

using namespace mlir;

namespace tbc::raise {

namespace {

/// Limit for the steps of a match. Masks are small expressions; larger ones are not recognised.
constexpr int kMaxSteps = 4096;

/// Returns true unless `value` is computed from constants and indices alone. Random numbers are
/// data.
bool holdsData(Value value) {
  llvm::SmallPtrSet<Operation *, 32> seen;
  SmallVector<Value> stack{value};
  while (!stack.empty()) {
    Operation *op = stack.pop_back_val().getDefiningOp();
    if (!op || isRandom(op))
      return true;
    if (seen.insert(op).second)
      llvm::append_range(stack, op->getOperands());
  }
  return false;
}

/// Returns true if runs can check that the elements of `value`, integers, are 0 or 1: they are
/// those of inputs (inputBound of tools/driver), of booleans, or numbers.
bool areFlags(Value value) {
  if (auto number = splatNumber(value))
    return *number == 0 || *number == 1;
  Operation *op = value.getDefiningOp();
  if (!op || tensorType(value).getElementType().isInteger(1))
    return true;
  return isa<ReshapeOp, TransposeOp, BroadcastOp, SliceOp, ConcatOp, CastOp>(op) &&
         llvm::all_of(op->getOperands(), [](Value operand) {
           return isa<IntegerType>(tensorType(operand).getElementType()) && areFlags(operand);
         });
}

Type elementOf(Value value) { return tensorType(value).getElementType(); }

bool isElementwise(Operation *op) {
  return op->hasTrait<OpTrait::SameOperandsAndResultShape>() && op->getNumResults() == 1 &&
         !isRandom(op);
}

//===- numbers -------------------------------------------------------------===//

Truth negationOf(Truth truth) {
  if (truth.kind == Truth::Kind::Not)
    return truth.operands[0];
  Truth result;
  result.kind = Truth::Kind::Not;
  result.operands.push_back(std::move(truth));
  return result;
}

Truth conjunctionOf(Truth a, Truth b) {
  Truth result;
  result.kind = Truth::Kind::And;
  result.operands = {std::move(a), std::move(b)};
  return result;
}

/// A tensor of two numbers.
struct TwoNumbers {
  Truth where;
  double onTrue = 0, onFalse = 0;

  bool isConstant() const { return where.kind == Truth::Kind::Always; }
  /// Returns true if it is a hiding bias; `kept` then selects the visible elements.
  bool isBias() const {
    return (onTrue == 0 && hidesScores(onFalse)) || (onFalse == 0 && hidesScores(onTrue));
  }
  Truth kept() const { return onTrue == 0 ? where : negationOf(where); }
  double hidden() const { return onTrue == 0 ? onFalse : onTrue; }
  /// The same in tensors of type `element`, if it can hold both.
  std::optional<TwoNumbers> in(Type element) const {
    auto first = inType(onTrue, element), second = inType(onFalse, element);
    return first && second ? std::optional(TwoNumbers{where, *first, *second}) : std::nullopt;
  }
};

/// Reads tensors of two numbers and masks made of them.
class NumberReader {
public:
  /// Integer data may stand for booleans only if `readsFlags`.
  NumberReader(DimTable &table, bool readsFlags) : table(table), readsFlags(readsFlags) {}

  std::optional<TwoNumbers> read(View view) {
    if (++steps > kMaxSteps)
      return std::nullopt;
    while (true) {
      if (auto number = splatNumber(view.value))
        return TwoNumbers{{}, *number, *number};
      if (!stepThroughView(table, view))
        break;
    }
    Operation *op = view.value.getDefiningOp();
    if (elementOf(view.value).isInteger(1))
      return TwoNumbers{truthOf(view, false), 1, 0};
    if (auto select = dyn_cast_or_null<SelectOp>(op))
      return readSelect(select, view);
    std::optional<TwoNumbers> numbers;
    if (isa_and_nonnull<CastOp>(op))
      numbers = read({op->getOperand(0), view.dims});
    else if (isa_and_nonnull<AddOp, SubOp, MulOp, DivOp, NegOp>(op))
      numbers = readArithmetic(op, view);
    if (numbers)
      return numbers->in(elementOf(view.value));
    if (readsFlags && isa<IntegerType>(elementOf(view.value)) && holdsData(view.value) &&
        areFlags(view.value)) {
      Truth truth;
      truth.kind = Truth::Kind::Nonzero;
      truth.view = view;
      return TwoNumbers{truth, 1, 0};
    }
    return std::nullopt;
  }

private:
  std::optional<TwoNumbers> readSelect(SelectOp select, const View &view) {
    auto a = read({select.getOnTrue(), view.dims}), b = read({select.getOnFalse(), view.dims});
    if (!a || !b)
      return std::nullopt;
    Truth pred = truthOf({select.getPred(), view.dims}, false);
    if (a->isConstant() && b->isConstant())
      return TwoNumbers{pred, a->onTrue, b->onTrue};
    // Hidden if either of two conditions hides, by the same number.
    auto areSame = [](const TwoNumbers &number, const TwoNumbers &bias) {
      return number.isConstant() && bias.isBias() && number.onTrue == bias.hidden();
    };
    if (areSame(*a, *b))
      return TwoNumbers{conjunctionOf(negationOf(pred), b->kept()), 0, a->onTrue};
    if (areSame(*b, *a))
      return TwoNumbers{conjunctionOf(pred, a->kept()), 0, b->onTrue};
    return std::nullopt;
  }

  std::optional<TwoNumbers> readArithmetic(Operation *op, const View &view) {
    auto a = read({op->getOperand(0), view.dims});
    if (!a)
      return std::nullopt;
    if (isa<NegOp>(op))
      return TwoNumbers{a->where, -a->onTrue, -a->onFalse};
    auto b = read({op->getOperand(1), view.dims});
    if (!b)
      return std::nullopt;
    if (!a->isConstant() && !b->isConstant()) {
      bool areFlags = a->onTrue == 1 && a->onFalse == 0 && b->onTrue == 1 && b->onFalse == 0;
      if (!isa<MulOp>(op) || !areFlags)
        return std::nullopt;
      return TwoNumbers{conjunctionOf(a->where, b->where), 1, 0};
    }
    auto apply = [&](double x, double y) {
      return isa<AddOp>(op) ? x + y : isa<SubOp>(op) ? x - y : isa<MulOp>(op) ? x * y : x / y;
    };
    return TwoNumbers{a->isConstant() ? b->where : a->where, apply(a->onTrue, b->onTrue),
                      apply(a->onFalse, b->onFalse)};
  }

  DimTable &table;
  bool readsFlags;
  int steps = 0;
};

bool addMasksOfBias(DimTable &table, View bias, double factor, std::vector<MaskStep> &masks) {
  if (auto numbers = NumberReader(table, true).read(bias)) {
    numbers->onTrue *= factor;
    numbers->onFalse *= factor;
    bool hidesNothing = numbers->isConstant() && numbers->onTrue == 0;
    if (!hidesNothing && (numbers->isConstant() || !numbers->isBias()))
      return false;
    if (!hidesNothing)
      masks.push_back({numbers->kept(), numbers->hidden(), false});
    return true;
  }
  while (stepThroughView(table, bias))
    ;
  if (auto add = definedBy<AddOp>(bias.value); add && masks.size() < 8)
    return addMasksOfBias(table, {add.getLhs(), bias.dims}, factor, masks) &&
           addMasksOfBias(table, {add.getRhs(), bias.dims}, factor, masks);
  // Truth::Kind::Zero stands for a tensor that is added as it is.
  if (holdsData(bias.value) || factor != 1)
    return false;
  auto positions = biasPredicateOf(bias.value);
  if (!positions)
    return false;
  if (positions->hiddenNumber == 0) // zeros, which hide nothing
    return true;
  Truth kept;
  kept.kind = Truth::Kind::Zero;
  kept.view = bias;
  masks.push_back({kept, positions->hiddenNumber, false, positions->hasOtherNumbers});
  return true;
}

} // namespace

Truth truthOf(const View &view, bool isNegated) {
  Truth truth;
  truth.kind = Truth::Kind::Value;
  truth.view = view;
  return isNegated ? negationOf(truth) : truth;
}

std::optional<std::vector<MaskStep>> masksOfBias(DimTable &table, const View &bias, double factor) {
  std::vector<MaskStep> masks;
  return addMasksOfBias(table, bias, factor, masks) ? std::optional(masks) : std::nullopt;
}

//===- terms ---------------------------------------------------------------===//

namespace {

/// The roles of a mask's dims, as bits.
enum Role : unsigned { kSample = 1, kQuery = 2, kKey = 4, kOther = 8 };

bool isWithin(unsigned roles, unsigned allowed) { return (roles & ~allowed) == 0; }

/// Returns the comparison opposite to `predicate`, of integers.
StringRef negationOf(StringRef predicate) {
  return predicate == "eq"   ? "ne"
         : predicate == "ne" ? "eq"
         : predicate == "lt" ? "ge"
         : predicate == "ge" ? "lt"
         : predicate == "le" ? "gt"
                             : "le";
}

/// The same comparison with its sides exchanged.
StringRef mirrorOf(StringRef predicate) {
  return predicate == "lt"   ? "gt"
         : predicate == "gt" ? "lt"
         : predicate == "le" ? "ge"
         : predicate == "ge" ? "le"
                             : predicate;
}

class TermReader {
public:
  TermReader(DimTable &table, const MaskRoles &roles, MaskTerms &terms, std::string &reason)
      : table(table), roles(roles), terms(terms), reason(reason) {}

  bool add(const Truth &truth, bool isNegated) {
    switch (truth.kind) {
    case Truth::Kind::Value:
      return addValue(truth.view, isNegated);
    case Truth::Kind::Nonzero:
      return addLeaf({truth.view, true, isNegated});
    case Truth::Kind::Zero:
      return addPositions(truth.view, biasPredicateOf, isNegated);
    case Truth::Kind::One:
      return addPositions(truth.view, onesPredicateOf, isNegated);
    case Truth::Kind::Not:
      return add(truth.operands[0], !isNegated);
    case Truth::Kind::And:
      if (isNegated)
        return fail("its mask joins conditions by or");
      return add(truth.operands[0], false) && add(truth.operands[1], false);
    case Truth::Kind::Always:
      return isNegated ? fail("its mask hides everything") : true;
    }
    return false;
  }

private:
  bool fail(const char *why) {
    reason = why;
    return false;
  }

  bool addValue(View view, bool isNegated) {
    if (++steps > kMaxSteps)
      return fail("its mask is too large to understand");
    while (stepThroughView(table, view))
      ;
    if (!holdsData(view.value))
      return addPositions(view, predicateOf, isNegated);
    Operation *op = view.value.getDefiningOp();
    if (auto negation = dyn_cast_or_null<NotOp>(op))
      return addValue({negation.getInput(), view.dims}, !isNegated);
    if (isNegated ? isa_and_nonnull<OrOp>(op) : isa_and_nonnull<AndOp>(op))
      return addValue({op->getOperand(0), view.dims}, isNegated) &&
             addValue({op->getOperand(1), view.dims}, isNegated);
    unsigned which = rolesOf(view);
    if (which & kOther)
      return fail("its mask differs between heads, or between parts of a sequence");
    if (isWithin(which, kSample | kKey) || isWithin(which, kSample | kQuery))
      return addLeaf({view, false, isNegated});
    // A conjunction as a product of masks, cast back.
    if (auto cast = dyn_cast_or_null<CastOp>(op))
      if (auto numbers = NumberReader(table, false).read({cast.getInput(), view.dims});
          numbers && !numbers->isConstant() && (numbers->onTrue != 0) != (numbers->onFalse != 0))
        return add(numbers->where, isNegated != (numbers->onTrue == 0));
    if (auto compare = dyn_cast_or_null<CompareOp>(op))
      return addCompare(compare, view, isNegated);
    return fail("its mask is no conjunction of terms of queries, of keys and of positions");
  }

  /// Numbers of query and key compared, or a number of two with a constant.
  bool addCompare(CompareOp compare, const View &view, bool isNegated) {
    View lhs{compare.getLhs(), view.dims}, rhs{compare.getRhs(), view.dims};
    StringRef predicate = compare.getPredicate();
    if (isNegated)
      predicate = negationOf(predicate);
    if (isa<IntegerType>(elementOf(lhs.value)) && !elementOf(lhs.value).isInteger(1)) {
      View query = rhs, key = lhs;
      StringRef asked = predicate;
      if (!isWithin(rolesOf(key), kSample | kKey)) {
        std::swap(query, key);
        asked = mirrorOf(predicate);
      }
      if (isWithin(rolesOf(query), kSample | kQuery) && isWithin(rolesOf(key), kSample | kKey)) {
        if (asked == "eq")
          return addPair(terms.segments, query, key);
        if (asked == "le")
          return addPair(terms.orders, query, key);
      }
    }
    auto a = NumberReader(table, false).read(lhs), b = NumberReader(table, false).read(rhs);
    if (a && b && a->isConstant() != b->isConstant()) {
      auto holds = [&](double x, double y) {
        return predicate == "eq"   ? x == y
               : predicate == "ne" ? x != y
               : predicate == "lt" ? x < y
               : predicate == "le" ? x <= y
               : predicate == "gt" ? x > y
                                   : x >= y;
      };
      bool onTrue = holds(a->onTrue, b->onTrue), onFalse = holds(a->onFalse, b->onFalse);
      if (onTrue != onFalse)
        return add(a->isConstant() ? b->where : a->where, onFalse);
    }
    return fail("its mask compares queries with keys by more than their positions or segments");
  }

  bool addPair(std::vector<std::pair<View, View>> &pairs, const View &query, const View &key) {
    auto isSame = [&](const auto &pair) {
      return pair.first.value == query.value && pair.second.value == key.value;
    };
    if (llvm::none_of(pairs, isSame))
      pairs.push_back({query, key});
    return true;
  }

  bool addLeaf(const MaskTerm &given) {
    MaskTerm term = given;
    while (stepThroughView(table, term.view))
      ;
    unsigned which = rolesOf(term.view);
    bool isOfKeys = isWithin(which, kSample | kKey);
    if (!isOfKeys && !isWithin(which, kSample | kQuery))
      return fail("its mask differs between heads, or between parts of a sequence");
    auto &list = isOfKeys ? terms.keys : terms.queries;
    auto isSame = [&](const MaskTerm &other) {
      return other.view.value == term.view.value && other.isNegated == term.isNegated;
    };
    if (llvm::none_of(list, isSame))
      list.push_back(term);
    return true;
  }

  /// Returns the roles of the dims that `value` depends on.
  unsigned rolesOf(View view) {
    if (++steps > kMaxSteps)
      return kOther;
    while (stepThroughView(table, view))
      ;
    if (splatNumber(view.value))
      return 0;
    auto iota = definedBy<IotaOp>(view.value);
    unsigned result = 0;
    for (auto [dim, list] : llvm::enumerate(view.dims))
      if (!iota || iota.getDim() == dim)
        for (unsigned atom : table.expand(list))
          result |= roleOf(atom);
    Operation *op = view.value.getDefiningOp();
    if (isWithin(result, kSample | kKey) || isWithin(result, kSample | kQuery) || !op ||
        !isElementwise(op))
      return result;
    result = 0;
    for (Value operand : op->getOperands())
      result |= rolesOf({operand, view.dims});
    return result;
  }

  unsigned roleOf(unsigned atom) const {
    auto isIn = [&](ArrayRef<unsigned> list) {
      return llvm::is_contained(table.expand(list), atom);
    };
    return isIn(roles.keys)      ? kKey
           : isIn(roles.queries) ? kQuery
           : isIn(roles.samples) ? kSample
                                 : kOther;
  }

  bool addPositions(View view, PredicateOf *reader, bool isNegated);
  bool addTable(ArrayRef<std::optional<unsigned>> dims, ArrayRef<int64_t> shape,
                const std::vector<bool> &table, bool isNegated);

  DimTable &table;
  const MaskRoles &roles;
  MaskTerms &terms;
  std::string &reason;
  int steps = 0;
};

/// Adds the predicate that `reader` finds in a mask of positions, by query and key.
bool TermReader::addPositions(View view, PredicateOf *reader, bool isNegated) {
  while (stepThroughView(table, view))
    ;
  auto which = reader(view.value);
  if (!which || (isNegated && which->halfPlanes.size() > 1))
    return fail("its mask is no predicate of the positions of query and key");
  // Per dim of the mask: 0 for queries, 1 for keys, nullopt for size 1.
  SmallVector<std::optional<unsigned>> dims;
  for (const DimList &dim : view.dims) {
    DimList atoms = table.expand(dim);
    if (atoms.empty())
      dims.push_back(std::nullopt);
    else if (atoms == table.expand(roles.keys))
      dims.push_back(1);
    else if (atoms == table.expand(roles.queries))
      dims.push_back(0);
    else
      return fail("its mask differs between samples or heads, or between parts of a sequence");
  }
  if (!which->table.empty())
    return addTable(dims, tensorType(view.value).getShape(), which->table, isNegated);
  for (const HalfPlane &plane : which->halfPlanes) {
    PairPredicate::HalfPlane pair{0, 0, plane.offset};
    for (auto [dim, coefficient] : llvm::zip_equal(dims, plane.coefficients))
      if (dim)
        (*dim == 0 ? pair.query : pair.key) += coefficient;
    if (isNegated)
      pair = {-pair.query, -pair.key, -pair.offset - 1};
    terms.positions.halfPlanes.push_back(pair);
  }
  if (isNegated && which->halfPlanes.empty())
    terms.positions.halfPlanes.push_back({0, 0, -1});
  return true;
}

bool TermReader::addTable(ArrayRef<std::optional<unsigned>> dims, ArrayRef<int64_t> shape,
                          const std::vector<bool> &listed, bool isNegated) {
  int64_t strides[2] = {0, 0}, stride = 1;
  for (int64_t dim = shape.size() - 1; dim >= 0; --dim) {
    if (dims[dim])
      strides[*dims[dim]] = stride;
    stride *= shape[dim];
  }
  std::vector<bool> pairs;
  for (int64_t i = 0, numQueries = table.sizeOf(roles.queries); i < numQueries; ++i)
    for (int64_t j = 0, numKeys = table.sizeOf(roles.keys); j < numKeys; ++j)
      pairs.push_back(listed[i * strides[0] + j * strides[1]] != isNegated);
  terms.positions.tables.push_back(pairs);
  return true;
}

} // namespace

bool MaskTerms::isDataWithin(const MaskTerms &other) const {
  auto areTermsOf = [](const std::vector<MaskTerm> &list, const std::vector<MaskTerm> &all) {
    return llvm::all_of(list, [&](const MaskTerm &term) {
      return llvm::any_of(all, [&](const MaskTerm &candidate) {
        return candidate.view.value == term.view.value && candidate.isNegated == term.isNegated &&
               candidate.isNonzero == term.isNonzero;
      });
    });
  };
  using Pairs = std::vector<std::pair<View, View>>;
  auto arePairsOf = [](const Pairs &list, const Pairs &all) {
    return llvm::all_of(list, [&](const auto &pair) {
      return llvm::any_of(all, [&](const auto &candidate) {
        return candidate.first.value == pair.first.value &&
               candidate.second.value == pair.second.value;
      });
    });
  };
  return areTermsOf(keys, other.keys) && areTermsOf(queries, other.queries) &&
         arePairsOf(segments, other.segments) && arePairsOf(orders, other.orders);
}

bool addTerms(DimTable &table, const MaskRoles &roles, const Truth &truth, MaskTerms &terms,
              std::string &reason) {
  return TermReader(table, roles, terms, reason).add(truth, false);
}

bool isOneWithin(DimTable &table, const MaskRoles &roles, const View &factor,
                 const PairPredicate &positions) {
  MaskTerms both;
  both.positions = positions;
  Truth isOne;
  isOne.kind = Truth::Kind::One;
  isOne.view = factor;
  std::string unused;
  int64_t numQueries = table.sizeOf(roles.queries), numKeys = table.sizeOf(roles.keys);
  if (!addTerms(table, roles, isOne, both, unused))
    return false;
  auto alone = windowOf(positions, numQueries, numKeys);
  auto found = windowOf(both.positions, numQueries, numKeys);
  return alone && found && alone->left == found->left && alone->right == found->right;
}

//===- building ------------------------------------------------------------===//

/// Builds `view`, which depends on `samples` and `sequence` alone, as a tensor over both. Builds
/// its ops anew, without the broadcasts to other dims.
static Value build(OpBuilder &builder, Location loc, DimTable &table, ArrayRef<unsigned> samples,
                   ArrayRef<unsigned> sequence, View view) {
  while (stepThroughView(table, view))
    ;
  SmallVector<int64_t> shape{table.sizeOf(samples), table.sizeOf(sequence)};
  auto type = RankedTensorType::get(shape, elementOf(view.value));
  if (auto number = splatNumber(view.value))
    return splat(builder, loc, type, *number);
  DimList atoms = view.atoms(table);
  bool isDirect = llvm::all_of(atoms, [&](unsigned atom) {
    return llvm::is_contained(samples, atom) || llvm::is_contained(sequence, atom);
  });
  if (!isDirect) {
    Operation *op = view.value.getDefiningOp();
    if (auto iota = dyn_cast<IotaOp>(op)) {
      DimList along = table.expand(view.dims[iota.getDim()]);
      if (along == DimList(samples) || along == DimList(sequence))
        return builder.create<IotaOp>(loc, type, along == DimList(samples) ? 0 : 1);
      // Of a part of them, such as the columns of keys in rows and columns.
      auto part = RankedTensorType::get({table.sizeOf(along)}, type.getElementType());
      View indices{builder.create<IotaOp>(loc, part, 0), {along}};
      return build(builder, loc, table, samples, sequence, indices);
    }
    SmallVector<Value> operands;
    for (Value operand : op->getOperands())
      operands.push_back(build(builder, loc, table, samples, sequence, {operand, view.dims}));
    Operation *made = builder.clone(*op);
    made->setOperands(operands);
    made->getResult(0).setType(type);
    made->removeAttr(kIdAttr);
    made->setLoc(loc);
    return made->getResult(0);
  }
  // One that is present in part is repeated along its other atoms.
  SmallVector<DimList> groups;
  SmallVector<int64_t> dims;
  const ArrayRef<unsigned> both[] = {samples, sequence};
  for (auto [dim, group] : llvm::enumerate(both))
    if (llvm::any_of(group, [&](unsigned atom) { return llvm::is_contained(atoms, atom); })) {
      groups.push_back(DimList(group));
      dims.push_back(dim);
    }
  Value value = regroupRepeated(builder, loc, table, view, groups);
  return broadcastTo(builder, loc, value, shape, dims);
}

Value buildTerms(OpBuilder &builder, Location loc, DimTable &table, ArrayRef<unsigned> samples,
                 ArrayRef<unsigned> sequence, ArrayRef<MaskTerm> terms) {
  Value result;
  for (const MaskTerm &term : terms) {
    Value value = build(builder, loc, table, samples, sequence, term.view);
    auto type = RankedTensorType::get(tensorType(value).getShape(), builder.getI1Type());
    if (term.isNonzero) {
      value = builder.create<CastOp>(loc, type, value);
      value.getDefiningOp()->setAttr(kFlagsAttr, builder.getUnitAttr());
    }
    if (term.isNegated)
      value = builder.create<NotOp>(loc, type, value);
    result = result ? Value(builder.create<AndOp>(loc, type, result, value)) : value;
  }
  return result;
}

Value buildIntegers(OpBuilder &builder, Location loc, DimTable &table, ArrayRef<unsigned> samples,
                    ArrayRef<unsigned> sequence, const View &view) {
  return build(builder, loc, table, samples, sequence, view);
}

} // namespace tbc::raise
