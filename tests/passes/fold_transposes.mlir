// RUN: tbc-opt %s --tbc-fold-transposes --split-input-file | FileCheck %s

// The weight of nn.Linear, read twice.
// CHECK-LABEL: func @linear
// CHECK-SAME:    %[[X:.+]]: tensor<2x4x3xf32>, %[[W:.+]]: tensor<3x3xf32>
// CHECK-NEXT:    %[[H:.+]] = tbc.einsum %[[X]], %[[W]] {lhs_labels = array<i64: 0, 1, 2>, out_labels = array<i64: 0, 1, 3>, rhs_labels = array<i64: 3, 2>, tbc.id = "up"}
// CHECK-NEXT:    %[[Y:.+]] = tbc.einsum %[[H]], %[[W]] {{.*}}rhs_labels = array<i64: 3, 2>, tbc.id = "down"}
// CHECK-NEXT:    return %[[Y]]
func.func @linear(%x: tensor<2x4x3xf32>, %w: tensor<3x3xf32>) -> tensor<2x4x3xf32> {
  %t = tbc.transpose %w {permutation = array<i64: 1, 0>} : (tensor<3x3xf32>) -> tensor<3x3xf32>
  %h = tbc.einsum %x, %t {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 2, 3>, out_labels = array<i64: 0, 1, 3>, tbc.id = "up"} : (tensor<2x4x3xf32>, tensor<3x3xf32>) -> tensor<2x4x3xf32>
  %y = tbc.einsum %h, %t {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 2, 3>, out_labels = array<i64: 0, 1, 3>, tbc.id = "down"} : (tensor<2x4x3xf32>, tensor<3x3xf32>) -> tensor<2x4x3xf32>
  return %y : tensor<2x4x3xf32>
}

// -----

// A permutation that is not its own inverse: w[o, g, i] becomes [g, i, o], so its labels g, i, o
// become o, g, i.
// CHECK-LABEL: func @cycle
// CHECK-NEXT:    tbc.einsum %{{.+}}, %{{.+}} {lhs_labels = array<i64: 0, 1, 2>, out_labels = array<i64: 0, 3>, rhs_labels = array<i64: 3, 1, 2>}
// CHECK-SAME:      (tensor<7x2x3xf32>, tensor<5x2x3xf32>) -> tensor<7x5xf32>
func.func @cycle(%x: tensor<7x2x3xf32>, %w: tensor<5x2x3xf32>) -> tensor<7x5xf32> {
  %t = tbc.transpose %w {permutation = array<i64: 1, 2, 0>} : (tensor<5x2x3xf32>) -> tensor<2x3x5xf32>
  %y = tbc.einsum %x, %t {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 1, 2, 3>, out_labels = array<i64: 0, 3>} : (tensor<7x2x3xf32>, tensor<2x3x5xf32>) -> tensor<7x5xf32>
  return %y : tensor<7x5xf32>
}

// -----

// Two transposes in a row at an operand, and two behind a result.
// CHECK-LABEL: func @rows
// CHECK-NEXT:    %[[Y:.+]] = tbc.einsum %{{.+}}, %{{.+}} {lhs_labels = array<i64: 0, 1>, out_labels = array<i64: 2, 0>, rhs_labels = array<i64: 1, 2>}
// CHECK-SAME:      -> tensor<5x4xf32>
// CHECK-NEXT:    return %[[Y]] : tensor<5x4xf32>
func.func @rows(%x: tensor<4x3xf32>, %w: tensor<3x5xf32>) -> tensor<5x4xf32> {
  %a = tbc.transpose %w {permutation = array<i64: 1, 0>} : (tensor<3x5xf32>) -> tensor<5x3xf32>
  %b = tbc.transpose %a {permutation = array<i64: 1, 0>} : (tensor<5x3xf32>) -> tensor<3x5xf32>
  %c = tbc.einsum %x, %b {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 1, 2>, out_labels = array<i64: 2, 0>} : (tensor<4x3xf32>, tensor<3x5xf32>) -> tensor<5x4xf32>
  %d = tbc.transpose %c {permutation = array<i64: 1, 0>} : (tensor<5x4xf32>) -> tensor<4x5xf32>
  %e = tbc.transpose %d {permutation = array<i64: 1, 0>} : (tensor<4x5xf32>) -> tensor<5x4xf32>
  return %e : tensor<5x4xf32>
}

