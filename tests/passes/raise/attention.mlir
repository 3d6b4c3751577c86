// RUN: tbc-opt %s --tbc-raise-composites --split-input-file | FileCheck %s

// As torch's dynamo exporter writes it: queries and keys scaled by d^-1/4, keys transposed in rank 3, a
// mask that is added, and weights guarded against rows without keys.
// CHECK-LABEL: func.func @dynamo
// CHECK-NOT:     3x3x
// CHECK:         tbc.attention %{{.*}} {causal = true, scale = 2.500000e-01 : f64, tbc.id = "product"}
// CHECK-NOT:     tbc.softmax
// CHECK-NOT:     3x3x
func.func @dynamo(%q: tensor<2x3x64xf32>, %k: tensor<2x3x64xf32>, %v: tensor<2x3x64xf32>) -> tensor<2x3x64xf32> {
  %q0 = tbc.reshape %q {sizes = array<i64: 2, 3, 4, 16>, in = array<i64: 1, 1, 2>, out = array<i64: 1, 1, 1, 1>} : (tensor<2x3x64xf32>) -> tensor<2x3x4x16xf32>
  %k0 = tbc.reshape %k {sizes = array<i64: 2, 3, 4, 16>, in = array<i64: 1, 1, 2>, out = array<i64: 1, 1, 1, 1>} : (tensor<2x3x64xf32>) -> tensor<2x3x4x16xf32>
  %v0 = tbc.reshape %v {sizes = array<i64: 2, 3, 4, 16>, in = array<i64: 1, 1, 2>, out = array<i64: 1, 1, 1, 1>} : (tensor<2x3x64xf32>) -> tensor<2x3x4x16xf32>
  %q1 = tbc.transpose %q0 {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x3x4x16xf32>) -> tensor<2x4x3x16xf32>
  %k1 = tbc.transpose %k0 {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x3x4x16xf32>) -> tensor<2x4x3x16xf32>
  %v1 = tbc.transpose %v0 {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x3x4x16xf32>) -> tensor<2x4x3x16xf32>
  %k2 = tbc.reshape %k1 {sizes = array<i64: 2, 4, 3, 16>, in = array<i64: 1, 1, 1, 1>, out = array<i64: 2, 1, 1>} : (tensor<2x4x3x16xf32>) -> tensor<8x3x16xf32>
  %k3 = tbc.transpose %k2 {permutation = array<i64: 0, 2, 1>} : (tensor<8x3x16xf32>) -> tensor<8x16x3xf32>
  %k4 = tbc.reshape %k3 {sizes = array<i64: 2, 4, 16, 3>, in = array<i64: 2, 1, 1>, out = array<i64: 1, 1, 1, 1>} : (tensor<8x16x3xf32>) -> tensor<2x4x16x3xf32>
  %root = tbc.constant dense<0.5> : tensor<f32> : tensor<f32>
  %rootq = tbc.broadcast %root {dims = array<i64>} : (tensor<f32>) -> tensor<2x4x3x16xf32>
  %rootk = tbc.broadcast %root {dims = array<i64>} : (tensor<f32>) -> tensor<2x4x16x3xf32>
  %qs = tbc.mul %q1, %rootq : tensor<2x4x3x16xf32>
  %ks = tbc.mul %rootk, %k4 : tensor<2x4x16x3xf32>
  %z0 = tbc.einsum %qs, %ks {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 3, 4>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x4x3x16xf32>, tensor<2x4x16x3xf32>) -> tensor<2x4x3x3xf32>
  %i = tbc.iota {dim = 0 : i64} : () -> tensor<3xi64>
  %rows = tbc.broadcast %i {dims = array<i64: 0>} : (tensor<3xi64>) -> tensor<3x3xi64>
  %columns = tbc.broadcast %i {dims = array<i64: 1>} : (tensor<3xi64>) -> tensor<3x3xi64>
  %past = tbc.compare %columns, %rows {predicate = "le"} : (tensor<3x3xi64>, tensor<3x3xi64>) -> tensor<3x3xi1>
  %all = tbc.constant dense<true> : tensor<3x3xi1> : tensor<3x3xi1>
  %mask = tbc.and %past, %all : tensor<3x3xi1>
  %zero = tbc.constant dense<0.0> : tensor<3x3xf32> : tensor<3x3xf32>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<3x3xf32> : tensor<3x3xf32>
  %bias = tbc.select %mask, %zero, %lowest : (tensor<3x3xi1>, tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>
  %biases = tbc.broadcast %bias {dims = array<i64: 2, 3>} : (tensor<3x3xf32>) -> tensor<2x4x3x3xf32>
  %z1 = tbc.add %z0, %biases : tensor<2x4x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x4x3x3xf32>) -> tensor<2x4x3x3xf32>
  %nan = tbc.is_nan %p : (tensor<2x4x3x3xf32>) -> tensor<2x4x3x3xi1>
  %zeros = tbc.constant dense<0.0> : tensor<2x4x3x3xf32> : tensor<2x4x3x3xf32>
  %guarded = tbc.select %nan, %zeros, %p : (tensor<2x4x3x3xi1>, tensor<2x4x3x3xf32>, tensor<2x4x3x3xf32>) -> tensor<2x4x3x3xf32>
  %o0 = tbc.einsum %guarded, %v1 {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 3, 4>, out_labels = array<i64: 0, 1, 2, 4>, tbc.id = "product"} : (tensor<2x4x3x3xf32>, tensor<2x4x3x16xf32>) -> tensor<2x4x3x16xf32>
  %o1 = tbc.transpose %o0 {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x4x3x16xf32>) -> tensor<2x3x4x16xf32>
  %o2 = tbc.reshape %o1 {sizes = array<i64: 2, 3, 4, 16>, in = array<i64: 1, 1, 1, 1>, out = array<i64: 1, 1, 2>} : (tensor<2x3x4x16xf32>) -> tensor<2x3x64xf32>
  return %o2 : tensor<2x3x64xf32>
}

