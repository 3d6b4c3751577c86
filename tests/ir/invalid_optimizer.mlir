// RUN: tbc-opt %s --verify-diagnostics --split-input-file

func.func @sgd_c1(%p: tensor<2x3xf32>, %g: tensor<3x2xf32>, %rate: tensor<f32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{updates 'tensor<2x3xf32>' by 'tensor<3x2xf32>'}}
  "tbc.sgd"(%p, %g, %rate) {weight_decay = 0.0 : f64} : (tensor<2x3xf32>, tensor<3x2xf32>, tensor<f32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @sgd_momentum_c1(%p: tensor<2x3xf32>, %b: tensor<6xf32>, %rate: tensor<f32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{updates 'tensor<2x3xf32>' by 'tensor<6xf32>'}}
  "tbc.sgd_momentum"(%p, %p, %b, %rate) {momentum = 0.9 : f64, nesterov = false, weight_decay = 0.0 : f64} : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<6xf32>, tensor<f32>) -> (tensor<2x3xf32>, tensor<6xf32>)
  return
}

// -----

func.func @adam_c1(%p: tensor<2x3xf32>, %v: tensor<2xf32>, %rate: tensor<f32>, %step: tensor<i64>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{updates 'tensor<2x3xf32>' by 'tensor<2xf32>'}}
  "tbc.adam"(%p, %p, %p, %v, %rate, %step) {beta1 = 0.9 : f64, beta2 = 0.999 : f64, epsilon = 1.0e-8 : f64, weight_decay = 0.01 : f64} : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2xf32>, tensor<f32>, tensor<i64>) -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2xf32>)
  return
}

// -----

func.func @step_total_c1(%s: tensor<f64>, %t: tensor<f32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{adds up 'tensor<f32>' beside 'tensor<f64>'}}
  "tbc.step_total"(%s, %t) : (tensor<f64>, tensor<f32>) -> (tensor<f64>, tensor<f32>)
  return
}

// -----

func.func @update_if_c1(%p: tensor<2xf32>, %q: tensor<2xbf16>, %c: tensor<i1>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{replaces 'tensor<2xf32>' by 'tensor<2xbf16>'}}
  "tbc.update_if"(%p, %q, %c) : (tensor<2xf32>, tensor<2xbf16>, tensor<i1>) -> tensor<2xf32>
  return
}

// -----

func.func @adamw_c1(%p: tensor<2x3xf32>, %v: tensor<2xf32>, %rate: tensor<f32>, %step: tensor<i64>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{updates 'tensor<2x3xf32>' by 'tensor<2xf32>'}}
  "tbc.adamw"(%p, %p, %p, %v, %rate, %step) {beta1 = 0.9 : f64, beta2 = 0.999 : f64, epsilon = 1.0e-8 : f64, weight_decay = 0.01 : f64} : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2xf32>, tensor<f32>, tensor<i64>) -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2xf32>)
  return
}

// -----

func.func @update_loss_scale_c1(%s: tensor<f32>, %t: tensor<i64>, %ok: tensor<i1>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{grows every 0 steps}}
  "tbc.update_loss_scale"(%s, %t, %ok) {growth_factor = 2.0 : f64, backoff_factor = 0.5 : f64, growth_interval = 0 : i64} : (tensor<f32>, tensor<i64>, tensor<i1>) -> (tensor<f32>, tensor<i64>)
  return
}

// -----

func.func @update_loss_scale_c2(%s: tensor<f32>, %t: tensor<i64>, %ok: tensor<i1>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{multiplies the scale by 0.000000e+00}}
  "tbc.update_loss_scale"(%s, %t, %ok) {growth_factor = 2.0 : f64, backoff_factor = 0.0 : f64, growth_interval = 2 : i64} : (tensor<f32>, tensor<i64>, tensor<i1>) -> (tensor<f32>, tensor<i64>)
  return
}

// -----

func.func @muon_momentum_c1(%b: tensor<2x3xf32>, %g: tensor<6xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{updates 'tensor<2x3xf32>' by 'tensor<6xf32>'}}
  "tbc.muon_momentum"(%g, %b) {momentum = 0.9 : f64, nesterov = false} : (tensor<6xf32>, tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>)
  return
}

// -----