// -----

// A transposed activation with another reader stays. An argument is in memory all the same.
// CHECK-LABEL: func @other_readers
// CHECK:         %[[H:.+]] = tbc.neg
// CHECK-NEXT:    %[[T:.+]] = tbc.transpose %[[H]]
// CHECK-NEXT:    %[[B:.+]] = tbc.transpose %[[W:.+]] {permutation
// CHECK-NEXT:    %[[A:.+]] = tbc.einsum %[[T]], %[[W]] {lhs_labels = array<i64: 0, 1>, out_labels = array<i64: 0, 2>, rhs_labels = array<i64: 2, 1>}
// CHECK-NEXT:    return %[[T]], %[[A]], %[[B]]
func.func @other_readers(%x: tensor<3x4xf32>, %w: tensor<5x3xf32>) -> (tensor<4x3xf32>, tensor<4x5xf32>, tensor<3x5xf32>) {
  %h = tbc.neg %x : tensor<3x4xf32>
  %t = tbc.transpose %h {permutation = array<i64: 1, 0>} : (tensor<3x4xf32>) -> tensor<4x3xf32>
  %v = tbc.transpose %w {permutation = array<i64: 1, 0>} : (tensor<5x3xf32>) -> tensor<3x5xf32>
  %a = tbc.einsum %t, %v {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 1, 2>, out_labels = array<i64: 0, 2>} : (tensor<4x3xf32>, tensor<3x5xf32>) -> tensor<4x5xf32>
  return %t, %a, %v : tensor<4x3xf32>, tensor<4x5xf32>, tensor<3x5xf32>
}

// -----

// Attention by hand: batch and heads are side by side behind the transpose and not before it, so
// the einsum would become a matmul per head.
// CHECK-LABEL: func @scores
// CHECK-COUNT-2: tbc.transpose
// CHECK:         tbc.einsum {{.*}}lhs_labels = array<i64: 0, 1, 2, 3>
func.func @scores(%q: tensor<2x4x3x5xf32>, %k: tensor<2x4x3x5xf32>) -> tensor<2x3x4x4xf32> {
  %a = tbc.transpose %q {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x4x3x5xf32>) -> tensor<2x3x4x5xf32>
  %b = tbc.transpose %k {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x4x3x5xf32>) -> tensor<2x3x4x5xf32>
  %s = tbc.einsum %a, %b {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x3x4x5xf32>, tensor<2x3x4x5xf32>) -> tensor<2x3x4x4xf32>
  return %s : tensor<2x3x4x4xf32>
}

// -----

// Channels first behind a linear layer. The weight's gradient would sum over two loops that no
// matmul joins: the batch and the tokens.
// CHECK-LABEL: func @channels_first
// CHECK-NEXT:    tbc.einsum {{.*}}out_labels = array<i64: 0, 1, 3>
// CHECK-NEXT:    tbc.transpose
func.func @channels_first(%x: tensor<2x4x3xf32>, %w: tensor<5x3xf32>) -> tensor<2x5x4xf32> {
  %y = tbc.einsum %x, %w {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 3, 2>, out_labels = array<i64: 0, 1, 3>} : (tensor<2x4x3xf32>, tensor<5x3xf32>) -> tensor<2x4x5xf32>
  %t = tbc.transpose %y {permutation = array<i64: 0, 2, 1>} : (tensor<2x4x5xf32>) -> tensor<2x5x4xf32>
  return %t : tensor<2x5x4xf32>
}

// -----

// The batch of one sample is no loop.
// CHECK-LABEL: func @one_sample
// CHECK-NEXT:    tbc.einsum {{.*}}out_labels = array<i64: 0, 3, 1>
// CHECK-NEXT:    return
func.func @one_sample(%x: tensor<1x4x3xf32>, %w: tensor<5x3xf32>) -> tensor<1x5x4xf32> {
  %y = tbc.einsum %x, %w {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 3, 2>, out_labels = array<i64: 0, 1, 3>} : (tensor<1x4x3xf32>, tensor<5x3xf32>) -> tensor<1x4x5xf32>
  %t = tbc.transpose %y {permutation = array<i64: 0, 2, 1>} : (tensor<1x4x5xf32>) -> tensor<1x5x4xf32>
  return %t : tensor<1x5x4xf32>
}

