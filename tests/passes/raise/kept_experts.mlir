// RUN: tbc-opt %s --tbc-raise-composites --verify-diagnostics --split-input-file | FileCheck %s

// An activation that the op does not have.
// CHECK-LABEL: func.func @tanh
// CHECK-NOT:     routed_experts
func.func @tanh(%x: tensor<6x4xf32>, %p: tensor<6x3xf32>, %in: tensor<3x10x4xf32>, %out: tensor<3x4x5xf32>) -> tensor<6x4xf32> {
  // expected-remark@+1 {{the experts of this router stay decomposed, so all 3 experts compute all tokens, 1.5 times the FLOPs of the top 2; their matmuls are 93.8 % of the FLOPs of all matmuls. Between their two layers stand mul, tanh; routed_experts has}}
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
  %act = tbc.tanh %gate : tensor<3x6x5xf32>
  %inner = tbc.mul %act, %up : tensor<3x6x5xf32>
  %each = tbc.einsum %inner, %out {lhs_labels = array<i64: 1, 0, 2>, rhs_labels = array<i64: 1, 3, 2>, out_labels = array<i64: 1, 0, 3>} : (tensor<3x6x5xf32>, tensor<3x4x5xf32>) -> tensor<3x6x4xf32>
  %y = tbc.einsum %each, %w {lhs_labels = array<i64: 1, 0, 3>, rhs_labels = array<i64: 0, 1>, out_labels = array<i64: 0, 3>, tbc.id = "combine"} : (tensor<3x6x4xf32>, tensor<6x3xf32>) -> tensor<6x4xf32>
  return %y : tensor<6x4xf32>
}

// -----

// gpt-oss: gate and up interleaved, both clamped, (up + 1) * gate * sigmoid(gate), biases.
// CHECK-LABEL: func.func @clamped
// CHECK-NOT:     routed_experts
func.func @clamped(%x: tensor<6x4xf32>, %p: tensor<6x3xf32>, %in: tensor<3x10x4xf32>, %bin: tensor<3x6x10xf32>, %out: tensor<3x4x5xf32>, %bout: tensor<3x6x4xf32>, %low: tensor<3x6x5xf32>, %limit: tensor<3x6x5xf32>, %one: tensor<3x6x5xf32>) -> tensor<6x4xf32> {
  // expected-remark@+1 {{so all 3 experts compute all tokens, 1.5 times the FLOPs of the top 2; their matmuls are 93.8 % of the FLOPs of all matmuls. Between their two layers stand swiglu, minimum, add, maximum;}}
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
  %product = tbc.einsum %x, %in {lhs_labels = array<i64: 0, 3>, rhs_labels = array<i64: 1, 2, 3>, out_labels = array<i64: 1, 0, 2>} : (tensor<6x4xf32>, tensor<3x10x4xf32>) -> tensor<3x6x10xf32>
  %first = tbc.add %product, %bin : tensor<3x6x10xf32>
  %pairs = tbc.reshape %first {sizes = array<i64: 3, 6, 5, 2>, in = array<i64: 1, 1, 2>, out = array<i64: 1, 1, 1, 1>} : (tensor<3x6x10xf32>) -> tensor<3x6x5x2xf32>
  %even = tbc.slice %pairs {dim = 3 : i64, offset = 0 : i64, size = 1 : i64} : (tensor<3x6x5x2xf32>) -> tensor<3x6x5x1xf32>
  %odd = tbc.slice %pairs {dim = 3 : i64, offset = 1 : i64, size = 1 : i64} : (tensor<3x6x5x2xf32>) -> tensor<3x6x5x1xf32>
  %gate = tbc.reshape %even {sizes = array<i64: 3, 6, 5>, in = array<i64: 1, 1, 1, 0>, out = array<i64: 1, 1, 1>} : (tensor<3x6x5x1xf32>) -> tensor<3x6x5xf32>
  %up = tbc.reshape %odd {sizes = array<i64: 3, 6, 5>, in = array<i64: 1, 1, 1, 0>, out = array<i64: 1, 1, 1>} : (tensor<3x6x5x1xf32>) -> tensor<3x6x5xf32>
  %most = tbc.minimum %gate, %limit : tensor<3x6x5xf32>
  %below = tbc.minimum %up, %limit : tensor<3x6x5xf32>
  %within = tbc.maximum %below, %low : tensor<3x6x5xf32>
  %sigmoid = tbc.sigmoid %most : tensor<3x6x5xf32>
  %glu = tbc.mul %most, %sigmoid : tensor<3x6x5xf32>
  %shifted = tbc.add %within, %one : tensor<3x6x5xf32>
  %inner = tbc.mul %shifted, %glu : tensor<3x6x5xf32>
  %second = tbc.einsum %inner, %out {lhs_labels = array<i64: 1, 0, 2>, rhs_labels = array<i64: 1, 3, 2>, out_labels = array<i64: 1, 0, 3>} : (tensor<3x6x5xf32>, tensor<3x4x5xf32>) -> tensor<3x6x4xf32>
  %each = tbc.add %second, %bout : tensor<3x6x4xf32>
  %y = tbc.einsum %each, %w {lhs_labels = array<i64: 1, 0, 3>, rhs_labels = array<i64: 0, 1>, out_labels = array<i64: 0, 3>, tbc.id = "combine"} : (tensor<3x6x4xf32>, tensor<6x3xf32>) -> tensor<6x4xf32>
  return %y : tensor<6x4xf32>
}

