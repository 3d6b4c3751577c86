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
  // expected-error@+1 {{is causal (left -1, right -1) with 2 keys for 3 queries}}
  "tbc.attention"(%q, %k, %k) {scale = 1.0 : f64, causal = true} : (tensor<1x2x3x4xf32>, tensor<1x2x2x4xf32>, tensor<1x2x2x4xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>)
  return
}

// -----

func.func @attention_c3_left(%q: tensor<1x2x3x4xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has a window (left -2, right -1) with 3 keys for 3 queries}}
  "tbc.attention"(%q, %q, %q) {scale = 1.0 : f64, causal = false, left = -2 : i64} : (tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>)
  return
}

// -----

func.func @attention_c4(%q: tensor<1x2x3x4xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has 0 masks, expected 1}}
  "tbc.attention"(%q, %q, %q) {scale = 1.0 : f64, causal = false, key_mask = true} : (tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>)
  return
}

// -----

func.func @attention_c4_shape(%q: tensor<1x2x3x4xf32>, %k: tensor<1x2x5x4xf32>, %ids: tensor<1x3xi64>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has a mask of type 'tensor<1x3xi64>', expected integers of shape [1, 5]}}
  "tbc.attention"(%q, %k, %k, %ids, %ids) {scale = 1.0 : f64, causal = false, segments = true} : (tensor<1x2x3x4xf32>, tensor<1x2x5x4xf32>, tensor<1x2x5x4xf32>, tensor<1x3xi64>, tensor<1x3xi64>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>)
  return
}

// -----

func.func @attention_c5(%q: tensor<1x2x3x4xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has unknown hidden_rows "nan"; expected zero, mean, window, nearest or scores}}
  "tbc.attention"(%q, %q, %q) {scale = 1.0 : f64, causal = false, hidden_rows = "nan"} : (tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>)
  return
}

// -----

func.func @attention_c4_dropout(%q: tensor<1x2x3x4xf32>, %step: tensor<i64>, %i: tensor<3xi64>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has a mask of type 'tensor<3xi64>', expected integers of shape [1]}}
  "tbc.attention"(%q, %q, %q, %step, %i, %i, %i, %i) {scale = 1.0 : f64, causal = false, dropout = 0.1 : f64, drops_out = true} : (tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<i64>, tensor<3xi64>, tensor<3xi64>, tensor<3xi64>, tensor<3xi64>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>)
  return
}

// -----

func.func @attention_c6(%q: tensor<1x2x3x4xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has dropout 1.0}}
  "tbc.attention"(%q, %q, %q) {scale = 1.0 : f64, causal = false, dropout = 1.0 : f64} : (tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>)
  return
}

// -----

func.func @attention_grad_c1(%q: tensor<1x2x3x4xf32>, %s: tensor<1x2x3xf32>, %wrong: tensor<1x2x4xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has an operand of type 'tensor<1x2x4xf32>', expected 'tensor<1x2x3xf32>'}}
  "tbc.attention_grad"(%q, %q, %q, %q, %q, %s, %wrong) {scale = 1.0 : f64, causal = false} : (tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x4xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>)
  return
}

// -----

func.func @attention_c4_places(%q: tensor<1x2x3x4xf32>, %k: tensor<1x2x5x4xf32>, %i: tensor<3xi64>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has a mask of type 'tensor<3xi64>', expected integers of shape [5]}}
  "tbc.attention"(%q, %k, %k, %i, %i) {scale = 1.0 : f64, causal = true, placed = true} : (tensor<1x2x3x4xf32>, tensor<1x2x5x4xf32>, tensor<1x2x5x4xf32>, tensor<3xi64>, tensor<3xi64>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>)
  return
}

// -----

func.func @attention_merge_c1(%o: tensor<1x2x3x4xf32>, %m: tensor<1x2x3xf32>, %wrong: tensor<1x2x4xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{merges 'tensor<1x2x3x4xf32>' with 'tensor<1x2x3xf32>' and 'tensor<1x2x3xf32>' with 'tensor<1x2x3x4xf32>', 'tensor<1x2x3xf32>' and 'tensor<1x2x4xf32>'}}
  "tbc.attention_merge"(%o, %m, %m, %o, %m, %wrong) : (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x4xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>)
  return
}

// -----

func.func @attention_c5_sink(%q: tensor<1x2x3x4xf32>, %sink: tensor<2xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has a sink and hidden_rows "mean"; expected zero}}
  "tbc.attention"(%q, %q, %q, %sink) {scale = 1.0 : f64, causal = false, sink = true, hidden_rows = "mean"} : (tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<2xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>)
  return
}

// -----

func.func @attention_c4_bias(%q: tensor<1x2x3x4xf32>, %bias: tensor<3x3xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has a mask of type 'tensor<3x3xf32>', expected floats of shape [2, 3, 3]}}
  "tbc.attention"(%q, %q, %q, %bias) {scale = 1.0 : f64, causal = false, biases = "hst"} : (tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<3x3xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>)
  return
}

