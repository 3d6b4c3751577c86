// RUN: tbc-opt %s | tbc-opt | FileCheck %s
// The attributes of a plan, roles and phases keep their text.

// CHECK:      module attributes {
// CHECK-SAME:   tbc.mesh = #tbc.mesh<"dp"=2, "tp"=16>
module attributes {tbc.mesh = #tbc.mesh<"dp"=2, "tp"=16>} {
  // CHECK-LABEL: func.func @attributes()
  // CHECK-SAME:    t.a = #tbc.axis<"tp">
  // CHECK-SAME:    t.b = #tbc.axis<"tp":(2)4>
  // CHECK-SAME:    t.c = #tbc.mesh<>
  // CHECK-SAME:    t.d = #tbc.strategy<{0 = ["dp"], 2 = ["tp":(1)2, "tp":(2)8]}>
  // CHECK-SAME:    t.e = #tbc.strategy<{}>
  // CHECK-SAME{LITERAL}: t.f = #tbc.sharding<[{f0 = ["dp"]}, {}, {f7 = ["tp"], f9 = ["cp"]}]>
  // CHECK-SAME{LITERAL}: t.g = #tbc.sharding<[], partial = ["dp", "tp"]>
  // CHECK-SAME{LITERAL}: t.h = #tbc.sharding<[{}], partial_max = ["tp"], flat = ["fsdp"]>
  // CHECK-SAME:    t.i = #tbc.parameter_plan<zero = 3, keep_gathered, zero_axes = ["fsdp"], reduce_axes = ["dp"]>
  // CHECK-SAME:    t.j = #tbc.parameter_plan<zero = 0, zero_axes = [], reduce_axes = []>
  // CHECK-SAME:    t.k = #tbc.factor_axes<f7 = ["dp", "fsdp"]>
  // CHECK-SAME:    t.l = #tbc.role<opt_state>
  // CHECK-SAME:    t.m = #tbc.phase<wgt>
  func.func @attributes() attributes {
    t.a = #tbc.axis<"tp">, t.b = #tbc.axis<"tp":(2)4>, t.c = #tbc.mesh<>,
    t.d = #tbc.strategy<{0 = ["dp"], 2 = ["tp":(1)2, "tp":(2)8]}>, t.e = #tbc.strategy<{}>,
    t.f = #tbc.sharding<[{f0 = ["dp"]}, {}, {f7 = ["tp"], f9 = ["cp"]}]>,
    t.g = #tbc.sharding<[], partial = ["dp", "tp"]>,
    t.h = #tbc.sharding<[{}], partial_max = ["tp"], flat = ["fsdp"]>,
    t.i = #tbc.parameter_plan<zero = 3, keep_gathered, zero_axes = ["fsdp"], reduce_axes = ["dp"]>,
    t.j = #tbc.parameter_plan<zero = 0, zero_axes = [], reduce_axes = []>,
    t.k = #tbc.factor_axes<f7 = ["dp", "fsdp"]>, t.l = #tbc.role<opt_state>,
    t.m = #tbc.phase<wgt>} {
    return
  }
}
