// RUN: tbc-opt %s --tbc-raise-composites --verify-diagnostics --split-input-file | FileCheck %s

// A bias after the mask makes hidden scores differ.
// CHECK-LABEL: func.func @added_after(
// CHECK-NOT:     tbc.attention
func.func @added_after(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi1>, %bias: tensor<2x2x3x3xf32>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %keys = tbc.broadcast %mask {dims = array<i64: 0, 3>} : (tensor<2x3xi1>) -> tensor<2x2x3x3xi1>
  %number = tbc.constant dense<-10000.0> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %z0 = tbc.select %keys, %z, %number : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.add %z0, %bias : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  // expected-remark@+1 {{something is added to its scores after a mask has replaced them}}
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// The mask of padding replaces the infinity of the future as well, so a fully masked row reads
// padding there too.
// CHECK-LABEL: func.func @replaced_later(
// CHECK-NOT:     tbc.attention
func.func @replaced_later(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi1>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %rows = tbc.iota {dim = 0 : i64} : () -> tensor<3x3xi64>
  %columns = tbc.iota {dim = 1 : i64} : () -> tensor<3x3xi64>
  %square = tbc.compare %columns, %rows {predicate = "le"} : (tensor<3x3xi64>, tensor<3x3xi64>) -> tensor<3x3xi1>
  %past = tbc.broadcast %square {dims = array<i64: 2, 3>} : (tensor<3x3xi1>) -> tensor<2x2x3x3xi1>
  %keys = tbc.broadcast %mask {dims = array<i64: 0, 3>} : (tensor<2x3xi1>) -> tensor<2x2x3x3xi1>
  %infinite = tbc.constant dense<0xFF800000> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %z0 = tbc.select %past, %z, %infinite : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.select %keys, %z0, %lowest : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  // expected-remark@+1 {{its masks weigh keys in a way of their own where they hide all of them}}
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// A fully masked row reads the future, which is hidden by less than padding: a bias.
// CHECK-LABEL: func.func @two_numbers(
// CHECK:         tbc.attention %{{.*}} {biases = "bhst", causal = false, scale
func.func @two_numbers(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi1>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %rows = tbc.iota {dim = 0 : i64} : () -> tensor<3x3xi64>
  %columns = tbc.iota {dim = 1 : i64} : () -> tensor<3x3xi64>
  %square = tbc.compare %columns, %rows {predicate = "le"} : (tensor<3x3xi64>, tensor<3x3xi64>) -> tensor<3x3xi1>
  %past = tbc.broadcast %square {dims = array<i64: 2, 3>} : (tensor<3x3xi1>) -> tensor<2x2x3x3xi1>
  %keys = tbc.broadcast %mask {dims = array<i64: 0, 3>} : (tensor<2x3xi1>) -> tensor<2x2x3x3xi1>
  %zero = tbc.constant dense<0.0> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %number = tbc.constant dense<-1.0e30> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %future = tbc.select %past, %zero, %number : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %bias = tbc.select %keys, %future, %lowest : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.add %z, %bias : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// A table of positions that hides by two numbers, beside a mask of data.
// CHECK-LABEL: func.func @several_numbers(
// CHECK-NOT:     tbc.attention
func.func @several_numbers(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi1>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %keys = tbc.broadcast %mask {dims = array<i64: 0, 3>} : (tensor<2x3xi1>) -> tensor<2x2x3x3xi1>
  %table = tbc.constant dense<[[0.0, 0xFF800000, 0xFF800000], [0.0, 0.0, -1.0e30], [0.0, 0.0, 0.0]]> : tensor<3x3xf32> : tensor<3x3xf32>
  %future = tbc.broadcast %table {dims = array<i64: 2, 3>} : (tensor<3x3xf32>) -> tensor<2x2x3x3xf32>
  %z0 = tbc.add %z, %future : tensor<2x2x3x3xf32>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %z1 = tbc.select %keys, %z0, %lowest : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  // expected-remark@+1 {{one of its masks hides keys by several numbers}}
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// Beside a sink of 0 hidden keys have no weight, also where all are hidden.
// CHECK-LABEL: func.func @sink_number(
// CHECK:         tbc.attention %{{.*}} {causal = false, key_mask = true, scale = {{.*}} sink = true
func.func @sink_number(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi1>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %keys = tbc.broadcast %mask {dims = array<i64: 0, 3>} : (tensor<2x3xi1>) -> tensor<2x2x3x3xi1>
  %number = tbc.constant dense<-1.0e9> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %z1 = tbc.select %keys, %z, %number : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %wide = tbc.pad %z1 {dim = 3 : i64, low = 0 : i64, high = 1 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x4xf32>
  %all = tbc.softmax %wide {dim = 3 : i64} : (tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  %p = tbc.slice %all {dim = 3 : i64, offset = 0 : i64, step = 1 : i64, size = 3 : i64} : (tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// Keys in 5 rows and 2 columns, and a mask of the columns alone.
// CHECK-LABEL: func.func @columns(
// CHECK-SAME:    %[[MASK:[a-z0-9]+]]: tensor<2x2xi1>)
// CHECK:         %[[ROWS:.+]] = tbc.broadcast %[[MASK]] {{.*}} -> tensor<2x2x5xi1>
// CHECK:         %[[TURNED:.+]] = tbc.transpose %[[ROWS]]
// CHECK:         %[[KEYS:.+]] = tbc.reshape %[[TURNED]] {{.*}} -> tensor<2x10xi1>
// CHECK:         tbc.attention %{{.*}} %[[KEYS]] {causal = false, hidden_rows = "mean", key_mask = true, scale
func.func @columns(%q: tensor<2x2x3x4xf32>, %k: tensor<2x2x10x4xf32>, %mask: tensor<2x2xi1>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %k {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x10x4xf32>) -> tensor<2x2x3x10xf32>
  %both = tbc.broadcast %mask {dims = array<i64: 0, 2>} : (tensor<2x2xi1>) -> tensor<2x5x2xi1>
  %flat = tbc.reshape %both {sizes = array<i64: 2, 5, 2>, in = array<i64: 1, 1, 1>, out = array<i64: 1, 2>} : (tensor<2x5x2xi1>) -> tensor<2x10xi1>
  %keys = tbc.broadcast %flat {dims = array<i64: 0, 3>} : (tensor<2x10xi1>) -> tensor<2x2x3x10xi1>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<2x2x3x10xf32> : tensor<2x2x3x10xf32>
  %z1 = tbc.select %keys, %z, %lowest : (tensor<2x2x3x10xi1>, tensor<2x2x3x10xf32>, tensor<2x2x3x10xf32>) -> tensor<2x2x3x10xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x10xf32>) -> tensor<2x2x3x10xf32>
  %o = tbc.einsum %p, %k {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x10xf32>, tensor<2x2x10x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// The same by a number of columns for each sample.
// CHECK-LABEL: func.func @lengths_of_columns(
// CHECK:         %[[COLUMN:.+]] = tbc.iota {{.*}}dim = 0 : i64{{.*}} -> tensor<2xi64>
// CHECK:         %[[ALL:.+]] = tbc.broadcast %[[COLUMN]] {{.*}} -> tensor<2x5xi64>
// CHECK:         tbc.transpose %[[ALL]] {{.*}} -> tensor<5x2xi64>
// CHECK:         tbc.attention %{{.*}} {causal = false, hidden_rows = "mean", key_mask = true, scale
func.func @lengths_of_columns(%q: tensor<2x2x3x4xf32>, %k: tensor<2x2x10x4xf32>, %length: tensor<2xi64>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %k {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x10x4xf32>) -> tensor<2x2x3x10xf32>
  %column = tbc.iota {dim = 2 : i64} : () -> tensor<3x5x2xi64>
  %flat = tbc.reshape %column {sizes = array<i64: 3, 5, 2>, in = array<i64: 1, 1, 1>, out = array<i64: 1, 2>} : (tensor<3x5x2xi64>) -> tensor<3x10xi64>
  %columns = tbc.broadcast %flat {dims = array<i64: 2, 3>} : (tensor<3x10xi64>) -> tensor<2x2x3x10xi64>
  %lengths = tbc.broadcast %length {dims = array<i64: 0>} : (tensor<2xi64>) -> tensor<2x2x3x10xi64>
  %keys = tbc.compare %columns, %lengths {predicate = "lt"} : (tensor<2x2x3x10xi64>, tensor<2x2x3x10xi64>) -> tensor<2x2x3x10xi1>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<2x2x3x10xf32> : tensor<2x2x3x10xf32>
  %z1 = tbc.select %keys, %z, %lowest : (tensor<2x2x3x10xi1>, tensor<2x2x3x10xf32>, tensor<2x2x3x10xf32>) -> tensor<2x2x3x10xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x10xf32>) -> tensor<2x2x3x10xf32>
  %o = tbc.einsum %p, %k {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x10xf32>, tensor<2x2x10x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// Weights times a tensor that is no mask are no attention.
// CHECK-LABEL: func.func @weighted_again(
// CHECK-NOT:     tbc.attention
func.func @weighted_again(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xf32>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %p = tbc.softmax %z {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %keys = tbc.broadcast %mask {dims = array<i64: 0, 3>} : (tensor<2x3xf32>) -> tensor<2x2x3x3xf32>
  %w = tbc.mul %p, %keys : tensor<2x2x3x3xf32>
  %sum = tbc.reduce_sum %w {dims = array<i64: 3>} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3xf32>
  %zero = tbc.constant dense<0.0> : tensor<2x2x3xf32> : tensor<2x2x3xf32>
  %one = tbc.constant dense<1.0> : tensor<2x2x3xf32> : tensor<2x2x3xf32>
  %any = tbc.compare %sum, %zero {predicate = "gt"} : (tensor<2x2x3xf32>, tensor<2x2x3xf32>) -> tensor<2x2x3xi1>
  %divisor = tbc.select %any, %sum, %one : (tensor<2x2x3xi1>, tensor<2x2x3xf32>, tensor<2x2x3xf32>) -> tensor<2x2x3xf32>
  %divisors = tbc.broadcast %divisor {dims = array<i64: 0, 1, 2>} : (tensor<2x2x3xf32>) -> tensor<2x2x3x3xf32>
  %n = tbc.div %w, %divisors : tensor<2x2x3x3xf32>
  // expected-remark@+1 {{its weights are multiplied by a tensor that is no mask}}
  %o = tbc.einsum %n, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}
