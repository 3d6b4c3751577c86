//===- NumberFlags.h - Validators of numeric flags ----------------------------===//

#ifndef TBC_TOOLS_TBC_RUN_NUMBER_FLAGS_H
#define TBC_TOOLS_TBC_RUN_NUMBER_FLAGS_H

#include <CLI/CLI.hpp>

#include <cstdint>

namespace tbc::cli {

/// Accepts an integer from `least` to `most`; --help shows both.
CLI::Validator between(int64_t least, int64_t most);
/// Accepts an integer from `least` to 2^40; sums of larger ones could overflow.
CLI::Validator atLeast(int64_t least);
/// Accepts a factor, a finite number >= 1.
CLI::Validator factor();
/// Accepts a finite number >= 0.
CLI::Validator notNegative();
/// Accepts a finite number > 0.
CLI::Validator positive();
/// Accepts a number of percent, from 0 to 100.
CLI::Validator percentage();

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_NUMBER_FLAGS_H
