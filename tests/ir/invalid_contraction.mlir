// RUN: tbc-opt %s --verify-diagnostics --split-input-file

func.func @running_sum_c1(%x: tensor<2x3xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{sums along dim 2 of 'tensor<2x3xf32>'}}
  "tbc.running_sum"(%x) {dim = 2 : i64, exclusive = false, reverse = false} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @einsum_c1_number(%x: tensor<4x3xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has 1 labels for 'tensor<4x3xf32>'}}
  %y = "tbc.einsum"(%x, %x) {lhs_labels = array<i64: 0>, rhs_labels = array<i64: 0, 1>, out_labels = array<i64: 1>} : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @einsum_c1_twice(%x: tensor<4x4xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{uses label 0 twice in one operand}}
  %y = "tbc.einsum"(%x, %x) {lhs_labels = array<i64: 0, 0>, rhs_labels = array<i64: 0, 1>, out_labels = array<i64: 1>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @einsum_c2(%x: tensor<4x3xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{label 1 has size 3 in one operand and 4 in the other}}
  %y = "tbc.einsum"(%x, %x) {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 1, 2>, out_labels = array<i64: 0, 2>} : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
  return
}

// -----

func.func @einsum_c3(%x: tensor<4x3xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{result label 2 is in neither operand}}
  %y = "tbc.einsum"(%x, %x) {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 0, 1>, out_labels = array<i64: 2>} : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4xf32>
  return
}
