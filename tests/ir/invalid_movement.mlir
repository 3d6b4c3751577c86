// RUN: tbc-opt %s --split-input-file --verify-diagnostics
// The constraints of broadcast and reshape, by their labels.

func.func @broadcast_c1_number(%x: tensor<4xf32>) {
  // expected-error@+1 {{has 2 entries in dims for 'tensor<4xf32>'}}
  %y = tbc.broadcast %x {dims = array<i64: 0, 1>} : (tensor<4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @broadcast_c1_order(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{maps input dim 1 to dim 0, which is not increasing within 'tensor<4x4xf32>'}}
  %y = tbc.broadcast %x {dims = array<i64: 1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @broadcast_c1_range(%x: tensor<4xf32>) {
  // expected-error@+1 {{maps input dim 0 to dim 2, which is not increasing within 'tensor<4x4xf32>'}}
  %y = tbc.broadcast %x {dims = array<i64: 2>} : (tensor<4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @broadcast_c2_sizes(%x: tensor<3xf32>) {
  // expected-error@+1 {{maps input dim 0 of size 3 to a dim of size 4}}
  %y = tbc.broadcast %x {dims = array<i64: 1>} : (tensor<3xf32>) -> tensor<3x4xf32>
  return
}

// -----

func.func @broadcast_c2_types(%x: tensor<4xf32>) {
  // expected-error@+1 {{changes the element type from 'tensor<4xf32>' to 'tensor<3x4xf16>'}}
  %y = tbc.broadcast %x {dims = array<i64: 1>} : (tensor<4xf32>) -> tensor<3x4xf16>
  return
}

// -----

func.func @reshape_c1_in(%x: tensor<2x12xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{in and out do not each group the 2 factors of 'tensor<2x12xf32>'}}
  %y = "tbc.reshape"(%x) {sizes = array<i64: 2, 12>, in = array<i64: 1, 2>, out = array<i64: 2>} : (tensor<2x12xf32>) -> tensor<24xf32>
  return
}

// -----

func.func @reshape_c1_out(%x: tensor<2x12xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{in and out do not each group the 2 factors of 'tensor<2x12xf32>'}}
  %y = "tbc.reshape"(%x) {sizes = array<i64: 2, 12>, in = array<i64: 1, 1>, out = array<i64: 1>} : (tensor<2x12xf32>) -> tensor<24xf32>
  return
}

// -----

func.func @reshape_c2(%x: tensor<2x12xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{factors of input dim 1 multiply to 11, not 12}}
  %y = "tbc.reshape"(%x) {sizes = array<i64: 2, 11>, in = array<i64: 1, 1>, out = array<i64: 2>} : (tensor<2x12xf32>) -> tensor<22xf32>
  return
}
