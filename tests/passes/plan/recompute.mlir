// RUN: tbc-opt %s --tbc-recompute --split-input-file | FileCheck %s
// RUN: not tbc-opt %s --tbc-recompute=ids=x --split-input-file 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: there is no forward op "x" to recompute

// Clones stand before the first backward op that needs them, in the order of their forward ops; one
// clone serves all that stand after it. What the forward reads stays.
// CHECK-LABEL: func.func @train
// CHECK-SAME:    (%[[X:.*]]: tensor<4xf32>
// CHECK:         %[[A:.*]] = tbc.relu %[[X]] {tbc.id = "a"
// CHECK:         %[[B:.*]] = tbc.tanh %[[A]] {tbc.id = "b"
// CHECK:         %[[A2:.*]] = tbc.relu %[[X]] {tbc.forward = "a", tbc.id = "a.recompute", tbc.phase = #tbc.phase<bwd>, tbc.recomputed}
// CHECK-NEXT:    %[[B2:.*]] = tbc.tanh %[[A2]] {tbc.forward = "b", tbc.id = "b.recompute", tbc.phase = #tbc.phase<bwd>, tbc.recomputed}
// CHECK-NEXT:    %[[C:.*]] = tbc.mul %[[B2]], %[[B2]]
// CHECK-NEXT:    %[[D:.*]] = tbc.mul %[[C]], %[[A2]]
// CHECK-NEXT:    return %[[B]], %[[D]]
func.func @train(%x: tensor<4xf32> {tbc.role = #tbc.role<input>, tbc.name = "x"}) -> (tensor<4xf32>, tensor<4xf32>) {
  %a = tbc.relu %x {tbc.id = "a", tbc.phase = #tbc.phase<fwd>, tbc.recompute} : tensor<4xf32>
  %b = tbc.tanh %a {tbc.id = "b", tbc.phase = #tbc.phase<fwd>, tbc.recompute} : tensor<4xf32>
  %c = tbc.mul %b, %b {tbc.id = "b.bwd.0", tbc.forward = "b", tbc.phase = #tbc.phase<bwd>} : tensor<4xf32>
  %d = tbc.mul %c, %a {tbc.id = "a.bwd.0", tbc.forward = "a", tbc.phase = #tbc.phase<bwd>} : tensor<4xf32>
  return %b, %d : tensor<4xf32>, tensor<4xf32>
}

// -----
// Only ops of the same chunk read clones: a value of another stage is sent.
// CHECK-LABEL: func.func @train
// CHECK-NOT:     recompute
func.func @train(%x: tensor<4xf32> {tbc.role = #tbc.role<input>, tbc.name = "x"}) -> tensor<4xf32> {
  %a = tbc.relu %x {tbc.id = "a", tbc.phase = #tbc.phase<fwd>, tbc.chunk = 0 : i64, tbc.recompute} : tensor<4xf32>
  %b = tbc.mul %a, %a {tbc.id = "b.bwd.0", tbc.phase = #tbc.phase<bwd>, tbc.chunk = 1 : i64} : tensor<4xf32>
  return %b : tensor<4xf32>
}
