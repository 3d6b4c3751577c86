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
/// llama, grok and nemotron, with or without experts.
void writeLlama(GraphWriter &writer, const Architecture &a);

/// Logits per token, for masked language modelling.
void writeBert(GraphWriter &writer, const Architecture &a);
/// Logits [batch, classes] of pixel_values [batch, channels, size, size].
void writeVit(GraphWriter &writer, const Architecture &a);

} // namespace tbc::newmodel

#endif // TBC_TOOLS_NEW_FAMILIES_H
