// The passes after tbc plan --emit ir, as its page shows them.
// RUN: tbc plan %S/../../../models/tiny-mlp.onnx --gpus 4 --mesh dp=2,tp=2 --batch 16 --bucket-size 1MiB --emit ir > %t.mlir
// RUN: tbc-opt %t.mlir --tbc-assign-chunks --tbc-recompute --tbc-split-backward --tbc-derive-shardings --tbc-partition | FileCheck %s
// tbc-partition derives shardings itself where they are not there.
// RUN: tbc-opt %t.mlir --tbc-recompute --tbc-partition | FileCheck %s

// CHECK:      module attributes {
// CHECK-SAME:   tbc.mesh = #tbc.mesh<"dp"=2, "tp"=2>
// CHECK-SAME{LITERAL}: {name = "fc1.weight", role = #tbc.role<param>, sharding = #tbc.sharding<[{f
// CHECK:      func.func @fwd_0(%{{.*}}: tensor<8x32xf32> {tbc.name = "input", tbc.role = #tbc.role<input>}
// CHECK:        tbc.einsum {{.*}}tbc.id = "node_linear", tbc.phase = #tbc.phase<fwd>} : (tensor<8x32xbf16>, tensor<32x32xbf16>) -> tensor<8x32xbf16>
// CHECK:        tbc.all_{{gather|reduce}}
// CHECK:      func.func @bwd_0(
// CHECK:        tbc.all_reduce {{.*}}axes = ["dp"], kind = "sum", tbc.bucket = array<i64: 0, 0>
// CHECK:      func.func @wgt_0()
// CHECK:      func.func @update_0(
// CHECK-NOT:  tbc.strategy
// CHECK-NOT:  func.func @train
