//===- PositionTables.h - Lengths of tables of positions -------*- C++ -*-===//
//
// A table of positions bounds the length of the sequences that a model reads.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_POSITIONTABLES_H
#define TBC_FRONTEND_ONNX_POSITIONTABLES_H

#include "frontend/onnx/Model.h"

#include <cstdint>
#include <optional>
#include <set>
#include <string>

namespace tbc::frontend {

/// Returns the largest number of positions for the smallest table that is read by positions, i.e.
/// by indices derived from shapes and constants alone, `held` inputs among them. `others` are the
/// inputs without the dim of the sequence. Example: a table
/// of 2050 rows that is read from row 2 on, as in OPT, has 2048 positions; so has one that is read
/// by a list of 2048 numbers, or one of 2048 rows that is sliced up to the length.
std::optional<int64_t> positionTableLength(const Model &model, const std::set<std::string> &held,
                                           const std::set<std::string> &others);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_POSITIONTABLES_H
