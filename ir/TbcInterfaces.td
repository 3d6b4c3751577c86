//===- TbcInterfaces.td - Questions of the compiler to an op ----------------===//

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
      Returns the op's loops. Every dim of every operand and result is an ordered sum of products of
      these loops. Example: a reshape from [6, 4] to [24] has two loops; its result dim is their
      product.
    }], "::tbc::FactorRule", "getFactorRule", (ins)>,
    InterfaceMethod<[{
      Adapts attributes with sizes to new sizes of the loops, one per loop of the factor rule (on a
      rank: its local sizes). The caller changes operand and result types.
    }], "void", "resizeLoops", (ins "::llvm::ArrayRef<int64_t>":$sizes), "", "">,
    InterfaceMethod<[{
      Returns true if loop number `loop` may have another size while the others keep theirs. Returns
      false if arithmetic binds sizes to each other (a convolution's window, the halves of a rotary
      dim). The default is false for loops of kind `Fixed`.
    }], "bool", "isResizable", (ins "unsigned":$loop), "", [{
      return $_op.getFactorRule().loops[loop].kind != ::tbc::LoopKind::Fixed;
    }]>,
    InterfaceMethod<[{
      Returns true if the op is linear in all its operands jointly: partial sums of the operands
      give a partial sum of the result. Example: add is, mul is not.
    }], "bool", "isAdditive", (ins), "", "return false;">,
  ];
}

def CostOpInterface : OpInterface<"CostOpInterface"> {
  let cppNamespace = "::tbc";
  let description = "The cost of one execution of an op; any local shape follows from the loops.";
  let methods = [
    InterfaceMethod<"Returns the floating-point operations of one execution.", "double", "getFlops",
                    (ins)>,
    InterfaceMethod<[{
      Returns the kernel class for the cost model (planner/reshard/KernelClass.h), or `None` for an
      op without cost.
    }], "::tbc::KernelClass", "getKernelClass", (ins)>,
    InterfaceMethod<[{
      Whether the op is a nest of loops that may be a part of a larger one (planner/reshard/Kernels.h): each
      element of a result comes from one element of each operand, or from a sum or maximum along loops that
      are not `Parallel` in the factor rule. codegen/region compiles these ops; a test compares.
      Example: add, broadcast, layer_norm; not slice, einsum.
    }], "bool", "isLoopNest", (ins)>,
    InterfaceMethod<[{
      Returns the function of the op for each element, if decisions of the planner depend on it
      (planner/reshard/KernelClass.h). Example: `Sum` for add.
    }], "::tbc::ElementFunction", "getElementFunction", (ins)>,
    InterfaceMethod<[{
      Returns the number of the operand with the logits of a loss, or -1. Example: 0 for class_sums.
    }], "int", "getLogitsOperand", (ins)>,
    InterfaceMethod<[{
      Returns the bytes that its kernel keeps between launches on GPUs, as a function of the operands' local
      shapes (planner/reshard/KernelClass.h); unset if there are none, or few.
    }], "::tbc::WorkspaceFn", "getWorkspace", (ins)>,
    InterfaceMethod<[{
      Returns the launches and FLOPs of tbc's kernel of it on GPUs (planner/reshard/KernelClass.h), which runs where no
      library has the op.
    }], "::tbc::OwnKernel", "getOwnKernel", (ins)>,
    InterfaceMethod<[{
      Returns what the op does with the columns of a tensor of several parts (planner/reshard/KernelClass.h).
      Example: a slice of the last dim cuts them.
    }], "::tbc::ColumnUse", "getColumnUse", (ins)>,
  ];
}

def DifferentiableOpInterface : OpInterface<"DifferentiableOpInterface"> {
  let cppNamespace = "::tbc";
  let description = "The vector-Jacobian product of an op, in tbc ops.";
  let methods = [
    InterfaceMethod<[{
      Builds the cotangents of the operands with `needed` from those of the results.

      - `cotangents` has one entry per result; null if the loss does not depend on it.
      - `operandCotangents[i]` is set if needed, or left null if the cotangent is zero.
      - Cotangents of different operands are independent ops if one may be needed without the other.
      - Forward operands and results used by the new ops become residuals.
    }], "::mlir::LogicalResult", "buildVjp",
        (ins "::mlir::OpBuilder &":$builder, "::llvm::ArrayRef<::mlir::Value>":$cotangents,
             "::llvm::ArrayRef<bool>":$needed,
             "::llvm::SmallVectorImpl<::mlir::Value> &":$operandCotangents)>,
  ];
}

