// q, k and v of GPT-2 are columns of one tensor: attention reads them there, and its gradient writes
// theirs to one. No slice and no concat is left.
// RUN: tbc plan %S/../../../models/tiny-gpt2.onnx --gpus 2 --mesh tp=2 --batch 2 --emit ir > %t.tp.mlir
// RUN: tbc-opt %t.tp.mlir --tbc-partition | FileCheck %s --check-prefix=PACKED
// With the keys gathered over the sequence, they are apart.
// RUN: tbc plan %S/../../../models/tiny-gpt2.onnx --gpus 2 --mesh cp=2 --context all-gather --batch 2 --emit ir > %t.cp.mlir
// RUN: tbc-opt %t.cp.mlir --tbc-partition | FileCheck %s --check-prefix=APART

// PACKED-NOT:  tbc.slice
// PACKED-NOT:  tbc.concat
// PACKED:      func.func @fwd_0
// PACKED:        tbc.packed_attention %{{.*}} heads = [[HEADS:[0-9]+]]
// PACKED:      func.func @bwd_0
// PACKED:        tbc.packed_attention_grad %{{.*}} heads = [[HEADS]]
// PACKED-NOT:  tbc.slice
// PACKED-NOT:  tbc.concat
// PACKED:      func.func @update_0

// APART-NOT:   tbc.packed_attention
// APART:       tbc.attention
// APART:       tbc.attention_grad
// APART:       tbc.concat
// APART-NOT:   tbc.packed_attention
