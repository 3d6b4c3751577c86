// RUN: tbc-opt %s | tbc-opt | FileCheck %s

// CHECK-LABEL: func.func @cross_entropy
// CHECK:         %[[LOSS:.+]], %[[M:.+]], %[[L:.+]] = tbc.cross_entropy %{{.*}} {ignore_index = -100 : i64}
// CHECK:         tbc.cross_entropy_grad %{{.*}}, %{{.*}}, %[[M]], %[[L]], %[[LOSS]]
func.func @cross_entropy(%x: tensor<2x3x5xbf16>, %y: tensor<2x3xi64>) -> tensor<2x3x5xbf16> {
  %loss, %m, %l = tbc.cross_entropy %x, %y {ignore_index = -100 : i64} : (tensor<2x3x5xbf16>, tensor<2x3xi64>) -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>)
  %dx = tbc.cross_entropy_grad %x, %y, %m, %l, %loss {ignore_index = -100 : i64} : (tensor<2x3x5xbf16>, tensor<2x3xi64>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3x5xbf16>
  return %dx : tensor<2x3x5xbf16>
}
