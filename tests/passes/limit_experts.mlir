// RUN: tbc-opt %s --tbc-limit-experts=factor=1.5 | FileCheck %s

// Two samples of four tokens, each of which asks for one of three experts: 1.5 x 4 / 3 slots.
// CHECK-LABEL: func.func @gated
// CHECK-SAME:    %[[X:.+]]: tensor<2x4x6xf32> {{.*}}, %[[W:.+]]: tensor<2x4x3xf32> {{.*}}, %[[IN:.+]]: tensor<3x10x6xf32> {{.*}}, %[[OUT:.+]]: tensor<3x7x5xf32>
// CHECK:         %[[WEIGHTS:.+]] = tbc.reshape %{{.+}} {{.*}} -> tensor<2x4x3xf32>
// CHECK:         %[[TOKENS:.+]] = tbc.reshape %{{.+}} {{.*}} -> tensor<2x4x6xf32>
// CHECK:         %[[SLOTS:.+]] = tbc.dispatch %[[TOKENS]], %[[WEIGHTS]] {capacity = 2 : i64, tbc.id = "experts.dispatch", weighted = false} {{.*}} -> tensor<2x3x2x6xf32>
// CHECK:         %[[BOTH:.+]] = tbc.einsum %[[SLOTS]], %[[IN]] {{.*}} -> tensor<2x3x2x10xf32>
// CHECK:         %[[GATE:.+]] = tbc.slice %[[BOTH]] {{.*}}offset = 0
// CHECK:         %[[UP:.+]] = tbc.slice %[[BOTH]] {{.*}}offset = 5
// CHECK:         %[[ACT:.+]] = tbc.silu %[[GATE]]
// CHECK:         %[[INNER:.+]] = tbc.mul %[[ACT]], %[[UP]]
// CHECK:         %[[EACH:.+]] = tbc.einsum %[[INNER]], %[[OUT]] {{.*}} -> tensor<2x3x2x7xf32>
// CHECK:         %[[SUM:.+]] = tbc.combine %[[EACH]], %[[WEIGHTS]] {tbc.id = "experts.combine", weighted = true}
// CHECK:         %[[Y:.+]] = tbc.reshape %[[SUM]] {{.*}} -> tensor<8x7xf32>
// CHECK:         return %[[Y]]
func.func @gated(%x: tensor<2x4x6xf32> {tbc.role = #tbc.role<input>, tbc.batch_dim = 0}, %w: tensor<2x4x3xf32> {tbc.role = #tbc.role<input>, tbc.batch_dim = 0}, %in: tensor<3x10x6xf32> {tbc.role = #tbc.role<param>}, %out: tensor<3x7x5xf32> {tbc.role = #tbc.role<param>}) -> tensor<8x7xf32> {
  %tokens = tbc.reshape %x {sizes = array<i64: 2, 4, 6>, in = array<i64: 1, 1, 1>, out = array<i64: 2, 1>} : (tensor<2x4x6xf32>) -> tensor<8x6xf32>
  %weights = tbc.reshape %w {sizes = array<i64: 2, 4, 3>, in = array<i64: 1, 1, 1>, out = array<i64: 2, 1>} : (tensor<2x4x3xf32>) -> tensor<8x3xf32>
  %y = tbc.routed_experts %tokens, %weights, %in, %out {activation = "silu", gated = true, top = 1 : i64, tbc.id = "experts"} : (tensor<8x6xf32>, tensor<8x3xf32>, tensor<3x10x6xf32>, tensor<3x7x5xf32>) -> tensor<8x7xf32>
  return %y : tensor<8x7xf32>
}
