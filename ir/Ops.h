//===- Ops.h - Every family of ops -------------------------------------------===//
//
// For code that really speaks of many families; a family's own header compiles faster and is
// compiled again less often.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_IR_OPS_H
#define TBC_IR_OPS_H

#include "ir/Activation.h"
#include "ir/Attention.h"
#include "ir/Collective.h"
#include "ir/Contraction.h"
#include "ir/Convolution.h"
#include "ir/Elementwise.h"
#include "ir/Experts.h"
#include "ir/Host.h"
#include "ir/Indexing.h"
#include "ir/Loss.h"
#include "ir/Movement.h"
#include "ir/Normalization.h"
#include "ir/Optimizer.h"
#include "ir/Pooling.h"
#include "ir/Random.h"
#include "ir/Recurrent.h"
#include "ir/Vocabulary.h"

#endif // TBC_IR_OPS_H
