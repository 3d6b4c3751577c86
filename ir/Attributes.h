//===- Attributes.h - The generated attributes of the dialect --------------===//
//
// The classes of Plan.td and Roles.td. Users include ir/Plan.h or ir/Roles.h.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_IR_ATTRIBUTES_H
#define TBC_IR_ATTRIBUTES_H

#include "ir/Tbc.h"
#include "planner/reshard/Graph.h"

#include "ir/RoleEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "ir/Attributes.h.inc"

#endif // TBC_IR_ATTRIBUTES_H
