// RUN: tbc-opt %s --tbc-fold-reshapes --split-input-file | FileCheck %s

// A linear layer of Hugging Face's GPT-2, with its bias.
// CHECK-LABEL: func @conv1d
// CHECK-SAME:    %[[X:.+]]: tensor<2x4x3xf32>, %[[W:.+]]: tensor<3x5xf32>, %[[B:.+]]: tensor<5xf32>
// CHECK-NEXT:    %[[Y:.+]] = tbc.einsum %[[X]], %[[W]] {lhs_labels = array<i64: 0, 3, 1>, out_labels = array<i64: 0, 3, 2>, rhs_labels = array<i64: 1, 2>, tbc.id = "fc"}
// CHECK-NEXT:    %[[BIAS:.+]] = tbc.broadcast %[[B]] {dims = array<i64: 2>, tbc.id = "{{.+}}"}
// CHECK-NEXT:    %[[Z:.+]] = tbc.add %[[Y]], %[[BIAS]] {tbc.id = "bias"}
// CHECK-NEXT:    return %[[Z]] : tensor<2x4x5xf32>
func.func @conv1d(%x: tensor<2x4x3xf32>, %w: tensor<3x5xf32>, %b: tensor<5xf32>) -> tensor<2x4x5xf32> {
  %m = tbc.reshape %x {sizes = array<i64: 2, 4, 3>, in = array<i64: 1, 1, 1>, out = array<i64: 2, 1>, tbc.id = "flat"} : (tensor<2x4x3xf32>) -> tensor<8x3xf32>
  %y = tbc.einsum %m, %w {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 1, 2>, out_labels = array<i64: 0, 2>, tbc.id = "fc"} : (tensor<8x3xf32>, tensor<3x5xf32>) -> tensor<8x5xf32>
  %r = tbc.broadcast %b {dims = array<i64: 1>, tbc.id = "repeat"} : (tensor<5xf32>) -> tensor<8x5xf32>
  %a = tbc.add %y, %r {tbc.id = "bias"} : tensor<8x5xf32>
  %z = tbc.reshape %a {sizes = array<i64: 2, 4, 5>, in = array<i64: 2, 1>, out = array<i64: 1, 1, 1>, tbc.id = "apart"} : (tensor<8x5xf32>) -> tensor<2x4x5xf32>
  return %z : tensor<2x4x5xf32>
}

// -----

// Heads are merged for a sum over them, so that merge stays; batch and sequence need none.
// CHECK-LABEL: func @heads
// CHECK-SAME:    %[[X:.+]]: tensor<2x4x3x5xf32>, %[[W:.+]]: tensor<15x7xf32>
// CHECK-NEXT:    %[[H:.+]] = tbc.reshape %[[X]] {in = array<i64: 1, 1, 1, 1>, out = array<i64: 1, 1, 2>, sizes = array<i64: 2, 4, 3, 5>, tbc.id = "{{.+}}"}
// CHECK-NEXT:    %[[Y:.+]] = tbc.einsum %[[H]], %[[W]]
// CHECK-SAME:      -> tensor<2x4x7xf32>
// CHECK-NEXT:    %[[M:.+]] = tbc.reshape %[[Y]] {in = array<i64: 1, 1, 1>, out = array<i64: 2, 1>, sizes = array<i64: 2, 4, 7>, tbc.id = "{{.+}}"}
// CHECK-NEXT:    return %[[M]] : tensor<8x7xf32>
func.func @heads(%x: tensor<2x4x3x5xf32>, %w: tensor<15x7xf32>) -> tensor<8x7xf32> {
  %m = tbc.reshape %x {sizes = array<i64: 2, 4, 3, 5>, in = array<i64: 1, 1, 1, 1>, out = array<i64: 2, 2>, tbc.id = "flat"} : (tensor<2x4x3x5xf32>) -> tensor<8x15xf32>
  %y = tbc.einsum %m, %w {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 1, 2>, out_labels = array<i64: 0, 2>, tbc.id = "proj"} : (tensor<8x15xf32>, tensor<15x7xf32>) -> tensor<8x7xf32>
  return %y : tensor<8x7xf32>
}

// -----

// Two operands merged alike; the product of two splits of one size.
// CHECK-LABEL: func @joined
// CHECK-SAME:    %[[A:.+]]: tensor<2x6xf32>, %[[B:.+]]: tensor<2x6xf32>
// CHECK-NEXT:    %[[P:.+]] = tbc.mul %[[A]], %[[B]] : tensor<2x6xf32>
// CHECK-NEXT:    %[[R:.+]] = tbc.reshape %[[P]] {in = array<i64: 1, 2>, out = array<i64: 2, 1>, sizes = array<i64: 2, 2, 3>} : (tensor<2x6xf32>) -> tensor<4x3xf32>
// CHECK-NEXT:    return %[[R]]
func.func @joined(%a: tensor<2x6xf32>, %b: tensor<2x6xf32>) -> tensor<4x3xf32> {
  %x = tbc.reshape %a {sizes = array<i64: 2, 6>, in = array<i64: 1, 1>, out = array<i64: 2>} : (tensor<2x6xf32>) -> tensor<12xf32>
  %y = tbc.reshape %b {sizes = array<i64: 2, 6>, in = array<i64: 1, 1>, out = array<i64: 2>} : (tensor<2x6xf32>) -> tensor<12xf32>
  %p = tbc.mul %x, %y : tensor<12xf32>
  %r = tbc.reshape %p {sizes = array<i64: 4, 3>, in = array<i64: 2>, out = array<i64: 1, 1>} : (tensor<12xf32>) -> tensor<4x3xf32>
  return %r : tensor<4x3xf32>
}

// -----

// Sizes 2, 3 and 3, 2 have no common factors, and an operand without them would need a copy.
// CHECK-LABEL: func @kept
// CHECK-NEXT:    tbc.reshape
// CHECK-NEXT:    tbc.add
// CHECK-NEXT:    tbc.reshape
// CHECK-NEXT:    return
func.func @kept(%a: tensor<2x3xf32>, %b: tensor<6xf32>) -> tensor<3x2xf32> {
  %x = tbc.reshape %a {sizes = array<i64: 2, 3>, in = array<i64: 1, 1>, out = array<i64: 2>} : (tensor<2x3xf32>) -> tensor<6xf32>
  %s = tbc.add %x, %b : tensor<6xf32>
  %r = tbc.reshape %s {sizes = array<i64: 3, 2>, in = array<i64: 2>, out = array<i64: 1, 1>} : (tensor<6xf32>) -> tensor<3x2xf32>
  return %r : tensor<3x2xf32>
}
