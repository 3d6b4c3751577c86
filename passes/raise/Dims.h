//===- Dims.h - What dims are made of, across reshapes and transposes ------===//

#ifndef TBC_PASSES_RAISE_DIMS_H
#define TBC_PASSES_RAISE_DIMS_H

#include "ir/Tbc.h"

#include "llvm/ADT/SmallVector.h"

#include <vector>

namespace tbc::raise {

/// An ordered product of atoms, outermost first: what one dim is made of. A dim of size 1 is empty.
using DimList = llvm::SmallVector<unsigned, 2>;

/// Atoms: pieces of dims that keep their identity through reshapes and transposes. An atom is split
/// when some tensor on the way takes it apart.
class DimTable {
public:
  /// A dim of its own.
  DimList add(int64_t size);
  int64_t size(unsigned atom) const { return atoms[atom].size; }

  /// The atoms in their finest known pieces.
  DimList expand(llvm::ArrayRef<unsigned> list) const;

  /// Says that both lists are the same dim, splitting atoms as needed; false if their products have
  /// no common refinement.
  bool unify(llvm::ArrayRef<unsigned> a, llvm::ArrayRef<unsigned> b);

private:
  struct Atom {
    int64_t size;
    /// What it was split into, or the one atom it is the same as.
    DimList parts;
  };
  std::vector<Atom> atoms;
};

/// A value and what its dims are made of.
struct View {
  mlir::Value value;
  llvm::SmallVector<DimList> dims;

  /// All atoms of all dims, in order.
  DimList atoms(const DimTable &table) const;
};

/// Steps from `view` to the operand of the transpose, reshape or broadcast that made it; dims that
/// a broadcast adds are dropped. False, leaving it as it is, where something else made it.
bool stepThroughView(DimTable &table, View &view);

/// The value of `view` with its atoms regrouped: dim i of the result is the product of `groups[i]`.
/// The groups hold each atom of the view once.
mlir::Value regroup(mlir::OpBuilder &builder, mlir::Location loc, const DimTable &table,
                    const View &view, llvm::ArrayRef<DimList> groups);

} // namespace tbc::raise

#endif // TBC_PASSES_RAISE_DIMS_H
