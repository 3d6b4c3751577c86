// RUN: tbc-opt %s | tbc-opt | FileCheck %s

// CHECK-LABEL: func.func @softmax
// CHECK:         tbc.softmax %{{.*}} {dim = 1 : i64}
// CHECK:         tbc.softmax_grad
func.func @softmax(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %y = tbc.softmax %x {dim = 1 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %dx = tbc.softmax_grad %y, %x {dim = 1 : i64} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return %dx : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @layer_norm
// CHECK:         %[[Y:.+]], %[[MEAN:.+]], %[[RSTD:.+]] = tbc.layer_norm %{{.*}} {epsilon = 1.000000e-05 : f64}
// CHECK:         tbc.layer_norm_grad %{{.*}}, %{{.*}}, %{{.*}}, %[[MEAN]], %[[RSTD]]
// CHECK:         tbc.norm_scale_grad
func.func @layer_norm(%x: tensor<2x3x4xbf16>, %w: tensor<4xbf16>) -> (tensor<2x3x4xbf16>, tensor<4xbf16>) {
  %y, %mean, %rstd = tbc.layer_norm %x, %w, %w {epsilon = 1.0e-5 : f64} : (tensor<2x3x4xbf16>, tensor<4xbf16>, tensor<4xbf16>) -> (tensor<2x3x4xbf16>, tensor<2x3xf32>, tensor<2x3xf32>)
  %dx = tbc.layer_norm_grad %y, %x, %w, %mean, %rstd : (tensor<2x3x4xbf16>, tensor<2x3x4xbf16>, tensor<4xbf16>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3x4xbf16>
  %dw = tbc.norm_scale_grad %y, %x, %mean, %rstd : (tensor<2x3x4xbf16>, tensor<2x3x4xbf16>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<4xbf16>
  return %dx, %dw : tensor<2x3x4xbf16>, tensor<4xbf16>
}

// CHECK-LABEL: func.func @rms_norm
// CHECK:         %[[Y:.+]], %[[RSTD:.+]] = tbc.rms_norm
// CHECK:         tbc.rms_norm_grad %{{.*}}, %[[RSTD]]
// CHECK:         tbc.rms_scale_grad
func.func @rms_norm(%x: tensor<3x4xf64>, %w: tensor<4xf64>) -> (tensor<3x4xf64>, tensor<4xf64>) {
  %y, %rstd = tbc.rms_norm %x, %w {epsilon = 1.0e-5 : f64} : (tensor<3x4xf64>, tensor<4xf64>) -> (tensor<3x4xf64>, tensor<3xf64>)
  %dx = tbc.rms_norm_grad %y, %x, %w, %rstd : (tensor<3x4xf64>, tensor<3x4xf64>, tensor<4xf64>, tensor<3xf64>) -> tensor<3x4xf64>
  %dw = tbc.rms_scale_grad %y, %x, %rstd : (tensor<3x4xf64>, tensor<3x4xf64>, tensor<3xf64>) -> tensor<4xf64>
  return %dx, %dw : tensor<3x4xf64>, tensor<4xf64>
}

// CHECK-LABEL: func.func @batch_norm
// CHECK:         tbc.batch_norm %
// CHECK:         tbc.batch_norm_train
func.func @batch_norm(%x: tensor<2x3x4xf32>, %c: tensor<3xf32>) -> (tensor<2x3x4xf32>, tensor<3xf32>) {
  %y = tbc.batch_norm %x, %c, %c, %c, %c {epsilon = 1.0e-5 : f64, momentum = 0.9 : f64} : (tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<2x3x4xf32>
  %z, %mean, %var = tbc.batch_norm_train %y, %c, %c, %c, %c {epsilon = 1.0e-5 : f64, momentum = 0.9 : f64} : (tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>)
  return %z, %var : tensor<2x3x4xf32>, tensor<3xf32>
}
