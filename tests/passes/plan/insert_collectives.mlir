// RUN: tbc-opt %s --tbc-insert-collectives --split-input-file | FileCheck %s
// RUN: not tbc-opt %s --tbc-insert-collectives --tbc-insert-collectives --split-input-file 2>&1 | FileCheck %s --check-prefix=TWICE
// TWICE: is there already; tbc-insert-collectives runs once

// The stored parameter is gathered over fsdp before its use, partial sums over tp are completed after
// the op that leaves them, and the gradient is reduced to the shard of the state. The backward reads
// the value that the forward completed.
// CHECK-LABEL: func.func @train
// CHECK-SAME:    (%[[X:.*]]: tensor<97x8xf32> {{.*}}, %[[W:.*]]: tensor<8x6xf32>
// CHECK:         %[[W1:.*]] = tbc.reshard %[[W]] from <[{f1 = ["tp"]}, {}], flat = ["fsdp"]> to <[{f1 = ["tp"]}, {}]>
// CHECK-SAME:      {collectives = ["all_gather over fsdp, 96 bytes"], number = 0 : i64, reason = "parameter_use"}
// CHECK-NEXT:    %[[Y:.*]] = tbc.einsum %[[X]], %[[W1]]
// CHECK-NEXT:    %[[Y1:.*]] = tbc.reshard %[[Y]] from <[{f0 = ["fsdp"]}, {}], partial = ["tp"]> to <[{f0 = ["fsdp"]}, {}]>
// CHECK-SAME:      {collectives = ["all_reduce over tp, 48 bytes"], number = 1 : i64, reason = "operand"}
// CHECK-NEXT:    %[[L:.*]] = tbc.reduce_sum %[[Y1]]
// CHECK-NEXT:    %[[G:.*]] = tbc.einsum %[[X]], %[[Y1]]
// CHECK-NEXT:    %[[G1:.*]] = tbc.reshard %[[G]]
// CHECK-SAME:      {collectives = ["reduce_scatter over fsdp, 96 bytes"]
// CHECK-SAME:      reason = "gradient"
// CHECK:         return %[[L]], %[[G1]]
module attributes {tbc.mesh = #tbc.mesh<"fsdp"=2, "tp"=2>, tbc.batch = 4 : i64} {
  func.func @train(%x: tensor<97x8xf32> {tbc.role = #tbc.role<input>, tbc.name = "x", tbc.batch_dim = 0 : i64}, %w: tensor<8x6xf32> {tbc.role = #tbc.role<param>, tbc.name = "w", tbc.parameter_plan = #tbc.parameter_plan<zero = 3, zero_axes = ["fsdp"], reduce_axes = []>}) -> (tensor<f32> {tbc.role = #tbc.role<loss>, tbc.name = "loss"}, tensor<8x6xf32> {tbc.role = #tbc.role<grad>, tbc.name = "w"}) {
    %y = tbc.einsum %x, %w {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 1, 2>, out_labels = array<i64: 0, 2>, tbc.id = "y", tbc.phase = #tbc.phase<fwd>, tbc.strategy = #tbc.strategy<{0 = ["fsdp"], 1 = ["tp"]}>} : (tensor<97x8xf32>, tensor<8x6xf32>) -> tensor<97x6xf32>
    %l = tbc.reduce_sum %y {dims = array<i64: 0, 1>, tbc.id = "l", tbc.phase = #tbc.phase<fwd>, tbc.strategy = #tbc.strategy<{0 = ["fsdp"]}>} : (tensor<97x6xf32>) -> tensor<f32>
    %g = tbc.einsum %x, %y {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 0, 2>, out_labels = array<i64: 1, 2>, tbc.id = "y.bwd.0", tbc.forward = "y", tbc.phase = #tbc.phase<bwd>, tbc.strategy = #tbc.strategy<{0 = ["fsdp"], 1 = ["tp"]}>} : (tensor<97x8xf32>, tensor<97x6xf32>) -> tensor<8x6xf32>
    return %l, %g : tensor<f32>, tensor<8x6xf32>
  }
  func.func @update(%g: tensor<8x6xf32> {tbc.role = #tbc.role<grad>, tbc.name = "w"}) {
    return
  }
}
