//===- TbcInterfaces.td - What the compiler asks of an op ------------------===//

#ifndef TBC_IR_INTERFACES
#define TBC_IR_INTERFACES

include "mlir/IR/OpBase.td"

def ShardableOpInterface : OpInterface<"ShardableOpInterface"> {
  let cppNamespace = "::tbc";
  let description = [{
    The loops of an op, as in an einsum, and how they run through the dims of its operands and results.
    Factor analysis, shardings, local shapes, rebatching and shrinking all follow from this one answer.
  }];
  let methods = [
    InterfaceMethod<[{
      Returns the op's loops and, for every dim of every operand and result, the ordered sum of products
      of loops that it is made of.
    }], "::tbc::FactorRule", "getFactorRule", (ins)>,
    InterfaceMethod<[{
      Adapts the attributes that hold sizes to new sizes of the loops, one per loop of the factor rule
      (on a rank: its local sizes). Operand and result types are changed by the caller.
    }], "void", "resizeLoops", (ins "::llvm::ArrayRef<int64_t>":$sizes), "", "">,
    InterfaceMethod<[{
      Returns true if loop number `loop` may have another size while the others keep theirs. False where
      arithmetic binds sizes to each other (a convolution's window, the halves of a rotary dim); by
      default that is assumed of loops that cannot be sharded.
    }], "bool", "isResizable", (ins "unsigned":$loop), "", [{
      return $_op.getFactorRule().loops[loop].kind != ::tbc::LoopKind::Fixed;
    }]>,
    InterfaceMethod<[{
      Returns true if the op is linear in all its operands jointly, so that partial sums of the operands
      give a partial sum of the result.
    }], "bool", "isAdditive", (ins), "", "return false;">,
  ];
}

def CostOpInterface : OpInterface<"CostOpInterface"> {
  let cppNamespace = "::tbc";
  let description = "What one execution of an op costs; any local shape follows from the loops.";
  let methods = [
    InterfaceMethod<"Returns the floating-point operations of one execution.", "double", "getFlops",
                    (ins)>,
    InterfaceMethod<[{
      Returns the kernel class for the cost model: "matmul", "conv", "attention", "elementwise",
      "reduction", "gather", or "none" for what costs nothing.
    }], "::llvm::StringRef", "getKernelClass", (ins)>,
  ];
}

def DifferentiableOpInterface : OpInterface<"DifferentiableOpInterface"> {
  let cppNamespace = "::tbc";
  let description = "The vector-Jacobian product of an op, in tbc ops.";
  let methods = [
    InterfaceMethod<[{
      Builds the cotangents of the operands for which `needed` is true from those of the results.

      `cotangents` has one entry per result, null where nothing depends on that result. On success
      `operandCotangents[i]` is set where needed, or left null where the cotangent is zero. Cotangents
      of different operands are independent ops wherever one may be wanted without the other.
      The forward operands and results that the new ops use become residuals.
    }], "::mlir::LogicalResult", "buildVjp",
        (ins "::mlir::OpBuilder &":$builder, "::llvm::ArrayRef<::mlir::Value>":$cotangents,
             "::llvm::ArrayRef<bool>":$needed,
             "::llvm::SmallVectorImpl<::mlir::Value> &":$operandCotangents)>,
  ];
}

def DropoutOpInterface : OpInterface<"DropoutOpInterface"> {
  let cppNamespace = "::tbc";
  let description = [{
    An op that drops out elements while a model trains. As imported it drops out nothing; its training form
    knows the number of every element in the global batch.
  }];
  let methods = [
    InterfaceMethod<[{
      Returns the dims of the tensor whose elements are to be dropped, each as a dim of some operand; none if
      the op drops out nothing, or is in its training form already.
    }], "::llvm::SmallVector<std::pair<::mlir::Value, unsigned>>", "getDroppedDims", (ins)>,
    InterfaceMethod<[{
      Builds the training form and returns what replaces the op's results. `indices` has a vector per dropped
      dim; the number of an element is their sum at its place.
    }], "::llvm::SmallVector<::mlir::Value>", "buildTrainingDropout",
        (ins "::mlir::OpBuilder &":$builder, "::mlir::Value":$step, "::mlir::ValueRange":$indices,
             "int64_t":$seed, "int64_t":$key)>,
    InterfaceMethod<"Builds and returns what replaces the op's results where nothing is dropped.",
        "::llvm::SmallVector<::mlir::Value>", "buildWithoutDropout", (ins "::mlir::OpBuilder &":$builder)>,
  ];
}

def StreamedOpInterface : OpInterface<"StreamedOpInterface"> {
  let cppNamespace = "::tbc";
  let description = [{
    An op with a streamed loop: of what runs along it a rank holds one block, and works on the blocks of all ranks
    of a ring one after another. The partitioner asks for the ops that do so.
  }];
  let methods = [
    InterfaceMethod<[{
      Builds, with local types, what gives the rank's results, one per result of the op. `stream` provides the
      operands block by block and passes results on.
    }], "::llvm::SmallVector<::mlir::Value>", "buildStreamed",
        (ins "::mlir::OpBuilder &":$builder, "::tbc::BlockStream &":$stream)>,
  ];
}

def CompositeOpInterface : OpInterface<"CompositeOpInterface"> {
  let cppNamespace = "::tbc";
  let description = [{
    An op that stays whole while a better kernel or a smaller footprint exists for it. Its meaning is
    its decomposition; in residue arithmetic exactly so.
  }];
  let methods = [
    InterfaceMethod<[{
      Builds the op's results out of simpler ops. Unused results may be null.
    }], "::mlir::LogicalResult", "decompose",
        (ins "::mlir::OpBuilder &":$builder, "::llvm::SmallVectorImpl<::mlir::Value> &":$results)>,
  ];
}

def ExpertOpInterface : OpInterface<"ExpertOpInterface"> {
  let cppNamespace = "::tbc";
  let description = [{
    An op of a mixture of experts, networks beside each other of which each has a part of the tokens.
    Ops without the interface that lie between one that deals tokens out and one that collects
    them are done by experts too.
  }];
  let methods = [
    InterfaceMethod<"Returns the loop of the factor rule that numbers the experts.", "unsigned",
                    "getExpertLoop", (ins)>,
    InterfaceMethod<"Returns what the op does for the experts.", "::tbc::ExpertRole", "getExpertRole",
                    (ins)>,
  ];
}

#endif // TBC_IR_INTERFACES
