// RUN: tbc-opt %s --tbc-raise-composites --verify-diagnostics --split-input-file | FileCheck %s

// A mask that is added and subtracted shows all keys.
// CHECK-LABEL: func.func @undone(
// CHECK-NOT:     tbc.attention
func.func @undone(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi64>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %number = tbc.cast %mask : (tensor<2x3xi64>) -> tensor<2x3xf32>
  %one = tbc.constant dense<1.0> : tensor<2x3xf32> : tensor<2x3xf32>
  %lowest = tbc.constant dense<-1.0e9> : tensor<2x3xf32> : tensor<2x3xf32>
  %inverted = tbc.sub %one, %number : tensor<2x3xf32>
  %bias = tbc.mul %inverted, %lowest : tensor<2x3xf32>
  %biases = tbc.broadcast %bias {dims = array<i64: 0, 3>} : (tensor<2x3xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.add %z, %biases : tensor<2x2x3x3xf32>
  %z2 = tbc.sub %z1, %biases : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z2 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  // expected-remark@+1 {{a number is added to its scores that undoes a mask}}
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// Half of an integer of 0 and 1 is 0: nothing is hidden.
// CHECK-LABEL: func.func @halved(
// CHECK-NOT:     key_mask
func.func @halved(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi64>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %two = tbc.constant dense<2> : tensor<2x3xi64> : tensor<2x3xi64>
  %half = tbc.div %mask, %two : tensor<2x3xi64>
  %number = tbc.cast %half : (tensor<2x3xi64>) -> tensor<2x3xf32>
  %lowest = tbc.constant dense<-1.0e9> : tensor<2x3xf32> : tensor<2x3xf32>
  %bias = tbc.mul %number, %lowest : tensor<2x3xf32>
  %biases = tbc.broadcast %bias {dims = array<i64: 0, 3>} : (tensor<2x3xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.add %z, %biases : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// Twice an integer of 0 and 1 is no such integer, so it hides nothing where 1 minus it is -1.
// CHECK-LABEL: func.func @doubled(
// CHECK-NOT:     key_mask
func.func @doubled(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi64>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %twice = tbc.add %mask, %mask : tensor<2x3xi64>
  %number = tbc.cast %twice : (tensor<2x3xi64>) -> tensor<2x3xf32>
  %one = tbc.constant dense<1.0> : tensor<2x3xf32> : tensor<2x3xf32>
  %lowest = tbc.constant dense<-1.0e9> : tensor<2x3xf32> : tensor<2x3xf32>
  %inverted = tbc.sub %one, %number : tensor<2x3xf32>
  %bias = tbc.mul %inverted, %lowest : tensor<2x3xf32>
  %biases = tbc.broadcast %bias {dims = array<i64: 0, 3>} : (tensor<2x3xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.add %z, %biases : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// Integers that must be 0 or 1 are marked, so that runs can refuse others.
// CHECK-LABEL: func.func @flags(
// CHECK:         tbc.cast %{{.*}} {tbc.flags{{.*}} : (tensor<2x3xi64>) -> tensor<2x3xi1>
// CHECK:         tbc.attention %{{.*}} key_mask = true
func.func @flags(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi64>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %number = tbc.cast %mask : (tensor<2x3xi64>) -> tensor<2x3xf32>
  %one = tbc.constant dense<1.0> : tensor<2x3xf32> : tensor<2x3xf32>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<2x3xf32> : tensor<2x3xf32>
  %inverted = tbc.sub %one, %number : tensor<2x3xf32>
  %bias = tbc.mul %inverted, %lowest : tensor<2x3xf32>
  %biases = tbc.broadcast %bias {dims = array<i64: 0, 3>} : (tensor<2x3xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.add %z, %biases : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// Integers that are compared with 0 may be others.
// CHECK-LABEL: func.func @truths(
// CHECK-NOT:     tbc.flags
// CHECK:         tbc.attention %{{.*}} key_mask = true
func.func @truths(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi64>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %zero = tbc.constant dense<0> : tensor<2x3xi64> : tensor<2x3xi64>
  %isHidden = tbc.compare %mask, %zero {predicate = "eq"} : (tensor<2x3xi64>, tensor<2x3xi64>) -> tensor<2x3xi1>
  %hidden = tbc.broadcast %isHidden {dims = array<i64: 0, 3>} : (tensor<2x3xi1>) -> tensor<2x2x3x3xi1>
  %lowest = tbc.constant dense<-1.0e9> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %z1 = tbc.select %hidden, %lowest, %z : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// A position as a boolean is true wherever it is not 0: all keys but the next are visible.
// CHECK-LABEL: func.func @cast_to_booleans(
// CHECK-NOT:     tbc.attention
func.func @cast_to_booleans(%q: tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %rows = tbc.iota {dim = 0 : i64} : () -> tensor<3x3xi64>
  %columns = tbc.iota {dim = 1 : i64} : () -> tensor<3x3xi64>
  %one = tbc.constant dense<1> : tensor<3x3xi64> : tensor<3x3xi64>
  %ahead = tbc.sub %rows, %columns : tensor<3x3xi64>
  %next = tbc.add %ahead, %one : tensor<3x3xi64>
  %others = tbc.cast %next : (tensor<3x3xi64>) -> tensor<3x3xi1>
  %true = tbc.constant dense<true> : tensor<3x3xi1> : tensor<3x3xi1>
  %kept = tbc.compare %others, %true {predicate = "eq"} : (tensor<3x3xi1>, tensor<3x3xi1>) -> tensor<3x3xi1>
  %visible = tbc.broadcast %kept {dims = array<i64: 2, 3>} : (tensor<3x3xi1>) -> tensor<2x2x3x3xi1>
  %lowest = tbc.constant dense<-1.0e9> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %z1 = tbc.select %visible, %z, %lowest : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  // expected-remark@+1 {{its mask is no window of positions}}
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}
