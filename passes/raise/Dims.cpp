//===- Dims.cpp - The atoms of dims, across reshapes and transposes --------===//

#include "passes/raise/Dims.h"

#include "ir/Movement.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace tbc::raise {

DimList DimTable::add(int64_t size) {
  if (size == 1)
    return {};
  atoms.push_back({size, {}});
  return {unsigned(atoms.size() - 1)};
}

int64_t DimTable::sizeOf(ArrayRef<unsigned> list) const {
  int64_t product = 1;
  for (unsigned atom : list)
    product *= size(atom);
  return product;
}

DimList DimTable::expand(ArrayRef<unsigned> list) const {
  DimList result;
  for (unsigned atom : list) {
    if (atoms[atom].parts.empty())
      result.push_back(atom);
    else
      llvm::append_range(result, expand(atoms[atom].parts));
  }
  return result;
}

bool DimTable::unify(ArrayRef<unsigned> listA, ArrayRef<unsigned> listB) {
  while (true) {
    DimList a = expand(listA), b = expand(listB);
    size_t i = 0;
    while (i < a.size() && i < b.size() && a[i] == b[i])
      ++i;
    if (i == a.size() || i == b.size())
      return a.size() == b.size();
    // The older of two equal atoms stays.
    unsigned large = a[i], small = b[i];
    if (std::pair(size(large), large) < std::pair(size(small), small))
      std::swap(large, small);
    if (size(large) % size(small) != 0)
      return false;
    DimList parts{small};
    llvm::append_range(parts, add(size(large) / size(small)));
    atoms[large].parts = parts;
  }
}

DimList View::atoms(const DimTable &table) const {
  DimList result;
  for (const DimList &dim : dims)
    llvm::append_range(result, table.expand(dim));
  return result;
}

/// The atoms of a reshape's input dims, from those of its result dims.
static bool stepThroughReshape(DimTable &table, ReshapeOp reshape, SmallVectorImpl<DimList> &dims) {
  SmallVector<DimList> factors;
  for (int64_t size : reshape.getSizes())
    factors.push_back(table.add(size));
  auto group = [&](ArrayRef<int64_t> counts) {
    SmallVector<DimList> result;
    size_t next = 0;
    for (int64_t count : counts) {
      DimList list;
      for (int64_t i = 0; i < count; ++i)
        llvm::append_range(list, factors[next++]);
      result.push_back(list);
    }
    return result;
  };
  for (auto [mine, its] : llvm::zip_equal(dims, group(reshape.getOut())))
    if (!table.unify(mine, its))
      return false;
  dims = group(reshape.getIn());
  return true;
}

bool stepThroughView(DimTable &table, View &view) {
  Operation *op = view.value.getDefiningOp();
  if (!op)
    return false;
  SmallVector<DimList> dims;
  if (auto transpose = dyn_cast<TransposeOp>(op)) {
    dims.resize(view.dims.size());
    for (auto [i, dim] : llvm::enumerate(transpose.getPermutation()))
      dims[dim] = view.dims[i];
  } else if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    for (int64_t dim : broadcast.getDims())
      dims.push_back(view.dims[dim]);
  } else if (auto reshape = dyn_cast<ReshapeOp>(op)) {
    dims = view.dims;
    if (!stepThroughReshape(table, reshape, dims))
      return false;
  } else {
    return false;
  }
  view.value = op->getOperand(0);
  view.dims = dims;
  return true;
}

static SmallVector<int64_t> sizesOf(const DimTable &table, ArrayRef<unsigned> atoms) {
  SmallVector<int64_t> sizes;
  for (unsigned atom : atoms)
    sizes.push_back(table.size(atom));
  return sizes;
}

/// Returns true if every group is one atom, so a reshape between atoms and groups is the identity.
static bool areSingles(ArrayRef<int64_t> counts) {
  return llvm::all_of(counts, [](int64_t count) { return count == 1; });
}

Value regroup(OpBuilder &builder, Location loc, const DimTable &table, const View &view,
              ArrayRef<DimList> groups) {
  DimList from = view.atoms(table), to;
  SmallVector<int64_t> fromCounts, toCounts;
  for (const DimList &dim : view.dims)
    fromCounts.push_back(table.expand(dim).size());
  for (const DimList &group : groups) {
    DimList atoms = table.expand(group);
    toCounts.push_back(atoms.size());
    llvm::append_range(to, atoms);
  }
  Value value = view.value;
  if (from == to) {
    if (fromCounts == toCounts)
      return value;
    return builder.create<ReshapeOp>(loc, value, sizesOf(table, from), fromCounts, toCounts);
  }
  SmallVector<int64_t> ones(from.size(), 1), permutation;
  if (!areSingles(fromCounts))
    value = builder.create<ReshapeOp>(loc, value, sizesOf(table, from), fromCounts, ones);
  for (unsigned atom : to)
    permutation.push_back(llvm::find(from, atom) - from.begin());
  value = builder.create<TransposeOp>(loc, value, permutation);
  if (!areSingles(toCounts))
    value = builder.create<ReshapeOp>(loc, value, sizesOf(table, to), ones, toCounts);
  return value;
}

Value regroupRepeated(OpBuilder &builder, Location loc, const DimTable &table, View view,
                      ArrayRef<DimList> groups) {
  DimList present = view.atoms(table);
  SmallVector<int64_t> shape(tensorType(view.value).getShape());
  auto dims = llvm::to_vector(llvm::seq<int64_t>(0, int64_t(shape.size())));
  for (const DimList &group : groups)
    for (unsigned atom : table.expand(group))
      if (!llvm::is_contained(present, atom)) {
        shape.push_back(table.size(atom));
        view.dims.push_back({atom});
      }
  if (shape.size() > dims.size())
    view.value = broadcastTo(builder, loc, view.value, shape, dims);
  return regroup(builder, loc, table, view, groups);
}

} // namespace tbc::raise
