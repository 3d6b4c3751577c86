//===- Call.cpp - The kind of a collective call ----------------------------===//

#include "runtime/comm/Call.h"

#include <sstream>

namespace tbc::comm {

std::string describe(const Call &call) {
  std::ostringstream text;
  switch (call.kind) {
  case CallKind::AllReduce:
    text << "all_reduce " << name(call.reduction.kind);
    if (call.reduction.kind == ReduceKind::PremulSum)
      text << " by " << call.reduction.factor;
    break;
  case CallKind::Broadcast:
    text << "broadcast from index " << call.root;
    break;
  case CallKind::AllGather:
    text << "all_gather";
    break;
  case CallKind::ReduceScatter:
    text << "reduce_scatter";
    break;
  case CallKind::AllToAll:
    text << "all_to_all";
    break;
  case CallKind::Barrier:
    text << "barrier";
    break;
  }
  return text.str();
}

} // namespace tbc::comm