// -----

// The heads of an attention, with rotary positions: a transpose each of q, k, v and o.
// CHECK-LABEL: func @heads
// CHECK-SAME:    %[[Q:.+]]: tensor<2x4x6x8xf32>, %[[K:.+]]: tensor<2x4x3x8xf32>, %[[V:.+]]: tensor<2x4x3x5xf32>, %[[T:.+]]: tensor<4x4xf32>
// CHECK-NEXT:    %[[R:.+]] = tbc.rotary %[[Q]], %[[T]], %[[T]] {inverse = false, token_major = true}
// CHECK-NEXT:    %[[O:.+]], %{{.+}}, %{{.+}} = tbc.attention %[[R]], %[[K]], %[[V]]
// CHECK-SAME:      token_major = "qkvo"
// CHECK-SAME:      -> (tensor<2x4x6x5xf32>, tensor<2x6x4xf32>, tensor<2x6x4xf32>)
// CHECK-NEXT:    return %[[O]]
func.func @heads(%q: tensor<2x4x6x8xf32>, %k: tensor<2x4x3x8xf32>, %v: tensor<2x4x3x5xf32>, %table: tensor<4x4xf32>) -> tensor<2x4x6x5xf32> {
  %tq = tbc.transpose %q {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x4x6x8xf32>) -> tensor<2x6x4x8xf32>
  %tk = tbc.transpose %k {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x4x3x8xf32>) -> tensor<2x3x4x8xf32>
  %tv = tbc.transpose %v {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x4x3x5xf32>) -> tensor<2x3x4x5xf32>
  %r = tbc.rotary %tq, %table, %table {inverse = false} : (tensor<2x6x4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<2x6x4x8xf32>
  %o, %m, %l = tbc.attention %r, %tk, %tv {scale = 0.5 : f64, causal = true} : (tensor<2x6x4x8xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4x5xf32>) -> (tensor<2x6x4x5xf32>, tensor<2x6x4xf32>, tensor<2x6x4xf32>)
  %y = tbc.transpose %o {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x6x4x5xf32>) -> tensor<2x4x6x5xf32>
  return %y : tensor<2x4x6x5xf32>
}

// -----

// A result with another reader, and an activation with another reader, keep their order; so does a
// transpose that is not of heads and positions.
// CHECK-LABEL: func @mixed_heads
// CHECK:         %[[N:.+]] = tbc.neg
// CHECK-NEXT:    %[[Q:.+]] = tbc.transpose %[[N]]
// CHECK-NEXT:    %[[V:.+]] = tbc.transpose
// CHECK-NEXT:    tbc.attention %[[Q]], %{{.+}}, %[[V]]
// CHECK-SAME:      token_major = "k"
// CHECK-NEXT:    tbc.transpose
func.func @mixed_heads(%q: tensor<2x4x2x8xf32>, %k: tensor<2x4x2x8xf32>, %v: tensor<8x4x2x2xf32>) -> (tensor<2x2x4x8xf32>, tensor<2x2x4x8xf32>, tensor<2x4x2x8xf32>) {
  %n = tbc.neg %q : tensor<2x4x2x8xf32>
  %tq = tbc.transpose %n {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x4x2x8xf32>) -> tensor<2x2x4x8xf32>
  %tk = tbc.transpose %k {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x4x2x8xf32>) -> tensor<2x2x4x8xf32>
  %tv = tbc.transpose %v {permutation = array<i64: 2, 3, 1, 0>} : (tensor<8x4x2x2xf32>) -> tensor<2x2x4x8xf32>
  %o, %m, %l = tbc.attention %tq, %tk, %tv {scale = 0.5 : f64, causal = true} : (tensor<2x2x4x8xf32>, tensor<2x2x4x8xf32>, tensor<2x2x4x8xf32>) -> (tensor<2x2x4x8xf32>, tensor<2x2x4xf32>, tensor<2x2x4xf32>)
  %y = tbc.transpose %o {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x2x4x8xf32>) -> tensor<2x4x2x8xf32>
  return %tq, %o, %y : tensor<2x2x4x8xf32>, tensor<2x2x4x8xf32>, tensor<2x4x2x8xf32>
}
