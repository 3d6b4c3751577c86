//===- Optimizer.h - Parameter updates -------------------------------------===//
//
// Part of tbc.
//
// Elementwise over tensors of any shape. lr is a float scalar; step is an integer scalar, 1 at the
// first step. Floats are computed in double and rounded once per result. Attributes are not rounded
// to f32.
//
//   sgd{weight_decay}   p, g, lr -> p':   g' = g + weight_decay * p;  p' = p - lr * g'
//   sgd_momentum{momentum, nesterov, weight_decay}   p, g, buf, lr -> p', buf'
//       (torch.optim.SGD without dampening; buf starts at 0):
//       buf' = momentum * buf + g'
//       p' = p - lr * (nesterov ? g' + momentum * buf' : buf')
//   adamw{beta1, beta2, epsilon, weight_decay}   p, g, m, v, lr, step -> p', m', v'
//       (torch.optim.AdamW):
//       m' = beta1 * m + (1 - beta1) * g;  v' = beta2 * v + (1 - beta2) * g * g
//       p' = p * (1 - lr * weight_decay)
//            - lr * (m' / (1 - beta1^step)) / (sqrt(v') / sqrt(1 - beta2^step) + epsilon)
//   adam   the same (torch.optim.Adam), with the decay in the gradient: g + weight_decay * p for g,
//       and no factor at p
//   adagrad{rate_decay, epsilon, weight_decay}   p, g, sum, lr, step -> p', sum'
//       (torch.optim.Adagrad): g' = g + weight_decay * p, sum' = sum + g'^2,
//       p' = p - lr / (1 + (step - 1) * rate_decay) * g' / (sqrt(sum') + epsilon)
//   divide_by_root{epsilon}   x, squares -> x / (sqrt(squares) + epsilon)
//   muon_momentum{momentum, nesterov}   g, buf -> buf', u (torch.optim.Muon):
//       buf' = momentum * buf + (1 - momentum) * g
//       u = nesterov ? momentum * buf' + (1 - momentum) * g : buf'
//   gather_matrices, shard_matrices   u -> u: of all ranks; here there is one rank
//   divide_by_norm{epsilon}   x, squares -> x / max(sqrt(squares), epsilon)
//   weighted_sum{alpha, beta}   x, y -> alpha * x + beta * y
//   muon_step{scale, weight_decay}   p, u, lr -> p * (1 - lr * weight_decay) - lr * scale * u
//   factored_moment{count, beta2_decay}   sums, m, step -> m + w * (sums / count - m),
//       w = step^beta2_decay (torch.optim.Adafactor)
//   factored_direction{count, epsilon}   g, row, column, total
//       -> g / sqrt(max(row * column / max(total / count, epsilon), epsilon^2))
//   root_direction{epsilon}   g, m -> g / sqrt(max(m, epsilon^2))
//   adafactor_step{count, clip_threshold, epsilon, weight_decay}   p, u, p2, u2, lr, step -> p',
//       p2 and u2 the sums of squares of all `count` elements of p and u:
//       rate = max(epsilon, sqrt(p2 / count)) * min(lr, 1 / sqrt(step))
//       p' = p * (1 - lr * weight_decay) - rate / max(1, sqrt(u2 / count) / clip_threshold) * u
//   square_totals   x .. -> scalar ..: the sum of squares of each; of all ranks, here one
//   square_sum   g .. -> scalar: the sum of g^2 over all elements
//   count_not_finite   g .. -> scalar: the number of infinite or NaN elements; in residues, of
//       elements equal to KernelContext::notFinite
//   update_loss_scale{growth_factor, backoff_factor, growth_interval}   scale, tracker, is_finite
//       -> scale', tracker' (torch.amp.GradScaler.update):
//       scale * backoff_factor, 0          if not is_finite
//       scale * growth_factor, 0           if tracker + 1 = growth_interval (scale if that is
//                                          infinite)
//       scale, tracker + 1                 else
//   step_total   s .. -> s ..: the sums over all ranks; here there is one rank
//   scale_by   x, s -> x * s;   clip_value{limit}   x -> min(max(x, -limit), limit)
//   update_if   old, new, condition -> new if the condition holds, else old
//
// Example: sgd with p = 1, g = 0.5, lr = 0.1, weight_decay = 0.1: g' = 0.6, p' = 0.94.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_OPTIMIZER_H
#define TBC_RUNTIME_KERNELS_OPTIMIZER_H

#include "runtime/kernels/Support.h"

namespace tbc::kernels {

const KernelTable &optimizerKernels();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_OPTIMIZER_H
