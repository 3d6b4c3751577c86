// RUN: tbc-opt %s --verify-diagnostics --split-input-file

func.func @conv_c1(%x: tensor<2x3x8xf32>, %w: tensor<4x3x3x3xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{convolves 'tensor<2x3x8xf32>' with 'tensor<4x3x3x3xf32>'}}
  "tbc.conv"(%x, %w) {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, groups = 1 : i64} : (tensor<2x3x8xf32>, tensor<4x3x3x3xf32>) -> tensor<2x4x6xf32>
  return
}

// -----

func.func @conv_c2(%x: tensor<2x3x8xf32>, %w: tensor<4x3x3xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{strides needs a positive number for each of 1 spatial dims}}
  "tbc.conv"(%x, %w) {strides = array<i64: 0>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, groups = 1 : i64} : (tensor<2x3x8xf32>, tensor<4x3x3xf32>) -> tensor<2x4x6xf32>
  return
}

// -----

func.func @conv_c2_pads(%x: tensor<2x3x8xf32>, %w: tensor<4x3x3xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{pads needs two numbers, not negative, for each of 1 spatial dims}}
  "tbc.conv"(%x, %w) {strides = array<i64: 1>, pads = array<i64: 0>, dilations = array<i64: 1>, groups = 1 : i64} : (tensor<2x3x8xf32>, tensor<4x3x3xf32>) -> tensor<2x4x6xf32>
  return
}

// -----

func.func @conv_c3(%x: tensor<2x3x8xf32>, %w: tensor<4x3x3xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{2 groups do not split}}
  "tbc.conv"(%x, %w) {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, groups = 2 : i64} : (tensor<2x3x8xf32>, tensor<4x3x3xf32>) -> tensor<2x4x6xf32>
  return
}

// -----

func.func @conv_c4(%x: tensor<2x3x2xf32>, %w: tensor<4x3x3xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{window of extent 3 does not fit into 2 elements of spatial dim 0}}
  "tbc.conv"(%x, %w) {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, groups = 1 : i64} : (tensor<2x3x2xf32>, tensor<4x3x3xf32>) -> tensor<2x4x1xf32>
  return
}

// -----

func.func @conv_grad_input_c1(%dy: tensor<2x4x5xf32>, %w: tensor<4x3x3xf32>) {
  // expected-error@+1 {{has a cotangent of type 'tensor<2x4x5xf32>' for a convolution of type 'tensor<2x4x6xf32>'}}
  "tbc.conv_grad_input"(%dy, %w) {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, groups = 1 : i64} : (tensor<2x4x5xf32>, tensor<4x3x3xf32>) -> tensor<2x3x8xf32>
  return
}

// -----

func.func @conv_grad_weight_c1(%x: tensor<2x3x8xf32>, %dy: tensor<2x4x5xf32>) {
  // expected-error@+1 {{has a cotangent of type 'tensor<2x4x5xf32>' for a convolution of type 'tensor<2x4x6xf32>'}}
  "tbc.conv_grad_weight"(%x, %dy) {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, groups = 1 : i64} : (tensor<2x3x8xf32>, tensor<2x4x5xf32>) -> tensor<4x3x3xf32>
  return
}
