//===- MutationSite.h - Sites of a Program, for mutators --------------------===//

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
  int chunk = 0; // index within the stage

  program::BlockId id() const { return {kind, chunk}; }
  program::Block &block(program::Program &p) const { return p.stages[size_t(stage)].block(id()); }
  program::Instruction &in(program::Program &p) const { return block(p).instructions[index]; }
};

inline unsigned below(std::mt19937 &random, size_t n) { return unsigned(random() % n); }

std::string inQuotes(const std::string &name);
std::string slotName(const program::Program &p, int stage, int slot);

using SitePredicate = std::function<bool(const program::Instruction &, const Site &)>;
/// Returns all instructions that satisfy `fits`, in order.
std::vector<Site> sitesOf(program::Program &p, const SitePredicate &fits);
/// Picks such an instruction at random. Returns false if there are none.
bool pickSite(program::Program &p, std::mt19937 &random, const SitePredicate &fits, Site &site);

/// Returns whether the instruction is a collective of more than one rank.
bool isGroup(const program::Program &p, const program::Instruction &instruction);
/// Returns whether the instruction is a collective of more than one stage.
bool isMeeting(const program::Program &p, const program::Instruction &instruction);
/// Returns instructions of other stages that communicate, or may communicate, with this one.
std::vector<std::string> counterparts(const program::Program &p, const Site &site);

/// Returns the ids and slots that read a value. With `isDeep`, all that depend on it.
std::vector<std::string> readersOf(const program::Program &p, const Site &block,
                                   program::ValueId value, bool isDeep = false);
/// Adds the instruction's own id and the readers of its results.
void nameSite(Mutant &m, const Site &site, bool isDeep = false);
void addNames(Mutant &m, const std::vector<std::string> &names);

program::ValueId newValue(program::Program &p, int stage, kernels::TensorType type);
/// Inserts a kernel with a result of type `type` and returns the result.
program::ValueId insertKernel(program::Program &p, const Site &before, const std::string &op,
                              std::vector<program::ValueId> operands, kernels::TensorType type);
void erase(program::Program &p, const Site &site);
/// Replaces reads of `from` by reads of `to` in the block, except in the instruction at `except`.
void replaceReads(program::Block &block, program::ValueId from, program::ValueId to,
                  size_t except = size_t(-1));
/// Removes unused instructions of update, and unused arguments, until no more are found.
void removeUnused(program::Block &block);

} // namespace tbc::verify

#endif // TBC_TESTS_RUNTIME_VERIFY_MUTATIONSITE_H
