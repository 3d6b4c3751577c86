// RUN: tbc-opt %s --verify-diagnostics --split-input-file

func.func @gelu_c1(%x: tensor<3xf32>) {
  // expected-error@+1 {{has unknown approximation "sigmoid"; expected none or tanh}}
  "tbc.gelu"(%x) {approximate = "sigmoid"} : (tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @gelu_grad_c1(%x: tensor<3xf32>) {
  // expected-error@+1 {{has unknown approximation ""; expected none or tanh}}
  "tbc.gelu_grad"(%x, %x) {approximate = ""} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @rotary_c1(%x: tensor<2x3xf32>, %cos: tensor<2x1xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{rotates 'tensor<2x3xf32>', which has no two halves by position}}
  "tbc.rotary"(%x, %cos, %cos) {inverse = false} : (tensor<2x3xf32>, tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @rotary_c2(%x: tensor<2x4xf32>, %cos: tensor<2x4xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has a table of type 'tensor<2x4xf32>', expected 'tensor<2x2xf32>'}}
  "tbc.rotary"(%x, %cos, %cos) {inverse = false} : (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @rotary_c3(%x: tensor<2x3x4xf32>, %cos: tensor<3x3xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{rotates 'tensor<2x3x4xf32>', which has no dims [b, s, h, d] or [b, s, h * d]}}
  "tbc.rotary"(%x, %cos, %cos) {inverse = false, token_major = true} : (tensor<2x3x4xf32>, tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<2x3x4xf32>
  return
}
