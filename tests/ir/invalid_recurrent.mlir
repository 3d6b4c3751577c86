// RUN: tbc-opt %s --split-input-file --verify-diagnostics

func.func @lstm_c1_gates(%x: tensor<3x2x10xf32>, %r: tensor<8x2xf32>, %h: tensor<2x2xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has gates of type 'tensor<3x2x10xf32>'; expected [s, b, 4 * h]}}
  "tbc.lstm"(%x, %r, %h, %h) {reverse = false} : (tensor<3x2x10xf32>, tensor<8x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<3x2x2xf32>, tensor<3x2x2xf32>, tensor<3x2x8xf32>)
  return
}

// -----

func.func @lstm_c1(%x: tensor<3x2x8xf32>, %r: tensor<8x3xf32>, %h: tensor<2x2xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has an operand of type 'tensor<8x3xf32>', expected 'tensor<8x2xf32>'}}
  "tbc.lstm"(%x, %r, %h, %h) {reverse = false} : (tensor<3x2x8xf32>, tensor<8x3xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<3x2x2xf32>, tensor<3x2x2xf32>, tensor<3x2x8xf32>)
  return
}

// -----

func.func @lstm_grad_c1(%dy: tensor<3x2x2xf32>, %r: tensor<8x2xf32>, %c: tensor<1x2xf32>, %g: tensor<3x2x8xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has an operand of type 'tensor<1x2xf32>', expected 'tensor<2x2xf32>'}}
  "tbc.lstm_grad"(%dy, %dy, %r, %c, %dy, %g) {reverse = false} : (tensor<3x2x2xf32>, tensor<3x2x2xf32>, tensor<8x2xf32>, tensor<1x2xf32>, tensor<3x2x2xf32>, tensor<3x2x8xf32>) -> (tensor<3x2x8xf32>, tensor<2x2xf32>, tensor<2x2xf32>)
  return
}

// -----

func.func @gru_c1(%x: tensor<3x2x6xf32>, %r: tensor<6x2xf32>, %b: tensor<2xbf16>, %h: tensor<2x2xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has an operand of type 'tensor<2xbf16>', expected 'tensor<2xf32>'}}
  "tbc.gru"(%x, %r, %b, %h) {reverse = false, reset_after = true} : (tensor<3x2x6xf32>, tensor<6x2xf32>, tensor<2xbf16>, tensor<2x2xf32>) -> (tensor<3x2x2xf32>, tensor<3x2x6xf32>, tensor<3x2x2xf32>)
  return
}

// -----

func.func @gru_grad_c1(%dy: tensor<3x2x2xf32>, %r: tensor<6x2xf32>, %h: tensor<2x2xf32>, %g: tensor<3x2x6xf32>, %u: tensor<3x2xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has an operand of type 'tensor<3x2xf32>', expected 'tensor<3x2x2xf32>'}}
  "tbc.gru_grad"(%dy, %r, %h, %dy, %g, %u) {reverse = false, reset_after = true} : (tensor<3x2x2xf32>, tensor<6x2xf32>, tensor<2x2xf32>, tensor<3x2x2xf32>, tensor<3x2x6xf32>, tensor<3x2xf32>) -> (tensor<3x2x6xf32>, tensor<3x2x2xf32>, tensor<2x2xf32>)
  return
}
