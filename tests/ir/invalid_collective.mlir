// RUN: tbc-opt %s --split-input-file --verify-diagnostics
// The constraints of collectives, by their labels.

func.func @permute_c1(%x: tensor<4xf32>) {
  // expected-error@+1 {{names mesh axis "cp" twice}}
  %y = tbc.permute %x {axes = ["cp", "cp"]} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @permute_c2(%x: tensor<4xf32>) {
  // expected-error@+1 {{makes 'tensor<2xf32>' of 'tensor<4xf32>'}}
  %y = tbc.permute %x {axes = ["cp"]} : (tensor<4xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @all_reduce_c1(%x: tensor<4xf32>) {
  // expected-error@+1 {{names mesh axis "dp" twice}}
  %y = tbc.all_reduce %x {axes = ["dp", "dp"], kind = "sum"} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @all_reduce_c2(%x: tensor<4xf32>) {
  // expected-error@+1 {{has unknown kind "product"; expected sum or max}}
  %y = tbc.all_reduce %x {axes = ["dp"], kind = "product"} : (tensor<4xf32>) -> tensor<4xf32>
  return
}
