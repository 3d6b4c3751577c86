// RUN: tbc-opt %s | tbc-opt | FileCheck %s

// CHECK-LABEL: func.func @activations
// CHECK:         tbc.gelu %{{.*}} {approximate = "tanh"}
// CHECK:         tbc.gelu_grad
// CHECK:         tbc.silu %
// CHECK:         tbc.silu_grad
// CHECK:         tbc.rotary %{{.*}} {inverse = false}
func.func @activations(%x: tensor<2x3x4xf32>, %cos: tensor<3x2xf32>) -> tensor<2x3x4xf32> {
  %0 = tbc.gelu %x {approximate = "tanh"} : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %1 = tbc.gelu_grad %x, %0 {approximate = "none"} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %2 = tbc.silu %1 : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %3 = tbc.silu_grad %1, %2 : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %4 = tbc.rotary %3, %cos, %cos {inverse = false} : (tensor<2x3x4xf32>, tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<2x3x4xf32>
  return %4 : tensor<2x3x4xf32>
}
