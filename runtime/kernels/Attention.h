//===- Attention.h - Attention, its gradient, rotary embedding -------------===//
//
// Part of tbc.
//
//   attention{scale, soft_cap, biases, sink, causal, left, right, key_mask, segments, ordered,
//             placed, hidden_rows, token_major}
//       q[b,h,s,d], k[b,hk,t,d], v[b,hk,t,e], masks... -> o[b,h,s,e], m[b,h,s], l[b,h,s]
//       Query head i reads key head i / (h / hk). The row max is m, the row sum is l:
//         x_ij = (sum_d q_id * k_jd) * scale
//         z_ij = x_ij, or soft_cap * tanh(x_ij / soft_cap) if soft_cap > 0; plus every bias
//         m_i  = stabilizer_max of z_ij over the readable j, and of the sink
//         e_ij = exp(z_ij - m_i) for readable j, else 0
//         l_i  = sum_j e_ij, plus exp(sink - m_i) with a sink;  p_ij = e_ij / l_i;  o_i = sum_j
//         p_ij * v_j
//
//       Query i may read key j if all of these hold. a = j - (i + t - s), or if placed
//       a = key_places[j] - query_places[i]:
//         window     a <= 0 if causal; a >= -left if left >= 0; a <= right if right >= 0
//         key_mask   mask[b, j] != 0
//         segments   query_segments[b, i] == key_segments[b, j]
//         ordered    key_positions[b, j] <= query_positions[b, i]
//       biases lists the dims of each bias, for example "hst,bt"; sink is a score of each head.
//       Mask operands, in this order: the biases; floats [h] if sink; bool[b,t] if key_mask;
//       integers [b,s] and [b,t] if segments; the same if ordered; integers [s] and [t] if placed.
//
//       Fully masked rows (queries without a readable key), by hidden_rows:
//         zero       m = l = o = 0
//         mean       reads every key, with z = 0: o is the mean of the values
//         window     the same over the keys in the window
//         nearest    the same over the keys that break the fewest conditions; window and ordered
//                    count as one condition
//         scores     reads every key by its score
//
//       token_major lists the tensors in another order, letters of q, k, v and o: q[b,s,h,d],
//       k[b,t,hk,d], v[b,t,hk,e], o[b,s,h,e]. A capital merges the last two dims, q[b,s,h*d]; heads
//       is then h, and key_heads is hk. Gradients have the order of their tensor.
//
//       drops_out adds the operands step and one index vector for each of b, h, s and t. Then p_ij
//       is first multiplied by c_ij, as in dropout_train{dropout, dropout_seed, dropout_key}.
//       Without drops_out, `dropout` has no effect.
//
//   attention_grad{...}   do, q, k, v, o, m, l, masks... -> dq, dk, dv, with p as above:
//         D_i   = sum_e do_ie * o_ie;  dp_ij = c_ij * sum_e do_ie * v_je
//         dz_ij = p_ij * (dp_ij - D_i), but 0 in rows with z = 0
//         dx_ij = dz_ij * (1 - tanh(x_ij / soft_cap)^2), or dz_ij without a cap
//         dq_i  = (sum_j dx_ij * k_j) * scale;  dk_j = (sum_i dx_ij * q_i) * scale
//         dv_j  = sum_i c_ij * p_ij * do_i
//       dk and dv are summed over the query heads that share the key head.
//
//   attention_bias_grad{bias, ...}   the same operands -> the gradient of bias number `bias`:
//   dz_ij,
//       summed over the dims that the bias lacks.
//
//   attention_merge{token_major}   o1, m1, l1, o2, m2, l2 -> o, m, l: attention to the keys of both
//       parts, for o[b,h,s,e] or token-major o[b,s,h,e] or o[b,s,h*e]:
//         m = max(m1, m2);  li' = li * exp(mi - m)
//         l = l1' + l2';  o = (l1' * o1 + l2' * o2) / l
//       If one l is 0, the result is the other part.
//
//   rotary{inverse, token_major, interleaved}   x[..,s,d], or token-major x[b,s,h,d] or x[b,s,h*d],
//       with cos[s,d/2], sin[s,d/2] -> y; x1, x2 are the halves of d, interleaved its even and odd
//       elements:
//         y1 = x1 * cos - x2 * sin;  y2 = x2 * cos + x1 * sin
//       inverse negates sin (the gradient). Tables [b,s,d/2] are one for each index b of the first
//       dim of x.
//
// Example: causal with s = 2 and t = 4: query 0 reads keys 0 to 2, query 1 reads keys 0 to 3.
//
// `scale` is a composite constant (see Kernel.h).
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_ATTENTION_H
#define TBC_RUNTIME_KERNELS_ATTENTION_H

#include "runtime/kernels/Support.h"

namespace tbc::kernels {

const KernelTable &attentionKernels();

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_ATTENTION_H
