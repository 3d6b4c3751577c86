// RUN: tbc-opt %s --verify-diagnostics --split-input-file

func.func @routed_experts_c1(%x: tensor<3x4xf32>, %w: tensor<3x2xf32>, %in: tensor<2x5x4xf32>, %out: tensor<2x6x5xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{routes 'tensor<3x4xf32>' by 'tensor<3x2xf32>' to experts 'tensor<2x5x4xf32>' and 'tensor<2x6x5xf32>'}}
  "tbc.routed_experts"(%x, %w, %in, %out) {activation = "silu", gated = true, top = 1 : i64} : (tensor<3x4xf32>, tensor<3x2xf32>, tensor<2x5x4xf32>, tensor<2x6x5xf32>) -> tensor<3x6xf32>
  return
}

// -----

func.func @routed_experts_c2(%x: tensor<3x4xf32>, %w: tensor<3x2xf32>, %in: tensor<2x5x4xf32>, %out: tensor<2x6x5xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has unknown activation "tanh"; expected silu, gelu, gelu_tanh or relu}}
  "tbc.routed_experts"(%x, %w, %in, %out) {activation = "tanh", gated = false, top = 1 : i64} : (tensor<3x4xf32>, tensor<3x2xf32>, tensor<2x5x4xf32>, tensor<2x6x5xf32>) -> tensor<3x6xf32>
  return
}

// -----

func.func @routed_experts_c2_top(%x: tensor<3x4xf32>, %w: tensor<3x2xf32>, %in: tensor<2x5x4xf32>, %out: tensor<2x6x5xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{routes each token to 0 experts}}
  "tbc.routed_experts"(%x, %w, %in, %out) {activation = "relu", gated = false, top = 0 : i64} : (tensor<3x4xf32>, tensor<3x2xf32>, tensor<2x5x4xf32>, tensor<2x6x5xf32>) -> tensor<3x6xf32>
  return
}

// -----

func.func @routed_experts_grad_c1(%dy: tensor<3x4xf32>, %x: tensor<3x4xf32>, %w: tensor<3x2xf32>, %in: tensor<2x5x4xf32>, %out: tensor<2x6x5xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has a cotangent of type 'tensor<3x4xf32>', expected 'tensor<3x6xf32>'}}
  "tbc.routed_experts_grad"(%dy, %x, %w, %in, %out) {activation = "relu", gated = false, top = 1 : i64} : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x2xf32>, tensor<2x5x4xf32>, tensor<2x6x5xf32>) -> (tensor<3x4xf32>, tensor<3x2xf32>, tensor<2x5x4xf32>, tensor<2x6x5xf32>)
  return
}

// -----

func.func @dispatch_c1(%x: tensor<2x3x4xf32>, %w: tensor<3x2x2xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{deals 'tensor<2x3x4xf32>' by 'tensor<3x2x2xf32>'}}
  "tbc.dispatch"(%x, %w) {capacity = 2 : i64, weighted = false} : (tensor<2x3x4xf32>, tensor<3x2x2xf32>) -> tensor<2x2x2x4xf32>
  return
}

// -----

func.func @dispatch_c1_type(%x: tensor<2x3x4xf32>, %w: tensor<2x3x2xf64>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{deals 'tensor<2x3x4xf32>' by 'tensor<2x3x2xf64>'}}
  "tbc.dispatch"(%x, %w) {capacity = 2 : i64, weighted = false} : (tensor<2x3x4xf32>, tensor<2x3x2xf64>) -> tensor<2x2x2x4xf32>
  return
}

// -----

func.func @dispatch_c2(%x: tensor<2x3x4xf32>, %w: tensor<2x3x2xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{gives each expert 0 slots}}
  "tbc.dispatch"(%x, %w) {capacity = 0 : i64, weighted = false} : (tensor<2x3x4xf32>, tensor<2x3x2xf32>) -> tensor<2x2x0x4xf32>
  return
}

// -----

func.func @combine_c1(%z: tensor<2x3x2x4xf32>, %w: tensor<2x3x2xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{deals 'tensor<2x3x2x4xf32>' by 'tensor<2x3x2xf32>'}}
  "tbc.combine"(%z, %w) {weighted = true} : (tensor<2x3x2x4xf32>, tensor<2x3x2xf32>) -> tensor<2x3x4xf32>
  return
}

// -----

func.func @combine_weights_grad_c1(%dy: tensor<2x3x5xf32>, %z: tensor<2x2x2x4xf32>, %w: tensor<2x3x2xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{deals 'tensor<2x3x5xf32>' and 'tensor<2x2x2x4xf32>' by 'tensor<2x3x2xf32>'}}
  "tbc.combine_weights_grad"(%dy, %z, %w) : (tensor<2x3x5xf32>, tensor<2x2x2x4xf32>, tensor<2x3x2xf32>) -> tensor<2x3x2xf32>
  return
}