// -----

// Weights that are gathered for each choice, with a clamp between the layers.
// CHECK-LABEL: func.func @gathered
// CHECK-NOT:     routed_experts
func.func @gathered(%x: tensor<6x4xf32>, %p: tensor<6x3xf32>, %limit: tensor<12x5xf32>, %in: tensor<3x4x5xf32>, %out: tensor<3x5x4xf32>) -> tensor<6x4xf32> {
  // expected-remark@+1 {{so 0.3 KiB of weights are copied for each token; their matmuls are 100.0 % of the FLOPs of all matmuls. Between their two layers stand minimum;}}
  %values, %indices = tbc.topk %p {dim = 1 : i64, largest = true} : (tensor<6x3xf32>) -> (tensor<6x2xf32>, tensor<6x2xi64>)
  %rows = tbc.broadcast %x {dims = array<i64: 0, 2>} : (tensor<6x4xf32>) -> tensor<6x2x4xf32>
  %row = tbc.reshape %rows {sizes = array<i64: 6, 2, 4>, in = array<i64: 1, 1, 1>, out = array<i64: 2, 1>} : (tensor<6x2x4xf32>) -> tensor<12x4xf32>
  %index = tbc.reshape %indices {sizes = array<i64: 6, 2>, in = array<i64: 1, 1>, out = array<i64: 2>} : (tensor<6x2xi64>) -> tensor<12xi64>
  %first = tbc.gather %in, %index {dim = 0 : i64} : (tensor<3x4x5xf32>, tensor<12xi64>) -> tensor<12x4x5xf32>
  %second = tbc.gather %out, %index {dim = 0 : i64} : (tensor<3x5x4xf32>, tensor<12xi64>) -> tensor<12x5x4xf32>
  %gate = tbc.einsum %row, %first {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 0, 1, 2>, out_labels = array<i64: 0, 2>} : (tensor<12x4xf32>, tensor<12x4x5xf32>) -> tensor<12x5xf32>
  %inner = tbc.minimum %gate, %limit : tensor<12x5xf32>
  %each = tbc.einsum %inner, %second {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 0, 1, 2>, out_labels = array<i64: 0, 2>} : (tensor<12x5xf32>, tensor<12x5x4xf32>) -> tensor<12x4xf32>
  %weight = tbc.reshape %values {sizes = array<i64: 6, 2>, in = array<i64: 1, 1>, out = array<i64: 2>} : (tensor<6x2xf32>) -> tensor<12xf32>
  %spread = tbc.broadcast %weight {dims = array<i64: 0>} : (tensor<12xf32>) -> tensor<12x4xf32>
  %weighted = tbc.mul %each, %spread : tensor<12x4xf32>
  %choices = tbc.reshape %weighted {sizes = array<i64: 6, 2, 4>, in = array<i64: 2, 1>, out = array<i64: 1, 1, 1>} : (tensor<12x4xf32>) -> tensor<6x2x4xf32>
  %y = tbc.reduce_sum %choices {dims = array<i64: 1>} : (tensor<6x2x4xf32>) -> tensor<6x4xf32>
  return %y : tensor<6x4xf32>
}

// -----

// A topk that routes to nothing, such as a beam, gives no remark.
func.func @beam(%p: tensor<6x3xf32>) -> tensor<6x2xf32> {
  %values, %indices = tbc.topk %p {dim = 1 : i64, largest = true} : (tensor<6x3xf32>) -> (tensor<6x2xf32>, tensor<6x2xi64>)
  return %values : tensor<6x2xf32>
}

// -----

