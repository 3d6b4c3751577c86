//===- Format.h - Numbers and lists as text -------------------------------===//

#ifndef TBC_PLANNER_SUPPORT_FORMAT_H
#define TBC_PLANNER_SUPPORT_FORMAT_H

#include <string>
#include <vector>

namespace tbc::planner {

/// Returns the text of `pattern`, as printf does.
std::string format(const char *pattern, ...) __attribute__((format(printf, 1, 2)));

/// Format with units. Example: "1.50 GiB", "384 MiB"; "12.3 ms", "1.20 s".
std::string formatBytes(double bytes);
std::string formatSeconds(double seconds);
/// Formats a count. Example: "4.27 M", "1.23 P".
std::string formatCount(double count);

/// Returns `words` with `between` between them. Example: "dp, fsdp"; "" for no words.
std::string joined(const std::vector<std::string> &words, const char *between = ", ");

} // namespace tbc::planner

#endif // TBC_PLANNER_SUPPORT_FORMAT_H
