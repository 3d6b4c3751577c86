// RUN: tbc-opt %s --verify-diagnostics --split-input-file

func.func @running_sum_c1(%x: tensor<2x3xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{sums along dim 2 of 'tensor<2x3xf32>'}}
  "tbc.running_sum"(%x) {dim = 2 : i64, exclusive = false, reverse = false} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}
