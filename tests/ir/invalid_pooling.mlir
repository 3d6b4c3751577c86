// RUN: tbc-opt %s --verify-diagnostics --split-input-file

func.func @max_pool_c1(%x: tensor<2x3xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{pools 'tensor<2x3xf32>', which has no spatial dims}}
  "tbc.max_pool"(%x) {kernel = array<i64>, strides = array<i64>, pads = array<i64>, dilations = array<i64>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @max_pool_c1_kernel(%x: tensor<2x3x8xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{kernel needs a positive size for each of 1 spatial dims}}
  "tbc.max_pool"(%x) {kernel = array<i64: 0>, strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>} : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  return
}

// -----

func.func @max_pool_c2(%x: tensor<2x3x8xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{pad of 2 leaves a window of extent 2 outside the input}}
  "tbc.max_pool"(%x) {kernel = array<i64: 2>, strides = array<i64: 1>, pads = array<i64: 2, 0>, dilations = array<i64: 1>} : (tensor<2x3x8xf32>) -> tensor<2x3x9xf32>
  return
}

// -----

func.func @max_pool_c2_steps_over_all(%x: tensor<2x3x8x2xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{window 0 of spatial dim 1 lies in padding alone: its dilation of 3 steps over all 2 elements, so it has no maximum; reduce the dilation or the pads}}
  "tbc.max_pool"(%x) {kernel = array<i64: 1, 2>, strides = array<i64: 1, 1>, pads = array<i64: 0, 1, 0, 1>, dilations = array<i64: 1, 3>} : (tensor<2x3x8x2xf32>) -> tensor<2x3x8x1xf32>
  return
}

// -----

func.func @max_pool_c2_reaches_one(%x: tensor<2x3x2xf32>) {
  "tbc.max_pool"(%x) {kernel = array<i64: 2>, strides = array<i64: 1>, pads = array<i64: 2, 0>, dilations = array<i64: 3>} : (tensor<2x3x2xf32>) -> tensor<2x3x1xf32>
  return
}

// -----

func.func @max_pool_grad_c1(%x: tensor<2x3x8xf32>, %dy: tensor<2x3x5xf32>) {
  // expected-error@+1 {{has a cotangent of type 'tensor<2x3x5xf32>' for a pooling of type 'tensor<2x3x4xf32>'}}
  "tbc.max_pool_grad"(%x, %dy) {kernel = array<i64: 2>, strides = array<i64: 2>, pads = array<i64: 0, 0>, dilations = array<i64: 1>} : (tensor<2x3x8xf32>, tensor<2x3x5xf32>) -> tensor<2x3x8xf32>
  return
}

// -----

func.func @avg_pool_c1(%x: tensor<2x3x8xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{strides needs a positive number for each of 1 spatial dims}}
  "tbc.avg_pool"(%x) {kernel = array<i64: 2>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0>, count_include_pad = true} : (tensor<2x3x8xf32>) -> tensor<2x3x4xf32>
  return
}

// -----

func.func @avg_pool_c2(%x: tensor<2x3x8xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{window of extent 9 does not fit into 8 elements of spatial dim 0}}
  "tbc.avg_pool"(%x) {kernel = array<i64: 9>, strides = array<i64: 1>, pads = array<i64: 0, 0>, count_include_pad = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
  return
}

// -----

func.func @avg_pool_grad_c1(%dy: tensor<2x3x5xf32>) {
  // expected-error@+1 {{has a cotangent of type 'tensor<2x3x5xf32>' for a pooling of type 'tensor<2x3x4xf32>'}}
  "tbc.avg_pool_grad"(%dy) {kernel = array<i64: 2>, strides = array<i64: 2>, pads = array<i64: 0, 0>, count_include_pad = true} : (tensor<2x3x5xf32>) -> tensor<2x3x8xf32>
  return
}
