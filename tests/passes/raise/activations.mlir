// RUN: tbc-opt %s --tbc-raise-composites --split-input-file | FileCheck %s

// The tanh form as transformers writes it.
// CHECK-LABEL: func.func @gelu_tanh
// CHECK-SAME:    %[[X:.+]]: tensor<2x3xf32>
// CHECK-NEXT:    %[[Y:.+]] = tbc.gelu %[[X]] {approximate = "tanh", tbc.id = "last"}
// CHECK-NEXT:    return %[[Y]]
func.func @gelu_tanh(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %three = tbc.constant dense<3.0> : tensor<2x3xf32> : tensor<2x3xf32>
  %a = tbc.constant dense<0.044715> : tensor<2x3xf32> : tensor<2x3xf32>
  %k = tbc.constant dense<0.797884583> : tensor<2x3xf32> : tensor<2x3xf32>
  %one = tbc.constant dense<1.0> : tensor<2x3xf32> : tensor<2x3xf32>
  %half = tbc.constant dense<0.5> : tensor<2x3xf32> : tensor<2x3xf32>
  %h = tbc.mul %half, %x : tensor<2x3xf32>
  %cube = tbc.pow %x, %three : tensor<2x3xf32>
  %ac = tbc.mul %cube, %a : tensor<2x3xf32>
  %sum = tbc.add %x, %ac : tensor<2x3xf32>
  %u = tbc.mul %sum, %k : tensor<2x3xf32>
  %t = tbc.tanh %u : tensor<2x3xf32>
  %g = tbc.add %t, %one : tensor<2x3xf32>
  %y = tbc.mul %h, %g {tbc.id = "last"} : tensor<2x3xf32>
  return %y : tensor<2x3xf32>
}

// -----

// The same, factored another way, of an x that is itself a product.
// CHECK-LABEL: func.func @gelu_tanh_factored_rounded
// CHECK:         %[[X:.+]] = tbc.mul
// CHECK-NEXT:    tbc.gelu %[[X]] {approximate = "tanh"
func.func @gelu_tanh_factored_rounded(%v: tensor<3xf32>) -> tensor<3xf32> {
  %x = tbc.mul %v, %v : tensor<3xf32>
  %ak = tbc.constant dense<0.0356774081> : tensor<3xf32> : tensor<3xf32>
  %k = tbc.constant dense<0.797884583> : tensor<3xf32> : tensor<3xf32>
  %one = tbc.constant dense<1.0> : tensor<3xf32> : tensor<3xf32>
  %two = tbc.constant dense<2.0> : tensor<3xf32> : tensor<3xf32>
  %xx = tbc.mul %x, %x : tensor<3xf32>
  %akxx = tbc.mul %ak, %xx : tensor<3xf32>
  %inner = tbc.add %akxx, %k : tensor<3xf32>
  %u = tbc.mul %x, %inner : tensor<3xf32>
  %t = tbc.tanh %u : tensor<3xf32>
  %g = tbc.add %one, %t : tensor<3xf32>
  %halved = tbc.div %g, %two : tensor<3xf32>
  %y = tbc.mul %halved, %x : tensor<3xf32>
  return %y : tensor<3xf32>
}

// -----

// CHECK-LABEL: func.func @gelu_erf_rounded
// CHECK-NEXT:    tbc.gelu %{{.*}} {approximate = "none"
func.func @gelu_erf_rounded(%x: tensor<3xf32>) -> tensor<3xf32> {
  %root = tbc.constant dense<1.41421354> : tensor<f32> : tensor<f32>
  %roots = tbc.broadcast %root {dims = array<i64>} : (tensor<f32>) -> tensor<3xf32>
  %one = tbc.constant dense<1.0> : tensor<3xf32> : tensor<3xf32>
  %half = tbc.constant dense<0.5> : tensor<3xf32> : tensor<3xf32>
  %u = tbc.div %x, %roots : tensor<3xf32>
  %e = tbc.erf %u : tensor<3xf32>
  %g = tbc.add %e, %one : tensor<3xf32>
  %m = tbc.mul %x, %g : tensor<3xf32>
  %y = tbc.mul %m, %half : tensor<3xf32>
  return %y : tensor<3xf32>
}

