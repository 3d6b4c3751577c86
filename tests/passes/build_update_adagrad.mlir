// RUN: tbc-opt %s --tbc-build-update="optimizer=rowwise-adagrad epsilon=0.25 initial-accumulator=0.5" | FileCheck %s
// RUN: tbc-opt %s --tbc-build-update="optimizer=adagrad lr-decay=0.5" | FileCheck %s --check-prefix=PLAIN

// The table whose rows are looked up keeps one sum for each row; a table that a matmul reads, too,
// and the bias keep one for each element.
func.func @train(%tokens: tensor<8xi64> {tbc.role = #tbc.role<input>, tbc.name = "tokens"},
                 %table: tensor<16x4xbf16> {tbc.role = #tbc.role<param>, tbc.name = "table"},
                 %tied: tensor<16x4xf32> {tbc.role = #tbc.role<param>, tbc.name = "tied"},
                 %g0: tensor<16x4xbf16> {tbc.role = #tbc.role<input>, tbc.name = "g0"},
                 %g1: tensor<16x4xf32> {tbc.role = #tbc.role<input>, tbc.name = "g1"})
    -> (tensor<f32> {tbc.role = #tbc.role<loss>, tbc.name = "loss"},
        tensor<16x4xbf16> {tbc.role = #tbc.role<grad>, tbc.name = "table"},
        tensor<16x4xf32> {tbc.role = #tbc.role<grad>, tbc.name = "tied"}) {
  %0 = tbc.gather %table, %tokens {dim = 0 : i64} : (tensor<16x4xbf16>, tensor<8xi64>) -> tensor<8x4xbf16>
  %1 = tbc.cast %0 : (tensor<8x4xbf16>) -> tensor<8x4xf32>
  %2 = tbc.gather %tied, %tokens {dim = 0 : i64} : (tensor<16x4xf32>, tensor<8xi64>) -> tensor<8x4xf32>
  %3 = tbc.add %1, %2 : tensor<8x4xf32>
  %4 = tbc.einsum %3, %tied {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 2, 1>, out_labels = array<i64: 0, 2>} : (tensor<8x4xf32>, tensor<16x4xf32>) -> tensor<8x16xf32>
  %5 = tbc.reduce_sum %4 {dims = array<i64: 0, 1>} : (tensor<8x16xf32>) -> tensor<f32>
  return %5, %g0, %g1 : tensor<f32>, tensor<16x4xbf16>, tensor<16x4xf32>
}

// CHECK-LABEL: func.func @update
// CHECK-SAME:    %[[S:[a-z0-9]+]]: tensor<16xf32> {tbc.initial = 5.0{{[^}]*}}tbc.name = "table.row_sum", tbc.parameter = "table", tbc.role = #tbc.role<opt_state>, tbc.whole}
// CHECK-SAME:    tensor<16x4xf32> {tbc.initial = 5.0{{[^}]*}}tbc.name = "tied.sum"
// CHECK:         %[[G:.*]] = tbc.gather_matrices %{{.*}} {by_rows = true{{.*}} : (tensor<16x4xbf16>)
// CHECK-NEXT:    tbc.cast %[[G]]
// CHECK-NEXT:    %[[Q:.*]] = tbc.mul
// CHECK-NEXT:    %[[R:.*]] = tbc.reduce_sum %[[Q]] {dims = array<i64: 1>
// CHECK-NEXT:    %[[N:.*]] = tbc.weighted_sum %[[S]], %[[R]] {alpha = 1.0{{.*}}, beta = 2.5
// CHECK-NEXT:    %[[W:.*]] = tbc.cast %[[G]]
// CHECK-NEXT:    %[[B:.*]] = tbc.broadcast %[[N]]
// CHECK-NEXT:    %[[D:.*]] = tbc.divide_by_root %[[W]], %[[B]] {epsilon = 2.5
// CHECK-NEXT:    %[[H:.*]] = tbc.shard_matrices %[[D]]
// CHECK-NEXT:    tbc.sgd %{{.*}}, %[[H]]
// CHECK:         tbc.adagrad
// CHECK-NOT:     tbc.gather_matrices

// PLAIN-LABEL: func.func @update
// PLAIN:         tbc.adagrad {{.*}}rate_decay = 5.0
// PLAIN:         tbc.adagrad
// PLAIN-NOT:     tbc.gather_matrices
