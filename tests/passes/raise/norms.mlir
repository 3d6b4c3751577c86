// RUN: tbc-opt %s --tbc-raise-composites --split-input-file | FileCheck %s

// CHECK-LABEL: func.func @layer_norm
// CHECK-SAME:    %[[X:.+]]: tensor<2x3x4xf32>, %[[W:.+]]: tensor<4xf32>, %[[B:.+]]: tensor<4xf32>
// CHECK-NEXT:    %[[Y:.+]], %{{.*}}, %{{.*}} = tbc.layer_norm %[[X]], %[[W]], %[[B]] {epsilon = {{9.99.*E-6|9.99.*e-06}} : f64
// CHECK-NEXT:    return %[[Y]]
func.func @layer_norm(%x: tensor<2x3x4xf32>, %w: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<2x3x4xf32> {
  %n = tbc.constant dense<4.0> : tensor<2x3xf32> : tensor<2x3xf32>
  %s = tbc.reduce_sum %x {dims = array<i64: 2>} : (tensor<2x3x4xf32>) -> tensor<2x3xf32>
  %mean = tbc.div %s, %n : tensor<2x3xf32>
  %means = tbc.broadcast %mean {dims = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<2x3x4xf32>
  %c = tbc.sub %x, %means : tensor<2x3x4xf32>
  %two = tbc.constant dense<2.0> : tensor<2x3x4xf32> : tensor<2x3x4xf32>
  %sq = tbc.pow %c, %two : tensor<2x3x4xf32>
  %ss = tbc.reduce_sum %sq {dims = array<i64: 2>} : (tensor<2x3x4xf32>) -> tensor<2x3xf32>
  %var = tbc.div %ss, %n : tensor<2x3xf32>
  %eps = tbc.constant dense<1.0e-5> : tensor<2x3xf32> : tensor<2x3xf32>
  %ve = tbc.add %var, %eps : tensor<2x3xf32>
  %sd = tbc.sqrt %ve : tensor<2x3xf32>
  %sds = tbc.broadcast %sd {dims = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<2x3x4xf32>
  %h = tbc.div %c, %sds : tensor<2x3x4xf32>
  %ws = tbc.broadcast %w {dims = array<i64: 2>} : (tensor<4xf32>) -> tensor<2x3x4xf32>
  %bs = tbc.broadcast %b {dims = array<i64: 2>} : (tensor<4xf32>) -> tensor<2x3x4xf32>
  %hw = tbc.mul %ws, %h : tensor<2x3x4xf32>
  %y = tbc.add %hw, %bs : tensor<2x3x4xf32>
  return %y : tensor<2x3x4xf32>
}

// -----

// Without weight and bias, by the reciprocal root.
// CHECK-LABEL: func.func @plain_layer_norm
// CHECK:         tbc.layer_norm
// CHECK-NOT:     tbc.rms_norm
func.func @plain_layer_norm(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %quarter = tbc.constant dense<0.25> : tensor<3xf32> : tensor<3xf32>
  %s = tbc.reduce_sum %x {dims = array<i64: 1>} : (tensor<3x4xf32>) -> tensor<3xf32>
  %mean = tbc.mul %s, %quarter : tensor<3xf32>
  %means = tbc.broadcast %mean {dims = array<i64: 0>} : (tensor<3xf32>) -> tensor<3x4xf32>
  %c = tbc.sub %x, %means : tensor<3x4xf32>
  %sq = tbc.mul %c, %c : tensor<3x4xf32>
  %ss = tbc.reduce_sum %sq {dims = array<i64: 1>} : (tensor<3x4xf32>) -> tensor<3xf32>
  %var = tbc.mul %ss, %quarter : tensor<3xf32>
  %vars = tbc.broadcast %var {dims = array<i64: 0>} : (tensor<3xf32>) -> tensor<3x4xf32>
  %eps = tbc.constant dense<1.0e-5> : tensor<3x4xf32> : tensor<3x4xf32>
  %ve = tbc.add %eps, %vars : tensor<3x4xf32>
  %r = tbc.rsqrt %ve : tensor<3x4xf32>
  %y = tbc.mul %r, %c : tensor<3x4xf32>
  return %y : tensor<3x4xf32>
}

// -----

// CHECK-LABEL: func.func @rms_norm
// CHECK-SAME:    %[[X:.+]]: tensor<3x4xf32>, %[[W:.+]]: tensor<4xf32>
// CHECK-NEXT:    tbc.rms_norm %[[X]], %[[W]] {epsilon
func.func @rms_norm(%x: tensor<3x4xf32>, %w: tensor<4xf32>) -> tensor<3x4xf32> {
  %n = tbc.constant dense<4.0> : tensor<f32> : tensor<f32>
  %ns = tbc.broadcast %n {dims = array<i64>} : (tensor<f32>) -> tensor<3xf32>
  %two = tbc.constant dense<2.0> : tensor<3x4xf32> : tensor<3x4xf32>
  %sq = tbc.pow %x, %two : tensor<3x4xf32>
  %ss = tbc.reduce_sum %sq {dims = array<i64: 1>} : (tensor<3x4xf32>) -> tensor<3xf32>
  %ms = tbc.div %ss, %ns : tensor<3xf32>
  %eps = tbc.constant dense<1.0e-5> : tensor<3xf32> : tensor<3xf32>
  %me = tbc.add %ms, %eps : tensor<3xf32>
  %root = tbc.sqrt %me : tensor<3xf32>
  %r = tbc.reciprocal %root : tensor<3xf32>
  %rs = tbc.broadcast %r {dims = array<i64: 0>} : (tensor<3xf32>) -> tensor<3x4xf32>
  %h = tbc.mul %x, %rs : tensor<3x4xf32>
  %ws = tbc.broadcast %w {dims = array<i64: 1>} : (tensor<4xf32>) -> tensor<3x4xf32>
  %y = tbc.mul %ws, %h : tensor<3x4xf32>
  return %y : tensor<3x4xf32>
}

// -----

// Between casts, as bf16 models are exported.
// CHECK-LABEL: func.func @rms_norm_bf16
// CHECK-SAME:    %[[X:.+]]: tensor<3x4xbf16>, %[[W:.+]]: tensor<4xbf16>
// CHECK-NEXT:    tbc.rms_norm %[[X]], %[[W]] {epsilon
func.func @rms_norm_bf16(%x: tensor<3x4xbf16>, %w: tensor<4xbf16>) -> tensor<3x4xbf16> {
  %x32 = tbc.cast %x : (tensor<3x4xbf16>) -> tensor<3x4xf32>
  %n = tbc.constant dense<4.0> : tensor<3xf32> : tensor<3xf32>
  %sq = tbc.mul %x32, %x32 : tensor<3x4xf32>
  %ss = tbc.reduce_sum %sq {dims = array<i64: 1>} : (tensor<3x4xf32>) -> tensor<3xf32>
  %ms = tbc.div %ss, %n : tensor<3xf32>
  %eps = tbc.constant dense<1.0e-5> : tensor<3xf32> : tensor<3xf32>
  %me = tbc.add %ms, %eps : tensor<3xf32>
  %r = tbc.rsqrt %me : tensor<3xf32>
  %rs = tbc.broadcast %r {dims = array<i64: 0>} : (tensor<3xf32>) -> tensor<3x4xf32>
  %h = tbc.mul %x32, %rs : tensor<3x4xf32>
  %h16 = tbc.cast %h : (tensor<3x4xf32>) -> tensor<3x4xbf16>
  %ws = tbc.broadcast %w {dims = array<i64: 1>} : (tensor<4xbf16>) -> tensor<3x4xbf16>
  %y = tbc.mul %ws, %h16 : tensor<3x4xbf16>
  return %y : tensor<3x4xbf16>
}

// -----

// A mean over another dim is no norm over the last.
// CHECK-LABEL: func.func @no_norm
// CHECK-NOT:     _norm
// CHECK:         return
func.func @no_norm(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %n = tbc.constant dense<4.0> : tensor<4xf32> : tensor<4xf32>
  %sq = tbc.mul %x, %x : tensor<4x4xf32>
  %ss = tbc.reduce_sum %sq {dims = array<i64: 0>} : (tensor<4x4xf32>) -> tensor<4xf32>
  %ms = tbc.div %ss, %n : tensor<4xf32>
  %eps = tbc.constant dense<1.0e-5> : tensor<4xf32> : tensor<4xf32>
  %me = tbc.add %ms, %eps : tensor<4xf32>
  %r = tbc.rsqrt %me : tensor<4xf32>
  %rs = tbc.broadcast %r {dims = array<i64: 1>} : (tensor<4xf32>) -> tensor<4x4xf32>
  %h = tbc.mul %x, %rs : tensor<4x4xf32>
  return %h : tensor<4x4xf32>
}

// -----

// The scale is f32 and the shift bf16, with a cast between: the norm ends before the cast.
// CHECK-LABEL: func.func @mixed
// CHECK:         tbc.layer_norm {{.*}} -> (tensor<4x8xf32>
// CHECK:         tbc.cast
// CHECK:         tbc.add {{.*}} : tensor<4x8xbf16>
func.func @mixed(%x: tensor<4x8xbf16>, %w: tensor<8xf32>, %b: tensor<8xbf16>) -> tensor<4x8xbf16> {
  %x32 = tbc.cast %x : (tensor<4x8xbf16>) -> tensor<4x8xf32>
  %s = tbc.reduce_sum %x32 {dims = array<i64: 1>} : (tensor<4x8xf32>) -> tensor<4xf32>
  %n = tbc.constant dense<8.0> : tensor<4xf32> : tensor<4xf32>
  %m = tbc.div %s, %n : tensor<4xf32>
  %mb = tbc.broadcast %m {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<4x8xf32>
  %c = tbc.sub %x32, %mb : tensor<4x8xf32>
  %q = tbc.mul %c, %c : tensor<4x8xf32>
  %s2 = tbc.reduce_sum %q {dims = array<i64: 1>} : (tensor<4x8xf32>) -> tensor<4xf32>
  %v = tbc.div %s2, %n : tensor<4xf32>
  %e = tbc.constant dense<1.0e-5> : tensor<4xf32> : tensor<4xf32>
  %ve = tbc.add %v, %e : tensor<4xf32>
  %r = tbc.rsqrt %ve : tensor<4xf32>
  %rb = tbc.broadcast %r {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<4x8xf32>
  %y = tbc.mul %c, %rb : tensor<4x8xf32>
  %wb = tbc.broadcast %w {dims = array<i64: 1>} : (tensor<8xf32>) -> tensor<4x8xf32>
  %yw = tbc.mul %y, %wb : tensor<4x8xf32>
  %z = tbc.cast %yw : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  %bb = tbc.broadcast %b {dims = array<i64: 1>} : (tensor<8xbf16>) -> tensor<4x8xbf16>
  %o = tbc.add %z, %bb : tensor<4x8xbf16>
  return %o : tensor<4x8xbf16>
}

// -----

// In f16 this epsilon is 0.
// CHECK-LABEL: func.func @epsilon_rounded
// CHECK:         tbc.rms_norm %{{.*}} {epsilon = 0.0
func.func @epsilon_rounded(%x: tensor<3x4xf16>, %w: tensor<4xf16>) -> tensor<3x4xf16> {
  %sq = tbc.mul %x, %x : tensor<3x4xf16>
  %s = tbc.reduce_sum %sq {dims = array<i64: 1>} : (tensor<3x4xf16>) -> tensor<3xf16>
  %quarter = tbc.constant dense<0.25> : tensor<3xf16> : tensor<3xf16>
  %mean = tbc.mul %s, %quarter : tensor<3xf16>
  %wide = tbc.constant dense<1.0e-12> : tensor<3xf32> : tensor<3xf32>
  %eps = tbc.cast %wide : (tensor<3xf32>) -> tensor<3xf16>
  %ve = tbc.add %mean, %eps : tensor<3xf16>
  %rstd = tbc.rsqrt %ve : tensor<3xf16>
  %rstds = tbc.broadcast %rstd {dims = array<i64: 0>} : (tensor<3xf16>) -> tensor<3x4xf16>
  %h = tbc.mul %x, %rstds : tensor<3x4xf16>
  %ws = tbc.broadcast %w {dims = array<i64: 1>} : (tensor<4xf16>) -> tensor<3x4xf16>
  %y = tbc.mul %h, %ws : tensor<3x4xf16>
  return %y : tensor<3x4xf16>
}

// -----

// The variance as mean(x^2) - mean(x)^2, at least 0: Flax's.
// CHECK-LABEL: func.func @fast_variance
// CHECK:         tbc.layer_norm %arg0, %arg1, %arg2 {epsilon = {{9.99.*E-6|9.99.*e-06}} : f64
// CHECK-NOT:     tbc.sqrt
func.func @fast_variance(%x: tensor<2x3x4xf32>, %w: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<2x3x4xf32> {
  %n = tbc.constant dense<4.0> : tensor<2x3xf32> : tensor<2x3xf32>
  %s = tbc.reduce_sum %x {dims = array<i64: 2>} : (tensor<2x3x4xf32>) -> tensor<2x3xf32>
  %mean = tbc.div %s, %n : tensor<2x3xf32>
  %means = tbc.broadcast %mean {dims = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<2x3x4xf32>
  %c = tbc.sub %x, %means : tensor<2x3x4xf32>
  %sq = tbc.mul %x, %x : tensor<2x3x4xf32>
  %ss = tbc.reduce_sum %sq {dims = array<i64: 2>} : (tensor<2x3x4xf32>) -> tensor<2x3xf32>
  %second = tbc.div %ss, %n : tensor<2x3xf32>
  %square = tbc.mul %mean, %mean : tensor<2x3xf32>
  %difference = tbc.sub %second, %square : tensor<2x3xf32>
  %zero = tbc.constant dense<0.0> : tensor<2x3xf32> : tensor<2x3xf32>
  %var = tbc.maximum %difference, %zero : tensor<2x3xf32>
  %eps = tbc.constant dense<1.0e-5> : tensor<2x3xf32> : tensor<2x3xf32>
  %ve = tbc.add %var, %eps : tensor<2x3xf32>
  %sd = tbc.sqrt %ve : tensor<2x3xf32>
  %sds = tbc.broadcast %sd {dims = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<2x3x4xf32>
  %h = tbc.div %c, %sds : tensor<2x3x4xf32>
  %ws = tbc.broadcast %w {dims = array<i64: 2>} : (tensor<4xf32>) -> tensor<2x3x4xf32>
  %bs = tbc.broadcast %b {dims = array<i64: 2>} : (tensor<4xf32>) -> tensor<2x3x4xf32>
  %hw = tbc.mul %ws, %h : tensor<2x3x4xf32>
  %y = tbc.add %hw, %bs : tensor<2x3x4xf32>
  return %y : tensor<2x3x4xf32>
}

// -----

// The variance of another tensor is none.
// CHECK-LABEL: func.func @other_variance
// CHECK-NOT:     tbc.layer_norm
func.func @other_variance(%x: tensor<3x4xf32>, %u: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %n = tbc.constant dense<4.0> : tensor<3xf32> : tensor<3xf32>
  %s = tbc.reduce_sum %x {dims = array<i64: 1>} : (tensor<3x4xf32>) -> tensor<3xf32>
  %mean = tbc.div %s, %n : tensor<3xf32>
  %means = tbc.broadcast %mean {dims = array<i64: 0>} : (tensor<3xf32>) -> tensor<3x4xf32>
  %c = tbc.sub %x, %means : tensor<3x4xf32>
  %sq = tbc.mul %u, %u : tensor<3x4xf32>
  %ss = tbc.reduce_sum %sq {dims = array<i64: 1>} : (tensor<3x4xf32>) -> tensor<3xf32>
  %second = tbc.div %ss, %n : tensor<3xf32>
  %square = tbc.mul %mean, %mean : tensor<3xf32>
  %difference = tbc.sub %second, %square : tensor<3xf32>
  %zero = tbc.constant dense<0.0> : tensor<3xf32> : tensor<3xf32>
  %var = tbc.maximum %difference, %zero : tensor<3xf32>
  %eps = tbc.constant dense<1.0e-5> : tensor<3xf32> : tensor<3xf32>
  %ve = tbc.add %var, %eps : tensor<3xf32>
  %sd = tbc.sqrt %ve : tensor<3xf32>
  %sds = tbc.broadcast %sd {dims = array<i64: 0>} : (tensor<3xf32>) -> tensor<3x4xf32>
  %h = tbc.div %c, %sds : tensor<3x4xf32>
  return %h : tensor<3x4xf32>
}