// -----

// Keys and values are copied for the query heads that share them; the copies go, no mask.
// CHECK-LABEL: func.func @grouped
// CHECK-SAME:    %[[Q:.+]]: tensor<2x4x3x16xf32>, %[[K:.+]]: tensor<2x2x5x16xf32>, %[[V:.+]]: tensor<2x2x5x8xf32>
// CHECK-NEXT:    %[[O:.+]], %{{.*}}, %{{.*}} = tbc.attention %[[Q]], %[[K]], %[[V]] {causal = false, scale = 1.250000e-01 : f64
// CHECK-NEXT:    return %[[O]]
func.func @grouped(%q: tensor<2x4x3x16xf32>, %k: tensor<2x2x5x16xf32>, %v: tensor<2x2x5x8xf32>) -> tensor<2x4x3x8xf32> {
  %k0 = tbc.broadcast %k {dims = array<i64: 0, 1, 3, 4>} : (tensor<2x2x5x16xf32>) -> tensor<2x2x2x5x16xf32>
  %k1 = tbc.reshape %k0 {sizes = array<i64: 2, 2, 2, 5, 16>, in = array<i64: 1, 1, 1, 1, 1>, out = array<i64: 1, 2, 1, 1>} : (tensor<2x2x2x5x16xf32>) -> tensor<2x4x5x16xf32>
  %v0 = tbc.broadcast %v {dims = array<i64: 0, 1, 3, 4>} : (tensor<2x2x5x8xf32>) -> tensor<2x2x2x5x8xf32>
  %v1 = tbc.reshape %v0 {sizes = array<i64: 2, 2, 2, 5, 8>, in = array<i64: 1, 1, 1, 1, 1>, out = array<i64: 1, 2, 1, 1>} : (tensor<2x2x2x5x8xf32>) -> tensor<2x4x5x8xf32>
  %z = tbc.einsum %k1, %q {lhs_labels = array<i64: 0, 1, 4, 3>, rhs_labels = array<i64: 0, 1, 2, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x4x5x16xf32>, tensor<2x4x3x16xf32>) -> tensor<2x4x3x5xf32>
  %eight = tbc.constant dense<8.0> : tensor<2x4x3x5xf32> : tensor<2x4x3x5xf32>
  %scaled = tbc.div %z, %eight : tensor<2x4x3x5xf32>
  %p = tbc.softmax %scaled {dim = 3 : i64} : (tensor<2x4x3x5xf32>) -> tensor<2x4x3x5xf32>
  %o = tbc.einsum %p, %v1 {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 3, 4>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x4x3x5xf32>, tensor<2x4x5x8xf32>) -> tensor<2x4x3x8xf32>
  return %o : tensor<2x4x3x8xf32>
}

// -----

// Scores are replaced where a table forbids them; more keys than queries; samples and heads are one dim.
// CHECK-LABEL: func.func @table
// CHECK:         tbc.attention %{{.*}} {causal = true, scale = 1.000000e+00 : f64
func.func @table(%q: tensor<8x2x16xf32>, %k: tensor<8x3x16xf32>, %v: tensor<8x3x16xf32>) -> tensor<8x2x16xf32> {
  %z = tbc.einsum %q, %k {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 0, 3, 2>, out_labels = array<i64: 0, 1, 3>} : (tensor<8x2x16xf32>, tensor<8x3x16xf32>) -> tensor<8x2x3xf32>
  %hidden = tbc.constant dense<[[false, false, true], [false, false, false]]> : tensor<2x3xi1> : tensor<2x3xi1>
  %everywhere = tbc.broadcast %hidden {dims = array<i64: 1, 2>} : (tensor<2x3xi1>) -> tensor<8x2x3xi1>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<8x2x3xf32> : tensor<8x2x3xf32>
  %z1 = tbc.select %everywhere, %lowest, %z : (tensor<8x2x3xi1>, tensor<8x2x3xf32>, tensor<8x2x3xf32>) -> tensor<8x2x3xf32>
  %p = tbc.softmax %z1 {dim = 2 : i64} : (tensor<8x2x3xf32>) -> tensor<8x2x3xf32>
  %o = tbc.einsum %v, %p {lhs_labels = array<i64: 0, 2, 3>, rhs_labels = array<i64: 0, 1, 2>, out_labels = array<i64: 0, 1, 3>} : (tensor<8x3x16xf32>, tensor<8x2x3xf32>) -> tensor<8x2x16xf32>
  return %o : tensor<8x2x16xf32>
}

