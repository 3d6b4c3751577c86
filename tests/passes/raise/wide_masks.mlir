// RUN: tbc-opt %s --tbc-raise-composites --split-input-file | FileCheck %s

// ones(n, n + 2, dtype=bool).tril(2), with two keys in front: read as a half-plane, for it has too
// many elements to be evaluated.
// CHECK-LABEL: func.func @chosen(
// CHECK:         tbc.attention %{{.*}} {causal = true, scale
// CHECK-NOT:     tbc.softmax
func.func @chosen(%q: tensor<1x1x8192x4xf32>, %k: tensor<1x1x8194x4xf32>) -> tensor<1x1x8192x4xf32> {
  %z = tbc.einsum %q, %k {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<1x1x8192x4xf32>, tensor<1x1x8194x4xf32>) -> tensor<1x1x8192x8194xf32>
  %rows = tbc.iota {dim = 0 : i64} : () -> tensor<8192x8194xi64>
  %columns = tbc.iota {dim = 1 : i64} : () -> tensor<8192x8194xi64>
  %two = tbc.constant dense<2> : tensor<8192x8194xi64> : tensor<8192x8194xi64>
  %last = tbc.add %rows, %two : tensor<8192x8194xi64>
  %past = tbc.compare %columns, %last {predicate = "le"} : (tensor<8192x8194xi64>, tensor<8192x8194xi64>) -> tensor<8192x8194xi1>
  %true = tbc.constant dense<true> : tensor<8192x8194xi1> : tensor<8192x8194xi1>
  %false = tbc.constant dense<false> : tensor<8192x8194xi1> : tensor<8192x8194xi1>
  %kept = tbc.select %past, %true, %false : (tensor<8192x8194xi1>, tensor<8192x8194xi1>, tensor<8192x8194xi1>) -> tensor<8192x8194xi1>
  %zero = tbc.constant dense<0.0> : tensor<8192x8194xf32> : tensor<8192x8194xf32>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<8192x8194xf32> : tensor<8192x8194xf32>
  %bias = tbc.select %kept, %zero, %lowest : (tensor<8192x8194xi1>, tensor<8192x8194xf32>, tensor<8192x8194xf32>) -> tensor<8192x8194xf32>
  %biases = tbc.broadcast %bias {dims = array<i64: 2, 3>} : (tensor<8192x8194xf32>) -> tensor<1x1x8192x8194xf32>
  %z1 = tbc.add %z, %biases : tensor<1x1x8192x8194xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<1x1x8192x8194xf32>) -> tensor<1x1x8192x8194xf32>
  %o = tbc.einsum %p, %k {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<1x1x8192x8194xf32>, tensor<1x1x8194x4xf32>) -> tensor<1x1x8192x4xf32>
  return %o : tensor<1x1x8192x4xf32>
}
