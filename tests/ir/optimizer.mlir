// RUN: tbc-opt %s | tbc-opt | FileCheck %s

// CHECK-LABEL: func.func @optimizers
// CHECK:         tbc.sgd %
// CHECK:         tbc.sgd_momentum
// CHECK:         tbc.adamw
// CHECK:         tbc.adam %
// CHECK:         tbc.adagrad
// CHECK:         tbc.divide_by_root
// CHECK:         tbc.muon_momentum
// CHECK:         tbc.gather_matrices
// CHECK:         tbc.divide_by_norm
// CHECK:         tbc.weighted_sum
// CHECK:         tbc.shard_matrices
// CHECK:         tbc.muon_step
// CHECK:         tbc.factored_moment
// CHECK:         tbc.factored_direction
// CHECK:         tbc.root_direction
// CHECK:         tbc.square_totals
// CHECK:         tbc.adafactor_step
// CHECK:         tbc.square_sum
// CHECK:         tbc.count_not_finite
// CHECK:         tbc.step_total
// CHECK:         tbc.scale_by
// CHECK:         tbc.clip_value
// CHECK:         tbc.update_if
// CHECK:         tbc.update_loss_scale
func.func @optimizers(%p: tensor<2x3xbf16>, %g: tensor<2x3xf32>, %m: tensor<2x3xf32>, %rate: tensor<f32>, %step: tensor<i64>) -> tensor<2x3xbf16> {
  %0 = tbc.sgd %p, %g, %rate {weight_decay = 0.0 : f64} : (tensor<2x3xbf16>, tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xbf16>
  %1, %b = tbc.sgd_momentum %0, %g, %m, %rate {momentum = 0.9 : f64, nesterov = false, weight_decay = 0.0 : f64} : (tensor<2x3xbf16>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<f32>) -> (tensor<2x3xbf16>, tensor<2x3xf32>)
  %2, %m1, %v1 = tbc.adamw %1, %g, %m, %b, %rate, %step {beta1 = 0.9 : f64, beta2 = 0.999 : f64, epsilon = 1.0e-8 : f64, weight_decay = 0.01 : f64} : (tensor<2x3xbf16>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<f32>, tensor<i64>) -> (tensor<2x3xbf16>, tensor<2x3xf32>, tensor<2x3xf32>)
  %3, %m2, %v2 = tbc.adam %2, %g, %m, %b, %rate, %step {beta1 = 0.9 : f64, beta2 = 0.999 : f64, epsilon = 1.0e-8 : f64, weight_decay = 0.01 : f64} : (tensor<2x3xbf16>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<f32>, tensor<i64>) -> (tensor<2x3xbf16>, tensor<2x3xf32>, tensor<2x3xf32>)
  %ap, %ag = tbc.adagrad %g, %g, %m, %rate, %step {rate_decay = 0.0 : f64, epsilon = 1.0e-10 : f64, weight_decay = 0.0 : f64} : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<f32>, tensor<i64>) -> (tensor<2x3xf32>, tensor<2x3xf32>)
  %dr = tbc.divide_by_root %g, %m {epsilon = 1.0e-8 : f64} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %mb, %mu = tbc.muon_momentum %g, %m {momentum = 0.95 : f64, nesterov = true} : (tensor<2x3xf32>, tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>)
  %mg = tbc.gather_matrices %mu : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %md = tbc.divide_by_norm %mg, %m {epsilon = 1.0e-7 : f64} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %mw = tbc.weighted_sum %md, %mg {alpha = 3.4445 : f64, beta = 1.0 : f64} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %ms = tbc.shard_matrices %mw : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %mp = tbc.muon_step %g, %ms, %rate {scale = 1.0 : f64, weight_decay = 0.1 : f64} : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  %fm = tbc.factored_moment %g, %m, %step {count = 4 : i64, beta2_decay = -0.8 : f64} : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<i64>) -> tensor<2x3xf32>
  %fd = tbc.factored_direction %g, %fm, %fm, %fm {count = 2 : i64, epsilon = 1.0e-7 : f64} : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %rd = tbc.root_direction %fd, %fm {epsilon = 1.0e-7 : f64} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %sp, %sd = tbc.square_totals %g, %rd : (tensor<2x3xf32>, tensor<2x3xf32>) -> (tensor<f32>, tensor<f32>)
  %as = tbc.adafactor_step %g, %rd, %sp, %sd, %rate, %step {count = 6 : i64, clip_threshold = 1.0 : f64, epsilon = 1.0e-3 : f64, weight_decay = 0.0 : f64} : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<i64>) -> tensor<2x3xf32>
  %n = tbc.square_sum %g, %m : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<f32>
  %bad = tbc.count_not_finite %g, %m : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<f32>
  %t, %u = tbc.step_total %n, %rate : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
  %s = tbc.scale_by %g, %t : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  %c = tbc.clip_value %s {limit = 1.0 : f64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %ok = tbc.compare %t, %u {predicate = "lt"} : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %4 = tbc.update_if %g, %c, %ok : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<i1>) -> tensor<2x3xf32>
  %scale, %tracker = tbc.update_loss_scale %rate, %step, %ok {growth_factor = 2.0 : f64, backoff_factor = 0.5 : f64, growth_interval = 2000 : i64} : (tensor<f32>, tensor<i64>, tensor<i1>) -> (tensor<f32>, tensor<i64>)
  return %3 : tensor<2x3xbf16>
}
