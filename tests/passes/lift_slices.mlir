// RUN: tbc-opt %s --tbc-lift-slices --split-input-file | FileCheck %s
// RUN: tbc-opt %s --tbc-lift-slices --tbc-fold-transposes --tbc-merge-heads --split-input-file | FileCheck %s --check-prefix=ALL

// Attention of a vision transformer: q, k and v become columns.
// CHECK-LABEL: func @vision
// CHECK-SAME:    %[[X:.+]]: tensor<2x5x96xf32>
// CHECK-DAG:     %[[CQ:.+]] = tbc.slice %[[X]] {dim = 2 : i64, offset = 0 : i64, size = 32 : i64}
// CHECK-DAG:     %[[CK:.+]] = tbc.slice %[[X]] {dim = 2 : i64, offset = 32 : i64, size = 32 : i64}
// CHECK-DAG:     %[[CV:.+]] = tbc.slice %[[X]] {dim = 2 : i64, offset = 64 : i64, size = 32 : i64}
// CHECK-DAG:     %[[SQ:.+]] = tbc.reshape %[[CQ]] {in = array<i64: 1, 1, 2>, out = array<i64: 1, 1, 1, 1>, sizes = array<i64: 2, 5, 4, 8>}
// CHECK-DAG:     %[[TQ:.+]] = tbc.transpose %[[SQ]] {permutation = array<i64: 0, 2, 1, 3>}
// CHECK:         tbc.attention %[[TQ]],
// ALL-LABEL:   func @vision
// ALL-NOT:       tbc.reshape
// ALL-NOT:       tbc.transpose
// ALL:           tbc.attention {{.*}}token_major = "QKV"
func.func @vision(%x: tensor<2x5x96xf32>) -> tensor<2x4x5x8xf32> {
  %s = tbc.reshape %x {sizes = array<i64: 2, 5, 3, 4, 8>, in = array<i64: 1, 1, 3>, out = array<i64: 1, 1, 1, 1, 1>} : (tensor<2x5x96xf32>) -> tensor<2x5x3x4x8xf32>
  %t = tbc.transpose %s {permutation = array<i64: 2, 0, 3, 1, 4>} : (tensor<2x5x3x4x8xf32>) -> tensor<3x2x4x5x8xf32>
  %q1 = tbc.slice %t {dim = 0 : i64, offset = 0 : i64, size = 1 : i64} : (tensor<3x2x4x5x8xf32>) -> tensor<1x2x4x5x8xf32>
  %k1 = tbc.slice %t {dim = 0 : i64, offset = 1 : i64, size = 1 : i64} : (tensor<3x2x4x5x8xf32>) -> tensor<1x2x4x5x8xf32>
  %v1 = tbc.slice %t {dim = 0 : i64, offset = 2 : i64, size = 1 : i64} : (tensor<3x2x4x5x8xf32>) -> tensor<1x2x4x5x8xf32>
  %q = tbc.reshape %q1 {sizes = array<i64: 2, 4, 5, 8>, in = array<i64: 0, 1, 1, 1, 1>, out = array<i64: 1, 1, 1, 1>} : (tensor<1x2x4x5x8xf32>) -> tensor<2x4x5x8xf32>
  %k = tbc.reshape %k1 {sizes = array<i64: 2, 4, 5, 8>, in = array<i64: 0, 1, 1, 1, 1>, out = array<i64: 1, 1, 1, 1>} : (tensor<1x2x4x5x8xf32>) -> tensor<2x4x5x8xf32>
  %v = tbc.reshape %v1 {sizes = array<i64: 2, 4, 5, 8>, in = array<i64: 0, 1, 1, 1, 1>, out = array<i64: 1, 1, 1, 1>} : (tensor<1x2x4x5x8xf32>) -> tensor<2x4x5x8xf32>
  %o, %m, %l = tbc.attention %q, %k, %v {scale = 0.5 : f64, causal = false} : (tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>) -> (tensor<2x4x5x8xf32>, tensor<2x4x5xf32>, tensor<2x4x5xf32>)
  return %o : tensor<2x4x5x8xf32>
}

// -----

// The slice stays behind a split with another reader, and behind one whose inner part it cuts. Two
// of three outer parts are one slice.
// CHECK-LABEL: func @others
// CHECK-SAME:    %[[X:.+]]: tensor<2x12xf32>, %[[Y:.+]]: tensor<2x12xf32>, %[[Z:.+]]: tensor<2x12xf32>
// CHECK-NEXT:    %[[S:.+]] = tbc.reshape %[[X]]
// CHECK-NEXT:    tbc.slice %[[S]]
// CHECK-NEXT:    %[[I:.+]] = tbc.reshape %[[Y]]
// CHECK-NEXT:    tbc.slice %[[I]]
// CHECK-NEXT:    %[[C:.+]] = tbc.slice %[[Z]] {dim = 1 : i64, offset = 4 : i64, size = 8 : i64}
// CHECK-NEXT:    tbc.reshape %[[C]] {in = array<i64: 1, 2>, out = array<i64: 1, 1, 1>, sizes = array<i64: 2, 2, 4>}
// CHECK-NEXT:    return
func.func @others(%x: tensor<2x12xf32>, %y: tensor<2x12xf32>, %z: tensor<2x12xf32>) -> (tensor<2x3x4xf32>, tensor<2x1x4xf32>, tensor<2x3x1xf32>, tensor<2x2x4xf32>) {
  %s = tbc.reshape %x {sizes = array<i64: 2, 3, 4>, in = array<i64: 1, 2>, out = array<i64: 1, 1, 1>} : (tensor<2x12xf32>) -> tensor<2x3x4xf32>
  %a = tbc.slice %s {dim = 1 : i64, offset = 1 : i64, size = 1 : i64} : (tensor<2x3x4xf32>) -> tensor<2x1x4xf32>
  %i = tbc.reshape %y {sizes = array<i64: 2, 3, 4>, in = array<i64: 1, 2>, out = array<i64: 1, 1, 1>} : (tensor<2x12xf32>) -> tensor<2x3x4xf32>
  %b = tbc.slice %i {dim = 2 : i64, offset = 1 : i64, size = 1 : i64} : (tensor<2x3x4xf32>) -> tensor<2x3x1xf32>
  %o = tbc.reshape %z {sizes = array<i64: 2, 3, 4>, in = array<i64: 1, 2>, out = array<i64: 1, 1, 1>} : (tensor<2x12xf32>) -> tensor<2x3x4xf32>
  %c = tbc.slice %o {dim = 1 : i64, offset = 1 : i64, size = 2 : i64} : (tensor<2x3x4xf32>) -> tensor<2x2x4xf32>
  return %s, %a, %b, %c : tensor<2x3x4xf32>, tensor<2x1x4xf32>, tensor<2x3x1xf32>, tensor<2x2x4xf32>
}
