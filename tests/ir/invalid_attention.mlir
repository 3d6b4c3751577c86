// RUN: tbc-opt %s --verify-diagnostics --split-input-file

func.func @attention_c1(%q: tensor<1x2x3x4xf32>, %k: tensor<1x2x3x5xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{attends with 'tensor<1x2x3x4xf32>' to 'tensor<1x2x3x5xf32>'}}
  "tbc.attention"(%q, %k, %k) {scale = 1.0 : f64, causal = false} : (tensor<1x2x3x4xf32>, tensor<1x2x3x5xf32>, tensor<1x2x3x5xf32>) -> (tensor<1x2x3x5xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>)
  return
}

// -----

func.func @attention_c2(%q: tensor<1x3x3x4xf32>, %k: tensor<1x2x3x4xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{3 query heads do not share 2 key heads evenly}}
  "tbc.attention"(%q, %k, %k) {scale = 1.0 : f64, causal = false} : (tensor<1x3x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>) -> (tensor<1x3x3x4xf32>, tensor<1x3x3xf32>, tensor<1x3x3xf32>)
  return
}

// -----

func.func @attention_c3(%q: tensor<1x2x3x4xf32>, %k: tensor<1x2x2x4xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{is causal with fewer keys (2) than queries (3)}}
  "tbc.attention"(%q, %k, %k) {scale = 1.0 : f64, causal = true} : (tensor<1x2x3x4xf32>, tensor<1x2x2x4xf32>, tensor<1x2x2x4xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>)
  return
}

// -----

func.func @attention_grad_c1(%q: tensor<1x2x3x4xf32>, %s: tensor<1x2x3xf32>, %wrong: tensor<1x2x4xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has an operand of type 'tensor<1x2x4xf32>', expected 'tensor<1x2x3xf32>'}}
  "tbc.attention_grad"(%q, %q, %q, %q, %q, %s, %wrong) {scale = 1.0 : f64, causal = false} : (tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x4xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>)
  return
}
