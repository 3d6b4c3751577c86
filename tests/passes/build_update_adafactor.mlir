// RUN: tbc-opt %s --tbc-build-update="optimizer=adafactor weight-decay=0.1 epsilon1=0.5" | FileCheck %s
// RUN: not tbc-opt %s --tbc-build-update="optimizer=adafaktor" 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// UNKNOWN: unknown optimizer "adafaktor"; expected sgd, adam, adamw, muon, adafactor, adagrad or rowwise-adagrad

// The bf16 matrix has a moment of each row and each column, beside its master copy. It is gathered in
// bf16 and squared for rows and for columns. The vector has one moment per element.
func.func @train(%h: tensor<4x6xbf16> {tbc.role = #tbc.role<param>, tbc.name = "h"},
                 %bias: tensor<6xf32> {tbc.role = #tbc.role<param>, tbc.name = "bias"},
                 %g0: tensor<4x6xbf16> {tbc.role = #tbc.role<input>, tbc.name = "g0"},
                 %g1: tensor<6xf32> {tbc.role = #tbc.role<input>, tbc.name = "g1"})
    -> (tensor<f32> {tbc.role = #tbc.role<loss>, tbc.name = "loss"},
        tensor<4x6xbf16> {tbc.role = #tbc.role<grad>, tbc.name = "h"},
        tensor<6xf32> {tbc.role = #tbc.role<grad>, tbc.name = "bias"}) {
  %0 = tbc.reduce_sum %g1 {dims = array<i64: 0>} : (tensor<6xf32>) -> tensor<f32>
  return %0, %g0, %g1 : tensor<f32>, tensor<4x6xbf16>, tensor<6xf32>
}

// CHECK-LABEL: func.func @update
// CHECK-SAME:    %[[ROW:[a-z0-9]+]]: tensor<4xf32> {tbc.name = "h.row_var", tbc.parameter = "h", tbc.role = #tbc.role<opt_state>, tbc.whole}
// CHECK-SAME:    %[[COL:[a-z0-9]+]]: tensor<6xf32> {tbc.name = "h.col_var", tbc.parameter = "h", tbc.role = #tbc.role<opt_state>, tbc.whole}
// CHECK-SAME:    tensor<4x6xf32> {tbc.master, tbc.name = "h.master"
// CHECK-SAME:    tensor<6xf32> {tbc.name = "bias.variance", tbc.parameter = "bias", tbc.role = #tbc.role<opt_state>, tbc.whole}
// CHECK:         %[[G:.*]] = tbc.gather_matrices %{{.*}} : (tensor<4x6xbf16>)
// CHECK-NEXT:    %[[W:.*]] = tbc.cast %[[G]]
// CHECK-NEXT:    %[[Q:.*]] = tbc.mul %[[W]], %[[W]]
// CHECK-NEXT:    %[[R:.*]] = tbc.reduce_sum %[[Q]] {dims = array<i64: 1>
// CHECK-NEXT:    tbc.cast %[[G]]
// CHECK-NEXT:    tbc.mul
// CHECK-NEXT:    %[[C:.*]] = tbc.reduce_sum %{{.*}} {dims = array<i64: 0>
// CHECK-NEXT:    %[[NR:.*]] = tbc.factored_moment %[[R]], %[[ROW]], %{{.*}} {beta2_decay = -8.0{{.*}}, count = 6
// CHECK-NEXT:    %[[T:.*]] = tbc.reduce_sum %[[NR]] {dims = array<i64: 0>
// CHECK-NEXT:    %[[NC:.*]] = tbc.factored_moment %[[C]], %[[COL]], %{{.*}} {beta2_decay = -8.0{{.*}}, count = 4
// CHECK-NEXT:    %[[X:.*]] = tbc.cast %[[G]]
// CHECK:         %[[U:.*]] = tbc.factored_direction %[[X]], %{{.*}} {count = 4 : i64, epsilon = 5.0
// CHECK-NEXT:    %[[S:.*]] = tbc.shard_matrices %[[U]]
// CHECK-NEXT:    %[[N:.*]]:2 = tbc.square_totals %{{.*}}, %[[S]]
// CHECK-NEXT:    tbc.adafactor_step %{{.*}}, %[[S]], %[[N]]#0, %[[N]]#1, %{{.*}} {clip_threshold = 1.0{{.*}}, count = 24 : i64, epsilon = 1.0{{.*}}, weight_decay = 1.0
// CHECK:         tbc.gather_matrices %{{.*}} : (tensor<6xf32>)
// CHECK-NEXT:    tbc.mul
// CHECK-NEXT:    %[[V:.*]] = tbc.factored_moment %{{.*}} count = 1
// CHECK-NEXT:    tbc.root_direction %{{.*}}, %[[V]]
