// With several micro-batches, the backward of the last one adds the accumulated gradients and
// reduces the totals; the update reads them.
// RUN: tbc plan %S/../../../models/tiny-mlp.onnx --gpus 2 --mesh dp=2 --batch 16 --micro-batch 2 --zero 0 --bucket-size 1MiB --emit ir > %t.ddp.mlir
// RUN: tbc-opt %t.ddp.mlir --tbc-partition | FileCheck %s --check-prefixes=CHECK,DDP
// RUN: tbc plan %S/../../../models/tiny-mlp.onnx --gpus 2 --mesh dp=2 --batch 16 --micro-batch 2 --zero 1 --bucket-size 1MiB --emit ir > %t.zero1.mlir
// RUN: tbc-opt %t.zero1.mlir --tbc-partition | FileCheck %s --check-prefixes=CHECK,ZERO1
// One micro-batch needs no such block.
// RUN: tbc plan %S/../../../models/tiny-mlp.onnx --gpus 2 --mesh dp=2 --batch 16 --micro-batch 8 --zero 0 --emit ir > %t.once.mlir
// RUN: tbc-opt %t.once.mlir --tbc-partition | FileCheck %s --check-prefix=ONCE

// CHECK:      func.func @bwd_0(
// CHECK-NOT:    tbc.role = #tbc.role<acc>}{{.*}}->
// CHECK-NOT:    tbc.all_reduce
// CHECK-NOT:    tbc.reduce_scatter
// CHECK:      func.func @last_bwd_0(
// CHECK-SAME:   tbc.role = #tbc.role<acc>
// CHECK-SAME:   ->
// CHECK-SAME:   tbc.role = #tbc.role<total>
// ZERO1-SAME:   tbc.role = #tbc.role<reduced>
// CHECK:        tbc.add {{.*}}tbc.id = "fc2.weight.total"
// DDP:          tbc.all_reduce {{.*}}axes = ["dp"], kind = "sum", tbc.bucket = array<i64: 0, 0>
// ZERO1:        tbc.reduce_scatter {{.*}}axes = ["dp"]{{.*}}tbc.bucket = array<i64: 0, 0>
// CHECK:      func.func @update_0(
// DDP-SAME:     tbc.role = #tbc.role<acc>
// ZERO1-SAME:   tbc.role = #tbc.role<reduced>
// CHECK-NOT:    tbc.reduce_scatter

// ONCE-NOT:   @last_bwd_0
