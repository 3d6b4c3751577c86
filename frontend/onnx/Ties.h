//===- Ties.h - Parameters that are stored twice ---------------------------===//

#ifndef TBC_FRONTEND_ONNX_TIES_H
#define TBC_FRONTEND_ONNX_TIES_H

#include "frontend/onnx/Parameters.h"

namespace tbc::frontend {

/// Joins what `options` say is one parameter: "A=B" or "A=B^T" makes every use of A a use of B, or
/// of B transposed, and A is no parameter any more. A and B are names or display names. ImportError
/// if they are no parameters, differ in shape or element type, hold different data, or if B is
/// itself tied.
void joinTies(Parameters &parameters, const std::vector<std::string> &ties);

/// Warns of matrices that are copies of each other, transposed or not: where the data is there, by
/// the data; else of a weight that the tracing exporter stored under a name of its own and that has
/// the shape of an embedding table, which it does to tied weights.
void warnOfCopies(const Model &model, Parameters &parameters);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_TIES_H