// A mixture of depths: the top-k chooses tokens for one block, so there are no experts to warn of.
// CHECK-LABEL: func.func @depths
// CHECK:         tbc.topk
func.func @depths(%x: tensor<2x6x4xf32>, %p: tensor<2x6xf32>, %in: tensor<10x4xf32>, %out: tensor<4x10xf32>) -> tensor<2x6x4xf32> {
  %values, %indices = tbc.topk %p {dim = 1 : i64, largest = true} : (tensor<2x6xf32>) -> (tensor<2x3xf32>, tensor<2x3xi64>)
  %places = tbc.broadcast %indices {dims = array<i64: 0, 1>} : (tensor<2x3xi64>) -> tensor<2x3x4xi64>
  %chosen = tbc.gather_elements %x, %places {dim = 1 : i64} : (tensor<2x6x4xf32>, tensor<2x3x4xi64>) -> tensor<2x3x4xf32>
  %up = tbc.einsum %chosen, %in {lhs_labels = array<i64: 0, 1, 3>, rhs_labels = array<i64: 2, 3>, out_labels = array<i64: 0, 1, 2>} : (tensor<2x3x4xf32>, tensor<10x4xf32>) -> tensor<2x3x10xf32>
  %act = tbc.relu %up : tensor<2x3x10xf32>
  %down = tbc.einsum %act, %out {lhs_labels = array<i64: 0, 1, 2>, rhs_labels = array<i64: 3, 2>, out_labels = array<i64: 0, 1, 3>} : (tensor<2x3x10xf32>, tensor<4x10xf32>) -> tensor<2x3x4xf32>
  %weights = tbc.broadcast %values {dims = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<2x3x4xf32>
  %update = tbc.mul %down, %weights : tensor<2x3x4xf32>
  %back = tbc.scatter_elements_add %update, %places {dim = 1 : i64} : (tensor<2x3x4xf32>, tensor<2x3x4xi64>) -> tensor<2x6x4xf32>
  %y = tbc.add %x, %back : tensor<2x6x4xf32>
  return %y : tensor<2x6x4xf32>
}

// -----

// Expert choice: 3 experts choose 3 of 6 tokens each, and compute no more. The 6 inner numbers of an
// expert are no experts.
// CHECK-LABEL: func.func @expert_choice
// CHECK:         tbc.topk
func.func @expert_choice(%x: tensor<2x6x4xf32>, %p: tensor<2x3x6xf32>, %in: tensor<3x4x6xf32>, %out: tensor<3x6x4xf32>) -> tensor<2x6x4xf32> {
  %values, %indices = tbc.topk %p {dim = 2 : i64, largest = true} : (tensor<2x3x6xf32>) -> (tensor<2x3x3xf32>, tensor<2x3x3xi64>)
  %tokens = tbc.broadcast %x {dims = array<i64: 0, 2, 3>} : (tensor<2x6x4xf32>) -> tensor<2x3x6x4xf32>
  %places = tbc.broadcast %indices {dims = array<i64: 0, 1, 2>} : (tensor<2x3x3xi64>) -> tensor<2x3x3x4xi64>
  %chosen = tbc.gather_elements %tokens, %places {dim = 2 : i64} : (tensor<2x3x6x4xf32>, tensor<2x3x3x4xi64>) -> tensor<2x3x3x4xf32>
  %up = tbc.einsum %chosen, %in {lhs_labels = array<i64: 0, 1, 2, 3>, rhs_labels = array<i64: 1, 3, 4>, out_labels = array<i64: 0, 1, 2, 4>} : (tensor<2x3x3x4xf32>, tensor<3x4x6xf32>) -> tensor<2x3x3x6xf32>
  %act = tbc.relu %up : tensor<2x3x3x6xf32>
  %down = tbc.einsum %act, %out {lhs_labels = array<i64: 0, 1, 2, 4>, rhs_labels = array<i64: 1, 4, 3>, out_labels = array<i64: 0, 1, 2, 3>} : (tensor<2x3x3x6xf32>, tensor<3x6x4xf32>) -> tensor<2x3x3x4xf32>
  %weights = tbc.broadcast %values {dims = array<i64: 0, 1, 2>} : (tensor<2x3x3xf32>) -> tensor<2x3x3x4xf32>
  %update = tbc.mul %down, %weights : tensor<2x3x3x4xf32>
  %rows = tbc.reshape %update {sizes = array<i64: 2, 3, 3, 4>, in = array<i64: 1, 1, 1, 1>, out = array<i64: 1, 2, 1>} : (tensor<2x3x3x4xf32>) -> tensor<2x9x4xf32>
  %index = tbc.reshape %places {sizes = array<i64: 2, 3, 3, 4>, in = array<i64: 1, 1, 1, 1>, out = array<i64: 1, 2, 1>} : (tensor<2x3x3x4xi64>) -> tensor<2x9x4xi64>
  %back = tbc.scatter_elements_add %rows, %index {dim = 1 : i64} : (tensor<2x9x4xf32>, tensor<2x9x4xi64>) -> tensor<2x6x4xf32>
  %y = tbc.add %x, %back : tensor<2x6x4xf32>
  return %y : tensor<2x6x4xf32>
}
