//===- MutationSite.h - Places of a Program, for mutators -------------------===//

#ifndef TBC_TESTS_RUNTIME_VERIFY_MUTATIONSITE_H
#define TBC_TESTS_RUNTIME_VERIFY_MUTATIONSITE_H

#include "tests/runtime/verify/Mutators.h"

#include <functional>

namespace tbc::verify {

using Kind = schedule::Action::Kind;

/// An instruction of a program.
struct Site {
  int stage = 0;
  Kind kind = Kind::Forward;
  size_t index = 0;
  int chunk = 0; // of the stage's own

  program::BlockId id() const { return {kind, chunk}; }
  program::Block &block(program::Program &p) const { return p.stages[size_t(stage)].block(id()); }
  program::Instruction &in(program::Program &p) const { return block(p).instructions[index]; }
};

inline unsigned below(std::mt19937 &random, size_t n) { return unsigned(random() % n); }

std::string inQuotes(const std::string &name);
std::string slotName(const program::Program &p, int stage, int slot);

using SitePredicate = std::function<bool(const program::Instruction &, const Site &)>;
/// All instructions for which `fits`, in their order.
std::vector<Site> sitesOf(program::Program &p, const SitePredicate &fits);
/// One of them at random; false if there is none.
bool pickSite(program::Program &p, std::mt19937 &random, const SitePredicate &fits, Site &site);

/// Whether it is a collective of more than one rank.
bool isGroup(const program::Program &p, const program::Instruction &instruction);
/// Whether it is a collective of more than one stage.
bool isMeeting(const program::Program &p, const program::Instruction &instruction);
/// The instructions at other stages that this one sends to, receives from, or may meet.
std::vector<std::string> counterparts(const program::Program &p, const Site &site);

/// The ids and slots that read a value; all that depend on it if `isDeep`.
std::vector<std::string> readersOf(const program::Program &p, const Site &block,
                                   program::ValueId value, bool isDeep = false);
/// An instruction's own id, and the readers of its results.
void nameSite(Mutant &m, const Site &site, bool isDeep = false);
void addNames(Mutant &m, const std::vector<std::string> &names);

program::ValueId newValue(program::Program &p, int stage, kernels::TensorType type);
/// Inserts a kernel of the operands, whose result has type `type`; returns that.
program::ValueId insertKernel(program::Program &p, const Site &before, const std::string &op,
                              std::vector<program::ValueId> operands, kernels::TensorType type);
void erase(program::Program &p, const Site &site);
/// All that read `from` in the block, but the instruction at `except`, read `to`.
void replaceReads(program::Block &block, program::ValueId from, program::ValueId to,
                  size_t except = size_t(-1));
/// Removes instructions of update without readers until there is none, and arguments with them.
void removeUnused(program::Block &block);

} // namespace tbc::verify

#endif // TBC_TESTS_RUNTIME_VERIFY_MUTATIONSITE_H
