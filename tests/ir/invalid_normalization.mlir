// RUN: tbc-opt %s --verify-diagnostics --split-input-file

func.func @softmax_c1(%x: tensor<2x3xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{names dim 2 of 'tensor<2x3xf32>'}}
  "tbc.softmax"(%x) {dim = 2 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @softmax_grad_c1(%y: tensor<2x3xf32>, %dy: tensor<3x2xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has a cotangent of type 'tensor<3x2xf32>' for 'tensor<2x3xf32>'}}
  "tbc.softmax_grad"(%y, %dy) {dim = 1 : i64} : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @layer_norm_c1(%x: tensor<2x3xf32>, %w: tensor<2xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has a weight or bias of type 'tensor<2xf32>', expected 'tensor<3xf32>'}}
  "tbc.layer_norm"(%x, %w, %w) {epsilon = 1.0e-5 : f64} : (tensor<2x3xf32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<2x3xf32>, tensor<2xf32>, tensor<2xf32>)
  return
}

// -----

func.func @layer_norm_grad_c1(%x: tensor<2x3xbf16>, %w: tensor<3xbf16>, %s: tensor<2xbf16>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has a statistic of type 'tensor<2xbf16>', expected 'tensor<2xf32>'}}
  "tbc.layer_norm_grad"(%x, %x, %w, %s, %s) : (tensor<2x3xbf16>, tensor<2x3xbf16>, tensor<3xbf16>, tensor<2xbf16>, tensor<2xbf16>) -> tensor<2x3xbf16>
  return
}

// -----

func.func @norm_scale_grad_c1(%x: tensor<2x3xf32>, %dy: tensor<2x4xf32>, %s: tensor<2xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has a cotangent of type 'tensor<2x4xf32>' for 'tensor<2x3xf32>'}}
  "tbc.norm_scale_grad"(%dy, %x, %s, %s) : (tensor<2x4xf32>, tensor<2x3xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @rms_norm_c1(%x: tensor<f32>, %w: tensor<1xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{normalizes a scalar, which has no last dim}}
  "tbc.rms_norm"(%x, %w) {epsilon = 1.0e-5 : f64} : (tensor<f32>, tensor<1xf32>) -> (tensor<f32>, tensor<f32>)
  return
}

// -----

func.func @rms_norm_grad_c1(%x: tensor<2x3xf32>, %w: tensor<3xf32>, %s: tensor<3xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has a statistic of type 'tensor<3xf32>', expected 'tensor<2xf32>'}}
  "tbc.rms_norm_grad"(%x, %x, %w, %s) : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @rms_scale_grad_c1(%x: tensor<2x3xf32>, %s: tensor<3xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has a statistic of type 'tensor<3xf32>', expected 'tensor<2xf32>'}}
  "tbc.rms_scale_grad"(%x, %x, %s) : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @batch_norm_c1(%x: tensor<2x3x4xf32>, %c: tensor<4xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has a vector of type 'tensor<4xf32>' for 3 channels}}
  "tbc.batch_norm"(%x, %c, %c, %c, %c) {epsilon = 1.0e-5 : f64, momentum = 0.9 : f64} : (tensor<2x3x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<2x3x4xf32>
  return
}

// -----

func.func @batch_norm_train_c1(%x: tensor<2xf32>, %c: tensor<2xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{normalizes 'tensor<2xf32>', which has no channels}}
  "tbc.batch_norm_train"(%x, %c, %c, %c, %c) {epsilon = 1.0e-5 : f64, momentum = 0.9 : f64} : (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>)
  return
}

// -----

func.func @batch_norm_train_c2(%x: tensor<1x3xf32>, %c: tensor<3xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{takes the variance of fewer than two elements per channel}}
  "tbc.batch_norm_train"(%x, %c, %c, %c, %c) {epsilon = 1.0e-5 : f64, momentum = 0.9 : f64} : (tensor<1x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<1x3xf32>, tensor<3xf32>, tensor<3xf32>)
  return
}
