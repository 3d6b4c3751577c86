// RUN: tbc-opt %s --tbc-raise-composites --verify-diagnostics --split-input-file | FileCheck %s

// A bias inside the cap.
// CHECK-LABEL: func.func @bias
// CHECK-NOT:     tbc.attention
func.func @bias(%q: tensor<8x4x16xf32>, %bias: tensor<8x4x4xf32>) -> tensor<8x4x16xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 0, 3, 2>, out_labels = array<i64: 0, 1, 3>} : (tensor<8x4x16xf32>, tensor<8x4x16xf32>) -> tensor<8x4x4xf32>
  %z1 = tbc.add %z, %bias : tensor<8x4x4xf32>
  %z2 = tbc.tanh %z1 : tensor<8x4x4xf32>
  %p = tbc.softmax %z2 {dim = 2 : i64} : (tensor<8x4x4xf32>) -> tensor<8x4x4xf32>
  // expected-remark@+1 {{its scores are capped after something is added to them}}
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 0, 2, 3>, out_labels = array<i64: 0, 1, 3>} : (tensor<8x4x4xf32>, tensor<8x4x16xf32>) -> tensor<8x4x16xf32>
  return %o : tensor<8x4x16xf32>
}

// -----

// A function of the score that the op does not have.
// CHECK-LABEL: func.func @sine
// CHECK-NOT:     tbc.attention
func.func @sine(%x: tensor<8x4x16xf32>) -> tensor<8x4x16xf32> {
  %q = tbc.neg %x : tensor<8x4x16xf32>
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 0, 3, 2>, out_labels = array<i64: 0, 1, 3>} : (tensor<8x4x16xf32>, tensor<8x4x16xf32>) -> tensor<8x4x4xf32>
  %z1 = tbc.sin %z : tensor<8x4x4xf32>
  %p = tbc.softmax %z1 {dim = 2 : i64} : (tensor<8x4x4xf32>) -> tensor<8x4x4xf32>
  // expected-remark@+1 {{this attention stays decomposed: 'tbc.sin' stands between its scores and their softmax}}
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
  // expected-remark@+1 {{this attention stays decomposed: its mask is no window of positions}}
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 0, 2, 3>, out_labels = array<i64: 0, 1, 3>} : (tensor<8x3x3xf32>, tensor<8x3x16xf32>) -> tensor<8x3x16xf32>
  return %o : tensor<8x3x16xf32>
}

// -----

