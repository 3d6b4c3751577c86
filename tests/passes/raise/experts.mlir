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

// The same with a one-hot of floats that is selected, as jax2onnx writes it.
// CHECK-LABEL: func.func @selected
// CHECK-SAME:    %[[X:.+]]: tensor<6x4xf32>, %[[P:.+]]: tensor<6x3xf32>, %[[IN:.+]]: tensor<3x10x4xf32>, %[[OUT:.+]]: tensor<3x4x5xf32>
// CHECK:         %[[W:.+]] = tbc.reduce_sum
// CHECK-NEXT:    %[[Y:.+]] = tbc.routed_experts %[[X]], %[[W]], %[[IN]], %[[OUT]] {activation = "silu", gated = true, tbc.id = "combine", top = 2 : i64}
// CHECK-NEXT:    return %[[Y]]
func.func @selected(%x: tensor<6x4xf32>, %p: tensor<6x3xf32>, %in: tensor<3x10x4xf32>, %out: tensor<3x4x5xf32>) -> tensor<6x4xf32> {
  %values, %indices = tbc.topk %p {dim = 1 : i64, largest = true} : (tensor<6x3xf32>) -> (tensor<6x2xf32>, tensor<6x2xi64>)
  %index = tbc.broadcast %indices {dims = array<i64: 0, 1>} : (tensor<6x2xi64>) -> tensor<6x2x3xi64>
  %iota = tbc.iota {dim = 0 : i64} : () -> tensor<3xi64>
  %position = tbc.broadcast %iota {dims = array<i64: 2>} : (tensor<3xi64>) -> tensor<6x2x3xi64>
  %equal = tbc.compare %index, %position {predicate = "eq"} : (tensor<6x2x3xi64>, tensor<6x2x3xi64>) -> tensor<6x2x3xi1>
  %one = tbc.constant dense<1.0> : tensor<6x2x3xf32> : tensor<6x2x3xf32>
  %zero = tbc.constant dense<0.0> : tensor<6x2x3xf32> : tensor<6x2x3xf32>
  %onehot = tbc.select %equal, %one, %zero : (tensor<6x2x3xi1>, tensor<6x2x3xf32>, tensor<6x2x3xf32>) -> tensor<6x2x3xf32>
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

// -----

// A loop over two of three experts, not in order; a shared expert beside them stays a sum.
// CHECK-LABEL: func.func @loop
// CHECK-SAME:    %[[X:.+]]: tensor<6x4xf32>, %[[I:.+]]: tensor<6x2xi64>, %[[W:.+]]: tensor<6x2xf32>, %[[A0:[a-z0-9]+]]: tensor<5x4xf32>, %[[B0:.+]]: tensor<4x5xf32>, %[[A1:.+]]: tensor<5x4xf32>, %[[B1:.+]]: tensor<4x5xf32>
// CHECK-DAG:     %[[F0:.+]] = tbc.reshape %[[A0]]
// CHECK-DAG:     %[[F1:.+]] = tbc.reshape %[[A1]]
// CHECK:         %[[IN:.+]] = tbc.concat %[[F0]], %[[F1]] {dim = 0
// CHECK:         %[[Y:.+]] = tbc.routed_experts %[[X]], %{{.+}}, %[[IN]], %{{.+}} {activation = "relu", gated = false, {{.*}}top = 2 : i64}
// CHECK:         tbc.add %[[X]], %[[Y]]
func.func @loop(%x: tensor<6x4xf32>, %i: tensor<6x2xi64>, %w: tensor<6x2xf32>, %a0: tensor<5x4xf32>, %b0: tensor<4x5xf32>, %a1: tensor<5x4xf32>, %b1: tensor<4x5xf32>) -> tensor<6x4xf32> {
  %zero = tbc.constant dense<0.0> : tensor<f32> : tensor<f32>
  %zeros = tbc.broadcast %zero {dims = array<i64>} : (tensor<f32>) -> tensor<6x2xf32>
  %c1 = tbc.constant dense<1> : tensor<i64> : tensor<i64>
  %e1 = tbc.broadcast %c1 {dims = array<i64>} : (tensor<i64>) -> tensor<6x2xi64>
  %m1 = tbc.compare %i, %e1 {predicate = "eq"} : (tensor<6x2xi64>, tensor<6x2xi64>) -> tensor<6x2xi1>
  %s1 = tbc.select %m1, %w, %zeros : (tensor<6x2xi1>, tensor<6x2xf32>, tensor<6x2xf32>) -> tensor<6x2xf32>
  %w1 = tbc.reduce_sum %s1 {dims = array<i64: 1>} : (tensor<6x2xf32>) -> tensor<6xf32>
  %c0 = tbc.constant dense<0> : tensor<i64> : tensor<i64>
  %e0 = tbc.broadcast %c0 {dims = array<i64>} : (tensor<i64>) -> tensor<6x2xi64>
  %m0 = tbc.compare %i, %e0 {predicate = "eq"} : (tensor<6x2xi64>, tensor<6x2xi64>) -> tensor<6x2xi1>
  %s0 = tbc.select %m0, %w, %zeros : (tensor<6x2xi1>, tensor<6x2xf32>, tensor<6x2xf32>) -> tensor<6x2xf32>
  %w0 = tbc.reduce_sum %s0 {dims = array<i64: 1>} : (tensor<6x2xf32>) -> tensor<6xf32>
  %p1 = tbc.einsum %x, %a1 {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 2, 1>, out_labels = array<i64: 0, 2>} : (tensor<6x4xf32>, tensor<5x4xf32>) -> tensor<6x5xf32>
  %h1 = tbc.relu %p1 : tensor<6x5xf32>
  %y1 = tbc.einsum %h1, %b1 {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 2, 1>, out_labels = array<i64: 0, 2>} : (tensor<6x5xf32>, tensor<4x5xf32>) -> tensor<6x4xf32>
  %w1all = tbc.broadcast %w1 {dims = array<i64: 0>} : (tensor<6xf32>) -> tensor<6x4xf32>
  %t1 = tbc.mul %y1, %w1all : tensor<6x4xf32>
  %r1 = tbc.add %x, %t1 : tensor<6x4xf32>
  %p0 = tbc.einsum %x, %a0 {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 2, 1>, out_labels = array<i64: 0, 2>} : (tensor<6x4xf32>, tensor<5x4xf32>) -> tensor<6x5xf32>
  %h0 = tbc.relu %p0 : tensor<6x5xf32>
  %y0 = tbc.einsum %h0, %b0 {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 2, 1>, out_labels = array<i64: 0, 2>} : (tensor<6x5xf32>, tensor<4x5xf32>) -> tensor<6x4xf32>
  %w0all = tbc.broadcast %w0 {dims = array<i64: 0>} : (tensor<6xf32>) -> tensor<6x4xf32>
  %t0 = tbc.mul %y0, %w0all : tensor<6x4xf32>
  %y = tbc.add %r1, %t0 {tbc.id = "last"} : tensor<6x4xf32>
  return %y : tensor<6x4xf32>
}

// -----

// The same expert twice, and experts chosen by different routers: not one mixture.
// CHECK-LABEL: func.func @twice
// CHECK-NOT:     routed_experts
func.func @twice(%x: tensor<6x4xf32>, %i: tensor<6x2xi64>, %j: tensor<6x2xi64>, %w: tensor<6x2xf32>, %a0: tensor<5x4xf32>, %b0: tensor<4x5xf32>, %a1: tensor<5x4xf32>, %b1: tensor<4x5xf32>) -> tensor<6x4xf32> {
  %zero = tbc.constant dense<0.0> : tensor<f32> : tensor<f32>
  %zeros = tbc.broadcast %zero {dims = array<i64>} : (tensor<f32>) -> tensor<6x2xf32>
  %c0 = tbc.constant dense<0> : tensor<i64> : tensor<i64>
  %e0 = tbc.broadcast %c0 {dims = array<i64>} : (tensor<i64>) -> tensor<6x2xi64>
  %m0 = tbc.compare %i, %e0 {predicate = "eq"} : (tensor<6x2xi64>, tensor<6x2xi64>) -> tensor<6x2xi1>
  %s0 = tbc.select %m0, %w, %zeros : (tensor<6x2xi1>, tensor<6x2xf32>, tensor<6x2xf32>) -> tensor<6x2xf32>
  %w0 = tbc.reduce_sum %s0 {dims = array<i64: 1>} : (tensor<6x2xf32>) -> tensor<6xf32>
  %m1 = tbc.compare %j, %e0 {predicate = "eq"} : (tensor<6x2xi64>, tensor<6x2xi64>) -> tensor<6x2xi1>
  %s1 = tbc.select %m1, %w, %zeros : (tensor<6x2xi1>, tensor<6x2xf32>, tensor<6x2xf32>) -> tensor<6x2xf32>
  %w1 = tbc.reduce_sum %s1 {dims = array<i64: 1>} : (tensor<6x2xf32>) -> tensor<6xf32>
  %p0 = tbc.einsum %x, %a0 {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 2, 1>, out_labels = array<i64: 0, 2>} : (tensor<6x4xf32>, tensor<5x4xf32>) -> tensor<6x5xf32>
  %h0 = tbc.relu %p0 : tensor<6x5xf32>
  %y0 = tbc.einsum %h0, %b0 {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 2, 1>, out_labels = array<i64: 0, 2>} : (tensor<6x5xf32>, tensor<4x5xf32>) -> tensor<6x4xf32>
  %w0all = tbc.broadcast %w0 {dims = array<i64: 0>} : (tensor<6xf32>) -> tensor<6x4xf32>
  %t0 = tbc.mul %y0, %w0all : tensor<6x4xf32>
  %p1 = tbc.einsum %x, %a1 {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 2, 1>, out_labels = array<i64: 0, 2>} : (tensor<6x4xf32>, tensor<5x4xf32>) -> tensor<6x5xf32>
  %h1 = tbc.relu %p1 : tensor<6x5xf32>
  %y1 = tbc.einsum %h1, %b1 {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 2, 1>, out_labels = array<i64: 0, 2>} : (tensor<6x5xf32>, tensor<4x5xf32>) -> tensor<6x4xf32>
  %w1all = tbc.broadcast %w1 {dims = array<i64: 0>} : (tensor<6xf32>) -> tensor<6x4xf32>
  %t1 = tbc.mul %y1, %w1all : tensor<6x4xf32>
  %y = tbc.add %t0, %t1 : tensor<6x4xf32>
  return %y : tensor<6x4xf32>
}
