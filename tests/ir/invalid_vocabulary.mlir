// RUN: tbc-opt %s --verify-diagnostics --split-input-file

func.func @embedding_c1(%t: tensor<4x3xf32>, %i: tensor<2xi64>, %n: tensor<5xi64>, %last: tensor<i64>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{numbers the rows of 'tensor<4x3xf32>' by 'tensor<5xi64>' up to 'tensor<i64>'}}
  "tbc.embedding"(%t, %i, %n, %last) : (tensor<4x3xf32>, tensor<2xi64>, tensor<5xi64>, tensor<i64>) -> tensor<2x3xf32>
  return
}

// -----

func.func @embedding_c1_last(%t: tensor<4x3xf32>, %i: tensor<2xi64>, %n: tensor<4xi64>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{numbers the rows of 'tensor<4x3xf32>' by 'tensor<4xi64>' up to 'tensor<4xi64>'}}
  "tbc.embedding"(%t, %i, %n, %n) : (tensor<4x3xf32>, tensor<2xi64>, tensor<4xi64>, tensor<4xi64>) -> tensor<2x3xf32>
  return
}

// -----

func.func @embedding_grad_c1(%u: tensor<2x3xf32>, %i: tensor<3xi64>, %n: tensor<4xi64>, %last: tensor<i64>) {
  // expected-error@+1 {{adds 'tensor<2x3xf32>' at 'tensor<3xi64>' into 'tensor<4x3xf32>' numbered by 'tensor<4xi64>'}}
  "tbc.embedding_grad"(%u, %i, %n, %last) : (tensor<2x3xf32>, tensor<3xi64>, tensor<4xi64>, tensor<i64>) -> tensor<4x3xf32>
  return
}

// -----

func.func @class_max_c1(%x: tensor<2x4xf32>, %n: tensor<2xi64>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{takes the maximum of 'tensor<2x4xf32>' numbered by 'tensor<2xi64>'}}
  "tbc.class_max"(%x, %n) : (tensor<2x4xf32>, tensor<2xi64>) -> tensor<2xf32>
  return
}

// -----

func.func @class_sums_c1(%x: tensor<2x4xbf16>, %m: tensor<2xbf16>, %l: tensor<2xi64>, %n: tensor<4xi64>, %last: tensor<i64>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{sums 'tensor<2x4xbf16>' less 'tensor<2xbf16>' at 'tensor<2xi64>' numbered by 'tensor<4xi64>'}}
  "tbc.class_sums"(%x, %m, %l, %n, %last) {ignore_index = -100 : i64, label_weight = 1.0 : f64, class_weight = 0.0 : f64} : (tensor<2x4xbf16>, tensor<2xbf16>, tensor<2xi64>, tensor<4xi64>, tensor<i64>) -> (tensor<2xf32>, tensor<2xf32>)
  return
}

// -----

func.func @class_sums_grad_c1(%x: tensor<2x4xf32>, %m: tensor<2xf32>, %l: tensor<2xi64>, %n: tensor<4xi64>, %last: tensor<i64>, %d: tensor<2xf64>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has a cotangent of type 'tensor<2xf64>', expected 'tensor<2xf32>'}}
  "tbc.class_sums_grad"(%x, %m, %l, %n, %last, %m, %d) {ignore_index = -100 : i64, label_weight = 1.0 : f64, class_weight = 0.0 : f64} : (tensor<2x4xf32>, tensor<2xf32>, tensor<2xi64>, tensor<4xi64>, tensor<i64>, tensor<2xf32>, tensor<2xf64>) -> tensor<2x4xf32>
  return
}
