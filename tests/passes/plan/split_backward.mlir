// RUN: tbc-opt %s --tbc-split-backward --split-input-file --verify-diagnostics | FileCheck %s
// A gradient of a weight waits with "wgt"; the cotangent that goes on to earlier ops does not.

// CHECK-LABEL: module attributes {tbc.schedule = "zero-bubble"}
// CHECK:         tbc.id = "l.bwd.0", tbc.phase = #tbc.phase<bwd>
// CHECK:         tbc.id = "l.bwd.1", tbc.phase = #tbc.phase<wgt>
module attributes {tbc.schedule = "zero-bubble"} {
  func.func @train(%w: tensor<4xf32> {tbc.role = #tbc.role<param>, tbc.name = "w"}, %x: tensor<4xf32> {tbc.role = #tbc.role<input>, tbc.name = "x"}) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32> {tbc.role = #tbc.role<grad>, tbc.name = "w"}) {
    %a = tbc.relu %x {tbc.id = "a", tbc.phase = #tbc.phase<fwd>} : tensor<4xf32>
    %l = tbc.mul %a, %w {tbc.id = "l", tbc.phase = #tbc.phase<fwd>} : tensor<4xf32>
    %d = tbc.mul %l, %w {tbc.id = "l.bwd.0", tbc.forward = "l", tbc.phase = #tbc.phase<bwd>, tbc.cotangent_of = [["a", 0]]} : tensor<4xf32>
    %g = tbc.mul %l, %a {tbc.id = "l.bwd.1", tbc.forward = "l", tbc.phase = #tbc.phase<bwd>, tbc.cotangent_of = [unit]} : tensor<4xf32>
    return %l, %d, %g : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  }
}

// -----
// Other schedules do not split.
// CHECK-LABEL: module attributes {tbc.schedule = "1f1b"}
// CHECK-NOT:     "wgt"
module attributes {tbc.schedule = "1f1b"} {
  func.func @train(%w: tensor<4xf32> {tbc.role = #tbc.role<param>, tbc.name = "w"}, %x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32> {tbc.role = #tbc.role<grad>, tbc.name = "w"}) {
    %l = tbc.mul %x, %w {tbc.id = "l", tbc.phase = #tbc.phase<fwd>} : tensor<4xf32>
    %g = tbc.mul %l, %x {tbc.id = "l.bwd.1", tbc.forward = "l", tbc.phase = #tbc.phase<bwd>} : tensor<4xf32>
    return %l, %g : tensor<4xf32>, tensor<4xf32>
  }
}

// -----
// expected-error@+1 {{tbc.schedule names no schedule: "1f2b"}}
module attributes {tbc.schedule = "1f2b"} {
}
