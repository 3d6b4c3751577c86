//===- Attributes.td - All attributes of the dialect -----------------------===//
//
// One file for TableGen, because a dialect has one parser of attributes.
//
//===----------------------------------------------------------------------===//

include "ir/Plan.td"
include "ir/Roles.td"
