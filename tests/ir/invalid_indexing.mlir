// RUN: tbc-opt %s --verify-diagnostics --split-input-file

func.func @topk_c1(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{names dim 2 of 'tensor<2x3xf32>'}}
  "tbc.topk"(%x) {dim = 2 : i64, largest = true} : (tensor<2x3xf32>) -> (tensor<2x1xf32>, tensor<2x1xi64>)
  return
}

// -----

func.func @topk_c2(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{takes 'tensor<2x4xf32>' and 'tensor<2x4xi64>' from dim 1 of 'tensor<2x3xf32>'}}
  "tbc.topk"(%x) {dim = 1 : i64, largest = true} : (tensor<2x3xf32>) -> (tensor<2x4xf32>, tensor<2x4xi64>)
  return
}

// -----

func.func @topk_c2_indices(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{takes 'tensor<2x2xf32>' and 'tensor<2x1xi64>' from dim 1 of 'tensor<2x3xf32>'}}
  "tbc.topk"(%x) {dim = 1 : i64, largest = true} : (tensor<2x3xf32>) -> (tensor<2x2xf32>, tensor<2x1xi64>)
  return
}

// -----

func.func @gather_elements_c1(%x: tensor<2x3xf32>, %i: tensor<1x3xi64>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{chooses 'tensor<1x3xi64>' along dim 1 of 'tensor<2x3xf32>'}}
  "tbc.gather_elements"(%x, %i) {dim = 1 : i64} : (tensor<2x3xf32>, tensor<1x3xi64>) -> tensor<1x3xf32>
  return
}

// -----

func.func @scatter_elements_add_c1(%u: tensor<2x3xf32>, %i: tensor<2x4xi64>) {
  // expected-error@+1 {{adds 'tensor<2x3xf32>' at 'tensor<2x4xi64>' along dim 1 of 'tensor<2x5xf32>'}}
  "tbc.scatter_elements_add"(%u, %i) {dim = 1 : i64} : (tensor<2x3xf32>, tensor<2x4xi64>) -> tensor<2x5xf32>
  return
}

// -----

func.func @scatter_elements_add_c2(%u: tensor<2x3xf32>, %i: tensor<2x3xi64>) {
  // expected-error@+1 {{adds 'tensor<2x3xf32>' at 'tensor<2x3xi64>' along dim 1 of 'tensor<2x5xf64>'}}
  "tbc.scatter_elements_add"(%u, %i) {dim = 1 : i64} : (tensor<2x3xf32>, tensor<2x3xi64>) -> tensor<2x5xf64>
  return
}
