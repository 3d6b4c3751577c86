//===- Dims.h - The atoms of dims, across reshapes and transposes ---------===//

#ifndef TBC_PASSES_RAISE_DIMS_H
#define TBC_PASSES_RAISE_DIMS_H

#include "ir/Tbc.h"

#include "llvm/ADT/SmallVector.h"

#include <vector>

namespace tbc::raise {

/// The atoms of one dim: an ordered product, outermost first. A dim of size 1 is empty.
using DimList = llvm::SmallVector<unsigned, 2>;

/// Atoms: pieces of dims that keep their identity through reshapes and transposes. An atom is split
/// if some tensor on the way splits it. Example: a reshape from [8, 768] to [8, 12, 64] splits the
/// atom of 768 into 12 and 64.
class DimTable {
public:
  /// Adds a new dim and returns its atom.
  DimList add(int64_t size);
  int64_t size(unsigned atom) const { return atoms[atom].size; }
  /// The product of the sizes of `list`.
  int64_t sizeOf(llvm::ArrayRef<unsigned> list) const;

  /// Returns the atoms of `list`, split as far as known.
  DimList expand(llvm::ArrayRef<unsigned> list) const;

  /// Makes both lists the same dim, splitting atoms as needed. Returns false if their products have
  /// no common refinement.
  bool unify(llvm::ArrayRef<unsigned> a, llvm::ArrayRef<unsigned> b);

private:
  struct Atom {
    int64_t size;
    /// The atoms after a split, or the one equal atom.
    DimList parts;
  };
  std::vector<Atom> atoms;
};

/// A value and the atoms of its dims.
struct View {
  mlir::Value value;
  llvm::SmallVector<DimList> dims;

  /// All atoms of all dims, in order.
  DimList atoms(const DimTable &table) const;
};

/// Steps from `view` to the operand of its transpose, reshape or broadcast, without the dims added
/// by a broadcast. Returns false for any other op, and leaves `view` as it is.
bool stepThroughView(DimTable &table, View &view);

/// Returns the value of `view` with its atoms regrouped: dim i of the result is the product of
/// `groups[i]`. The groups hold each atom of the view once.
mlir::Value regroup(mlir::OpBuilder &builder, mlir::Location loc, const DimTable &table,
                    const View &view, llvm::ArrayRef<DimList> groups);
/// The same for a view that lacks some atoms of the groups: it is repeated along them. Example:
/// learned queries [q, d] as [b, h, q, d].
mlir::Value regroupRepeated(mlir::OpBuilder &builder, mlir::Location loc, const DimTable &table,
                            View view, llvm::ArrayRef<DimList> groups);

} // namespace tbc::raise

#endif // TBC_PASSES_RAISE_DIMS_H
