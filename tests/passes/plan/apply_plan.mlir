// The plan of a step, written by tbc plan, gives the same attributes as tbc plan --emit ir, also to
// a step that has another plan.
// RUN: tbc plan %S/../../../models/tiny-mlp.onnx --gpus 4 --mesh dp=2,tp=2 --batch 16 -o %t.json --emit ir > %t.planned.mlir
// RUN: tbc plan %S/../../../models/tiny-mlp.onnx --gpus 2 --mesh pp=2 --batch 16 --recompute full --emit ir > %t.other.mlir
// RUN: tbc-opt %t.planned.mlir > %t.printed.mlir
// RUN: tbc-opt %t.other.mlir --tbc-apply-plan=plan=%t.json > %t.applied.mlir
// RUN: diff %t.printed.mlir %t.applied.mlir
// RUN: FileCheck %s < %t.applied.mlir
// RUN: not tbc-opt %t.planned.mlir --tbc-apply-plan=plan=%t.none 2>&1 | FileCheck %s --check-prefix=MISSING

// CHECK:      module attributes {tbc.batch = 16 : i64
// CHECK-SAME:   tbc.mesh = #tbc.mesh<"dp"=2, "tp"=2>, tbc.micro_batches = 1 : i64
// CHECK:        func.func @train(
// CHECK-SAME:     tbc.parameter_plan = #tbc.parameter_plan<zero = 0, zero_axes = [], reduce_axes = ["dp"]>
// CHECK:        tbc.id = "node_linear", tbc.phase = #tbc.phase<fwd>, tbc.strategy = #tbc.strategy<{0 = ["dp"], 2 = ["tp"]}>
// CHECK:        tbc.id = "node_linear_1.2", tbc.phase = #tbc.phase<fwd>, tbc.recompute
// CHECK:        tbc.factor_size
// CHECK-SAME:     samples = 16 : i64

// MISSING: cannot read plan "{{.*}}.none": {{.*}}; --tbc-apply-plan=plan=FILE names it
