// RUN: tbc-opt %s --tbc-build-update="optimizer=muon momentum=0.95 nesterov=true ns-steps=1 weight-decay=0.1" | FileCheck %s

// The hidden weight "h" steps by Muon: it has one state. The table of embeddings, the bias and the
// head step by AdamW. The bf16 weight is gathered and multiplied in bf16, beside a f32 norm.
func.func @train(%tokens: tensor<8xi64> {tbc.role = #tbc.role<input>, tbc.name = "tokens"},
                 %table: tensor<16x4xf32> {tbc.role = #tbc.role<param>, tbc.name = "table"},
                 %h: tensor<4x6xbf16> {tbc.role = #tbc.role<param>, tbc.name = "h"},
                 %bias: tensor<8x6xf32> {tbc.role = #tbc.role<param>, tbc.name = "bias"},
                 %head: tensor<6x3xf32> {tbc.role = #tbc.role<param>, tbc.name = "head"},
                 %g0: tensor<16x4xf32> {tbc.role = #tbc.role<input>, tbc.name = "g0"},
                 %g1: tensor<4x6xbf16> {tbc.role = #tbc.role<input>, tbc.name = "g1"},
                 %g2: tensor<8x6xf32> {tbc.role = #tbc.role<input>, tbc.name = "g2"},
                 %g3: tensor<6x3xf32> {tbc.role = #tbc.role<input>, tbc.name = "g3"})
    -> (tensor<f32> {tbc.role = #tbc.role<loss>, tbc.name = "loss"},
        tensor<16x4xf32> {tbc.role = #tbc.role<grad>, tbc.name = "table"},
        tensor<4x6xbf16> {tbc.role = #tbc.role<grad>, tbc.name = "h"},
        tensor<8x6xf32> {tbc.role = #tbc.role<grad>, tbc.name = "bias"},
        tensor<6x3xf32> {tbc.role = #tbc.role<grad>, tbc.name = "head"}) {
  %0 = tbc.gather %table, %tokens {dim = 0 : i64} : (tensor<16x4xf32>, tensor<8xi64>) -> tensor<8x4xf32>
  %1 = tbc.cast %0 : (tensor<8x4xf32>) -> tensor<8x4xbf16>
  %2 = tbc.einsum %1, %h {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 1, 2>, out_labels = array<i64: 0, 2>} : (tensor<8x4xbf16>, tensor<4x6xbf16>) -> tensor<8x6xbf16>
  %3 = tbc.cast %2 : (tensor<8x6xbf16>) -> tensor<8x6xf32>
  %4 = tbc.add %3, %bias : tensor<8x6xf32>
  %5 = tbc.einsum %4, %head {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 1, 2>, out_labels = array<i64: 0, 2>} : (tensor<8x6xf32>, tensor<6x3xf32>) -> tensor<8x3xf32>
  %6 = tbc.reduce_sum %5 {dims = array<i64: 0, 1>} : (tensor<8x3xf32>) -> tensor<f32>
  return %6, %g0, %g1, %g2, %g3 : tensor<f32>, tensor<16x4xf32>, tensor<4x6xbf16>, tensor<8x6xf32>, tensor<6x3xf32>
}

// CHECK-LABEL: func.func @update
// CHECK-SAME:    tbc.name = "table.v"
// CHECK-SAME:    tbc.name = "h.m"
// CHECK-NOT:     tbc.name = "h.v"
// CHECK-SAME:    tbc.name = "h.master"
// CHECK:         tbc.adamw
// CHECK:         %[[B:.*]], %[[U:.*]] = tbc.muon_momentum %{{.*}}, %{{.*}} {momentum = 0.9{{.*}}, nesterov = true
// CHECK-NEXT:    %[[N:.*]] = tbc.cast %[[U]]
// CHECK-NEXT:    %[[M:.*]] = tbc.gather_matrices %[[N]]{{.*}} : (tensor<4x6xbf16>)
// CHECK-NEXT:    %[[W:.*]] = tbc.cast %[[M]]
// CHECK-NEXT:    %[[Q:.*]] = tbc.mul %[[W]], %[[W]]
// CHECK-NEXT:    %[[S:.*]] = tbc.reduce_sum %[[Q]]
// CHECK-NEXT:    %[[R:.*]] = tbc.broadcast %[[S]]
// CHECK-NEXT:    %[[V:.*]] = tbc.cast %[[M]]
// CHECK-NEXT:    %[[D:.*]] = tbc.divide_by_norm %[[V]], %[[R]]
// CHECK-NEXT:    %[[X:.*]] = tbc.cast %[[D]]
// CHECK-NEXT:    %[[G:.*]] = tbc.einsum %[[X]], %[[X]]{{.*}} -> tensor<4x4xbf16>
// CHECK-NEXT:    %[[GG:.*]] = tbc.einsum %[[G]], %[[G]]
// CHECK-NEXT:    %[[P:.*]] = tbc.weighted_sum %[[G]], %[[GG]] {alpha = -4.775{{.*}}, beta = 2.0315
// CHECK-NEXT:    %[[PX:.*]] = tbc.einsum %[[P]], %[[X]]
// CHECK-NEXT:    %[[Y:.*]] = tbc.weighted_sum %[[X]], %[[PX]] {alpha = 3.4445{{.*}}, beta = 1.0
// CHECK-NEXT:    %[[O:.*]] = tbc.shard_matrices %[[Y]]
// CHECK-NEXT:    %[[F:.*]] = tbc.cast %[[O]]
// CHECK-NEXT:    tbc.muon_step %{{.*}}, %[[F]], %{{.*}} {scale = 1.22
// CHECK:         tbc.adamw
// CHECK:         tbc.adamw
// CHECK-NOT:     tbc.muon_step
