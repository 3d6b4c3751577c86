// RUN: tbc-opt %s --split-input-file --verify-diagnostics
// The constraints of compare, dropout and random numbers, by their labels.

func.func @compare_c1(%x: tensor<4xf32>) {
  // expected-error@+1 {{has unknown predicate "above"; expected eq, ne, lt, le, gt or ge}}
  %y = "tbc.compare"(%x, %x) {predicate = "above"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  return
}

// -----

func.func @compare_c2(%x: tensor<4xf32>, %n: tensor<4xi64>) {
  // expected-error@+1 {{compares 'tensor<4xf32>' with 'tensor<4xi64>'}}
  %y = "tbc.compare"(%x, %n) {predicate = "lt"} : (tensor<4xf32>, tensor<4xi64>) -> tensor<4xi1>
  return
}

// -----

func.func @dropout_c1(%x: tensor<4xf32>) {
  // expected-error@+1 {{has ratio 1.000000e+00; expected 0 or more and less than 1}}
  %y = "tbc.dropout"(%x) {ratio = 1.0 : f64} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @dropout_train_c1_number(%x: tensor<4x3xf32>, %step: tensor<i64>, %i: tensor<4xi64>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{numbers the elements of 'tensor<4x3xf32>' by vectors that are not one per dim, of its size}}
  %y = "tbc.dropout_train"(%x, %step, %i) {ratio = 0.5 : f64, seed = 1 : i64, key = 0 : i64} : (tensor<4x3xf32>, tensor<i64>, tensor<4xi64>) -> tensor<4x3xf32>
  return
}

// -----

func.func @dropout_train_c1_size(%x: tensor<4xf32>, %step: tensor<i64>, %i: tensor<3xi64>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{numbers the elements of 'tensor<4xf32>' by vectors that are not one per dim, of its size}}
  %y = "tbc.dropout_train"(%x, %step, %i) {ratio = 0.5 : f64, seed = 1 : i64, key = 0 : i64} : (tensor<4xf32>, tensor<i64>, tensor<3xi64>) -> tensor<4xf32>
  return
}

// -----

func.func @dropout_train_c2(%x: tensor<4xf32>, %step: tensor<i64>, %i: tensor<4xi64>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has ratio -5.000000e-01; expected 0 or more and less than 1}}
  %y = "tbc.dropout_train"(%x, %step, %i) {ratio = -0.5 : f64, seed = 1 : i64, key = 0 : i64} : (tensor<4xf32>, tensor<i64>, tensor<4xi64>) -> tensor<4xf32>
  return
}

// -----

func.func @random_uniform_c1(%x: tensor<f32>) {
  // expected-error@+1 {{draws for a tensor without dims; expected at least one}}
  %y = "tbc.random_uniform"(%x) {key = 0 : i64} : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @random_uniform_train_c1(%step: tensor<i64>, %i: tensor<2x3xi64>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{numbers elements by 'tensor<2x3xi64>'; expected a vector per dim}}
  %y = "tbc.random_uniform_train"(%step, %i) {seed = 1 : i64, key = 0 : i64} : (tensor<i64>, tensor<2x3xi64>) -> tensor<2x3xf32>
  return
}
