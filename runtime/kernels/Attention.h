//===- Attention.h - Attention, its gradient, rotary embedding -------------===//
//
// Part of tbc.
//
//   attention{scale, causal}   q[b,h,s,d], k[b,hk,t,d], v[b,hk,t,e] -> o[b,h,s,e], m[b,h,s],
//   l[b,h,s]
//       Query head i reads key head i / (h / hk). Causal: query i may read key j when j <= i + (t -
//       s). z_ij = (sum_d q_id * k_jd) * scale;  m_i = stabilizer_max of z_ij over the readable j
//       e_ij = exp(z_ij - m_i) for readable j, else 0;  l_i = sum_j e_ij;  p_ij = e_ij / l_i
//       o_i = sum_j p_ij * v_j
//       A query without a readable key has m = l = o = 0.
//   attention_grad{scale, causal}   do, q, k, v, o, m, l -> dq, dk, dv, with p as above:
//       D_i = sum_e do_ie * o_ie;  dp_ij = sum_e do_ie * v_je;  ds_ij = p_ij * (dp_ij - D_i)
//       dq_i = (sum_j ds_ij * k_j) * scale;  dk_j = (sum_i ds_ij * q_i) * scale;  dv_j = sum_i p_ij
//       * do_i (dk and dv summed over the query heads that share the key head)
//   rotary{inverse}   x[..,s,d], cos[s,d/2], sin[s,d/2] -> y, halves x1, x2 of the last dim:
//       y1 = x1 * cos - x2 * sin;  y2 = x2 * cos + x1 * sin;  inverse negates sin (the gradient).
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
