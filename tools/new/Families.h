//===- Families.h - Writers of model families ----------------------------------===//

#ifndef TBC_TOOLS_NEW_FAMILIES_H
#define TBC_TOOLS_NEW_FAMILIES_H

#include "tools/new/Architecture.h"
#include "tools/new/GraphWriter.h"

namespace tbc::newmodel {

/// Decoders: logits [batch, seq, vocabulary] of input_ids [batch, seq].
void writeGpt2(GraphWriter &writer, const Architecture &a);
void writeMpt(GraphWriter &writer, const Architecture &a);
void writeBloom(GraphWriter &writer, const Architecture &a);
void writeNeox(GraphWriter &writer, const Architecture &a);
void writePhi(GraphWriter &writer, const Architecture &a);
/// llama and all that differ from it by norms, experts, windows or the form of attention.
void writeLlama(GraphWriter &writer, const Architecture &a);

/// Logits per token, for masked language modelling.
void writeBert(GraphWriter &writer, const Architecture &a);
void writeModernBert(GraphWriter &writer, const Architecture &a);
/// Logits [batch, target_seq, vocabulary] of input_ids and decoder_input_ids.
void writeT5(GraphWriter &writer, const Architecture &a);
/// Logits [batch, classes] of pixel_values [batch, channels, size, size].
void writeVit(GraphWriter &writer, const Architecture &a);

/// Noise and variance, [batch, 2 channels, size, size], of latents, timesteps and labels.
void writeDit(GraphWriter &writer, const Architecture &a);

} // namespace tbc::newmodel

#endif // TBC_TOOLS_NEW_FAMILIES_H
