// RUN: tbc plan %S/../../../models/tiny-mlp.onnx --gpus 2 --mesh fsdp=2 --strategy fsdp --batch 16 --prefetch 1 --bucket-size 1MiB --emit ir > %t.mlir
// RUN: tbc-opt %t.mlir --tbc-recompute --tbc-insert-collectives | FileCheck %s --check-prefix=BEFORE
// RUN: tbc-opt %t.mlir --tbc-recompute --tbc-insert-collectives --tbc-bucket | FileCheck %s
// The gather of the second layer's weight is issued before the first layer's matmul, and reductions
// of gradients are members of buckets.

// BEFORE-LABEL: func.func @train
// BEFORE-NOT:     bucket =
// BEFORE:         tbc.id = "node_linear",
// BEFORE:         tbc.reshard %arg3
// BEFORE-SAME:      reason = "parameter_use"
// BEFORE:         tbc.id = "node_linear_1",

// CHECK-LABEL: func.func @train
// CHECK:         tbc.reshard %arg1
// CHECK:         tbc.reshard %arg2
// CHECK:         tbc.id = "node_linear",
// CHECK:         bucket = 0 : i64, collectives = ["reduce_scatter over fsdp,
// CHECK-SAME:      reason = "gradient"
