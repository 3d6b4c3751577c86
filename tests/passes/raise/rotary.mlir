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

// -----

// Even and odd places instead of halves, split and joined by reshapes.
// CHECK-LABEL: func.func @interleaved
// CHECK-SAME:    %[[X:.+]]: tensor<2x3x8xf32>, %[[COS:.+]]: tensor<3x4xf32>, %[[SIN:.+]]: tensor<3x4xf32>
// CHECK-NEXT:    %[[Y:.+]] = tbc.rotary %[[X]], %[[COS]], %[[SIN]] {interleaved = true, inverse = false
// CHECK-NEXT:    return %[[Y]]
func.func @interleaved(%x: tensor<2x3x8xf32>, %cos: tensor<3x4xf32>, %sin: tensor<3x4xf32>) -> tensor<2x3x8xf32> {
  %pairs = tbc.reshape %x {sizes = array<i64: 2, 3, 4, 2>, in = array<i64: 1, 1, 2>, out = array<i64: 1, 1, 1, 1>} : (tensor<2x3x8xf32>) -> tensor<2x3x4x2xf32>
  %even = tbc.slice %pairs {dim = 3 : i64, offset = 0 : i64, size = 1 : i64} : (tensor<2x3x4x2xf32>) -> tensor<2x3x4x1xf32>
  %odd = tbc.slice %pairs {dim = 3 : i64, offset = 1 : i64, size = 1 : i64} : (tensor<2x3x4x2xf32>) -> tensor<2x3x4x1xf32>
  %x1 = tbc.reshape %even {sizes = array<i64: 2, 3, 4>, in = array<i64: 1, 1, 1, 0>, out = array<i64: 1, 1, 1>} : (tensor<2x3x4x1xf32>) -> tensor<2x3x4xf32>
  %x2 = tbc.reshape %odd {sizes = array<i64: 2, 3, 4>, in = array<i64: 1, 1, 1, 0>, out = array<i64: 1, 1, 1>} : (tensor<2x3x4x1xf32>) -> tensor<2x3x4xf32>
  %c = tbc.broadcast %cos {dims = array<i64: 1, 2>} : (tensor<3x4xf32>) -> tensor<2x3x4xf32>
  %s = tbc.broadcast %sin {dims = array<i64: 1, 2>} : (tensor<3x4xf32>) -> tensor<2x3x4xf32>
  %a = tbc.mul %x1, %c : tensor<2x3x4xf32>
  %b = tbc.mul %x2, %s : tensor<2x3x4xf32>
  %d = tbc.mul %x2, %c : tensor<2x3x4xf32>
  %e = tbc.mul %x1, %s : tensor<2x3x4xf32>
  %y1 = tbc.sub %a, %b : tensor<2x3x4xf32>
  %y2 = tbc.add %d, %e : tensor<2x3x4xf32>
  %u1 = tbc.broadcast %y1 {dims = array<i64: 0, 1, 2>} : (tensor<2x3x4xf32>) -> tensor<2x3x4x1xf32>
  %u2 = tbc.broadcast %y2 {dims = array<i64: 0, 1, 2>} : (tensor<2x3x4xf32>) -> tensor<2x3x4x1xf32>
  %joined = tbc.concat %u1, %u2 {dim = 3 : i64} : (tensor<2x3x4x1xf32>, tensor<2x3x4x1xf32>) -> tensor<2x3x4x2xf32>
  %y = tbc.reshape %joined {sizes = array<i64: 2, 3, 4, 2>, in = array<i64: 1, 1, 1, 1>, out = array<i64: 1, 1, 2>} : (tensor<2x3x4x2xf32>) -> tensor<2x3x8xf32>
  return %y : tensor<2x3x8xf32>
}

// -----

