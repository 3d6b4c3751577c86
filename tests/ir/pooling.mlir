// RUN: tbc-opt %s | tbc-opt | FileCheck %s

// CHECK-LABEL: func.func @pooling
// CHECK:         tbc.max_pool %{{.*}} {dilations = array<i64: 1, 1>, kernel = array<i64: 3, 3>, pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>}
// CHECK:         tbc.max_pool_grad
// CHECK:         tbc.avg_pool %{{.*}} {count_include_pad = false,
// CHECK:         tbc.avg_pool_grad
func.func @pooling(%x: tensor<2x3x8x8xf32>) -> (tensor<2x3x8x8xf32>, tensor<2x3x8x8xf32>) {
  %m = tbc.max_pool %x {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>} : (tensor<2x3x8x8xf32>) -> tensor<2x3x4x4xf32>
  %dm = tbc.max_pool_grad %x, %m {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>} : (tensor<2x3x8x8xf32>, tensor<2x3x4x4xf32>) -> tensor<2x3x8x8xf32>
  %a = tbc.avg_pool %x {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, count_include_pad = false} : (tensor<2x3x8x8xf32>) -> tensor<2x3x4x4xf32>
  %da = tbc.avg_pool_grad %a {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, count_include_pad = false} : (tensor<2x3x4x4xf32>) -> tensor<2x3x8x8xf32>
  return %dm, %da : tensor<2x3x8x8xf32>, tensor<2x3x8x8xf32>
}
