//===- Roles.h - What initializers are to training -------------------------===//
//
// A file rarely says which of its tensors are trained. The evidence, the strongest first:
//
//  1. --constant and --parameter;
//  2. readers that take no weights: running statistics, rotary angles, settings of a Resize;
//  3. what torch.export wrote: PARAMETER, BUFFER, CONSTANT_TENSOR, and of which values the exporter
//     computed a tensor;
//  4. readers that take weights: products, convolutions, tables, norms and their factors;
//  5. the elements: 0 and very negative numbers (a mask), sines and cosines of positions;
//  6. a name that the exporter made up;
//  7. else it is a parameter.
//
// Example: Add(scores, C_49) with C_49 = [[0, -1e9], [0, 0]] is a mask by 5, and the attention is
// one op. A vector of zeros that a MatMul's result is added to is a fresh bias by 4.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_FRONTEND_ONNX_ROLES_H
#define TBC_FRONTEND_ONNX_ROLES_H

#include "frontend/onnx/Import.h"
#include "frontend/onnx/Users.h"

namespace tbc::frontend {

enum class Role { Constant, Parameter, State };

/// What a role follows from.
enum class Evidence {
  Option,
  NotTrainable, // integers and single numbers
  Setting,
  RunningStatistic,
  RotaryAngles,
  OnlySinCos,
  Declared,
  Computed,
  Reader,
  Scaffold,
  Mask,
  Sinusoids,
  GeneratedName,
  NoGradient,
  Default
};

/// `evidence` as the end of a sentence: "hides keys of an attention".
const char *describe(Evidence evidence);

struct RoleDecision {
  Role role = Role::Parameter;
  Evidence evidence = Evidence::Default;
  /// Whether a user should look: nothing speaks for a parameter but that nothing speaks against it.
  bool isOpen = false;
};

/// Decides on the float initializers of one model, which must outlive it.
class RoleFinder {
public:
  RoleFinder(const Model &model, const Users &users, const ImportOptions &options);

  /// `source` is where the tensor's data lies; elements are looked at only where readers leave the
  /// role open.
  RoleDecision decide(const onnx::TensorProto &tensor, const ParameterSource &source);

  /// Throws a UsageError for an option that no initializer matched.
  void requireAllMatched() const;

private:
  struct Record {
    std::string kind;
    std::vector<std::string> foldedFrom;
  };
  struct Glob {
    std::string flag, text;
    bool isMatched = false;
  };

  bool matches(std::vector<Glob> &globs, const ParameterSource &source);
  std::optional<RoleDecision> declared(const std::string &name) const;
  bool isComputed(const std::vector<std::string> &names) const;
  const Record *recordOf(const std::string &name) const;

  const Model &model;
  const Users &users;
  std::map<std::string, Record> records;
  std::vector<Glob> constants, parameters;
};

/// The name that stands for the tensor in reports: its own, or a module path where the exporter
/// made it up.
std::string displayNameOf(const Model &model, const Users &users, const std::string &name);

} // namespace tbc::frontend

#endif // TBC_FRONTEND_ONNX_ROLES_H