// The same by tables over the whole width, each angle twice.
// CHECK-LABEL: func.func @rotate_every_two
// CHECK:         tbc.rotary {{.*}} {interleaved = true
// CHECK-NOT:     tbc.neg
func.func @rotate_every_two(%x: tensor<3x8xf32>, %cos: tensor<3x4xf32>, %sin: tensor<3x4xf32>) -> tensor<3x8xf32> {
  %pairs = tbc.reshape %x {sizes = array<i64: 3, 4, 2>, in = array<i64: 1, 2>, out = array<i64: 1, 1, 1>} : (tensor<3x8xf32>) -> tensor<3x4x2xf32>
  %even = tbc.slice %pairs {dim = 2 : i64, offset = 0 : i64, size = 1 : i64} : (tensor<3x4x2xf32>) -> tensor<3x4x1xf32>
  %odd = tbc.slice %pairs {dim = 2 : i64, offset = 1 : i64, size = 1 : i64} : (tensor<3x4x2xf32>) -> tensor<3x4x1xf32>
  %x1 = tbc.reshape %even {sizes = array<i64: 3, 4>, in = array<i64: 1, 1, 0>, out = array<i64: 1, 1>} : (tensor<3x4x1xf32>) -> tensor<3x4xf32>
  %x2 = tbc.reshape %odd {sizes = array<i64: 3, 4>, in = array<i64: 1, 1, 0>, out = array<i64: 1, 1>} : (tensor<3x4x1xf32>) -> tensor<3x4xf32>
  %n = tbc.neg %x2 : tensor<3x4xf32>
  %u1 = tbc.broadcast %n {dims = array<i64: 0, 1>} : (tensor<3x4xf32>) -> tensor<3x4x1xf32>
  %u2 = tbc.broadcast %x1 {dims = array<i64: 0, 1>} : (tensor<3x4xf32>) -> tensor<3x4x1xf32>
  %joined = tbc.concat %u1, %u2 {dim = 2 : i64} : (tensor<3x4x1xf32>, tensor<3x4x1xf32>) -> tensor<3x4x2xf32>
  %rotated = tbc.reshape %joined {sizes = array<i64: 3, 4, 2>, in = array<i64: 1, 1, 1>, out = array<i64: 1, 2>} : (tensor<3x4x2xf32>) -> tensor<3x8xf32>
  %cs = tbc.broadcast %cos {dims = array<i64: 0, 1>} : (tensor<3x4xf32>) -> tensor<3x4x2xf32>
  %ss = tbc.broadcast %sin {dims = array<i64: 0, 1>} : (tensor<3x4xf32>) -> tensor<3x4x2xf32>
  %c = tbc.reshape %cs {sizes = array<i64: 3, 4, 2>, in = array<i64: 1, 1, 1>, out = array<i64: 1, 2>} : (tensor<3x4x2xf32>) -> tensor<3x8xf32>
  %s = tbc.reshape %ss {sizes = array<i64: 3, 4, 2>, in = array<i64: 1, 1, 1>, out = array<i64: 1, 2>} : (tensor<3x4x2xf32>) -> tensor<3x8xf32>
  %direct = tbc.mul %x, %c : tensor<3x8xf32>
  %turned = tbc.mul %rotated, %s : tensor<3x8xf32>
  %y = tbc.add %direct, %turned : tensor<3x8xf32>
  return %y : tensor<3x8xf32>
}

// -----

// Tables whose neighbours differ are no rotary tables.
// CHECK-LABEL: func.func @other_neighbours
// CHECK-NOT:     tbc.rotary
func.func @other_neighbours(%x: tensor<3x8xf32>, %c: tensor<3x8xf32>, %s: tensor<3x8xf32>) -> tensor<3x8xf32> {
  %pairs = tbc.reshape %x {sizes = array<i64: 3, 4, 2>, in = array<i64: 1, 2>, out = array<i64: 1, 1, 1>} : (tensor<3x8xf32>) -> tensor<3x4x2xf32>
  %even = tbc.slice %pairs {dim = 2 : i64, offset = 0 : i64, size = 1 : i64} : (tensor<3x4x2xf32>) -> tensor<3x4x1xf32>
  %odd = tbc.slice %pairs {dim = 2 : i64, offset = 1 : i64, size = 1 : i64} : (tensor<3x4x2xf32>) -> tensor<3x4x1xf32>
  %x1 = tbc.reshape %even {sizes = array<i64: 3, 4>, in = array<i64: 1, 1, 0>, out = array<i64: 1, 1>} : (tensor<3x4x1xf32>) -> tensor<3x4xf32>
  %x2 = tbc.reshape %odd {sizes = array<i64: 3, 4>, in = array<i64: 1, 1, 0>, out = array<i64: 1, 1>} : (tensor<3x4x1xf32>) -> tensor<3x4xf32>
  %n = tbc.neg %x2 : tensor<3x4xf32>
  %u1 = tbc.broadcast %n {dims = array<i64: 0, 1>} : (tensor<3x4xf32>) -> tensor<3x4x1xf32>
  %u2 = tbc.broadcast %x1 {dims = array<i64: 0, 1>} : (tensor<3x4xf32>) -> tensor<3x4x1xf32>
  %joined = tbc.concat %u1, %u2 {dim = 2 : i64} : (tensor<3x4x1xf32>, tensor<3x4x1xf32>) -> tensor<3x4x2xf32>
  %rotated = tbc.reshape %joined {sizes = array<i64: 3, 4, 2>, in = array<i64: 1, 1, 1>, out = array<i64: 1, 2>} : (tensor<3x4x2xf32>) -> tensor<3x8xf32>
  %direct = tbc.mul %x, %c : tensor<3x8xf32>
  %turned = tbc.mul %rotated, %s : tensor<3x8xf32>
  %y = tbc.add %direct, %turned : tensor<3x8xf32>
  return %y : tensor<3x8xf32>
}

