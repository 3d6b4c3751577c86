// RUN: tbc-opt %s | tbc-opt | FileCheck %s

// CHECK-LABEL: func.func @attention
// CHECK:         %[[O:.+]], %[[M:.+]], %[[L:.+]] = tbc.attention %{{.*}} {causal = true, scale = 5.000000e-01 : f64}
// CHECK:         tbc.attention_grad %{{.*}}, %[[O]], %[[M]], %[[L]]
func.func @attention(%q: tensor<2x4x3x4xf32>, %k: tensor<2x2x5x4xf32>, %v: tensor<2x2x5x6xf32>) -> tensor<2x2x5x4xf32> {
  %o, %m, %l = tbc.attention %q, %k, %v {scale = 0.5 : f64, causal = true} : (tensor<2x4x3x4xf32>, tensor<2x2x5x4xf32>, tensor<2x2x5x6xf32>) -> (tensor<2x4x3x6xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>)
  %dq, %dk, %dv = tbc.attention_grad %o, %q, %k, %v, %o, %m, %l {scale = 0.5 : f64, causal = true} : (tensor<2x4x3x6xf32>, tensor<2x4x3x4xf32>, tensor<2x2x5x4xf32>, tensor<2x2x5x6xf32>, tensor<2x4x3x6xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>) -> (tensor<2x4x3x4xf32>, tensor<2x2x5x4xf32>, tensor<2x2x5x6xf32>)
  return %dk : tensor<2x2x5x4xf32>
}

// CHECK-LABEL: func.func @masks
// CHECK-SAME:    %[[Q:.+]]: tensor<2x4x3x4xf32>, %[[MASK:.+]]: tensor<2x3xi1>, %[[IDS:.+]]: tensor<2x3xi64>)
// CHECK:         tbc.attention %[[Q]], %[[Q]], %[[Q]], %[[MASK]], %[[IDS]], %[[IDS]] {causal = false, hidden_rows = "mean", key_mask = true, left = 1 : i64, scale = 1.000000e+00 : f64, segments = true}
func.func @masks(%q: tensor<2x4x3x4xf32>, %mask: tensor<2x3xi1>, %ids: tensor<2x3xi64>) -> tensor<2x4x3x4xf32> {
  %o, %m, %l = tbc.attention %q, %q, %q, %mask, %ids, %ids {scale = 1.0 : f64, causal = false, left = 1 : i64, key_mask = true, segments = true, hidden_rows = "mean"} : (tensor<2x4x3x4xf32>, tensor<2x4x3x4xf32>, tensor<2x4x3x4xf32>, tensor<2x3xi1>, tensor<2x3xi64>, tensor<2x3xi64>) -> (tensor<2x4x3x4xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>)
  return %o : tensor<2x4x3x4xf32>
}
