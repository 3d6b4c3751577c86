//===- Recurrent.td - Recurrent networks -----------------------------------===//

#ifndef TBC_IR_RECURRENT
#define TBC_IR_RECURRENT

include "ir/TbcBase.td"

class Tbc_RecurrentOp<string mnemonic, list<Trait> traits = []>
    : Tbc_InferredOp<mnemonic,
                     !listconcat(traits, [DeclareOpInterfaceMethods<CompositeOpInterface>])> {
  let resizesFixedLoops = "true"; // steps depend on each other, but any number of them will do
  let familyDefinition = [{
    void $cppClass::resizeLoops(::llvm::ArrayRef<int64_t>) {}
    ::tbc::KernelClass $cppClass::getKernelClass() { return ::tbc::KernelClass::Matmul; }
  }];
}

def Tbc_LstmOp : Tbc_RecurrentOp<"lstm", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "One layer of an LSTM over a sequence";
  let description = [{
    `input` x[s, b, 4 h] is the input part of the gates, biases included, in the order i, o, f, g;
    `weight` R[4 h, h]; `hidden` and `cell` [b, h] are the state before the first step. Each step t,
    from the last one on if `reverse`:

        i, o, f = sigmoid, g = tanh of x[t] + R h;    c = f * c + i * g;    h = o * tanh(c).

    `result` and `cells` [s, b, h] are h and c after each step, `gates` [s, b, 4 h] is i, o, f, g.
    They are saved for the gradient, which therefore needs no inputs and recomputes no matmul.

    FLOPs: 8 s b h^2. b is parallel; a step needs all of h, and the one before it.
    Source: Hochreiter, Schmidhuber, "Long short-term memory" (1997), with the forget gate of Gers (1999).

    Constraints:
    (C1) The shapes fit, and the element types are one.
  }];
  let arguments = (ins Tbc_FloatTensor:$input, Tbc_FloatTensor:$weight, Tbc_FloatTensor:$hidden,
      Tbc_FloatTensor:$cell, BoolAttr:$reverse);
  let results = (outs Tbc_FloatTensor:$result, Tbc_FloatTensor:$cells, Tbc_FloatTensor:$gates);
}

def Tbc_LstmGradOp : Tbc_RecurrentOp<"lstm_grad"> {
  let summary = "The gradients of lstm with respect to its inputs and its first state";
  let description = [{
    `cotangent` and `cells_cotangent` [s, b, h] belong to the results; `cells` and `gates` are
    results of the forward op. `gates_cotangent` [s, b, 4 h] is the cotangent of the gates before
    their activations, and so of the inputs. The cotangent of R is its matmul with the states before
    each step.

    FLOPs: 8 s b h^2.

    Constraints:
    (C1) The shapes fit, and the element types are one.
  }];
  let arguments = (ins Tbc_FloatTensor:$cotangent, Tbc_FloatTensor:$cells_cotangent,
      Tbc_FloatTensor:$weight, Tbc_FloatTensor:$cell, Tbc_FloatTensor:$cells,
      Tbc_FloatTensor:$gates, BoolAttr:$reverse);
  let results = (outs Tbc_FloatTensor:$gates_cotangent, Tbc_FloatTensor:$hidden_cotangent,
      Tbc_FloatTensor:$cell_cotangent);
}

def Tbc_GruOp : Tbc_RecurrentOp<"gru", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "One layer of a GRU over a sequence";
  let description = [{
    `input` x[s, b, 3 h] is the input part of the gates, in the order z, r, n; `weight` R[3 h, h] is
    R_z, R_r and R_n; `bias` b[h]; `hidden` [b, h] is the state before the first step. Each step t,
    from the last one on if `reverse`:

        z, r = sigmoid of x[t] + R h;    h = (1 - z) * n + z * h,
        n = tanh(x[t] + r * u) with u = R_n h + b if `reset_after`,
        n = tanh(x[t] + R_n u + b) with u = r * h if not.

    `result` [s, b, h] is h after each step; `gates` [s, b, 3 h] is z, r, n and `product` [s, b, h] is u,
    saved for the gradient.

    FLOPs: 6 s b h^2. b is parallel; a step needs all of h, and the one before it.
    Source: Cho et al., "Learning phrase representations using RNN encoder-decoder" (2014); `reset_after`
    is the form of cuDNN and PyTorch.

    Constraints:
    (C1) The shapes fit, and the element types are one.
  }];
  let arguments = (ins Tbc_FloatTensor:$input, Tbc_FloatTensor:$weight, Tbc_FloatTensor:$bias,
      Tbc_FloatTensor:$hidden, BoolAttr:$reverse, BoolAttr:$reset_after);
  let results = (outs Tbc_FloatTensor:$result, Tbc_FloatTensor:$gates, Tbc_FloatTensor:$product);
}

def Tbc_GruGradOp : Tbc_RecurrentOp<"gru_grad"> {
  let summary = "The gradients of gru with respect to its inputs and its first state";
  let description = [{
    `cotangent` belongs to the result; `states`, `gates` and `product` are results of the forward
    op. `gates_cotangent` [s, b, 3 h] is the cotangent of the gates before their activations.
    `product_cotangent` [s, b, h] is the cotangent of R_n times its operand plus b. The gradients of
    R and b follow.

    FLOPs: 6 s b h^2.

    Constraints:
    (C1) The shapes fit, and the element types are one.
  }];
  let arguments = (ins Tbc_FloatTensor:$cotangent, Tbc_FloatTensor:$weight, Tbc_FloatTensor:$hidden,
      Tbc_FloatTensor:$states, Tbc_FloatTensor:$gates, Tbc_FloatTensor:$product, BoolAttr:$reverse,
      BoolAttr:$reset_after);
  let results = (outs Tbc_FloatTensor:$gates_cotangent, Tbc_FloatTensor:$product_cotangent,
      Tbc_FloatTensor:$hidden_cotangent);
}

#endif // TBC_IR_RECURRENT
