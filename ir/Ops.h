//===- Ops.h - Every family of ops -------------------------------------------===//
//
// For code about many families of ops. The header of one family compiles faster and changes less
// often.
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
#include "ir/Gradient.h"
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
