//===- Random.td - Dropout and random numbers ------------------------------===//

#ifndef TBC_IR_RANDOM
#define TBC_IR_RANDOM

include "ir/TbcBase.td"

let loopNest = "false" in
def Tbc_DropoutOp : Tbc_ElementwiseOp<"dropout",
    [DeclareOpInterfaceMethods<DifferentiableOpInterface>, DeclareOpInterfaceMethods<DropoutOpInterface>,
     SameOperandsAndResultType]> {
  let summary = "Where a model drops out elements while it trains; by itself the identity";
  let description = [{
    As imported. Before training it becomes dropout_train, or goes.

    Constraints:
    (C1) `ratio` is at least 0 and less than 1.
  }];
  let arguments = (ins Tbc_FloatTensor:$input, F64Attr:$ratio);
  let results = (outs Tbc_FloatTensor:$result);
  let hasVerifier = 1; /* dropout_c1 */
}

let loopNest = "true" in
def Tbc_DropoutTrainOp : Tbc_InferredOp<"dropout_train",
    [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Zero with probability `ratio`, else the element divided by 1 - ratio";
  let description = [{
    Random numbers come from Philox 4x32-10, keyed by `seed`, on the counter (n, step, key). n is
    the number of the element in the global batch: the sum over the dims of `indices[dim][i]`, where
    i is the element's position. Example: indices [0, 8] and [0, 1, 2] give element (1, 2) the
    number 10.
    Shards are given shards of `indices`, so all ranks drop the same elements under every sharding.
    The gradient is the op itself on the cotangent. Every dim is a parallel loop. FLOPs: 40 per
    element.
    Source: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (2011).

    Constraints:
    (C1) There is one vector of `indices` per dim, of its size.
    (C2) `ratio` is at least 0 and less than 1.
  }];
  let arguments = (ins Tbc_FloatTensor:$input, Tbc_IntScalar:$step, Variadic<Tbc_IntTensor>:$indices,
                   F64Attr:$ratio, I64Attr:$seed, I64Attr:$key);
  let results = (outs Tbc_FloatTensor:$result);
}

def Tbc_F32Tensor : RankedTensorOf<[F32]>;

let loopNest = "false" in
def Tbc_RandomUniformOp : Tbc_ElementwiseOp<"random_uniform",
    [DeclareOpInterfaceMethods<DifferentiableOpInterface>,
     DeclareOpInterfaceMethods<DropoutOpInterface>]> {
  let summary = "A random number in [0, 1) for each element of `like`";
  let description = [{
    As imported. Before training it becomes random_uniform_train. By itself the elements have their
    row-major numbers, step 0 and seed 0. `like` gives the shape; its elements are not read, so it
    has no gradient.

    Constraints:
    (C1) `like` has at least one dim.
  }];
  let arguments = (ins Tbc_Tensor:$like, I64Attr:$key);
  let results = (outs Tbc_FloatTensor:$result);
  let hasVerifier = 1; /* random_uniform_c1 */
}

let loopNest = "true" in
def Tbc_RandomUniformTrainOp : Tbc_InferredOp<"random_uniform_train"> {
  let summary = "A random number in [0, 1) for each number of an element";
  let description = [{
    The number is w / 2^24, where w is the upper 24 bits of the element's word. dropout_train says
    which word belongs to element n, and how `indices` make n. So it is exact in f32, and equal on
    all ranks under every sharding. Every dim is a parallel loop. FLOPs: 40 per element.

    Constraints:
    (C1) Each of `indices` has one dim.
  }];
  let arguments = (ins Tbc_IntScalar:$step, Variadic<Tbc_IntTensor>:$indices, I64Attr:$seed,
                   I64Attr:$key);
  let results = (outs Tbc_F32Tensor:$result);
}

#endif // TBC_IR_RANDOM
