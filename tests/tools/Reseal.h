//===- Reseal.h - Seals modified Program folders --------------------------===//

#ifndef TBC_TESTS_TOOLS_RESEAL_H
#define TBC_TESTS_TOOLS_RESEAL_H

#include "runtime/abi/Seal.h"
#include "tests/support/Shell.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace tbc::test {

/// Seals a Program's folder with its current content. Covers the files of `tbc compile` that exist.
/// Anyone who edits a Program can do so, because a seal is no signature.
inline void resealFolder(const std::string &folder) {
  std::string path = folder + "/" + program::sealFile;
  Result<program::Seal> seal = program::readSeal(readAll(path));
  ASSERT_TRUE(seal) << seal.error().message;
  seal->files.clear();
  for (const char *name : {"program.json", "run.json", "plan.json", "kernels.so"})
    if (Result<program::OpenFile> file = program::OpenFile::open(folder + "/" + name))
      seal->files.push_back(*program::sealOf(*file, name, std::numeric_limits<int64_t>::max()));
  std::ofstream(path, std::ios::binary) << program::writeSeal(*seal);
}

} // namespace tbc::test

#endif // TBC_TESTS_TOOLS_RESEAL_H
