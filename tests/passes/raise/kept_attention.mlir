// RUN: tbc-opt %s --tbc-raise-composites --verify-diagnostics --split-input-file | FileCheck %s

// A window of two keys is no causal mask.
// CHECK-LABEL: func.func @window
// CHECK-NOT:     tbc.attention
func.func @window(%q: tensor<8x4x16xf32>) -> tensor<8x4x16xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 0, 3, 2>, out_labels = array<i64: 0, 1, 3>} : (tensor<8x4x16xf32>, tensor<8x4x16xf32>) -> tensor<8x4x4xf32>
  %rows = tbc.iota {dim = 0 : i64} : () -> tensor<4x4xi64>
  %columns = tbc.iota {dim = 1 : i64} : () -> tensor<4x4xi64>
  %past = tbc.compare %columns, %rows {predicate = "le"} : (tensor<4x4xi64>, tensor<4x4xi64>) -> tensor<4x4xi1>
  %two = tbc.constant dense<2> : tensor<4x4xi64> : tensor<4x4xi64>
  %start = tbc.sub %rows, %two : tensor<4x4xi64>
  %recent = tbc.compare %columns, %start {predicate = "gt"} : (tensor<4x4xi64>, tensor<4x4xi64>) -> tensor<4x4xi1>
  %mask = tbc.and %past, %recent : tensor<4x4xi1>
  %masks = tbc.broadcast %mask {dims = array<i64: 1, 2>} : (tensor<4x4xi1>) -> tensor<8x4x4xi1>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<8x4x4xf32> : tensor<8x4x4xf32>
  %z1 = tbc.select %masks, %z, %lowest : (tensor<8x4x4xi1>, tensor<8x4x4xf32>, tensor<8x4x4xf32>) -> tensor<8x4x4xf32>
  %p = tbc.softmax %z1 {dim = 2 : i64} : (tensor<8x4x4xf32>) -> tensor<8x4x4xf32>
  // expected-remark@+1 {{this attention stays decomposed: its mask is neither causal nor empty}}
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 0, 2, 3>, out_labels = array<i64: 0, 1, 3>} : (tensor<8x4x4xf32>, tensor<8x4x16xf32>) -> tensor<8x4x16xf32>
  return %o : tensor<8x4x16xf32>
}

// -----

// A bias that is an input may hold anything.
// CHECK-LABEL: func.func @bias
// CHECK-NOT:     tbc.attention
func.func @bias(%q: tensor<8x4x16xf32>, %bias: tensor<8x4x4xf32>) -> tensor<8x4x16xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 0, 3, 2>, out_labels = array<i64: 0, 1, 3>} : (tensor<8x4x16xf32>, tensor<8x4x16xf32>) -> tensor<8x4x4xf32>
  %z1 = tbc.add %z, %bias : tensor<8x4x4xf32>
  %p = tbc.softmax %z1 {dim = 2 : i64} : (tensor<8x4x4xf32>) -> tensor<8x4x4xf32>
  // expected-remark@+1 {{what is added to its scores is no mask that hides keys by their position}}
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 0, 2, 3>, out_labels = array<i64: 0, 1, 3>} : (tensor<8x4x4xf32>, tensor<8x4x16xf32>) -> tensor<8x4x16xf32>
  return %o : tensor<8x4x16xf32>
}

// -----

// A table one off the diagonal hides too much: the first query would attend to nothing.
// CHECK-LABEL: func.func @strict
// CHECK-NOT:     tbc.attention
func.func @strict(%q: tensor<8x3x16xf32>) -> tensor<8x3x16xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 0, 3, 2>, out_labels = array<i64: 0, 1, 3>} : (tensor<8x3x16xf32>, tensor<8x3x16xf32>) -> tensor<8x3x3xf32>
  %rows = tbc.iota {dim = 0 : i64} : () -> tensor<3x3xi64>
  %columns = tbc.iota {dim = 1 : i64} : () -> tensor<3x3xi64>
  %mask = tbc.compare %columns, %rows {predicate = "lt"} : (tensor<3x3xi64>, tensor<3x3xi64>) -> tensor<3x3xi1>
  %masks = tbc.broadcast %mask {dims = array<i64: 1, 2>} : (tensor<3x3xi1>) -> tensor<8x3x3xi1>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<8x3x3xf32> : tensor<8x3x3xf32>
  %z1 = tbc.select %masks, %z, %lowest : (tensor<8x3x3xi1>, tensor<8x3x3xf32>, tensor<8x3x3xf32>) -> tensor<8x3x3xf32>
  %p = tbc.softmax %z1 {dim = 2 : i64} : (tensor<8x3x3xf32>) -> tensor<8x3x3xf32>
  // expected-remark@+1 {{this attention stays decomposed: its mask is neither causal nor empty}}
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 0, 2, 3>, out_labels = array<i64: 0, 1, 3>} : (tensor<8x3x3xf32>, tensor<8x3x16xf32>) -> tensor<8x3x16xf32>
  return %o : tensor<8x3x16xf32>
}
