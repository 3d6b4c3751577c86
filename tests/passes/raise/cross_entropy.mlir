// RUN: tbc-opt %s --tbc-raise-composites --verify-diagnostics --split-input-file | FileCheck %s

// log_softmax(x).gather(-1, label).
// CHECK-LABEL: func.func @gathered
// CHECK-NEXT:    %[[LOSS:.*]], %{{.*}}, %{{.*}} = tbc.cross_entropy %arg0, %arg1
// CHECK-NEXT:    tbc.neg %[[LOSS]]
// CHECK-NOT:     tbc.exp
func.func @gathered(%x: tensor<2x3x7xf32>, %labels: tensor<2x3xi64>) -> tensor<2x3x1xf32> {
  %m = tbc.stabilizer_max %x {dims = array<i64: 2>} : (tensor<2x3x7xf32>) -> tensor<2x3xf32>
  %ms = tbc.broadcast %m {dims = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<2x3x7xf32>
  %d = tbc.sub %x, %ms : tensor<2x3x7xf32>
  %e = tbc.exp %d : tensor<2x3x7xf32>
  %s = tbc.reduce_sum %e {dims = array<i64: 2>} : (tensor<2x3x7xf32>) -> tensor<2x3xf32>
  %l = tbc.log %s : tensor<2x3xf32>
  %ls = tbc.broadcast %l {dims = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<2x3x7xf32>
  %logp = tbc.sub %d, %ls : tensor<2x3x7xf32>
  %i = tbc.broadcast %labels {dims = array<i64: 0, 1>} : (tensor<2x3xi64>) -> tensor<2x3x1xi64>
  %p = tbc.gather_elements %logp, %i {dim = 2 : i64} : (tensor<2x3x7xf32>, tensor<2x3x1xi64>) -> tensor<2x3x1xf32>
  return %p : tensor<2x3x1xf32>
}

// -----

// x.gather(-1, label) - logsumexp(x).
// CHECK-LABEL: func.func @difference
// CHECK-NEXT:    %[[LABELS:.*]] = tbc.reshape %arg1
// CHECK-NEXT:    %[[LOSS:.*]], %{{.*}}, %{{.*}} = tbc.cross_entropy %arg0, %[[LABELS]]
// CHECK-NEXT:    tbc.neg %[[LOSS]]
// CHECK-NOT:     tbc.exp
func.func @difference(%x: tensor<2x7xf32>, %labels: tensor<2x1xi64>) -> tensor<2xf32> {
  %m = tbc.stabilizer_max %x {dims = array<i64: 1>} : (tensor<2x7xf32>) -> tensor<2xf32>
  %ms = tbc.broadcast %m {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<2x7xf32>
  %d = tbc.sub %x, %ms : tensor<2x7xf32>
  %e = tbc.exp %d : tensor<2x7xf32>
  %s = tbc.reduce_sum %e {dims = array<i64: 1>} : (tensor<2x7xf32>) -> tensor<2xf32>
  %l = tbc.log %s : tensor<2xf32>
  %sum = tbc.add %m, %l : tensor<2xf32>
  %p = tbc.gather_elements %x, %labels {dim = 1 : i64} : (tensor<2x7xf32>, tensor<2x1xi64>) -> tensor<2x1xf32>
  %q = tbc.reshape %p {sizes = array<i64: 2>, in = array<i64: 1, 0>, out = array<i64: 1>} : (tensor<2x1xf32>) -> tensor<2xf32>
  %y = tbc.sub %q, %sum : tensor<2xf32>
  return %y : tensor<2xf32>
}

// -----

// An entropy reads all log-probabilities, which stay.
// CHECK-LABEL: func.func @entropy
// CHECK-NOT:     tbc.cross_entropy
func.func @entropy(%x: tensor<2x7xf32>, %labels: tensor<2x1xi64>) -> (tensor<2x1xf32>, tensor<2x7xf32>) {
  %e = tbc.exp %x : tensor<2x7xf32>
  %s = tbc.reduce_sum %e {dims = array<i64: 1>} : (tensor<2x7xf32>) -> tensor<2xf32>
  %l = tbc.log %s : tensor<2xf32>
  %ls = tbc.broadcast %l {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<2x7xf32>
  %logp = tbc.sub %x, %ls : tensor<2x7xf32>
  %p = tbc.gather_elements %logp, %labels {dim = 1 : i64} : (tensor<2x7xf32>, tensor<2x1xi64>) -> tensor<2x1xf32>
  return %p, %logp : tensor<2x1xf32>, tensor<2x7xf32>
}

// -----

// Label smoothing by hand reads the sum of exponentials by itself.
// CHECK-LABEL: func.func @layer
// CHECK-NOT:     tbc.cross_entropy
func.func @layer(%x: tensor<2x4xf32>, %weight: tensor<4x7xf32>) -> tensor<2xf32> {
  %z = tbc.einsum %x, %weight {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 1, 2>, out_labels = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x7xf32>) -> tensor<2x7xf32>
  %e = tbc.exp %z : tensor<2x7xf32>
  %s = tbc.reduce_sum %e {dims = array<i64: 1>} : (tensor<2x7xf32>) -> tensor<2xf32>
  // expected-remark@+1 {{this log-softmax of 7 classes stays decomposed, so each row holds 7 more numbers}}
  %l = tbc.log %s : tensor<2xf32>
  return %l : tensor<2xf32>
}

// -----

// The same of one row in another order of unit dims, and with an infinite maximum read as 0: the
// form of optax in files of jax2onnx.
// CHECK-LABEL: func.func @optax
// CHECK:         tbc.cross_entropy %arg0
// CHECK-NOT:     tbc.exp
func.func @optax(%x: tensor<2x7xf32>, %labels: tensor<2x1xi64>) -> tensor<2xf32> {
  %m = tbc.stabilizer_max %x {dims = array<i64: 1>} : (tensor<2x7xf32>) -> tensor<2xf32>
  %zero = tbc.constant dense<0.0> : tensor<2xf32> : tensor<2xf32>
  %none = tbc.sub %m, %m : tensor<2xf32>
  %finite = tbc.compare %none, %zero {predicate = "eq"} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>
  %g = tbc.select %finite, %m, %zero : (tensor<2xi1>, tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %ms = tbc.broadcast %g {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<2x7xf32>
  %d = tbc.sub %x, %ms : tensor<2x7xf32>
  %e = tbc.exp %d : tensor<2x7xf32>
  %s = tbc.reduce_sum %e {dims = array<i64: 1>} : (tensor<2x7xf32>) -> tensor<2xf32>
  %l = tbc.log %s : tensor<2xf32>
  %sum = tbc.add %g, %l : tensor<2xf32>
  %p = tbc.gather_elements %x, %labels {dim = 1 : i64} : (tensor<2x7xf32>, tensor<2x1xi64>) -> tensor<2x1xf32>
  %t = tbc.transpose %p {permutation = array<i64: 1, 0>} : (tensor<2x1xf32>) -> tensor<1x2xf32>
  %q = tbc.reshape %t {sizes = array<i64: 2>, in = array<i64: 0, 1>, out = array<i64: 1>} : (tensor<1x2xf32>) -> tensor<2xf32>
  %y = tbc.sub %sum, %q : tensor<2xf32>
  return %y : tensor<2xf32>
}