// A mask that differs between heads.
// CHECK-LABEL: func.func @per_head(
// CHECK-NOT:     tbc.attention
func.func @per_head(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x2x3xi1>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %kept = tbc.broadcast %mask {dims = array<i64: 0, 1, 3>} : (tensor<2x2x3xi1>) -> tensor<2x2x3x3xi1>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %z1 = tbc.select %kept, %z, %lowest : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  // expected-remark@+1 {{its mask differs between heads}}
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// Either of two conditions.
// CHECK-LABEL: func.func @either(
// CHECK-NOT:     tbc.attention
func.func @either(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi1>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %rows = tbc.iota {dim = 0 : i64} : () -> tensor<3x3xi64>
  %columns = tbc.iota {dim = 1 : i64} : () -> tensor<3x3xi64>
  %past = tbc.compare %columns, %rows {predicate = "le"} : (tensor<3x3xi64>, tensor<3x3xi64>) -> tensor<3x3xi1>
  %pasts = tbc.broadcast %past {dims = array<i64: 1, 2>} : (tensor<3x3xi1>) -> tensor<2x3x3xi1>
  %keys = tbc.broadcast %mask {dims = array<i64: 0, 2>} : (tensor<2x3xi1>) -> tensor<2x3x3xi1>
  %kept = tbc.or %pasts, %keys : tensor<2x3x3xi1>
  %allKept = tbc.broadcast %kept {dims = array<i64: 0, 2, 3>} : (tensor<2x3x3xi1>) -> tensor<2x2x3x3xi1>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %z1 = tbc.select %allKept, %z, %lowest : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  // expected-remark@+1 {{its mask is no conjunction of terms of queries, of keys and of positions}}
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// Weights set to 0 whose scores count in the softmax.
// CHECK-LABEL: func.func @dropped(
// CHECK-NOT:     tbc.attention
func.func @dropped(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi1>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %keys = tbc.broadcast %mask {dims = array<i64: 0, 3>} : (tensor<2x3xi1>) -> tensor<2x2x3x3xi1>
  %zero = tbc.constant dense<0.0> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %p1 = tbc.select %keys, %p, %zero : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  // expected-remark@+1 {{its weights become 0 where its masks do not hide the scores}}
  %o = tbc.einsum %p1, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// Moderate numbers, one after the other: hidden rows depend on both.
// CHECK-LABEL: func.func @moderate_twice(
// CHECK-NOT:     tbc.attention
func.func @moderate_twice(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi1>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %rows = tbc.iota {dim = 0 : i64} : () -> tensor<3x3xi64>
  %columns = tbc.iota {dim = 1 : i64} : () -> tensor<3x3xi64>
  %past = tbc.compare %columns, %rows {predicate = "le"} : (tensor<3x3xi64>, tensor<3x3xi64>) -> tensor<3x3xi1>
  %pasts = tbc.broadcast %past {dims = array<i64: 2, 3>} : (tensor<3x3xi1>) -> tensor<2x2x3x3xi1>
  %keys = tbc.broadcast %mask {dims = array<i64: 0, 3>} : (tensor<2x3xi1>) -> tensor<2x2x3x3xi1>
  %lowest = tbc.constant dense<-20000.0> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %zero = tbc.constant dense<0.0> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %z0 = tbc.select %pasts, %z, %lowest : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %b1 = tbc.select %keys, %zero, %lowest : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.add %z0, %b1 : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  // expected-remark@+1 {{its masks weigh keys in a way of their own where they hide all of them}}
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// After a small factor the number no longer hides.
// CHECK-LABEL: func.func @scaled_away(
// CHECK-NOT:     tbc.attention
func.func @scaled_away(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi1>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %keys = tbc.broadcast %mask {dims = array<i64: 0, 3>} : (tensor<2x3xi1>) -> tensor<2x2x3x3xi1>
  %lowest = tbc.constant dense<-20000.0> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %small = tbc.constant dense<0.001> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %z0 = tbc.select %keys, %z, %lowest : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.mul %z0, %small : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  // expected-remark@+1 {{its masks add a number too small to hide keys: hiding takes -9984 or less}}
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// A factor that is 0 at scores which the mask keeps.
// CHECK-LABEL: func.func @narrower
// CHECK-NOT:     tbc.attention
func.func @narrower(%q: tensor<8x3x16xf32>) -> tensor<8x3x16xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 0, 3, 2>, out_labels = array<i64: 0, 1, 3>} : (tensor<8x3x16xf32>, tensor<8x3x16xf32>) -> tensor<8x3x3xf32>
  %factor = tbc.constant dense<[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 1.0]]> : tensor<3x3xf32> : tensor<3x3xf32>
  %bias = tbc.constant dense<[[0.0, -20000.0, -20000.0], [0.0, 0.0, -20000.0], [0.0, 0.0, 0.0]]> : tensor<3x3xf32> : tensor<3x3xf32>
  %factors = tbc.broadcast %factor {dims = array<i64: 1, 2>} : (tensor<3x3xf32>) -> tensor<8x3x3xf32>
  %biases = tbc.broadcast %bias {dims = array<i64: 1, 2>} : (tensor<3x3xf32>) -> tensor<8x3x3xf32>
  %z1 = tbc.mul %z, %factors : tensor<8x3x3xf32>
  %z2 = tbc.add %z1, %biases : tensor<8x3x3xf32>
  %p = tbc.softmax %z2 {dim = 2 : i64} : (tensor<8x3x3xf32>) -> tensor<8x3x3xf32>
  // expected-remark@+1 {{its scores are multiplied by a tensor of queries and keys, or of another type}}
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 0, 2, 3>, out_labels = array<i64: 0, 1, 3>} : (tensor<8x3x3xf32>, tensor<8x3x16xf32>) -> tensor<8x3x16xf32>
  return %o : tensor<8x3x16xf32>
}

// -----

// Random keys are dropped, others in each row. No random number is known before training.
// CHECK-LABEL: func.func @random(
// CHECK-NOT:     tbc.attention
func.func @random(%q: tensor<8x3x16xf32>) -> tensor<8x3x16xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 0, 3, 2>, out_labels = array<i64: 0, 1, 3>} : (tensor<8x3x16xf32>, tensor<8x3x16xf32>) -> tensor<8x3x3xf32>
  %zero = tbc.constant dense<0.0> : tensor<3x3xf32> : tensor<3x3xf32>
  %number = tbc.random_uniform %zero {key = 1 : i64} : (tensor<3x3xf32>) -> tensor<3x3xf32>
  %mask = tbc.compare %number, %zero {predicate = "ge"} : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xi1>
  %masks = tbc.broadcast %mask {dims = array<i64: 1, 2>} : (tensor<3x3xi1>) -> tensor<8x3x3xi1>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<8x3x3xf32> : tensor<8x3x3xf32>
  %z1 = tbc.select %masks, %z, %lowest : (tensor<8x3x3xi1>, tensor<8x3x3xf32>, tensor<8x3x3xf32>) -> tensor<8x3x3xf32>
  %p = tbc.softmax %z1 {dim = 2 : i64} : (tensor<8x3x3xf32>) -> tensor<8x3x3xf32>
  // expected-remark@+1 {{its mask compares queries with keys by more than their positions}}
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 0, 2, 3>, out_labels = array<i64: 0, 1, 3>} : (tensor<8x3x3xf32>, tensor<8x3x16xf32>) -> tensor<8x3x16xf32>
  return %o : tensor<8x3x16xf32>
}