// -----

// Another slope is no gelu.
// CHECK-LABEL: func.func @no_gelu
// CHECK-NOT:     tbc.gelu
func.func @no_gelu(%x: tensor<3xf32>) -> tensor<3xf32> {
  %root = tbc.constant dense<1.5> : tensor<3xf32> : tensor<3xf32>
  %one = tbc.constant dense<1.0> : tensor<3xf32> : tensor<3xf32>
  %half = tbc.constant dense<0.5> : tensor<3xf32> : tensor<3xf32>
  %u = tbc.div %x, %root : tensor<3xf32>
  %e = tbc.erf %u : tensor<3xf32>
  %g = tbc.add %e, %one : tensor<3xf32>
  %m = tbc.mul %x, %g : tensor<3xf32>
  %y = tbc.mul %m, %half : tensor<3xf32>
  return %y : tensor<3xf32>
}

// -----

// CHECK-LABEL: func.func @silu
// CHECK-NEXT:    %[[Y:.+]] = tbc.silu
// CHECK-NEXT:    return %[[Y]], %[[Y]], %[[Y]]
func.func @silu(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) {
  %s = tbc.sigmoid %x : tensor<3xf32>
  %y = tbc.mul %s, %x : tensor<3xf32>
  %one = tbc.constant dense<1.0> : tensor<3xf32> : tensor<3xf32>
  %n = tbc.neg %x : tensor<3xf32>
  %e = tbc.exp %n : tensor<3xf32>
  %d = tbc.add %one, %e : tensor<3xf32>
  %z = tbc.div %x, %d : tensor<3xf32>
  %r = tbc.reciprocal %d : tensor<3xf32>
  %w = tbc.mul %x, %r : tensor<3xf32>
  return %y, %z, %w : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
}

// -----

// The halves of one product: gate in front, as sigmoid times itself.
// CHECK-LABEL: func.func @swiglu_of_halves
// CHECK:         %[[GATE:.+]] = tbc.slice %{{.*}}offset = 0
// CHECK:         %[[UP:.+]] = tbc.slice %{{.*}}offset = 4
// CHECK-NEXT:    %[[Y:.+]] = tbc.swiglu %[[GATE]], %[[UP]]
// CHECK-NEXT:    return %[[Y]]
func.func @swiglu_of_halves(%x: tensor<3x8xf32>) -> tensor<3x4xf32> {
  %gate = tbc.slice %x {dim = 1 : i64, offset = 0 : i64, size = 4 : i64} : (tensor<3x8xf32>) -> tensor<3x4xf32>
  %up = tbc.slice %x {dim = 1 : i64, offset = 4 : i64, size = 4 : i64} : (tensor<3x8xf32>) -> tensor<3x4xf32>
  %s = tbc.sigmoid %gate : tensor<3x4xf32>
  %a = tbc.mul %s, %gate : tensor<3x4xf32>
  %y = tbc.mul %up, %a : tensor<3x4xf32>
  return %y : tensor<3x4xf32>
}

// -----

// silu that is wanted elsewhere too, or scales channels, is no gate of a feed-forward layer.
// CHECK-LABEL: func.func @silu_alone
// CHECK-NOT:     tbc.swiglu
func.func @silu_alone(%x: tensor<3x4xf32>, %up: tensor<3x4xf32>, %channels: tensor<4xf32>) -> (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>) {
  %a = tbc.silu %x : (tensor<3x4xf32>) -> tensor<3x4xf32>
  %y = tbc.mul %a, %up : tensor<3x4xf32>
  %b = tbc.silu %up : (tensor<3x4xf32>) -> tensor<3x4xf32>
  %c = tbc.broadcast %channels {dims = array<i64: 1>} : (tensor<4xf32>) -> tensor<3x4xf32>
  %z = tbc.mul %b, %c : tensor<3x4xf32>
  return %a, %y, %z : tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>
}
