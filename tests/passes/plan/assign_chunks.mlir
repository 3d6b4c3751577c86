// RUN: tbc-opt %s --tbc-assign-chunks --split-input-file --verify-diagnostics | FileCheck %s
// Ops from one mark to the next are a chunk; backward ops follow their forward op.

// CHECK-LABEL: func.func @train
// CHECK:         "a"
// CHECK-NOT:     tbc.chunk_begin
// CHECK:         tbc.chunk = 0 : i64, tbc.id = "a"
// CHECK:         tbc.chunk = 0 : i64, tbc.id = "b"
// CHECK:         tbc.chunk = 1 : i64, tbc.id = "c"
// CHECK:         tbc.chunk = 1 : i64, tbc.forward = "c", tbc.id = "c.bwd.0"
// CHECK:         tbc.chunk = 0 : i64, tbc.forward = "a", tbc.id = "a.bwd.0"
func.func @train(%x: tensor<4xf32> {tbc.role = #tbc.role<input>, tbc.name = "a"}) -> tensor<4xf32> {
  %a = tbc.relu %x {tbc.id = "a", tbc.phase = #tbc.phase<fwd>, tbc.chunk_begin = 0 : i64} : tensor<4xf32>
  %b = tbc.relu %a {tbc.id = "b", tbc.phase = #tbc.phase<fwd>} : tensor<4xf32>
  %c = tbc.relu %b {tbc.id = "c", tbc.phase = #tbc.phase<fwd>, tbc.chunk_begin = 1 : i64} : tensor<4xf32>
  %d = tbc.mul %c, %b {tbc.id = "c.bwd.0", tbc.forward = "c", tbc.phase = #tbc.phase<bwd>} : tensor<4xf32>
  %e = tbc.mul %d, %a {tbc.id = "a.bwd.0", tbc.forward = "a", tbc.phase = #tbc.phase<bwd>} : tensor<4xf32>
  return %e : tensor<4xf32>
}

// -----
func.func @train(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{begins chunk 1, but the one to begin is 0}}
  %a = tbc.relu %x {tbc.id = "a", tbc.chunk_begin = 1 : i64} : tensor<4xf32>
  return %a : tensor<4xf32>
}

// -----
func.func @train(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = tbc.relu %x {tbc.id = "a"} : tensor<4xf32>
  // expected-error@+1 {{cannot begin a chunk}}
  %b = tbc.relu %a {tbc.id = "b", tbc.chunk_begin = 0 : i64} : tensor<4xf32>
  return %b : tensor<4xf32>
}
