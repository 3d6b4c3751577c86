// RUN: tbc-opt %s --verify-diagnostics --split-input-file

func.func @cross_entropy_c1(%x: tensor<2x3x5xf32>, %y: tensor<2x5xi64>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{labels 'tensor<2x3x5xf32>' by 'tensor<2x5xi64>'}}
  "tbc.cross_entropy"(%x, %y) {ignore_index = -100 : i64} : (tensor<2x3x5xf32>, tensor<2x5xi64>) -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>)
  return
}

// -----

func.func @cross_entropy_grad_c1(%x: tensor<3x5xf32>, %y: tensor<3xi64>, %s: tensor<5xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{has an operand of type 'tensor<5xf32>', expected 'tensor<3xf32>'}}
  "tbc.cross_entropy_grad"(%x, %y, %s, %s, %s) {ignore_index = -100 : i64} : (tensor<3x5xf32>, tensor<3xi64>, tensor<5xf32>, tensor<5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  return
}
