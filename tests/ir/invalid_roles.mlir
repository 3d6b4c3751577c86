// RUN: tbc-opt %s --split-input-file --verify-diagnostics
// Roles and phases of another kind would read as absent, so the dialect refuses them.

// expected-error@+1 {{has tbc.role = "param" on argument 1; a role is written #tbc.role<param>}}
func.func @train(%x: tensor<4xf32>, %w: tensor<4xf32> {tbc.role = "param"}) { return }

// -----

// expected-error@+1 {{has tbc.role = #tbc.phase<fwd> on result 0; a role is written #tbc.role<param>}}
func.func @train(%x: tensor<4xf32>) -> (tensor<4xf32> {tbc.role = #tbc.phase<fwd>}) {
  return %x : tensor<4xf32>
}

// -----

// expected-error@+1 {{"weight" is no role; expected one of input, label, sample, step, param, state, opt_state, grad, loss, count, lr, residual, recv, send, acc, loss_acc}}
func.func @train(%x: tensor<4xf32> {tbc.role = #tbc.role<weight>}) { return }

// -----

func.func @train(%x: tensor<4xf32>) {
  // expected-error@+1 {{has tbc.role, which belongs to arguments and results of functions}}
  %a = tbc.relu %x {tbc.role = #tbc.role<input>} : tensor<4xf32>
  return
}

// -----

func.func @train(%x: tensor<4xf32>) {
  // expected-error@+1 {{has tbc.phase = "bwd"; a phase is #tbc.phase<fwd>, #tbc.phase<bwd> or #tbc.phase<wgt>}}
  %a = tbc.relu %x {tbc.phase = "bwd"} : tensor<4xf32>
  return
}

// -----

func.func @train(%x: tensor<4xf32>) {
  // expected-error@+1 {{"update" is no phase; expected one of fwd, bwd, wgt}}
  %a = tbc.relu %x {tbc.phase = #tbc.phase<update>} : tensor<4xf32>
  return
}

// -----

// expected-error@+1 {{has tbc.phase on argument 0; it belongs to ops}}
func.func @train(%x: tensor<4xf32> {tbc.phase = #tbc.phase<fwd>}) { return }
