// RUN: tbc-opt %s --tbc-derive-shardings --split-input-file --verify-diagnostics | FileCheck %s
// A matmul whose summed loop is on tp leaves partial sums; its result is completed. The parameter is
// stored flat over fsdp and gathered before its use.

// CHECK-LABEL:         func.func @train
// CHECK-SAME{LITERAL}:   tbc.gradient = #tbc.sharding<[{f1 = ["tp"]}, {}], flat = ["fsdp"]>
// CHECK-SAME{LITERAL}:   tbc.sharding = #tbc.sharding<[{f1 = ["tp"]}, {}], flat = ["fsdp"]>
// CHECK-SAME{LITERAL}:   tbc.state = #tbc.sharding<[{f1 = ["tp"]}, {}], flat = ["fsdp"]>
// CHECK-SAME{LITERAL}:   tbc.used = #tbc.sharding<[{f1 = ["tp"]}, {}]>
// CHECK:               %[[Y:.*]] = tbc.einsum %arg0, %arg1
// CHECK-SAME{LITERAL}:   tbc.produced = [#tbc.sharding<[{f0 = ["fsdp"]}, {}], partial = ["tp"]>]
// CHECK-SAME{LITERAL}:   tbc.sharding = [#tbc.sharding<[{f0 = ["fsdp"]}, {}]>]
module attributes {tbc.mesh = #tbc.mesh<"fsdp"=2, "tp"=2>, tbc.batch = 4 : i64} {
  func.func @train(%x: tensor<97x8xf32> {tbc.role = #tbc.role<input>, tbc.name = "x", tbc.batch_dim = 0 : i64}, %w: tensor<8x6xf32> {tbc.role = #tbc.role<param>, tbc.name = "w", tbc.parameter_plan = #tbc.parameter_plan<zero = 3, zero_axes = ["fsdp"], reduce_axes = []>}) -> (tensor<f32> {tbc.role = #tbc.role<loss>, tbc.name = "loss"}, tensor<8x6xf32> {tbc.role = #tbc.role<grad>, tbc.name = "w"}) {
    %y = tbc.einsum %x, %w {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 1, 2>, out_labels = array<i64: 0, 2>, tbc.id = "y", tbc.phase = #tbc.phase<fwd>, tbc.strategy = #tbc.strategy<{0 = ["fsdp"], 1 = ["tp"]}>} : (tensor<97x8xf32>, tensor<8x6xf32>) -> tensor<97x6xf32>
    %l = tbc.reduce_sum %y {dims = array<i64: 0, 1>, tbc.id = "l", tbc.phase = #tbc.phase<fwd>, tbc.strategy = #tbc.strategy<{0 = ["fsdp"]}>} : (tensor<97x6xf32>) -> tensor<f32>
    %g = tbc.einsum %x, %y {lhs_labels = array<i64: 0, 1>, rhs_labels = array<i64: 0, 2>, out_labels = array<i64: 1, 2>, tbc.id = "y.bwd.0", tbc.forward = "y", tbc.phase = #tbc.phase<bwd>, tbc.strategy = #tbc.strategy<{0 = ["fsdp"], 1 = ["tp"]}>} : (tensor<97x8xf32>, tensor<97x6xf32>) -> tensor<8x6xf32>
    return %l, %g : tensor<f32>, tensor<8x6xf32>
  }
  func.func @update(%g: tensor<8x6xf32> {tbc.role = #tbc.role<grad>, tbc.name = "w"}) {
    return
  }
}

// -----
module attributes {tbc.mesh = #tbc.mesh<"dp"=2>} {
  func.func @train(%x: tensor<97xf32> {tbc.role = #tbc.role<input>, tbc.name = "x", tbc.batch_dim = 0 : i64}) -> (tensor<f32> {tbc.role = #tbc.role<loss>, tbc.name = "loss"}) {
    // expected-error@+1 {{has a strategy for loop 3 of 1}}
    %l = tbc.reduce_sum %x {dims = array<i64: 0>, tbc.id = "l", tbc.strategy = #tbc.strategy<{3 = ["dp"]}>} : (tensor<97xf32>) -> tensor<f32>
    return %l : tensor<f32>
  }
  func.func @update() {
    return
  }
}

// -----
// expected-error@+1 {{the plan on the module is invalid: }}
module attributes {tbc.mesh = #tbc.mesh<"dp"=2>} {
  func.func @train(%x: tensor<97xf32> {tbc.role = #tbc.role<input>, tbc.name = "x", tbc.batch_dim = 0 : i64}) -> (tensor<f32> {tbc.role = #tbc.role<loss>, tbc.name = "loss"}) {
    %l = tbc.reduce_sum %x {dims = array<i64: 0>, tbc.id = "l", tbc.strategy = #tbc.strategy<{0 = ["dp"]}>} : (tensor<97xf32>) -> tensor<f32>
    return %l : tensor<f32>
  }
  func.func @update() {
    return
  }
}

// -----
module attributes {tbc.mesh = #tbc.mesh<"dp"=2>} {
  func.func @train(%x: tensor<97xf32> {tbc.role = #tbc.role<input>, tbc.name = "x", tbc.batch_dim = 0 : i64}) -> (tensor<f32> {tbc.role = #tbc.role<loss>, tbc.name = "loss"}) {
    // expected-error@+1 {{the mesh has no axis "tp"}}
    %l = tbc.reduce_sum %x {dims = array<i64: 0>, tbc.id = "l", tbc.strategy = #tbc.strategy<{0 = ["tp"]}>} : (tensor<97xf32>) -> tensor<f32>
    return %l : tensor<f32>
  }
  func.func @update() {
    return
  }
}

// -----
// expected-error@+1 {{there is no plan on the module (attribute tbc.mesh); run tbc-apply-plan first}}
module {
  func.func @train() {
    return
  }
  func.func @update() {
    return
  }
}