// -----

// Dropout of a table: its halves are dropped apart.
// CHECK-LABEL: func.func @dropout
// CHECK-NOT:     tbc.rotary
// CHECK:         tbc.dropout {{.*}} -> tensor<4x8xf32>
func.func @dropout(%x: tensor<4x8xf32>, %f: tensor<4x4xf32>) -> tensor<4x8xf32> {
  %t = tbc.concat %f, %f {dim = 1 : i64} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x8xf32>
  %d = tbc.dropout %t {ratio = 5.0e-01 : f64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %a = tbc.slice %x {dim = 1 : i64, offset = 0 : i64, step = 1 : i64, size = 4 : i64} : (tensor<4x8xf32>) -> tensor<4x4xf32>
  %b = tbc.slice %x {dim = 1 : i64, offset = 4 : i64, step = 1 : i64, size = 4 : i64} : (tensor<4x8xf32>) -> tensor<4x4xf32>
  %nb = tbc.neg %b : tensor<4x4xf32>
  %turned = tbc.concat %nb, %a {dim = 1 : i64} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x8xf32>
  %p = tbc.mul %x, %d : tensor<4x8xf32>
  %q = tbc.mul %turned, %t : tensor<4x8xf32>
  %o = tbc.add %p, %q : tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// -----

// Angles that are trained: the op has no gradient for its tables.
// CHECK-LABEL: func.func @trained
// CHECK-NOT:     tbc.rotary
// CHECK:         tbc.concat
func.func @trained(%x: tensor<2x5x8xf32>, %angle: tensor<5x4xf32> {tbc.role = #tbc.role<param>}) -> tensor<2x5x8xf32> {
  %c = tbc.cos %angle : tensor<5x4xf32>
  %s = tbc.sin %angle : tensor<5x4xf32>
  %cos = tbc.broadcast %c {dims = array<i64: 1, 2>} : (tensor<5x4xf32>) -> tensor<2x5x4xf32>
  %sin = tbc.broadcast %s {dims = array<i64: 1, 2>} : (tensor<5x4xf32>) -> tensor<2x5x4xf32>
  %a = tbc.slice %x {dim = 2 : i64, offset = 0 : i64, step = 1 : i64, size = 4 : i64} : (tensor<2x5x8xf32>) -> tensor<2x5x4xf32>
  %b = tbc.slice %x {dim = 2 : i64, offset = 4 : i64, step = 1 : i64, size = 4 : i64} : (tensor<2x5x8xf32>) -> tensor<2x5x4xf32>
  %ac = tbc.mul %a, %cos : tensor<2x5x4xf32>
  %bs = tbc.mul %b, %sin : tensor<2x5x4xf32>
  %bc = tbc.mul %b, %cos : tensor<2x5x4xf32>
  %as = tbc.mul %a, %sin : tensor<2x5x4xf32>
  %first = tbc.sub %ac, %bs : tensor<2x5x4xf32>
  %second = tbc.add %bc, %as : tensor<2x5x4xf32>
  %o = tbc.concat %first, %second {dim = 2 : i64} : (tensor<2x5x4xf32>, tensor<2x5x4xf32>) -> tensor<2x5x8xf32>
  return %o : tensor<2x5x8xf32>
}