// -----

// A softmax taken apart; (1 - mask) * lowest added before scaling; keys on the left; result transposed.
// CHECK-LABEL: func.func @arithmetic_mask
// CHECK:         tbc.attention %{{.*}} {causal = true, scale = 2.500000e-01 : f64
func.func @arithmetic_mask(%q: tensor<2x3x2x16xf32>, %k: tensor<2x3x2x16xf32>, %v: tensor<2x3x2x16xf32>) -> tensor<2x3x2x16xf32> {
  %z = tbc.einsum %q, %k {lhs_labels = array<i64: 0, 2, 1, 3>, rhs_labels = array<i64: 0, 4, 1, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x3x2x16xf32>, tensor<2x3x2x16xf32>) -> tensor<2x2x3x3xf32>
  %rows = tbc.iota {dim = 0 : i64} : () -> tensor<3x3xi64>
  %columns = tbc.iota {dim = 1 : i64} : () -> tensor<3x3xi64>
  %future = tbc.compare %columns, %rows {predicate = "gt"} : (tensor<3x3xi64>, tensor<3x3xi64>) -> tensor<3x3xi1>
  %past = tbc.not %future : tensor<3x3xi1>
  %number = tbc.cast %past : (tensor<3x3xi1>) -> tensor<3x3xf32>
  %one = tbc.constant dense<1.0> : tensor<3x3xf32> : tensor<3x3xf32>
  %inverted = tbc.sub %one, %number : tensor<3x3xf32>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<3x3xf32> : tensor<3x3xf32>
  %bias = tbc.mul %inverted, %lowest : tensor<3x3xf32>
  %biases = tbc.broadcast %bias {dims = array<i64: 2, 3>} : (tensor<3x3xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.add %biases, %z : tensor<2x2x3x3xf32>
  %quarter = tbc.constant dense<0.25> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %z2 = tbc.mul %z1, %quarter : tensor<2x2x3x3xf32>
  %m = tbc.reduce_max %z2 {dims = array<i64: 3>} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3xf32>
  %ms = tbc.broadcast %m {dims = array<i64: 0, 1, 2>} : (tensor<2x2x3xf32>) -> tensor<2x2x3x3xf32>
  %z3 = tbc.sub %z2, %ms : tensor<2x2x3x3xf32>
  %e = tbc.exp %z3 : tensor<2x2x3x3xf32>
  %l = tbc.reduce_sum %e {dims = array<i64: 3>} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3xf32>
  %ls = tbc.broadcast %l {dims = array<i64: 0, 1, 2>} : (tensor<2x2x3xf32>) -> tensor<2x2x3x3xf32>
  %p = tbc.div %e, %ls : tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %v {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 4, 1, 3>, out_labels = array<i64: 0, 2, 1, 3>} : (tensor<2x2x3x3xf32>, tensor<2x3x2x16xf32>) -> tensor<2x3x2x16xf32>
  return %o : tensor<2x3x2x16xf32>
}

// -----

// Learned queries, the same for all samples: the op gets a copy for each.
// CHECK-LABEL: func.func @learned
// CHECK:         %[[COPIES:.+]] = tbc.broadcast %{{.+}} : (tensor<2x3x4xf32>) -> tensor<2x3x4x5xf32>
// CHECK:         %[[Q:.+]] = tbc.transpose %[[COPIES]] {{.+}} -> tensor<5x2x3x4xf32>
// CHECK:         tbc.attention %[[Q]], %{{.+}}, %{{.+}} {causal = false
func.func @learned(%q: tensor<2x3x4xf32>, %k: tensor<5x2x6x4xf32>) -> tensor<5x2x3x4xf32> {
  %z = tbc.einsum %q, %k {lhs_labels = array<i64: 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x3x4xf32>, tensor<5x2x6x4xf32>) -> tensor<5x2x3x6xf32>
  %p = tbc.softmax %z {dim = 3 : i64} : (tensor<5x2x3x6xf32>) -> tensor<5x2x3x6xf32>
  %o = tbc.einsum %p, %k {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<5x2x3x6xf32>, tensor<5x2x6x4xf32>) -> tensor<5x2x3x4xf32>
  return %o : tensor<5x2x3x4xf32>
}
