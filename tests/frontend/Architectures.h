//===- Architectures.h - Published architectures without weights -----------===//
//
// Plain ONNX graphs; their weights are missing external data.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_FRONTEND_ARCHITECTURES_H
#define TBC_TESTS_FRONTEND_ARCHITECTURES_H

#include "tests/frontend/ModelBuilder.h"

namespace tbc::test {

/// The sizes of a transformer; `keys`: columns of the projections to keys and to values.
struct TransformerSizes {
  int64_t layers, width, heads, keys, inner, vocabulary;
};

/// ResNet-50 with the stride in its 3x3 convolutions, "V1.5": input [batch, 3, 224, 224], logits
/// [batch, 1000]. Source: He et al., "Deep residual learning for image recognition" (2015), table
/// 1.
ModelBuilder makeResNet50();

/// An encoder with the masked-token head of BERT: input_ids [batch, seq], logits per token. The
/// head is a layer of the width, then the transposed token table. Source: Devlin et al., "BERT"
/// (2018).
ModelBuilder makeBert(const TransformerSizes &sizes);

/// A decoder of Llama's kind: RMS norms, rotary positions, grouped keys, SwiGLU, a head of its own.
/// Source: Grattafiori et al., "The Llama 3 herd of models" (2024), table 3.
ModelBuilder makeLlama(const TransformerSizes &sizes);

} // namespace tbc::test

#endif // TBC_TESTS_FRONTEND_ARCHITECTURES_H
