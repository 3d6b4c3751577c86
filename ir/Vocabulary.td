//===- Vocabulary.td - Ops over numbered rows and classes ------------------===//

#ifndef TBC_IR_VOCABULARY
#define TBC_IR_VOCABULARY

include "ir/TbcBase.td"

// The vocabulary v is a loop that may be sharded. `numbers[v]` is the number of the row or class at
// each index, and is sharded like the other operands. Example: rank 1 of 2 with 4 rows has
// `numbers` [2, 3]. Negative numbers are padding. `last` is the highest number on any rank.

def Tbc_EmbeddingOp : Tbc_Op<"embedding", [InferTypeOpAdaptor,
                                           DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "result[i.., d..] = table[v, d..] where numbers[v] is indices[i..]; 0 where no row "
                "has that number";
  let description = [{
    Looks up a table, whose rows may lie on several ranks. Each rank contributes its own rows, so
    the result is a sum over v. Negative indices count from the end. FLOPs: 0. i and d are parallel,
    v is reduced.

    Constraints:
    (C1) `table` has a dim; `numbers` has its rows, `last` no dims.
  }];
  let arguments = (ins Tbc_FloatTensor:$table, Tbc_IntTensor:$indices, Tbc_IntTensor:$numbers,
      Tbc_IntTensor:$last);
  let results = (outs Tbc_FloatTensor:$result);
  let resizable = "loop > 0 || ::tbc::isPlainInput(getIndices())";
}

def Tbc_EmbeddingGradOp : Tbc_Op<"embedding_grad"> {
  let summary = "The gradient of embedding: adds each row of `updates` to the row of a zero "
                "table that has its number";
  let description = [{
    FLOPs: 1 per update. v and d are parallel, i is reduced.

    Constraints:
    (C1) embedding of the result at `indices` gives the type of `updates`.
  }];
  let arguments = (ins Tbc_FloatTensor:$updates, Tbc_IntTensor:$indices, Tbc_IntTensor:$numbers,
      Tbc_IntTensor:$last);
  let results = (outs Tbc_FloatTensor:$result);
  let resizable = "loop > 0 || ::tbc::isPlainInput(getIndices())";
  let workspace = "::tbc::embeddingGradWorkspace()";
  let ownKernel = "{1, 1, false, ::tbc::embeddingGradLaunches()}";
  let hasVerifier = 1; /* embedding_grad_c1 */
}

def Tbc_ClassMaxOp : Tbc_InferredOp<"class_max"> {
  let summary = "Row max over the classes, without padding";
  let description = [{
    The largest of every row of logits[.., v], in f32, or f64 for f64 logits; the lowest finite
    number if all classes are padding. In residues it is 0. It has no gradient, because the loss
    does not depend on it. FLOPs: 1 per logit. Rows are parallel, v is reduced by maximum.

    Constraints:
    (C1) logits has rank 1 or more; numbers has the classes.
  }];
  let arguments = (ins Tbc_FloatTensor:$logits, Tbc_IntTensor:$numbers);
  let results = (outs Tbc_FloatTensor:$result);
}

def Tbc_ClassSumsOp : Tbc_Op<"class_sums", [InferTypeOpAdaptor,
                                            DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "The two sums over the classes for cross entropy";
  let description = [{
    For every row of logits x[.., v] with its row max m:
      denominator = sum_v exp(x_v - m)
      target      = sum_v x_v * (class_weight + label_weight * [numbers_v = label])
    So cross entropy is m + log(denominator) - target. If the label is ignore_index, no class is the
    label. Both results are f32, or f64 for f64 logits. The gradient takes m for a constant: it
    cancels in the loss. FLOPs: 5 per logit. Rows are parallel, v is reduced.

    Constraints:
    (C1) logits has rank 1 or more; labels and maximum have its shape without the last dim, maximum
         in the wide element type; numbers has the classes, `last` no dims.
  }];
  let arguments = (ins Tbc_FloatTensor:$logits, Tbc_FloatTensor:$maximum, Tbc_IntTensor:$labels,
      Tbc_IntTensor:$numbers, Tbc_IntTensor:$last, I64Attr:$ignore_index, F64Attr:$label_weight,
      F64Attr:$class_weight);
  let results = (outs Tbc_FloatTensor:$denominator, Tbc_FloatTensor:$target);
  let logitsOperand = "0";
}

def Tbc_ClassSumsGradOp : Tbc_Op<"class_sums_grad", [InferTypeOpAdaptor]> {
  let summary = "The gradient of class_sums";
  let description = [{
    ddenominator * exp(x_v - m) + dtarget * (class_weight + label_weight * [numbers_v = label]).
    FLOPs: 5 per logit. Rows and v are parallel.

    Constraints:
    (C1) class_sums of the other operands gives the types of both cotangents.
  }];
  let arguments = (ins Tbc_FloatTensor:$logits, Tbc_FloatTensor:$maximum, Tbc_IntTensor:$labels,
      Tbc_IntTensor:$numbers, Tbc_IntTensor:$last, Tbc_FloatTensor:$denominator_cotangent,
      Tbc_FloatTensor:$target_cotangent, I64Attr:$ignore_index, F64Attr:$label_weight,
      F64Attr:$class_weight);
  let results = (outs Tbc_FloatTensor:$result);
}

#endif // TBC_IR_VOCABULARY
