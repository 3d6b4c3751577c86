// RUN: tbc-opt %s | tbc-opt | FileCheck %s

// CHECK-LABEL: func.func @optimizers
// CHECK:         tbc.sgd %
// CHECK:         tbc.sgd_momentum
// CHECK:         tbc.adamw
func.func @optimizers(%p: tensor<2x3xbf16>, %g: tensor<2x3xf32>, %m: tensor<2x3xf32>, %rate: tensor<f32>, %step: tensor<i64>) -> tensor<2x3xbf16> {
  %0 = tbc.sgd %p, %g, %rate {weight_decay = 0.0 : f64} : (tensor<2x3xbf16>, tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xbf16>
  %1, %b = tbc.sgd_momentum %0, %g, %m, %rate {momentum = 0.9 : f64, nesterov = false, weight_decay = 0.0 : f64} : (tensor<2x3xbf16>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<f32>) -> (tensor<2x3xbf16>, tensor<2x3xf32>)
  %2, %m1, %v1 = tbc.adamw %1, %g, %m, %b, %rate, %step {beta1 = 0.9 : f64, beta2 = 0.999 : f64, epsilon = 1.0e-8 : f64, weight_decay = 0.01 : f64} : (tensor<2x3xbf16>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<f32>, tensor<i64>) -> (tensor<2x3xbf16>, tensor<2x3xf32>, tensor<2x3xf32>)
  return %2 : tensor<2x3xbf16>
}
