// RUN: tbc-opt %s --tbc-raise-composites --verify-diagnostics --split-input-file | FileCheck %s

// Weights by relu instead of a softmax: 16 of each of 2 x 16 queries, beside 3 x 2 x 16 x 4 elements
// of queries, keys and values.
// CHECK-LABEL: func.func @relu
// CHECK-NOT:     tbc.attention
func.func @relu(%x: tensor<2x16x4xf32>) -> tensor<2x16x4xf32> {
  %q = tbc.neg %x : tensor<2x16x4xf32>
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 0, 3, 2>, out_labels = array<i64: 0, 1, 3>} : (tensor<2x16x4xf32>, tensor<2x16x4xf32>) -> tensor<2x16x16xf32>
  %w = tbc.relu %z : tensor<2x16x16xf32>
  // expected-remark@+1 {{this attention stays decomposed: between its matmuls stand relu, which is no softmax of scores, masks and biases (its weights are held: 1.3 times the elements of its queries, keys and values)}}
  %o = tbc.einsum %w, %q {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 0, 2, 3>, out_labels = array<i64: 0, 1, 3>} : (tensor<2x16x16xf32>, tensor<2x16x4xf32>) -> tensor<2x16x4xf32>
  return %o : tensor<2x16x4xf32>
}

// -----

// A linear attention has masks alone, and a layer with a weight has no pairs: no remark.
// An outer product is none either.
// CHECK-LABEL: func.func @linear
func.func @linear(%x: tensor<2x16x4xf32>, %weight: tensor<4x64xf32>, %back: tensor<64x4xf32>) -> (tensor<2x16x4xf32>, tensor<2x16x4xf32>) {
  %q = tbc.neg %x : tensor<2x16x4xf32>
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 0, 3, 2>, out_labels = array<i64: 0, 1, 3>} : (tensor<2x16x4xf32>, tensor<2x16x4xf32>) -> tensor<2x16x16xf32>
  %w = tbc.mul %z, %z : tensor<2x16x16xf32>
  %o = tbc.einsum %w, %q {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 0, 2, 3>, out_labels = array<i64: 0, 1, 3>} : (tensor<2x16x16xf32>, tensor<2x16x4xf32>) -> tensor<2x16x4xf32>
  %h = tbc.einsum %q, %weight {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 2, 3>, out_labels = array<i64: 0, 1, 3>} : (tensor<2x16x4xf32>, tensor<4x64xf32>) -> tensor<2x16x64xf32>
  %r = tbc.relu %h : tensor<2x16x64xf32>
  %y = tbc.einsum %r, %back {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 2, 3>, out_labels = array<i64: 0, 1, 3>} : (tensor<2x16x64xf32>, tensor<64x4xf32>) -> tensor<2x16x4xf32>
  return %o, %y : tensor<2x16x4xf32>, tensor<2x16x4xf32>
}

// -----

// Over a whole sequence the weights are 2 x 256 x 256, of 3 x 2 x 256 x 4 elements.
// CHECK-LABEL: func.func @linear_over_all
func.func @linear_over_all(%x: tensor<2x256x4xf32>) -> tensor<2x256x4xf32> {
  %q = tbc.neg %x : tensor<2x256x4xf32>
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 0, 3, 2>, out_labels = array<i64: 0, 1, 3>} : (tensor<2x256x4xf32>, tensor<2x256x4xf32>) -> tensor<2x256x256xf32>
  %w = tbc.mul %z, %z : tensor<2x256x256xf32>
  // expected-remark@+1 {{between its matmuls stand mul, which is no softmax of scores, masks and biases (its weights are held: 21.3 times}}
  %o = tbc.einsum %w, %q {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 0, 2, 3>, out_labels = array<i64: 0, 1, 3>} : (tensor<2x256x256xf32>, tensor<2x256x4xf32>) -> tensor<2x256x4xf32>
  return %o : tensor<2x256x4xf32>
}

// -----

// Weights that are computed from parameters are weights: a layer, and no pairs.
// CHECK-LABEL: func.func @scaled_layer
func.func @scaled_layer(%x: tensor<2x16x4xf32>, %weight: tensor<4x64xf32> {tbc.role = #tbc.role<param>}, %back: tensor<64x4xf32> {tbc.role = #tbc.role<param>}) -> tensor<2x16x4xf32> {
  %q = tbc.neg %x : tensor<2x16x4xf32>
  %up = tbc.tanh %weight : tensor<4x64xf32>
  %down = tbc.tanh %back : tensor<64x4xf32>
  %h = tbc.einsum %q, %up {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 2, 3>, out_labels = array<i64: 0, 1, 3>} : (tensor<2x16x4xf32>, tensor<4x64xf32>) -> tensor<2x16x64xf32>
  %r = tbc.relu %h : tensor<2x16x64xf32>
  %y = tbc.einsum %r, %down {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 2, 3>, out_labels = array<i64: 0, 1, 3>} : (tensor<2x16x64xf32>, tensor<64x4xf32>) -> tensor<2x16x4xf32>
  return %y : tensor<2x16x4xf32>
}
