//===- WordFlags.h - Validators of flags with a choice of words ---------------===//

#ifndef TBC_TOOLS_TBC_RUN_WORD_FLAGS_H
#define TBC_TOOLS_TBC_RUN_WORD_FLAGS_H

#include <CLI/CLI.hpp>

#include <map>
#include <string>
#include <vector>

namespace tbc::cli {

/// Other spellings of words, in lower case with '-' for '_': {"full-shard", "fsdp"}.
using Spellings = std::map<std::string, std::string>;

/// Accepts one of `words`, in any case and with '_' for '-', or another spelling, and replaces it
/// by the word. Use with Option::transform(); Option::check() would drop the replacement. Errors
/// list the words and suggest the closest.
///
/// Example: with {"fsdp", "ddp"} and {{"full-shard", "fsdp"}}, FULL_SHARD becomes fsdp; "fspd" is
/// refused with "did you mean fsdp?".
CLI::Validator oneOf(std::vector<std::string> words, Spellings spellings = {});

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_WORD_FLAGS_H
