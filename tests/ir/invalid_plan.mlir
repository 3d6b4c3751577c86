// RUN: tbc-opt %s --split-input-file --verify-diagnostics
// What the attributes of a plan refuse by themselves; what needs the mesh and the tensor's layout is
// refused by tbc-derive-shardings and tbc-partition.

// expected-error@+1 {{"tp":(0)4 is no part of an axis: pre is at least 1 and size at least 2}}
module attributes {t.a = #tbc.axis<"tp":(0)4>} {}

// -----
// expected-error@+1 {{a mesh axis needs a name}}
module attributes {t.a = #tbc.axis<"">} {}

// -----
// expected-error@+1 {{the mesh has two axes "dp"}}
module attributes {t.a = #tbc.mesh<"dp"=2, "dp"=4>} {}

// -----
// expected-error@+1 {{axis "dp" has size 0; it must be at least 1}}
module attributes {t.a = #tbc.mesh<"dp"=0>} {}

// -----
// expected-error@+1 {{loop 0 is negative or stands twice}}
module attributes {t.a = #tbc.strategy<{0 = ["dp"], 0 = ["tp"]}>} {}

// -----
// expected-error@+1 {{loop 1 has no list of axes}}
module attributes {t.a = #tbc.strategy<{1 = []}>} {}

// -----
// expected-error@+1 {{axis "dp" stands twice}}
module attributes {t.a = #tbc.sharding<[{f0 = ["dp"]}, {f1 = ["dp"]}]>} {}

// -----
// expected-error@+1 {{axis "tp" stands twice}}
module attributes {t.a = #tbc.sharding<[{f0 = ["tp":(1)2]}], partial = ["tp"]>} {}

// -----
// expected-error@+1 {{expected a factor such as f7}}
module attributes {t.a = #tbc.sharding<[{b = ["dp"]}]>} {}

// -----
// expected-error@+1 {{expected partial, partial_max or flat, each at most once}}
module attributes {t.a = #tbc.sharding<[], flat = ["dp"], flat = ["tp"]>} {}

// -----
// expected-error@+1 {{zero = 4; it is 0 to 3}}
module attributes {t.a = #tbc.parameter_plan<zero = 4, zero_axes = [], reduce_axes = []>} {}

// -----
func.func @reshard_c1(%x: tensor<4xf32>) {
  // expected-error@+1 {{has no collectives}}
  %0 = tbc.reshard %x from <[{}]> to <[{}]> {collectives = [], number = 0 : i64, reason = "operand"} : tensor<4xf32>
  return
}

// -----
func.func @reshard_c2(%x: tensor<4xf32>) {
  // expected-error@+1 {{has a sharding of 2 dims for a tensor of 1}}
  %0 = tbc.reshard %x from <[{}, {}]> to <[{}]> {collectives = ["all_gather over dp, 4 bytes"], number = 0 : i64, reason = "operand"} : tensor<4xf32>
  return
}

// -----
func.func @reshard_c3(%x: tensor<4xf32>) {
  // expected-error@+1 {{has the number -1}}
  %0 = tbc.reshard %x from <[{}]> to <[{}]> {collectives = ["all_gather over dp, 4 bytes"], number = -1 : i64, reason = "operand"} : tensor<4xf32>
  return
}