// -----

func.func @attention_c7(%q: tensor<1x2x3x4xf32>, %bias: tensor<3x2x3xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has a bias with the dims "sht"; expected some of b, h, s and t, in this order}}
  "tbc.attention"(%q, %q, %q, %bias) {scale = 1.0 : f64, causal = false, biases = "sht"} : (tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<3x2x3xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>)
  return
}

// -----

func.func @attention_c8(%q: tensor<1x2x3x4xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has soft_cap -1.0}}
  "tbc.attention"(%q, %q, %q) {scale = 1.0 : f64, causal = false, soft_cap = -1.0 : f64} : (tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>)
  return
}

// -----

func.func @attention_bias_grad_c1(%q: tensor<1x2x3x4xf32>, %s: tensor<1x2x3xf32>, %wrong: tensor<1x2x4xf32>, %bias: tensor<3xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has an operand of type 'tensor<1x2x4xf32>', expected 'tensor<1x2x3xf32>'}}
  "tbc.attention_bias_grad"(%q, %q, %q, %q, %q, %s, %wrong, %bias) {scale = 1.0 : f64, causal = false, biases = "t", bias = 0 : i64} : (tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x4xf32>, tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @attention_bias_grad_c2(%q: tensor<1x2x3x4xf32>, %s: tensor<1x2x3xf32>, %bias: tensor<3xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has bias 1 of 1 biases}}
  "tbc.attention_bias_grad"(%q, %q, %q, %q, %q, %s, %s, %bias) {scale = 1.0 : f64, causal = false, biases = "t", bias = 1 : i64} : (tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @attention_c9(%q: tensor<1x2x3x4xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has token_major "oq"; expected some of q, k, v and o, in this order}}
  "tbc.attention"(%q, %q, %q) {scale = 1.0 : f64, causal = false, token_major = "oq"} : (tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>)
  return
}

// -----

func.func @attention_c10(%q: tensor<1x3x8xf32>, %k: tensor<1x2x3x4xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{merges 3 query heads and 2 key heads in 'tensor<1x3x8xf32>', 'tensor<1x2x3x4xf32>'}}
  "tbc.attention"(%q, %k, %k) {scale = 1.0 : f64, causal = false, token_major = "Q", heads = 3 : i64, key_heads = 2 : i64} : (tensor<1x3x8xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>)
  return
}

// -----

func.func @packed_attention_c1(%x: tensor<1x3x23xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{takes 2 query heads and 2 key heads of 4 columns, and values, from 'tensor<1x3x23xf32>'}}
  "tbc.packed_attention"(%x) {scale = 1.0 : f64, causal = false, heads = 2 : i64, key_heads = 2 : i64, packed_width = 4 : i64} : (tensor<1x3x23xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>)
  return
}

// -----

func.func @packed_attention_c1_values(%x: tensor<1x3x16xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{takes 2 query heads and 2 key heads of 4 columns, and values, from 'tensor<1x3x16xf32>'}}
  "tbc.packed_attention"(%x) {scale = 1.0 : f64, causal = false, heads = 2 : i64, key_heads = 2 : i64, packed_width = 4 : i64} : (tensor<1x3x16xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>)
  return
}

// -----

func.func @packed_attention_c2(%x: tensor<1x3x28xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{3 query heads do not share 2 key heads evenly}}
  "tbc.packed_attention"(%x) {scale = 1.0 : f64, causal = false, heads = 3 : i64, key_heads = 2 : i64, packed_width = 4 : i64} : (tensor<1x3x28xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>)
  return
}

// -----

func.func @packed_attention_c2_masks(%x: tensor<1x3x24xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has 0 masks, expected 1}}
  "tbc.packed_attention"(%x) {scale = 1.0 : f64, causal = false, key_mask = true, heads = 2 : i64, key_heads = 2 : i64, packed_width = 4 : i64} : (tensor<1x3x24xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>)
  return
}

// -----

func.func @packed_attention_c3(%x: tensor<1x3x24xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has token_major "QO"; expected o, O or nothing}}
  "tbc.packed_attention"(%x) {scale = 1.0 : f64, causal = false, token_major = "QO", heads = 2 : i64, key_heads = 2 : i64, packed_width = 4 : i64} : (tensor<1x3x24xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>)
  return
}

// -----

func.func @packed_attention_grad_c1(%o: tensor<1x2x3x4xf32>, %x: tensor<1x3x24xf32>, %s: tensor<1x2x3xf32>, %wrong: tensor<1x2x4xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has an operand of type 'tensor<1x2x4xf32>', expected 'tensor<1x2x3xf32>'}}
  "tbc.packed_attention_grad"(%o, %x, %o, %s, %wrong) {scale = 1.0 : f64, causal = false, heads = 2 : i64, key_heads = 2 : i64, packed_width = 4 : i64} : (tensor<1x2x3x4xf32>, tensor<1x3x24xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3xf32>, tensor<1x2x4xf32>) -> tensor<1x3x24xf32>
  return
}
