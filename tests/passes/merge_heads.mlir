// RUN: tbc-opt %s --tbc-merge-heads --split-input-file | FileCheck %s

// The queries go through a rotary embedding, which takes the merged tensor too.
// CHECK-LABEL: func @layer
// CHECK-SAME:    %[[Q:.+]]: tensor<2x4x48xf32>, %[[K:.+]]: tensor<2x4x24xf32>, %[[V:.+]]: tensor<2x4x15xf32>, %[[T:.+]]: tensor<4x4xf32>
// CHECK-NEXT:    %[[R:.+]] = tbc.rotary %[[Q]], %[[T]], %[[T]] {inverse = false, token_major = true}
// CHECK-SAME:      -> tensor<2x4x48xf32>
// CHECK-NEXT:    %[[O:.+]], %{{.+}}, %{{.+}} = tbc.attention %[[R]], %[[K]], %[[V]]
// CHECK-SAME:      heads = 6 : i64, key_heads = 3 : i64
// CHECK-SAME:      token_major = "QKVO"
// CHECK-SAME:      -> (tensor<2x4x30xf32>, tensor<2x6x4xf32>, tensor<2x6x4xf32>)
// CHECK-NEXT:    return %[[O]]
func.func @layer(%q: tensor<2x4x48xf32>, %k: tensor<2x4x24xf32>, %v: tensor<2x4x15xf32>, %table: tensor<4x4xf32>) -> tensor<2x4x30xf32> {
  %sq = tbc.reshape %q {sizes = array<i64: 2, 4, 6, 8>, in = array<i64: 1, 1, 2>, out = array<i64: 1, 1, 1, 1>} : (tensor<2x4x48xf32>) -> tensor<2x4x6x8xf32>
  %sk = tbc.reshape %k {sizes = array<i64: 2, 4, 3, 8>, in = array<i64: 1, 1, 2>, out = array<i64: 1, 1, 1, 1>} : (tensor<2x4x24xf32>) -> tensor<2x4x3x8xf32>
  %sv = tbc.reshape %v {sizes = array<i64: 2, 4, 3, 5>, in = array<i64: 1, 1, 2>, out = array<i64: 1, 1, 1, 1>} : (tensor<2x4x15xf32>) -> tensor<2x4x3x5xf32>
  %r = tbc.rotary %sq, %table, %table {inverse = false, token_major = true} : (tensor<2x4x6x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<2x4x6x8xf32>
  %o, %m, %l = tbc.attention %r, %sk, %sv {scale = 0.5 : f64, causal = true, token_major = "qkvo"} : (tensor<2x4x6x8xf32>, tensor<2x4x3x8xf32>, tensor<2x4x3x5xf32>) -> (tensor<2x4x6x5xf32>, tensor<2x6x4xf32>, tensor<2x6x4xf32>)
  %y = tbc.reshape %o {sizes = array<i64: 2, 4, 6, 5>, in = array<i64: 1, 1, 1, 1>, out = array<i64: 1, 1, 2>} : (tensor<2x4x6x5xf32>) -> tensor<2x4x30xf32>
  return %y : tensor<2x4x30xf32>
}

// -----

// A split with another reader, a head-major operand and a result with another reader stay apart.
// One split that is both keys and values goes.
// CHECK-LABEL: func @apart
// CHECK-NEXT:    %[[S:.+]] = tbc.reshape
// CHECK-NEXT:    %[[N:.+]] = tbc.neg %[[S]]
// CHECK-NEXT:    %[[O:.+]], %{{.+}}, %{{.+}} = tbc.attention %[[S]], %{{.+}}, %{{.+}} {{.*}}token_major = "qKVo"
// CHECK-NEXT:    %[[Y:.+]] = tbc.reshape %[[O]]
// CHECK-NEXT:    return %[[N]], %[[O]], %[[Y]]
func.func @apart(%q: tensor<2x4x16xf32>, %k: tensor<2x4x16xf32>) -> (tensor<2x4x2x8xf32>, tensor<2x4x2x8xf32>, tensor<2x4x16xf32>) {
  %sq = tbc.reshape %q {sizes = array<i64: 2, 4, 2, 8>, in = array<i64: 1, 1, 2>, out = array<i64: 1, 1, 1, 1>} : (tensor<2x4x16xf32>) -> tensor<2x4x2x8xf32>
  %n = tbc.neg %sq : tensor<2x4x2x8xf32>
  %sk = tbc.reshape %k {sizes = array<i64: 2, 4, 2, 8>, in = array<i64: 1, 1, 2>, out = array<i64: 1, 1, 1, 1>} : (tensor<2x4x16xf32>) -> tensor<2x4x2x8xf32>
  %o, %m, %l = tbc.attention %sq, %sk, %sk {scale = 0.5 : f64, causal = true, token_major = "qkvo"} : (tensor<2x4x2x8xf32>, tensor<2x4x2x8xf32>, tensor<2x4x2x8xf32>) -> (tensor<2x4x2x8xf32>, tensor<2x2x4xf32>, tensor<2x2x4xf32>)
  %y = tbc.reshape %o {sizes = array<i64: 2, 4, 2, 8>, in = array<i64: 1, 1, 1, 1>, out = array<i64: 1, 1, 2>} : (tensor<2x4x2x8xf32>) -> tensor<2x4x16xf32>
  return %n, %o, %y : tensor<2x4x2x8xf32>, tensor<2x4x2x8xf32>, tensor<2x4x16xf32>
}
