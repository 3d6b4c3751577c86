//===- NumberFlags.h - What numbers a flag takes ------------------------------===//

#ifndef TBC_TOOLS_TBC_RUN_NUMBER_FLAGS_H
#define TBC_TOOLS_TBC_RUN_NUMBER_FLAGS_H

#include <CLI/CLI.hpp>

#include <cstdint>

namespace tbc::cli {

/// A whole number from `least` to `most`; --help shows both.
CLI::Validator between(int64_t least, int64_t most);
/// A whole number of at least `least`, and at most 2^40, beyond which sums of such numbers could
/// overflow.
CLI::Validator atLeast(int64_t least);
/// A finite number that is not negative.
CLI::Validator notNegative();

} // namespace tbc::cli

#endif // TBC_TOOLS_TBC_RUN_NUMBER_FLAGS_H