def DropoutOpInterface : OpInterface<"DropoutOpInterface"> {
  let cppNamespace = "::tbc";
  let description = [{
    An op that drops out elements during training, or draws a random number for each. As imported it
    drops no element; its training form knows the number of every element in the global batch.
  }];
  let methods = [
    InterfaceMethod<[{
      Returns the dims of the tensor with the elements to drop, each as a dim of some operand. Empty
      if the op drops no element, or is in its training form already.
    }], "::llvm::SmallVector<std::pair<::mlir::Value, unsigned>>", "getDroppedDims", (ins)>,
    InterfaceMethod<[{
      Builds the training form and returns the new results of the op. `indices` has a vector per
      dropped dim; the number of an element is the sum of its entries.
    }], "::llvm::SmallVector<::mlir::Value>", "buildTrainingDropout",
        (ins "::mlir::OpBuilder &":$builder, "::mlir::Value":$step, "::mlir::ValueRange":$indices,
             "int64_t":$seed, "int64_t":$key)>,
    InterfaceMethod<[{
      Builds and returns what replaces the op's results where nothing is dropped. Empty if the op
      stays: random numbers that the model reads.
    }], "::llvm::SmallVector<::mlir::Value>", "buildWithoutDropout", (ins "::mlir::OpBuilder &":$builder)>,
  ];
}

def StreamedOpInterface : OpInterface<"StreamedOpInterface"> {
  let cppNamespace = "::tbc";
  let description = [{
    An op with a streamed loop: a rank holds one block along it, and works on the blocks of all
    ranks of a ring one after another. The partitioner asks the ops for this form.
  }];
  let methods = [
    InterfaceMethod<[{
      Builds the rank's results with local types, one per result of the op. `stream` provides the
      operands block by block and passes results on.
    }], "::llvm::SmallVector<::mlir::Value>", "buildStreamed",
        (ins "::mlir::OpBuilder &":$builder, "::tbc::BlockStream &":$stream)>,
  ];
}

def CompositeOpInterface : OpInterface<"CompositeOpInterface"> {
  let cppNamespace = "::tbc";
  let description = [{
    An op that stays whole while a better kernel or a smaller footprint exists for it. Its
    decomposition is its meaning: exactly in residue arithmetic.
  }];
  let methods = [
    InterfaceMethod<[{
      Builds the op's results out of simpler ops. Unused results may be null.
    }], "::mlir::LogicalResult", "decompose",
        (ins "::mlir::OpBuilder &":$builder, "::llvm::SmallVectorImpl<::mlir::Value> &":$results)>,
  ];
}

def ReorderableOpInterface : OpInterface<"ReorderableOpInterface"> {
  let cppNamespace = "::tbc";
  let description = [{
    An op that names the dims of its operands and of its result, so that they may have any order. A
    transpose beside it becomes a part of it. Example: the einsum bi,io->bo of a transposed w[o, i]
    is bi,oi->bo of w.
  }];
  let methods = [
    InterfaceMethod<[{
      Returns true if the op, and its gradient, are as fast when operand `operand` is read before a
      transpose by `permutation`, whose result it is now.
    }], "bool", "canAbsorbOperandTranspose",
        (ins "unsigned":$operand, "::llvm::ArrayRef<int64_t>":$permutation)>,
    InterfaceMethod<[{
      Changes the attributes so that operand `operand` is the input of the transpose. The caller sets
      the operand.
    }], "void", "absorbOperandTranspose",
        (ins "unsigned":$operand, "::llvm::ArrayRef<int64_t>":$permutation)>,
    InterfaceMethod<[{
      Returns true if the op, and its gradient, are as fast when it computes the transpose of result
      `result` by `permutation`.
    }], "bool", "canAbsorbResultTranspose",
        (ins "unsigned":$result, "::llvm::ArrayRef<int64_t>":$permutation)>,
    InterfaceMethod<[{
      Changes the attributes so that the op computes the transpose of that result. The caller sets
      the type.
    }], "void", "absorbResultTranspose",
        (ins "unsigned":$result, "::llvm::ArrayRef<int64_t>":$permutation)>,
  ];
}

