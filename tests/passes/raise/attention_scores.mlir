// RUN: tbc-opt %s --tbc-raise-composites --verify-diagnostics --split-input-file | FileCheck %s

// T5: a bias of the heads, and a mask added to it.
// CHECK-LABEL: func.func @relative_bias
// CHECK:         %[[O:[a-z0-9_]*]], %{{.*}}, %{{.*}} = tbc.attention %{{.*}}, %{{.*}}, %{{.*}}, %arg3, %arg4
// CHECK-SAME:      biases = "hst"
// CHECK-SAME:      hidden_rows = "mean", key_mask = true
// CHECK:         return %[[O]]
func.func @relative_bias(%q: tensor<2x3x5x4xf32>, %k: tensor<2x3x5x4xf32>, %v: tensor<2x3x5x4xf32>, %bias: tensor<3x5x5xf32>, %mask: tensor<2x5xi1>) -> tensor<2x3x5x4xf32> {
  %z = tbc.einsum %q, %k {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x3x5x4xf32>, tensor<2x3x5x4xf32>) -> tensor<2x3x5x5xf32>
  %b = tbc.broadcast %bias {dims = array<i64: 1, 2, 3>} : (tensor<3x5x5xf32>) -> tensor<2x3x5x5xf32>
  %m = tbc.broadcast %mask {dims = array<i64: 0, 3>} : (tensor<2x5xi1>) -> tensor<2x3x5x5xi1>
  %zero = tbc.constant dense<0.0> : tensor<2x3x5x5xf32> : tensor<2x3x5x5xf32>
  %low = tbc.constant dense<-3.40282347E+38> : tensor<2x3x5x5xf32> : tensor<2x3x5x5xf32>
  %hides = tbc.select %m, %zero, %low : (tensor<2x3x5x5xi1>, tensor<2x3x5x5xf32>, tensor<2x3x5x5xf32>) -> tensor<2x3x5x5xf32>
  %sum = tbc.add %b, %hides : tensor<2x3x5x5xf32>
  %z1 = tbc.add %z, %sum : tensor<2x3x5x5xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x3x5x5xf32>) -> tensor<2x3x5x5xf32>
  %o = tbc.einsum %p, %v {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 3, 4>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x3x5x5xf32>, tensor<2x3x5x4xf32>) -> tensor<2x3x5x4xf32>
  return %o : tensor<2x3x5x4xf32>
}

// -----

// ALiBi: a slope per head times a position, scaled afterwards.
// CHECK-LABEL: func.func @scaled_bias
// CHECK:         %[[BIAS:.*]] = tbc.mul %arg3
// CHECK:         tbc.attention %{{.*}}, %{{.*}}, %{{.*}}, %[[BIAS]]
// CHECK-SAME:      biases = "ht"
// CHECK-SAME:      scale = 5.000000e-01
func.func @scaled_bias(%q: tensor<2x3x5x4xf32>, %k: tensor<2x3x5x4xf32>, %v: tensor<2x3x5x4xf32>, %bias: tensor<3x5xf32>) -> tensor<2x3x5x4xf32> {
  %z = tbc.einsum %q, %k {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x3x5x4xf32>, tensor<2x3x5x4xf32>) -> tensor<2x3x5x5xf32>
  %b = tbc.broadcast %bias {dims = array<i64: 1, 3>} : (tensor<3x5xf32>) -> tensor<2x3x5x5xf32>
  %z1 = tbc.add %b, %z : tensor<2x3x5x5xf32>
  %half = tbc.constant dense<0.5> : tensor<2x3x5x5xf32> : tensor<2x3x5x5xf32>
  %z2 = tbc.mul %z1, %half : tensor<2x3x5x5xf32>
  %p = tbc.softmax %z2 {dim = 3 : i64} : (tensor<2x3x5x5xf32>) -> tensor<2x3x5x5xf32>
  %o = tbc.einsum %p, %v {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 3, 4>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x3x5x5xf32>, tensor<2x3x5x4xf32>) -> tensor<2x3x5x4xf32>
  return %o : tensor<2x3x5x4xf32>
}

// -----