func.func @divide_by_norm_c1(%x: tensor<2x3xf32>, %s: tensor<6xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{updates 'tensor<2x3xf32>' by 'tensor<6xf32>'}}
  "tbc.divide_by_norm"(%x, %s) {epsilon = 1.0e-7 : f64} : (tensor<2x3xf32>, tensor<6xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @weighted_sum_c1(%x: tensor<2x3xf32>, %y: tensor<6xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{updates 'tensor<2x3xf32>' by 'tensor<6xf32>'}}
  "tbc.weighted_sum"(%x, %y) {alpha = 1.0 : f64, beta = 1.0 : f64} : (tensor<2x3xf32>, tensor<6xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @muon_step_c1(%p: tensor<2x3xf32>, %d: tensor<6xf32>, %rate: tensor<f32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{updates 'tensor<2x3xf32>' by 'tensor<6xf32>'}}
  "tbc.muon_step"(%p, %d, %rate) {scale = 1.0 : f64, weight_decay = 0.0 : f64} : (tensor<2x3xf32>, tensor<6xf32>, tensor<f32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @factored_moment_c1(%s: tensor<6xf32>, %m: tensor<2x3xf32>, %step: tensor<i64>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{updates 'tensor<2x3xf32>' by 'tensor<6xf32>'}}
  "tbc.factored_moment"(%s, %m, %step) {count = 4 : i64, beta2_decay = -0.8 : f64} : (tensor<6xf32>, tensor<2x3xf32>, tensor<i64>) -> tensor<2x3xf32>
  return
}

// -----

func.func @factored_moment_c2(%s: tensor<6xf32>, %m: tensor<6xf32>, %step: tensor<i64>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{takes a mean of 0 elements}}
  "tbc.factored_moment"(%s, %m, %step) {count = 0 : i64, beta2_decay = -0.8 : f64} : (tensor<6xf32>, tensor<6xf32>, tensor<i64>) -> tensor<6xf32>
  return
}

// -----

func.func @factored_direction_c1(%g: tensor<2x3xf32>, %r: tensor<2xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{updates 'tensor<2x3xf32>' by 'tensor<2xf32>'}}
  "tbc.factored_direction"(%g, %r, %g, %g) {count = 2 : i64, epsilon = 1.0e-7 : f64} : (tensor<2x3xf32>, tensor<2xf32>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @factored_direction_c2(%g: tensor<2x3xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{takes a mean of -1 elements}}
  "tbc.factored_direction"(%g, %g, %g, %g) {count = -1 : i64, epsilon = 1.0e-7 : f64} : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @root_direction_c1(%g: tensor<2x3xf32>, %m: tensor<6xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{updates 'tensor<2x3xf32>' by 'tensor<6xf32>'}}
  "tbc.root_direction"(%g, %m) {epsilon = 1.0e-7 : f64} : (tensor<2x3xf32>, tensor<6xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @square_totals_c1(%x: tensor<2x3xf32>, %y: tensor<6xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{adds up squares of 'tensor<6xf32>' beside 'tensor<2x3xf32>'}}
  "tbc.square_totals"(%x, %y) : (tensor<2x3xf32>, tensor<6xf32>) -> (tensor<f32>, tensor<f32>)
  return
}

// -----

func.func @adafactor_step_c1(%p: tensor<2x3xf32>, %d: tensor<6xf32>, %s: tensor<f32>, %step: tensor<i64>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{updates 'tensor<2x3xf32>' by 'tensor<6xf32>'}}
  "tbc.adafactor_step"(%p, %d, %s, %s, %s, %step) {count = 6 : i64, clip_threshold = 1.0 : f64, epsilon = 1.0e-3 : f64, weight_decay = 0.0 : f64} : (tensor<2x3xf32>, tensor<6xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<i64>) -> tensor<2x3xf32>
  return
}

// -----

func.func @adafactor_step_c2(%p: tensor<6xf32>, %s: tensor<f32>, %step: tensor<i64>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{limits directions to 0.000000e+00}}
  "tbc.adafactor_step"(%p, %p, %s, %s, %s, %step) {count = 6 : i64, clip_threshold = 0.0 : f64, epsilon = 1.0e-3 : f64, weight_decay = 0.0 : f64} : (tensor<6xf32>, tensor<6xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<i64>) -> tensor<6xf32>
  return
}

// -----

func.func @adagrad_c1(%p: tensor<2x3xf32>, %g: tensor<6xf32>, %rate: tensor<f32>, %step: tensor<i64>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{updates 'tensor<2x3xf32>' by 'tensor<6xf32>'}}
  "tbc.adagrad"(%p, %g, %p, %rate, %step) {rate_decay = 0.0 : f64, epsilon = 1.0e-10 : f64, weight_decay = 0.0 : f64} : (tensor<2x3xf32>, tensor<6xf32>, tensor<2x3xf32>, tensor<f32>, tensor<i64>) -> (tensor<2x3xf32>, tensor<2x3xf32>)
  return
}

// -----

func.func @divide_by_root_c1(%x: tensor<2x3xf32>, %s: tensor<6xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{updates 'tensor<2x3xf32>' by 'tensor<6xf32>'}}
  "tbc.divide_by_root"(%x, %s) {epsilon = 1.0e-8 : f64} : (tensor<2x3xf32>, tensor<6xf32>) -> tensor<2x3xf32>
  return
}
