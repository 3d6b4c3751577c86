// RUN: tbc-opt %s --tbc-raise-composites --split-input-file | FileCheck %s

// What newer exporters write: one mask of positions and padding, as a bias.
// CHECK-LABEL: func.func @causal_and_padding(
// CHECK-SAME:    %[[Q:.+]]: tensor<2x2x3x4xf32>, %[[MASK:.+]]: tensor<2x3xi64>)
// CHECK:         %[[KEYS:.+]] = tbc.cast %[[MASK]]
// CHECK-NOT:     x3x3x
// CHECK:         tbc.attention %[[Q]], %[[Q]], %[[Q]], %[[KEYS]] {causal = true, hidden_rows = "mean", key_mask = true, scale = 1.000000e+00 : f64
func.func @causal_and_padding(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi64>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %rows = tbc.iota {dim = 0 : i64} : () -> tensor<3x3xi64>
  %columns = tbc.iota {dim = 1 : i64} : () -> tensor<3x3xi64>
  %past = tbc.compare %columns, %rows {predicate = "le"} : (tensor<3x3xi64>, tensor<3x3xi64>) -> tensor<3x3xi1>
  %pasts = tbc.broadcast %past {dims = array<i64: 1, 2>} : (tensor<3x3xi1>) -> tensor<2x3x3xi1>
  %keys = tbc.cast %mask : (tensor<2x3xi64>) -> tensor<2x3xi1>
  %spread = tbc.broadcast %keys {dims = array<i64: 0, 2>} : (tensor<2x3xi1>) -> tensor<2x3x3xi1>
  %kept = tbc.and %pasts, %spread : tensor<2x3x3xi1>
  %zero = tbc.constant dense<0.0> : tensor<2x3x3xf32> : tensor<2x3x3xf32>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<2x3x3xf32> : tensor<2x3x3xf32>
  %bias = tbc.select %kept, %zero, %lowest : (tensor<2x3x3xi1>, tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %biases = tbc.broadcast %bias {dims = array<i64: 0, 2, 3>} : (tensor<2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.add %z, %biases : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// (1 - mask) * lowest, over keys alone. The tracer flattens the mask on the way.
// CHECK-LABEL: func.func @extended(
// CHECK:         tbc.attention %{{.*}} {causal = false, hidden_rows = "mean", key_mask = true, scale
func.func @extended(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi64>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %flat = tbc.reshape %mask {sizes = array<i64: 2, 3>, in = array<i64: 1, 1>, out = array<i64: 2>} : (tensor<2x3xi64>) -> tensor<6xi64>
  %square = tbc.reshape %flat {sizes = array<i64: 2, 3>, in = array<i64: 2>, out = array<i64: 1, 0, 0, 1>} : (tensor<6xi64>) -> tensor<2x1x1x3xi64>
  %number = tbc.cast %square : (tensor<2x1x1x3xi64>) -> tensor<2x1x1x3xf32>
  %one = tbc.constant dense<1.0> : tensor<2x1x1x3xf32> : tensor<2x1x1x3xf32>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<2x1x1x3xf32> : tensor<2x1x1x3xf32>
  %inverted = tbc.sub %one, %number : tensor<2x1x1x3xf32>
  %bias = tbc.mul %inverted, %lowest : tensor<2x1x1x3xf32>
  %row = tbc.reshape %bias {sizes = array<i64: 2, 3>, in = array<i64: 1, 0, 0, 1>, out = array<i64: 1, 1>} : (tensor<2x1x1x3xf32>) -> tensor<2x3xf32>
  %biases = tbc.broadcast %row {dims = array<i64: 0, 3>} : (tensor<2x3xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.add %z, %biases : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// A moderate number leaves the scores of a row that it hides as a whole.
// CHECK-LABEL: func.func @moderate(
// CHECK:         tbc.attention %{{.*}} {causal = false, hidden_rows = "scores", key_mask = true, scale
func.func @moderate(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi32>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %number = tbc.cast %mask : (tensor<2x3xi32>) -> tensor<2x3xf32>
  %one = tbc.constant dense<1.0> : tensor<2x3xf32> : tensor<2x3xf32>
  %number1 = tbc.constant dense<-20000.0> : tensor<2x3xf32> : tensor<2x3xf32>
  %inverted = tbc.sub %one, %number : tensor<2x3xf32>
  %bias = tbc.mul %inverted, %number1 : tensor<2x3xf32>
  %biases = tbc.broadcast %bias {dims = array<i64: 0, 3>} : (tensor<2x3xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.add %biases, %z : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// Scores replaced by -inf, and the NaN of hidden rows by 0.
// CHECK-LABEL: func.func @infinite(
// CHECK:         tbc.attention %{{.*}} {causal = false, key_mask = true, scale
func.func @infinite(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi1>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %kept = tbc.broadcast %mask {dims = array<i64: 0, 3>} : (tensor<2x3xi1>) -> tensor<2x2x3x3xi1>
  %lowest = tbc.constant dense<0xFF800000> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %zero = tbc.constant dense<0.0> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %z1 = tbc.select %kept, %z, %lowest : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %nan = tbc.is_nan %p : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xi1>
  %p1 = tbc.select %nan, %zero, %p : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p1, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// Every condition added by itself, and its weights set to 0.
// CHECK-LABEL: func.func @zeroed(
// CHECK:         tbc.attention %{{.*}} {causal = true, key_mask = true, scale
func.func @zeroed(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi1>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %rows = tbc.iota {dim = 0 : i64} : () -> tensor<3x3xi64>
  %columns = tbc.iota {dim = 1 : i64} : () -> tensor<3x3xi64>
  %past = tbc.compare %columns, %rows {predicate = "le"} : (tensor<3x3xi64>, tensor<3x3xi64>) -> tensor<3x3xi1>
  %pasts = tbc.broadcast %past {dims = array<i64: 2, 3>} : (tensor<3x3xi1>) -> tensor<2x2x3x3xi1>
  %keys = tbc.broadcast %mask {dims = array<i64: 0, 3>} : (tensor<2x3xi1>) -> tensor<2x2x3x3xi1>
  %zero = tbc.constant dense<0.0> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %b0 = tbc.select %pasts, %zero, %lowest : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %b1 = tbc.select %keys, %zero, %lowest : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %z0 = tbc.add %z, %b0 : tensor<2x2x3x3xf32>
  %z1 = tbc.add %z0, %b1 : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %p1 = tbc.select %keys, %p, %zero : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %p2 = tbc.select %pasts, %p1, %zero : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p2, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// As GPT-2 was first written: the future replaced, then padding added.
// CHECK-LABEL: func.func @one_by_one(
// CHECK:         tbc.attention %{{.*}} {causal = true, hidden_rows = "nearest", key_mask = true, scale
func.func @one_by_one(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi64>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %rows = tbc.iota {dim = 0 : i64} : () -> tensor<3x3xi64>
  %columns = tbc.iota {dim = 1 : i64} : () -> tensor<3x3xi64>
  %past = tbc.compare %columns, %rows {predicate = "le"} : (tensor<3x3xi64>, tensor<3x3xi64>) -> tensor<3x3xi1>
  %pasts = tbc.broadcast %past {dims = array<i64: 2, 3>} : (tensor<3x3xi1>) -> tensor<2x2x3x3xi1>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %z0 = tbc.select %pasts, %z, %lowest : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %number = tbc.cast %mask : (tensor<2x3xi64>) -> tensor<2x3xf32>
  %one = tbc.constant dense<1.0> : tensor<2x3xf32> : tensor<2x3xf32>
  %low = tbc.constant dense<-3.40282347E+38> : tensor<2x3xf32> : tensor<2x3xf32>
  %inverted = tbc.sub %one, %number : tensor<2x3xf32>
  %bias = tbc.mul %inverted, %low : tensor<2x3xf32>
  %biases = tbc.broadcast %bias {dims = array<i64: 0, 3>} : (tensor<2x3xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.add %z0, %biases : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// Padding added to the causal bias, the sum bounded by the lowest number.
// CHECK-LABEL: func.func @bounded(
// CHECK:         tbc.attention %{{.*}} {causal = true, hidden_rows = "mean", key_mask = true, scale
func.func @bounded(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi1>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %rows = tbc.iota {dim = 0 : i64} : () -> tensor<3x3xi64>
  %columns = tbc.iota {dim = 1 : i64} : () -> tensor<3x3xi64>
  %past = tbc.compare %columns, %rows {predicate = "le"} : (tensor<3x3xi64>, tensor<3x3xi64>) -> tensor<3x3xi1>
  %pasts = tbc.broadcast %past {dims = array<i64: 2, 3>} : (tensor<3x3xi1>) -> tensor<2x2x3x3xi1>
  %keys = tbc.broadcast %mask {dims = array<i64: 0, 3>} : (tensor<2x3xi1>) -> tensor<2x2x3x3xi1>
  %zero = tbc.constant dense<0.0> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %b0 = tbc.select %pasts, %zero, %lowest : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %b1 = tbc.select %keys, %zero, %lowest : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %b = tbc.add %b0, %b1 : tensor<2x2x3x3xf32>
  %z0 = tbc.add %z, %b : tensor<2x2x3x3xf32>
  %z1 = tbc.maximum %z0, %lowest : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// The causal bias, filled with the lowest number where keys are padding.
// CHECK-LABEL: func.func @filled(
// CHECK:         tbc.attention %{{.*}} {causal = true, hidden_rows = "mean", key_mask = true, scale
func.func @filled(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi1>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %rows = tbc.iota {dim = 0 : i64} : () -> tensor<3x3xi64>
  %columns = tbc.iota {dim = 1 : i64} : () -> tensor<3x3xi64>
  %past = tbc.compare %columns, %rows {predicate = "le"} : (tensor<3x3xi64>, tensor<3x3xi64>) -> tensor<3x3xi1>
  %pasts = tbc.broadcast %past {dims = array<i64: 1, 2>} : (tensor<3x3xi1>) -> tensor<2x3x3xi1>
  %zero = tbc.constant dense<0.0> : tensor<2x3x3xf32> : tensor<2x3x3xf32>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<2x3x3xf32> : tensor<2x3x3xf32>
  %b0 = tbc.select %pasts, %zero, %lowest : (tensor<2x3x3xi1>, tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %padding = tbc.not %mask : tensor<2x3xi1>
  %paddings = tbc.broadcast %padding {dims = array<i64: 0, 2>} : (tensor<2x3xi1>) -> tensor<2x3x3xi1>
  %b1 = tbc.select %paddings, %lowest, %b0 : (tensor<2x3x3xi1>, tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %biases = tbc.broadcast %b1 {dims = array<i64: 0, 2, 3>} : (tensor<2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.add %z, %biases : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// Documents packed into one sequence.
// CHECK-LABEL: func.func @documents(
// CHECK-SAME:    %[[Q:.+]]: tensor<2x2x3x4xf32>, %[[IDS:.+]]: tensor<2x3xi64>)
// CHECK-NOT:     x3x3x
// CHECK:         tbc.attention %[[Q]], %[[Q]], %[[Q]], %[[IDS]], %[[IDS]] {causal = true, hidden_rows = "mean", scale = 1.000000e+00 : f64, segments = true
func.func @documents(%q: tensor<2x2x3x4xf32>, %ids: tensor<2x3xi64>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %rows = tbc.iota {dim = 0 : i64} : () -> tensor<3x3xi64>
  %columns = tbc.iota {dim = 1 : i64} : () -> tensor<3x3xi64>
  %past = tbc.compare %columns, %rows {predicate = "le"} : (tensor<3x3xi64>, tensor<3x3xi64>) -> tensor<3x3xi1>
  %pasts = tbc.broadcast %past {dims = array<i64: 1, 2>} : (tensor<3x3xi1>) -> tensor<2x3x3xi1>
  %atQuery = tbc.broadcast %ids {dims = array<i64: 0, 1>} : (tensor<2x3xi64>) -> tensor<2x3x3xi64>
  %atKey = tbc.broadcast %ids {dims = array<i64: 0, 2>} : (tensor<2x3xi64>) -> tensor<2x3x3xi64>
  %same = tbc.compare %atKey, %atQuery {predicate = "eq"} : (tensor<2x3x3xi64>, tensor<2x3x3xi64>) -> tensor<2x3x3xi1>
  %kept = tbc.and %same, %pasts : tensor<2x3x3xi1>
  %allKept = tbc.broadcast %kept {dims = array<i64: 0, 2, 3>} : (tensor<2x3x3xi1>) -> tensor<2x2x3x3xi1>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %z1 = tbc.select %allKept, %z, %lowest : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// A mask of ones for queries too: padding reads nothing.
// CHECK-LABEL: func.func @both_sides(
// CHECK:         %[[ONES:.+]] = tbc.constant dense<1> : tensor<i64>
// CHECK:         tbc.attention %{{.*}} {causal = false, hidden_rows = "mean", key_mask = true, scale = 1.000000e+00 : f64, segments = true
func.func @both_sides(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi1>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %number = tbc.cast %mask : (tensor<2x3xi1>) -> tensor<2x3xf32>
  %atQuery = tbc.broadcast %number {dims = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<2x3x3xf32>
  %atKey = tbc.broadcast %number {dims = array<i64: 0, 2>} : (tensor<2x3xf32>) -> tensor<2x3x3xf32>
  %pairs = tbc.mul %atQuery, %atKey : tensor<2x3x3xf32>
  %one = tbc.constant dense<1.0> : tensor<2x3x3xf32> : tensor<2x3x3xf32>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<2x3x3xf32> : tensor<2x3x3xf32>
  %inverted = tbc.sub %one, %pairs : tensor<2x3x3xf32>
  %bias = tbc.mul %inverted, %lowest : tensor<2x3x3xf32>
  %biases = tbc.broadcast %bias {dims = array<i64: 0, 2, 3>} : (tensor<2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.add %z, %biases : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// Lengths of samples, compared with positions of keys over all queries.
// CHECK-LABEL: func.func @lengths(
// CHECK:         tbc.attention %{{.*}} {causal = false, hidden_rows = "mean", key_mask = true, scale
func.func @lengths(%q: tensor<2x2x3x4xf32>, %lengths: tensor<2xi64>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %position = tbc.iota {dim = 2 : i64} : () -> tensor<2x3x3xi64>
  %ends = tbc.broadcast %lengths {dims = array<i64: 0>} : (tensor<2xi64>) -> tensor<2x3x3xi64>
  %kept = tbc.compare %position, %ends {predicate = "le"} : (tensor<2x3x3xi64>, tensor<2x3x3xi64>) -> tensor<2x3x3xi1>
  %allKept = tbc.broadcast %kept {dims = array<i64: 0, 2, 3>} : (tensor<2x3x3xi1>) -> tensor<2x2x3x3xi1>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %z1 = tbc.select %allKept, %z, %lowest : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// A window of two keys.
// CHECK-LABEL: func.func @window
// CHECK:         tbc.attention %{{.*}} {causal = true, left = 1 : i64, scale
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
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 0, 2, 3>, out_labels = array<i64: 0, 1, 3>} : (tensor<8x4x4xf32>, tensor<8x4x16xf32>) -> tensor<8x4x16xf32>
  return %o : tensor<8x4x16xf32>
}

// -----

// Dropout of the weights stays one with the attention.
// CHECK-LABEL: func.func @dropout(
// CHECK-NOT:     tbc.dropout
// CHECK:         tbc.attention %{{.*}} {causal = false, dropout = 1.000000e-01 : f64, scale
func.func @dropout(%q: tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %p = tbc.softmax %z {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %d = tbc.dropout %p {ratio = 0.1 : f64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %d, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// The future by -inf, padding by a finite number.
// CHECK-LABEL: func.func @infinite_future(
// CHECK:         tbc.attention %{{.*}} {causal = true, hidden_rows = "window", key_mask = true, scale
func.func @infinite_future(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi64>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %rows = tbc.iota {dim = 0 : i64} : () -> tensor<3x3xi64>
  %columns = tbc.iota {dim = 1 : i64} : () -> tensor<3x3xi64>
  %past = tbc.compare %columns, %rows {predicate = "le"} : (tensor<3x3xi64>, tensor<3x3xi64>) -> tensor<3x3xi1>
  %pasts = tbc.broadcast %past {dims = array<i64: 2, 3>} : (tensor<3x3xi1>) -> tensor<2x2x3x3xi1>
  %lowest = tbc.constant dense<0xFF800000> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %z0 = tbc.select %pasts, %z, %lowest : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %number = tbc.cast %mask : (tensor<2x3xi64>) -> tensor<2x3xf32>
  %one = tbc.constant dense<1.0> : tensor<2x3xf32> : tensor<2x3xf32>
  %low = tbc.constant dense<-3.40282347E+38> : tensor<2x3xf32> : tensor<2x3xf32>
  %inverted = tbc.sub %one, %number : tensor<2x3xf32>
  %bias = tbc.mul %inverted, %low : tensor<2x3xf32>
  %biases = tbc.broadcast %bias {dims = array<i64: 0, 3>} : (tensor<2x3xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.add %z0, %biases : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// As GPT-Neo is written: the future replaced, and hidden once more together with padding.
// CHECK-LABEL: func.func @twice(
// CHECK:         tbc.attention %{{.*}} {causal = true, hidden_rows = "window", key_mask = true, scale
func.func @twice(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi64>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %rows = tbc.iota {dim = 0 : i64} : () -> tensor<3x3xi64>
  %columns = tbc.iota {dim = 1 : i64} : () -> tensor<3x3xi64>
  %past = tbc.compare %columns, %rows {predicate = "le"} : (tensor<3x3xi64>, tensor<3x3xi64>) -> tensor<3x3xi1>
  %pasts = tbc.broadcast %past {dims = array<i64: 2, 3>} : (tensor<3x3xi1>) -> tensor<2x2x3x3xi1>
  %lowest = tbc.constant dense<-3.40282347E+38> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %z0 = tbc.select %pasts, %z, %lowest : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %keys = tbc.cast %mask : (tensor<2x3xi64>) -> tensor<2x3xi1>
  %allKeys = tbc.broadcast %keys {dims = array<i64: 0, 3>} : (tensor<2x3xi1>) -> tensor<2x2x3x3xi1>
  %kept = tbc.and %pasts, %allKeys : tensor<2x2x3x3xi1>
  %zero = tbc.constant dense<0.0> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %bias = tbc.select %kept, %zero, %lowest : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.add %z0, %bias : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// TorchScript's causal mask: ones below the diagonal, compared with 0. It is read as a formula.
// CHECK-LABEL: func.func @ones_below(
// CHECK:         tbc.attention %{{.*}} {causal = true, scale
// CHECK-NOT:     tbc.softmax
func.func @ones_below(%q: tensor<1x1x6x4xf32>) -> tensor<1x1x6x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<1x1x6x4xf32>, tensor<1x1x6x4xf32>) -> tensor<1x1x6x6xf32>
  %rows = tbc.iota {dim = 0 : i64} : () -> tensor<6x6xi64>
  %columns = tbc.iota {dim = 1 : i64} : () -> tensor<6x6xi64>
  %past = tbc.compare %columns, %rows {predicate = "le"} : (tensor<6x6xi64>, tensor<6x6xi64>) -> tensor<6x6xi1>
  %zero = tbc.constant dense<0.0> : tensor<6x6xf32> : tensor<6x6xf32>
  %one = tbc.constant dense<1.0> : tensor<6x6xf32> : tensor<6x6xf32>
  %lowest = tbc.constant dense<0xFF800000> : tensor<6x6xf32> : tensor<6x6xf32>
  %ones = tbc.select %past, %one, %zero : (tensor<6x6xi1>, tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  %hidden = tbc.compare %ones, %zero {predicate = "eq"} : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xi1>
  %bias = tbc.select %hidden, %lowest, %zero : (tensor<6x6xi1>, tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  %biases = tbc.broadcast %bias {dims = array<i64: 2, 3>} : (tensor<6x6xf32>) -> tensor<1x1x6x6xf32>
  %z1 = tbc.add %z, %biases : tensor<1x1x6x6xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<1x1x6x6xf32>) -> tensor<1x1x6x6xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<1x1x6x6xf32>, tensor<1x1x6x4xf32>) -> tensor<1x1x6x4xf32>
  return %o : tensor<1x1x6x4xf32>
}

// -----

// XLNet subtracts a large multiple of the mask of hidden keys.
// CHECK-LABEL: func.func @subtracted(
// CHECK:         tbc.attention %{{.*}} {causal = false, hidden_rows = "mean", key_mask = true, scale
func.func @subtracted(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi64>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %number = tbc.cast %mask : (tensor<2x3xi64>) -> tensor<2x3xf32>
  %one = tbc.constant dense<1.0> : tensor<2x3xf32> : tensor<2x3xf32>
  %hidden = tbc.sub %one, %number : tensor<2x3xf32>
  %most = tbc.constant dense<1.0e+30> : tensor<2x3xf32> : tensor<2x3xf32>
  %penalty = tbc.mul %hidden, %most : tensor<2x3xf32>
  %penalties = tbc.broadcast %penalty {dims = array<i64: 0, 3>} : (tensor<2x3xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.sub %z, %penalties : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z1 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// Scores times a causal table, which is 1 wherever the mask keeps them: GPT-1 and the first GPT-2.
// CHECK-LABEL: func.func @multiplied(
// CHECK-NOT:     tbc.mul
// CHECK:         tbc.attention %{{.*}} {causal = true,
func.func @multiplied(%q: tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %past = tbc.constant dense<[[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]> : tensor<3x3xf32> : tensor<3x3xf32>
  %one = tbc.constant dense<1.0> : tensor<3x3xf32> : tensor<3x3xf32>
  %number = tbc.constant dense<-10000.0> : tensor<3x3xf32> : tensor<3x3xf32>
  %future = tbc.sub %one, %past : tensor<3x3xf32>
  %bias = tbc.mul %future, %number : tensor<3x3xf32>
  %factors = tbc.broadcast %past {dims = array<i64: 2, 3>} : (tensor<3x3xf32>) -> tensor<2x2x3x3xf32>
  %biases = tbc.broadcast %bias {dims = array<i64: 2, 3>} : (tensor<3x3xf32>) -> tensor<2x2x3x3xf32>
  %z1 = tbc.mul %z, %factors : tensor<2x2x3x3xf32>
  %z2 = tbc.add %z1, %biases : tensor<2x2x3x3xf32>
  %p = tbc.softmax %z2 {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %p, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// A mask of the weights, whose rows then sum to 1 again: hidden keys, and rows of 0 without any.
// CHECK-LABEL: func.func @renormalized(
// CHECK:         tbc.attention %{{.*}} {causal = false, key_mask = true, scale
func.func @renormalized(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi1>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %p = tbc.softmax %z {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %number = tbc.cast %mask : (tensor<2x3xi1>) -> tensor<2x3xf32>
  %keys = tbc.broadcast %number {dims = array<i64: 0, 3>} : (tensor<2x3xf32>) -> tensor<2x2x3x3xf32>
  %w = tbc.mul %p, %keys : tensor<2x2x3x3xf32>
  %sum = tbc.reduce_sum %w {dims = array<i64: 3>} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3xf32>
  %zero = tbc.constant dense<0.0> : tensor<2x2x3xf32> : tensor<2x2x3xf32>
  %one = tbc.constant dense<1.0> : tensor<2x2x3xf32> : tensor<2x2x3xf32>
  %any = tbc.compare %sum, %zero {predicate = "gt"} : (tensor<2x2x3xf32>, tensor<2x2x3xf32>) -> tensor<2x2x3xi1>
  %divisor = tbc.select %any, %sum, %one : (tensor<2x2x3xi1>, tensor<2x2x3xf32>, tensor<2x2x3xf32>) -> tensor<2x2x3xf32>
  %divisors = tbc.broadcast %divisor {dims = array<i64: 0, 1, 2>} : (tensor<2x2x3xf32>) -> tensor<2x2x3x3xf32>
  %n = tbc.div %w, %divisors : tensor<2x2x3x3xf32>
  %o = tbc.einsum %n, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}

// -----

// The same with these rows replaced by 0 again, as jax2onnx writes it.
// CHECK-LABEL: func.func @renormalized_and_guarded(
// CHECK:         tbc.attention %{{.*}} {causal = false, key_mask = true, scale
func.func @renormalized_and_guarded(%q: tensor<2x2x3x4xf32>, %mask: tensor<2x3xi1>) -> tensor<2x2x3x4xf32> {
  %z = tbc.einsum %q, %q {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x2x3x4xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x3xf32>
  %p = tbc.softmax %z {dim = 3 : i64} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %number = tbc.cast %mask : (tensor<2x3xi1>) -> tensor<2x3xf32>
  %keys = tbc.broadcast %number {dims = array<i64: 0, 3>} : (tensor<2x3xf32>) -> tensor<2x2x3x3xf32>
  %w = tbc.mul %p, %keys : tensor<2x2x3x3xf32>
  %sum = tbc.reduce_sum %w {dims = array<i64: 3>} : (tensor<2x2x3x3xf32>) -> tensor<2x2x3xf32>
  %zero = tbc.constant dense<0.0> : tensor<2x2x3xf32> : tensor<2x2x3xf32>
  %one = tbc.constant dense<1.0> : tensor<2x2x3xf32> : tensor<2x2x3xf32>
  %any = tbc.compare %sum, %zero {predicate = "gt"} : (tensor<2x2x3xf32>, tensor<2x2x3xf32>) -> tensor<2x2x3xi1>
  %divisor = tbc.select %any, %sum, %one : (tensor<2x2x3xi1>, tensor<2x2x3xf32>, tensor<2x2x3xf32>) -> tensor<2x2x3xf32>
  %divisors = tbc.broadcast %divisor {dims = array<i64: 0, 1, 2>} : (tensor<2x2x3xf32>) -> tensor<2x2x3x3xf32>
  %n = tbc.div %w, %divisors : tensor<2x2x3x3xf32>
  %anys = tbc.broadcast %any {dims = array<i64: 0, 1, 2>} : (tensor<2x2x3xi1>) -> tensor<2x2x3x3xi1>
  %zeros = tbc.constant dense<0.0> : tensor<2x2x3x3xf32> : tensor<2x2x3x3xf32>
  %r = tbc.select %anys, %n, %zeros : (tensor<2x2x3x3xi1>, tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %o = tbc.einsum %r, %q {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 0, 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x2x3x3xf32>, tensor<2x2x3x4xf32>) -> tensor<2x2x3x4xf32>
  return %o : tensor<2x2x3x4xf32>
}
