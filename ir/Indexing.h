//===- Indexing.h - The ops of Indexing.td --------------------------===//

#ifndef TBC_IR_INDEXING_H
#define TBC_IR_INDEXING_H

#include "ir/Tbc.h"

#define GET_OP_CLASSES
#include "ir/Indexing.h.inc"

#endif // TBC_IR_INDEXING_H
