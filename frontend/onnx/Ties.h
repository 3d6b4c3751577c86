//===- Ties.h - Parameters stored twice ------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_TIES_H
#define TBC_FRONTEND_ONNX_TIES_H

#include "frontend/onnx/Parameters.h"
#include "frontend/onnx/Roles.h"

namespace tbc::frontend {

/// Ties parameters by option: "A=B" or "A=B^T" replaces every use of A by B, or by B transposed,
/// and removes parameter A. A and B are names or display names. ImportError if A or B is not a
/// parameter, if they differ in shape, element type or data, or if B is itself tied.
void joinTies(Parameters &parameters, const std::vector<std::string> &ties);

/// Ties the first initializer of each pair to the second, which the exporter transposed
/// (RoleFinder::copies), and notes it. Other data, or a square matrix without data, are left to
/// `warnOfCopies`.
void joinCopies(Parameters &parameters,
                const std::vector<std::pair<std::string, std::string>> &copies);

/// By parameter of the module (RoleFinder::parts).
using PartsOfParameters = std::map<std::string, std::vector<RoleFinder::Part>>;

/// Ties parts of one parameter that have the same elements to the first of them, and notes it. The
/// exporter stores one transposed weight for each call of a module.
void joinParts(Parameters &parameters, const PartsOfParameters &parts);

/// Ties the weights that jax2onnx stores again for each call of a layer to those of the first call,
/// and warns. Such calls have nodes of one type, whose weights and biases are equal and are read by
/// them alone. Example: a model that sees chosen and rejected answers, each with its own
/// "kernel2d".
void joinCalls(const Model &model, Parameters &parameters);

/// Warns of matrices that are copies of each other, transposed or not. With data, compares the
/// data. Without data, looks for a weight with a generated name and the shape of an embedding
/// table: the tracing exporter stores tied weights so.
void warnOfCopies(const Model &model, Parameters &parameters);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_TIES_H