// Gemma-2: 50 tanh(q k / 8 / 50).
// CHECK-LABEL: func.func @soft_cap
// CHECK:         tbc.attention
// CHECK-SAME:      scale = 1.250000e-01
// CHECK-SAME:      soft_cap = 5.000000e+01
func.func @soft_cap(%q: tensor<2x3x5x4xf32>, %k: tensor<2x3x5x4xf32>, %v: tensor<2x3x5x4xf32>) -> tensor<2x3x5x4xf32> {
  %z = tbc.einsum %q, %k {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x3x5x4xf32>, tensor<2x3x5x4xf32>) -> tensor<2x3x5x5xf32>
  %n = tbc.constant dense<400.0> : tensor<2x3x5x5xf32> : tensor<2x3x5x5xf32>
  %z1 = tbc.div %z, %n : tensor<2x3x5x5xf32>
  %z2 = tbc.tanh %z1 : tensor<2x3x5x5xf32>
  %cap = tbc.constant dense<50.0> : tensor<2x3x5x5xf32> : tensor<2x3x5x5xf32>
  %z3 = tbc.mul %z2, %cap : tensor<2x3x5x5xf32>
  %p = tbc.softmax %z3 {dim = 3 : i64} : (tensor<2x3x5x5xf32>) -> tensor<2x3x5x5xf32>
  %o = tbc.einsum %p, %v {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 3, 4>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x3x5x5xf32>, tensor<2x3x5x4xf32>) -> tensor<2x3x5x4xf32>
  return %o : tensor<2x3x5x4xf32>
}

// -----

// gpt-oss: one more column of scores, without a value. Its maximum is subtracted first.
// CHECK-LABEL: func.func @sink
// CHECK:         tbc.attention %{{.*}}, %{{.*}}, %{{.*}}, %arg3
// CHECK-SAME:      sink = true
// CHECK-NOT:     tbc.softmax
func.func @sink(%q: tensor<2x3x5x4xf32>, %k: tensor<2x3x5x4xf32>, %v: tensor<2x3x5x4xf32>, %sink: tensor<3xf32>) -> tensor<2x3x5x4xf32> {
  %z = tbc.einsum %q, %k {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x3x5x4xf32>, tensor<2x3x5x4xf32>) -> tensor<2x3x5x5xf32>
  %s = tbc.broadcast %sink {dims = array<i64: 1>} : (tensor<3xf32>) -> tensor<2x3x5x1xf32>
  %all = tbc.concat %z, %s {dim = 3 : i64} : (tensor<2x3x5x5xf32>, tensor<2x3x5x1xf32>) -> tensor<2x3x5x6xf32>
  %m = tbc.reduce_max %all {dims = array<i64: 3>} : (tensor<2x3x5x6xf32>) -> tensor<2x3x5xf32>
  %ms = tbc.broadcast %m {dims = array<i64: 0, 1, 2>} : (tensor<2x3x5xf32>) -> tensor<2x3x5x6xf32>
  %d = tbc.sub %all, %ms : tensor<2x3x5x6xf32>
  %w = tbc.softmax %d {dim = 3 : i64} : (tensor<2x3x5x6xf32>) -> tensor<2x3x5x6xf32>
  %p = tbc.slice %w {dim = 3 : i64, offset = 0 : i64, size = 5 : i64} : (tensor<2x3x5x6xf32>) -> tensor<2x3x5x5xf32>
  %o = tbc.einsum %p, %v {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 3, 4>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x3x5x5xf32>, tensor<2x3x5x4xf32>) -> tensor<2x3x5x4xf32>
  return %o : tensor<2x3x5x4xf32>
}

// -----

// A first column of zeros: exp(z) / (1 + the sum).
// CHECK-LABEL: func.func @zero_sink
// CHECK:         %[[ZEROS:.*]] = tbc.broadcast {{.*}} -> tensor<3xf32>
// CHECK:         tbc.attention %{{.*}}, %{{.*}}, %{{.*}}, %[[ZEROS]]
// CHECK-SAME:      sink = true
// CHECK-NOT:     tbc.softmax
func.func @zero_sink(%q: tensor<2x3x5x4xf32>, %k: tensor<2x3x5x4xf32>, %v: tensor<2x3x5x4xf32>) -> tensor<2x3x5x4xf32> {
  %z = tbc.einsum %q, %k {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x3x5x4xf32>, tensor<2x3x5x4xf32>) -> tensor<2x3x5x5xf32>
  %s = tbc.constant dense<0.0> : tensor<2x3x5x1xf32> : tensor<2x3x5x1xf32>
  %all = tbc.concat %s, %z {dim = 3 : i64} : (tensor<2x3x5x1xf32>, tensor<2x3x5x5xf32>) -> tensor<2x3x5x6xf32>
  %w = tbc.softmax %all {dim = 3 : i64} : (tensor<2x3x5x6xf32>) -> tensor<2x3x5x6xf32>
  %p = tbc.slice %w {dim = 3 : i64, offset = 1 : i64, size = 5 : i64} : (tensor<2x3x5x6xf32>) -> tensor<2x3x5x5xf32>
  %o = tbc.einsum %p, %v {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 3, 4>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x3x5x5xf32>, tensor<2x3x5x4xf32>) -> tensor<2x3x5x4xf32>
  return %o : tensor<2x3x5x4xf32>
}

