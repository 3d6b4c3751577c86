// RUN: tbc-opt %s --tbc-build-update="optimizer=adafactor" | FileCheck %s

// The rows of the table and the elements of the bias have one more for padding, and its gradient is
// 0. Means over them count 3 rows, 18 elements of the table, and 3 elements of the bias.
func.func @train(%t: tensor<4x6xf32> {tbc.role = #tbc.role<param>, tbc.name = "t", tbc.unpadded = array<i64: 3, 6>},
                 %bias: tensor<4xf32> {tbc.role = #tbc.role<param>, tbc.name = "bias", tbc.unpadded = array<i64: 3>},
                 %g0: tensor<4x6xf32> {tbc.role = #tbc.role<input>, tbc.name = "g0"},
                 %g1: tensor<4xf32> {tbc.role = #tbc.role<input>, tbc.name = "g1"})
    -> (tensor<f32> {tbc.role = #tbc.role<loss>, tbc.name = "loss"},
        tensor<4x6xf32> {tbc.role = #tbc.role<grad>, tbc.name = "t"},
        tensor<4xf32> {tbc.role = #tbc.role<grad>, tbc.name = "bias"}) {
  %0 = tbc.reduce_sum %g1 {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  return %0, %g0, %g1 : tensor<f32>, tensor<4x6xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @update
// CHECK:         tbc.factored_moment {{.*}} count = 6
// CHECK:         tbc.factored_moment {{.*}} count = 3
// CHECK:         tbc.factored_direction {{.*}} {count = 3
// CHECK:         tbc.adafactor_step {{.*}} count = 18
// CHECK:         tbc.adafactor_step {{.*}} count = 3
