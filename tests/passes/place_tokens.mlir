// RUN: tbc-opt %s --tbc-place-tokens --split-input-file | FileCheck %s
// Ops for which it matters where a token stands read its place.

// CHECK-LABEL: func @window
// CHECK-SAME:    (%[[X:.*]]: tensor<2x1x4x3xf32>
// CHECK:         %[[I:.*]] = tbc.iota
// CHECK-SAME:      -> tensor<4xi64>
// CHECK:         tbc.attention %[[X]], %[[X]], %[[X]], %[[I]], %[[I]] {
// CHECK-NOT:       hidden_rows
// CHECK-SAME:      placed = true
func.func @window(%x: tensor<2x1x4x3xf32> {tbc.sequence_dim = 2 : i64}) -> tensor<2x1x4x3xf32> {
  %o, %m, %l = tbc.attention %x, %x, %x {scale = 1.0 : f64, causal = true, hidden_rows = "mean"} : (tensor<2x1x4x3xf32>, tensor<2x1x4x3xf32>, tensor<2x1x4x3xf32>) -> (tensor<2x1x4x3xf32>, tensor<2x1x4xf32>, tensor<2x1x4xf32>)
  return %o : tensor<2x1x4x3xf32>
}

// -----
// The last queries go with the last keys.
// CHECK-LABEL: func @fewer_queries
// CHECK:         %[[K:.*]] = tbc.iota
// CHECK:         %[[Q:.*]] = tbc.add
// CHECK:         tbc.attention %{{.*}}, %{{.*}}, %{{.*}}, %[[Q]], %[[K]]
func.func @fewer_queries(%q: tensor<2x1x2x3xf32> {tbc.sequence_dim = 2 : i64}, %k: tensor<2x1x4x3xf32>) -> tensor<2x1x2x3xf32> {
  %o, %m, %l = tbc.attention %q, %k, %k {scale = 1.0 : f64, causal = true} : (tensor<2x1x2x3xf32>, tensor<2x1x4x3xf32>, tensor<2x1x4x3xf32>) -> (tensor<2x1x2x3xf32>, tensor<2x1x2xf32>, tensor<2x1x2xf32>)
  return %o : tensor<2x1x2x3xf32>
}

// -----
// Without a window every key is read wherever it stands, and without masks no row is hidden: zero,
// the default, is not printed.
// CHECK-LABEL: func @no_window
// CHECK-NOT:     tbc.iota
// CHECK:         tbc.attention
// CHECK-NOT:     hidden_rows
func.func @no_window(%x: tensor<2x1x4x3xf32> {tbc.sequence_dim = 2 : i64}) -> tensor<2x1x4x3xf32> {
  %o, %m, %l = tbc.attention %x, %x, %x {scale = 1.0 : f64, causal = false, hidden_rows = "mean"} : (tensor<2x1x4x3xf32>, tensor<2x1x4x3xf32>, tensor<2x1x4x3xf32>) -> (tensor<2x1x4x3xf32>, tensor<2x1x4xf32>, tensor<2x1x4xf32>)
  return %o : tensor<2x1x4x3xf32>
}

// -----
// No input has tokens: images stay as they are.
// CHECK-LABEL: func @no_tokens
// CHECK-NOT:     tbc.iota
func.func @no_tokens(%x: tensor<2x1x4x3xf32>) -> tensor<2x1x4x3xf32> {
  %o, %m, %l = tbc.attention %x, %x, %x {scale = 1.0 : f64, causal = true} : (tensor<2x1x4x3xf32>, tensor<2x1x4x3xf32>, tensor<2x1x4x3xf32>) -> (tensor<2x1x4x3xf32>, tensor<2x1x4xf32>, tensor<2x1x4xf32>)
  return %o : tensor<2x1x4x3xf32>
}