// -----

// The same by a pad, behind the scores.
// CHECK-LABEL: func.func @padded_sink
// CHECK:         sink = true
// CHECK-NOT:     tbc.softmax
func.func @padded_sink(%q: tensor<2x3x5x4xf32>, %k: tensor<2x3x5x4xf32>, %v: tensor<2x3x5x4xf32>) -> tensor<2x3x5x4xf32> {
  %z = tbc.einsum %q, %k {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x3x5x4xf32>, tensor<2x3x5x4xf32>) -> tensor<2x3x5x5xf32>
  %all = tbc.pad %z {dim = 3 : i64, low = 0 : i64, high = 1 : i64} : (tensor<2x3x5x5xf32>) -> tensor<2x3x5x6xf32>
  %w = tbc.softmax %all {dim = 3 : i64} : (tensor<2x3x5x6xf32>) -> tensor<2x3x5x6xf32>
  %p = tbc.slice %w {dim = 3 : i64, offset = 0 : i64, size = 5 : i64} : (tensor<2x3x5x6xf32>) -> tensor<2x3x5x5xf32>
  %o = tbc.einsum %p, %v {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 3, 4>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x3x5x5xf32>, tensor<2x3x5x4xf32>) -> tensor<2x3x5x4xf32>
  return %o : tensor<2x3x5x4xf32>
}

// -----

// A mask of numbers may hold anything between.
// CHECK-LABEL: func.func @numbers(
// CHECK:         tbc.attention
// CHECK-SAME:      biases = "bt"
func.func @numbers(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xf32>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %one = tbc.constant dense<1.0> : tensor<2x3xf32> : tensor<2x3xf32>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<2x3xf32> : tensor<2x3xf32>
  %inverted = tbc.sub %one, %mask : tensor<2x3xf32>
  %bias = tbc.mul %inverted, %lowest : tensor<2x3xf32>
  %biases = tbc.broadcast %bias {dims = array<i64: 0, 3>} : (tensor<2x3xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.add %z, %biases : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// The row max is subtracted by hand. It is equal for all keys of a query, so it cancels.
// CHECK-LABEL: func.func @stabilised
// CHECK-NOT:     tbc.reduce_max
// CHECK:         tbc.attention %arg0, %arg0, %arg0 {causal = false, scale = 1.000000e+00 : f64
func.func @stabilised(%q: tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %m = tbc.reduce_max %z {dims = array<i64: 3>} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3xf32>
  %ms = tbc.broadcast %m {dims = array<i64: 0, 1, 2>} : (tensor<2x2x3xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.sub %z, %ms : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// Swin v2: a learned temperature of each head. It multiplies the queries instead.
// CHECK-LABEL: func.func @temperature
// CHECK:         %[[Q:.+]] = tbc.mul %arg0, %{{.+}} : tensor<2x2x3x4xf32>
// CHECK:         tbc.attention %[[Q]], %arg0, %arg0, %arg2 {biases = "hst"
func.func @temperature(%q: tensor<2x2x3x4xf32>, %t: tensor<2xf32>, %b: tensor<2x3x3xf32>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %ts = tbc.broadcast %t {dims = array<i64: 1>} : (tensor<2xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.mul %z, %ts : tensor<2x2x3x3xf32>
  %bs = tbc.broadcast %b {dims = array<i64: 1, 2, 3>} : (tensor<2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %z2 = tbc.add %z1, %bs : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z2 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// -1e9 leaves no difference between scores of f32: the row reads every key alike.
// CHECK-LABEL: func.func @one_number(
// CHECK:         tbc.attention %{{.*}} {causal = false, hidden_rows = "mean", key_mask = true, scale
func.func @one_number(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi1>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %keys = tbc.broadcast %mask {dims = array<i64: 0, 3>} : (tensor<2x3xi1>) -> tensor<2x2x3x3xi1>
  %zero = tbc.constant dense<0.0> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %number = tbc.constant dense<-1.0e9> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %bias = tbc.select %keys, %zero, %number : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.add %z, %bias : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}
