//===- Decisions.cpp - The decisions of a plan ----------------------------===//

#include "planner/plan/Decisions.h"

namespace tbc::planner {

std::string scheduleWord(std::optional<ScheduleKind> schedule) {
  return schedule ? std::string(schedule::name(*schedule)) : "none";
}

std::string offloadText(const Offload &offload) {
  std::string text = offload.optimizer ? "optimizer" : "";
  if (offload.residuals)
    text += (text.empty() ? "residuals" : " and residuals") +
            (offload.residuals->isAll() ? std::string() : " " + residualsText(offload.residuals));
  return text.empty() ? "none" : text;
}

std::optional<Offload> parseOffload(const std::string &text) {
  for (bool optimizer : {false, true}) {
    Offload offload;
    offload.optimizer = optimizer;
    if (text == offloadText(offload))
      return offload;
    offload.residuals = BlockShare();
    const std::string all = offloadText(offload);
    if (text == all)
      return offload;
    const bool hasShare = text.rfind(all + " ", 0) == 0;
    if (hasShare && parseResiduals(text.substr(all.size() + 1), offload.residuals) &&
        text == offloadText(offload))
      return offload;
  }
  return std::nullopt;
}

} // namespace tbc::planner
