//===- Emitter.h - Builds tbc ops from values of the ONNX graph ------------===//

#ifndef TBC_FRONTEND_ONNX_EMITTER_H
#define TBC_FRONTEND_ONNX_EMITTER_H

#include "frontend/onnx/Value.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"

namespace tbc::frontend {

using Attributes = llvm::SmallVector<mlir::NamedAttribute, 6>;

/// Emits ops at the end of the function under construction, at the location of the current node.
///
/// While a graph is imported the batch has the size `marker`, a prime that divides no other size,
/// so a dim that is a multiple of it is the batch times the rest, whatever arithmetic it came from.
class Emitter {
public:
  Emitter(mlir::OpBuilder builder, int64_t marker) : builder(builder), marker(marker) {}

  mlir::OpBuilder builder;
  const int64_t marker;
  /// The batch that a file of fixed sizes was exported at; 0: its batch is a symbol.
  int64_t exportedBatch = 0;

  void setNode(const std::string &name);
  mlir::Location location() const { return loc; }
  void setLocation(mlir::Location location) { loc = location; }

  bool dependsOnBatch(int64_t size) const { return size != 0 && size % marker == 0; }

  /// An op of the dialect by mnemonic. The caller has checked shapes; verification of the whole
  /// module is the safety net.
  mlir::Operation *create(llvm::StringRef mnemonic, llvm::ArrayRef<mlir::Value> operands,
                          llvm::ArrayRef<mlir::Type> types, const Attributes &attributes = {});
  mlir::Value createOne(llvm::StringRef mnemonic, llvm::ArrayRef<mlir::Value> operands,
                        mlir::Type type, const Attributes &attributes = {}) {
    return create(mnemonic, operands, {type}, attributes)->getResult(0);
  }

  mlir::Type elementType(DType dtype);
  /// A tensor type; ImportError unless the sizes are positive and their product fits.
  mlir::RankedTensorType type(DType dtype, llvm::ArrayRef<int64_t> shape);

  /// The core of `value` as a tensor. ImportError for known elements that change with the batch.
  mlir::Value core(const Value &value);
  /// `value` as a tensor of exactly the logical dims `dims`, a superset of its core's.
  mlir::Value at(const Value &value, llvm::ArrayRef<unsigned> dims);
  /// All of `value`.
  mlir::Value full(const Value &value);
  /// The same value without dims of size 1 in its core.
  Value withoutUnitDims(const Value &value);

  mlir::Value broadcast(mlir::Value input, llvm::ArrayRef<int64_t> shape,
                        llvm::ArrayRef<int64_t> dims);
  /// `sizes` in row-major order, grouped by `in` and `out`; see tbc.reshape.
  mlir::Value reshape(mlir::Value input, llvm::ArrayRef<int64_t> sizes, llvm::ArrayRef<int64_t> in,
                      llvm::ArrayRef<int64_t> out);
  mlir::Value constant(DType dtype, const Known &elements);

  mlir::NamedAttribute integer(llvm::StringRef name, int64_t value);
  mlir::NamedAttribute real(llvm::StringRef name, double value);
  mlir::NamedAttribute flag(llvm::StringRef name, bool value);
  mlir::NamedAttribute text(llvm::StringRef name, llvm::StringRef value);
  mlir::NamedAttribute integers(llvm::StringRef name, llvm::ArrayRef<int64_t> values);

private:
  mlir::Value emitKnown(const Value &value);

  mlir::Location loc = builder.getUnknownLoc();
};

/// The element type of a tensor of the IR.
DType dtypeOf(mlir::Type elementType);

/// The sizes of a tensor of the IR.
inline llvm::ArrayRef<int64_t> shapeOf(mlir::Value tensor) {
  return llvm::cast<mlir::RankedTensorType>(tensor.getType()).getShape();
}

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_EMITTER_H
