// RUN: tbc-opt %s --tbc-raise-composites --split-input-file | FileCheck %s

// Gated experts, as PyTorch exports them densely.
// CHECK-LABEL: func.func @gated
// CHECK-SAME:    %[[X:.+]]: tensor<6x4xf32>, %[[P:.+]]: tensor<6x3xf32>, %[[IN:.+]]: tensor<3x10x4xf32>, %[[OUT:.+]]: tensor<3x4x5xf32>
// CHECK:         %[[W:.+]] = tbc.reduce_sum
// CHECK-NEXT:    %[[Y:.+]] = tbc.routed_experts %[[X]], %[[W]], %[[IN]], %[[OUT]] {activation = "silu", gated = true, tbc.id = "combine", top = 2 : i64}
// CHECK-NEXT:    return %[[Y]]
func.func @gated(%x: tensor<6x4xf32>, %p: tensor<6x3xf32>, %in: tensor<3x10x4xf32>, %out: tensor<3x4x5xf32>) -> tensor<6x4xf32> {
  %values, %indices = tbc.topk %p {dim = 1 : i64, largest = true} : (tensor<6x3xf32>) -> (tensor<6x2xf32>, tensor<6x2xi64>)
  %index = tbc.broadcast %indices {dims = array<i64: 0, 1>} : (tensor<6x2xi64>) -> tensor<6x2x3xi64>
  %iota = tbc.iota {dim = 0 : i64} : () -> tensor<3xi64>
  %position = tbc.broadcast %iota {dims = array<i64: 2>} : (tensor<3xi64>) -> tensor<6x2x3xi64>
  %equal = tbc.compare %index, %position {predicate = "eq"} : (tensor<6x2x3xi64>, tensor<6x2x3xi64>) -> tensor<6x2x3xi1>
  %number = tbc.cast %equal : (tensor<6x2x3xi1>) -> tensor<6x2x3xi64>
  %onehot = tbc.cast %number : (tensor<6x2x3xi64>) -> tensor<6x2x3xf32>
  %value = tbc.broadcast %values {dims = array<i64: 0, 1>} : (tensor<6x2xf32>) -> tensor<6x2x3xf32>
  %chosen = tbc.mul %onehot, %value : tensor<6x2x3xf32>
  %w = tbc.reduce_sum %chosen {dims = array<i64: 1>} : (tensor<6x2x3xf32>) -> tensor<6x3xf32>
  %first = tbc.einsum %x, %in {lhs_labels = array<i64: 0, 3>, rhs_labels = array<i64: 1, 2, 3>, out_labels = array<i64: 1, 0, 2>} : (tensor<6x4xf32>, tensor<3x10x4xf32>) -> tensor<3x6x10xf32>
  %gate = tbc.slice %first {dim = 2 : i64, offset = 0 : i64, size = 5 : i64} : (tensor<3x6x10xf32>) -> tensor<3x6x5xf32>
  %up = tbc.slice %first {dim = 2 : i64, offset = 5 : i64, size = 5 : i64} : (tensor<3x6x10xf32>) -> tensor<3x6x5xf32>
  %act = tbc.silu %gate : (tensor<3x6x5xf32>) -> tensor<3x6x5xf32>
  %inner = tbc.mul %act, %up : tensor<3x6x5xf32>
  %each = tbc.einsum %inner, %out {lhs_labels = array<i64: 1, 0, 2>, rhs_labels = array<i64: 1, 3, 2>, out_labels = array<i64: 1, 0, 3>} : (tensor<3x6x5xf32>, tensor<3x4x5xf32>) -> tensor<3x6x4xf32>
  %y = tbc.einsum %each, %w {lhs_labels = array<i64: 1, 0, 3>, rhs_labels = array<i64: 0, 1>, out_labels = array<i64: 0, 3>, tbc.id = "combine"} : (tensor<3x6x4xf32>, tensor<6x3xf32>) -> tensor<6x4xf32>
  return %y : tensor<6x4xf32>
}

// -----

// One layer without a gate; weights in other orders are transposed; the router's choice is scattered.
// CHECK-LABEL: func.func @scattered_plain
// CHECK-DAG:     %[[IN:.+]] = tbc.transpose %arg3 {permutation = array<i64: 0, 2, 1>,
// CHECK-DAG:     %[[OUT:.+]] = tbc.transpose %arg4 {permutation = array<i64: 0, 2, 1>,
// CHECK:         tbc.routed_experts %arg0, %{{.+}}, %[[IN]], %[[OUT]] {activation = "relu", gated = false, tbc.id = "routed_experts.0", top = 1 : i64}
func.func @scattered_plain(%x: tensor<6x4xf32>, %p: tensor<6x1xf32>, %i: tensor<6x1xi64>, %in: tensor<3x4x5xf32>, %out: tensor<3x5x4xf32>) -> tensor<6x4xf32> {
  %w = tbc.scatter_elements_add %p, %i {dim = 1 : i64} : (tensor<6x1xf32>, tensor<6x1xi64>) -> tensor<6x3xf32>
  %first = tbc.einsum %x, %in {lhs_labels = array<i64: 0, 3>, rhs_labels = array<i64: 1, 3, 2>, out_labels = array<i64: 0, 1, 2>} : (tensor<6x4xf32>, tensor<3x4x5xf32>) -> tensor<6x3x5xf32>
  %inner = tbc.relu %first : tensor<6x3x5xf32>
  %each = tbc.einsum %inner, %out {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 1, 2, 3>, out_labels = array<i64: 1, 0, 3>} : (tensor<6x3x5xf32>, tensor<3x5x4xf32>) -> tensor<3x6x4xf32>
  %y = tbc.einsum %w, %each {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 1, 0, 3>, out_labels = array<i64: 0, 3>} : (tensor<6x3xf32>, tensor<3x6x4xf32>) -> tensor<6x4xf32>
  return %y : tensor<6x4xf32>
}

// -----

// Every expert has a weight: a soft mixture computes all of them.
// CHECK-LABEL: func.func @soft
// CHECK-NOT:     routed_experts
func.func @soft(%x: tensor<6x4xf32>, %w: tensor<6x3xf32>, %in: tensor<3x5x4xf32>, %out: tensor<3x4x5xf32>) -> tensor<6x4xf32> {
  %first = tbc.einsum %x, %in {lhs_labels = array<i64: 0, 3>, rhs_labels = array<i64: 1, 2, 3>, out_labels = array<i64: 1, 0, 2>} : (tensor<6x4xf32>, tensor<3x5x4xf32>) -> tensor<3x6x5xf32>
  %inner = tbc.relu %first : tensor<3x6x5xf32>
  %each = tbc.einsum %inner, %out {lhs_labels = array<i64: 1, 0, 2>, rhs_labels = array<i64: 1, 3, 2>, out_labels = array<i64: 1, 0, 3>} : (tensor<3x6x5xf32>, tensor<3x4x5xf32>) -> tensor<3x6x4xf32>
  %y = tbc.einsum %each, %w {lhs_labels = array<i64: 1, 0, 3>, rhs_labels = array<i64: 0, 1>, out_labels = array<i64: 0, 3>} : (tensor<3x6x4xf32>, tensor<6x3xf32>) -> tensor<6x4xf32>
  return %y : tensor<6x4xf32>
}
