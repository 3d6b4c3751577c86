//===- running_doc_test.cpp - Runs the commands of docs/running.md --------===//
//
// Runs every line "$ …" of the page's blocks, in order, in one folder. If a command's launcher is
// not installed, it is skipped with a message.
//
//===----------------------------------------------------------------------===//

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <vector>

namespace fs = std::filesystem;

static std::vector<std::string> commandsOf(const std::string &path) {
  std::vector<std::string> commands;
  std::ifstream file(path);
  std::string line;
  bool isInBlock = false;
  while (std::getline(file, line)) {
    if (line.rfind("```", 0) == 0)
      isInBlock = !isInBlock;
    else if (isInBlock && line.rfind("$ ", 0) == 0)
      commands.push_back(line.substr(2));
  }
  return commands;
}

/// Returns whether a launcher is installed and starts a process. The torchrun of Debian 12's
/// python3-torch does not: it is older than the installed Python.
static bool canStart(const std::string &launcher) {
  std::string trial = launcher == "torchrun" ? "torchrun --no-python --nproc-per-node 1 true"
                                             : "command -v " + launcher;
  return std::system((trial + " >/dev/null 2>&1 </dev/null").c_str()) == 0;
}

TEST(RunningPage, ItsCommandsWork) {
  std::string folder = (fs::temp_directory_path() / "tbc-doc-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  fs::create_directory_symlink(fs::path(TBC_SOURCE_DIR) / "models", folder + "/models");
  std::vector<std::string> commands = commandsOf(std::string(TBC_SOURCE_DIR) + "/docs/running.md");
  EXPECT_GE(commands.size(), 12u);
  std::string environment = "export PATH=" TBC_BIN ":$PATH OMPI_ALLOW_RUN_AS_ROOT=1 "
                            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1";
  for (const std::string &command : commands) {
    std::string launcher = command.substr(0, command.find(' '));
    if (launcher.rfind("tbc", 0) != 0 && !canStart(launcher)) {
      std::cout << "left out, " << launcher << " is not installed or does not start: " << command
                << "\n";
      continue;
    }
    std::string cluster = launcher == "srun" ? TBC_SOURCE_DIR "/tests/tools/with_slurm " : "";
    std::string line = "cd '" + folder + "' && " + environment + " && { " + cluster + command +
                       "; } >out.txt 2>&1 </dev/null";
    int status = std::system(line.c_str());
    if (!cluster.empty() && WIFEXITED(status) && WEXITSTATUS(status) == 77) {
      std::cout << "left out, there is no Slurm of our own: " << command << "\n";
      continue;
    }
    std::ostringstream output;
    output << std::ifstream(folder + "/out.txt").rdbuf();
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << command << "\n" << output.str();
  }
  fs::remove_all(folder);
}