def TransposableOpInterface : OpInterface<"TransposableOpInterface"> {
  let cppNamespace = "::tbc";
  let description = [{
    An op with one result in the dims of one operand: op(transpose(x)) = transpose(op'(x)), where op'
    differs from op in its attributes. Example: rotary of x[b, h, s, d] and of x[b, s, h, d].
  }];
  let methods = [
    InterfaceMethod<[{
      Returns true if there is such an op' for operand `operand`, as fast as the op, and if its
      gradient is as fast too.
    }], "bool", "canPassTranspose",
        (ins "unsigned":$operand, "::llvm::ArrayRef<int64_t>":$permutation)>,
    InterfaceMethod<[{
      Changes the attributes to those of op'. The caller sets the operand and the type.
    }], "void", "passTranspose",
        (ins "unsigned":$operand, "::llvm::ArrayRef<int64_t>":$permutation)>,
  ];
}

def MergeableOpInterface : OpInterface<"MergeableOpInterface"> {
  let cppNamespace = "::tbc";
  let description = [{
    An op that can address the last two dims of a tensor in their merge, so that a reshape beside it
    needs no copy. Example: attention of q[b, s, h, d] and of q[b, s, h * d].
  }];
  let methods = [
    InterfaceMethod<[{
      Returns true if the last two dims of operand `operand` may be merged. A result with the dims
      of that operand (TransposableOpInterface) is merged, too.
    }], "bool", "canReadMerged", (ins "unsigned":$operand)>,
    InterfaceMethod<[{
      Changes the attributes accordingly. The caller sets the operand, and the type of that result.
    }], "void", "readMerged", (ins "unsigned":$operand)>,
    InterfaceMethod<[{
      Returns true if the last two dims of result `result` may be merged, whatever the operands.
    }], "bool", "canMakeMerged", (ins "unsigned":$result), "", "return false;">,
    InterfaceMethod<[{
      Changes the attributes accordingly. The caller sets the type.
    }], "void", "makeMerged", (ins "unsigned":$result)>,
  ];
}

def PackableOpInterface : OpInterface<"PackableOpInterface"> {
  let cppNamespace = "::tbc";
  let description = [{
    An op that takes the columns of one tensor as several operands (`ColumnUse::Kind::Takes`), and
    may make its first results as the columns of one, too. Example: attention of q, k and v.
  }];
  let methods = [
    InterfaceMethod<[{
      Builds the op on the packed tensor, which stands in `operands` in place of its parts. `types`
      has one type for all parts of the results. Sizes in attributes stay those of this op.
    }], "::mlir::Operation *", "buildPacked",
        (ins "::mlir::OpBuilder &":$builder, "::mlir::ValueRange":$operands,
             "::mlir::TypeRange":$types)>,
  ];
}

def RegroupableOpInterface : OpInterface<"RegroupableOpInterface"> {
  let cppNamespace = "::tbc";
  let description = [{
    An op that can run through several dims instead of their merge. Example: the einsum bi,io->bo of
    x[b s, i] is bsi,io->bso of x[b, s, i].
  }];
  let methods = [
    InterfaceMethod<[{
      Returns true if the op, and its gradient, are as fast with `parts` dims for each dim of
      `loop`, a parallel loop of its factor rule.
    }], "bool", "canSplitLoop", (ins "unsigned":$loop, "unsigned":$parts)>,
    InterfaceMethod<[{
      Changes the attributes so that each dim of `loop` is `parts` dims. The caller sets operands and
      result types.
    }], "void", "splitLoop", (ins "unsigned":$loop, "unsigned":$parts)>,
  ];
}

def ExpertOpInterface : OpInterface<"ExpertOpInterface"> {
  let cppNamespace = "::tbc";
  let description = [{
    An op of a mixture of experts: parallel networks that each get a part of the tokens. The experts
    also execute the ops without the interface between an op that dispatches tokens and an op that
    combines them.
  }];
  let methods = [
    InterfaceMethod<"Returns the loop of the factor rule that numbers the experts.", "unsigned",
                    "getExpertLoop", (ins)>,
    InterfaceMethod<"Returns what the op does for the experts.", "::tbc::ExpertRole", "getExpertRole",
                    (ins)>,
  ];
}

#endif // TBC_IR_INTERFACES
