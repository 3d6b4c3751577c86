// RUN: tbc-opt %s --tbc-raise-composites --split-input-file | FileCheck %s

// Tables over the whole width, made of angles that are there twice.
// CHECK-LABEL: func.func @rotate_half
// CHECK-SAME:    %[[X:.+]]: tensor<2x4x3x8xf32>, %[[ANGLES:.+]]: tensor<3x4xf32>
// CHECK-NEXT:    %[[COS:.+]] = tbc.cos %[[ANGLES]]
// CHECK-NEXT:    %[[SIN:.+]] = tbc.sin %[[ANGLES]]
// CHECK-NEXT:    %[[Y:.+]] = tbc.rotary %[[X]], %[[COS]], %[[SIN]] {inverse = false
// CHECK-NEXT:    return %[[Y]]
func.func @rotate_half(%x: tensor<2x4x3x8xf32>, %angles: tensor<3x4xf32>) -> tensor<2x4x3x8xf32> {
  %twice = tbc.concat %angles, %angles {dim = 1 : i64} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x8xf32>
  %cos = tbc.cos %twice : tensor<3x8xf32>
  %sin = tbc.sin %twice : tensor<3x8xf32>
  %cosx = tbc.broadcast %cos {dims = array<i64: 2, 3>} : (tensor<3x8xf32>) -> tensor<2x4x3x8xf32>
  %sinx = tbc.broadcast %sin {dims = array<i64: 2, 3>} : (tensor<3x8xf32>) -> tensor<2x4x3x8xf32>
  %direct = tbc.mul %x, %cosx : tensor<2x4x3x8xf32>
  %x1 = tbc.slice %x {dim = 3 : i64, offset = 0 : i64, size = 4 : i64} : (tensor<2x4x3x8xf32>) -> tensor<2x4x3x4xf32>
  %x2 = tbc.slice %x {dim = 3 : i64, offset = 4 : i64, size = 4 : i64} : (tensor<2x4x3x8xf32>) -> tensor<2x4x3x4xf32>
  %n = tbc.neg %x2 : tensor<2x4x3x4xf32>
  %rotated = tbc.concat %n, %x1 {dim = 3 : i64} : (tensor<2x4x3x4xf32>, tensor<2x4x3x4xf32>) -> tensor<2x4x3x8xf32>
  %turned = tbc.mul %rotated, %sinx : tensor<2x4x3x8xf32>
  %y = tbc.add %direct, %turned : tensor<2x4x3x8xf32>
  return %y : tensor<2x4x3x8xf32>
}

// -----

// Heads behind positions, and the sum turned round.
// CHECK-LABEL: func.func @heads_behind
// CHECK:         %[[T:.+]] = tbc.transpose %{{.*}} {permutation = array<i64: 0, 2, 1, 3>
// CHECK:         tbc.rotary %[[T]]
func.func @heads_behind(%x: tensor<2x3x4x8xf32>, %angles: tensor<3x4xf32>) -> tensor<2x3x4x8xf32> {
  %twice = tbc.concat %angles, %angles {dim = 1 : i64} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x8xf32>
  %cos = tbc.cos %twice : tensor<3x8xf32>
  %sin = tbc.sin %twice : tensor<3x8xf32>
  %cosx = tbc.broadcast %cos {dims = array<i64: 1, 3>} : (tensor<3x8xf32>) -> tensor<2x3x4x8xf32>
  %sinx = tbc.broadcast %sin {dims = array<i64: 1, 3>} : (tensor<3x8xf32>) -> tensor<2x3x4x8xf32>
  %direct = tbc.mul %cosx, %x : tensor<2x3x4x8xf32>
  %x1 = tbc.slice %x {dim = 3 : i64, offset = 0 : i64, size = 4 : i64} : (tensor<2x3x4x8xf32>) -> tensor<2x3x4x4xf32>
  %x2 = tbc.slice %x {dim = 3 : i64, offset = 4 : i64, size = 4 : i64} : (tensor<2x3x4x8xf32>) -> tensor<2x3x4x4xf32>
  %n = tbc.neg %x2 : tensor<2x3x4x4xf32>
  %rotated = tbc.concat %n, %x1 {dim = 3 : i64} : (tensor<2x3x4x4xf32>, tensor<2x3x4x4xf32>) -> tensor<2x3x4x8xf32>
  %turned = tbc.mul %sinx, %rotated : tensor<2x3x4x8xf32>
  %y = tbc.add %turned, %direct : tensor<2x3x4x8xf32>
  return %y : tensor<2x3x4x8xf32>
}

// -----

// By halves.
// CHECK-LABEL: func.func @halves
// CHECK:         tbc.rotary
func.func @halves(%x: tensor<3x8xf32>, %cos: tensor<3x4xf32>, %sin: tensor<3x4xf32>) -> tensor<3x8xf32> {
  %x1 = tbc.slice %x {dim = 1 : i64, offset = 0 : i64, size = 4 : i64} : (tensor<3x8xf32>) -> tensor<3x4xf32>
  %x2 = tbc.slice %x {dim = 1 : i64, offset = 4 : i64, size = 4 : i64} : (tensor<3x8xf32>) -> tensor<3x4xf32>
  %a = tbc.mul %x1, %cos : tensor<3x4xf32>
  %b = tbc.mul %sin, %x2 : tensor<3x4xf32>
  %c = tbc.mul %x1, %sin : tensor<3x4xf32>
  %d = tbc.mul %x2, %cos : tensor<3x4xf32>
  %y1 = tbc.sub %a, %b : tensor<3x4xf32>
  %y2 = tbc.add %c, %d : tensor<3x4xf32>
  %y = tbc.concat %y1, %y2 {dim = 1 : i64} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x8xf32>
  return %y : tensor<3x8xf32>
}

// -----

// Tables whose halves differ are no rotary tables.
// CHECK-LABEL: func.func @other_tables
// CHECK-NOT:     tbc.rotary
func.func @other_tables(%x: tensor<3x8xf32>, %cos: tensor<3x8xf32>, %sin: tensor<3x8xf32>) -> tensor<3x8xf32> {
  %x1 = tbc.slice %x {dim = 1 : i64, offset = 0 : i64, size = 4 : i64} : (tensor<3x8xf32>) -> tensor<3x4xf32>
  %x2 = tbc.slice %x {dim = 1 : i64, offset = 4 : i64, size = 4 : i64} : (tensor<3x8xf32>) -> tensor<3x4xf32>
  %n = tbc.neg %x2 : tensor<3x4xf32>
  %rotated = tbc.concat %n, %x1 {dim = 1 : i64} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x8xf32>
  %direct = tbc.mul %x, %cos : tensor<3x8xf32>
  %turned = tbc.mul %rotated, %sin : tensor<3x8xf32>
  %y = tbc.add %direct, %turned : tensor<3x8xf32>
  return %y : tensor<3x8xf32>
}
