//===- main.cpp - The tbc-run program ------------------------------------------===//
//
// All that a node needs to run a compiled Program, without compiler, planner or ONNX.
//
//===----------------------------------------------------------------------===//

#include "tools/tbc-run/RunCommand.h"
#include "tools/tbc-run/Shell.h"

#include <CLI/CLI.hpp>

#include <iostream>

#ifndef TBC_VERSION
#error "TBC_VERSION is set by the build"
#endif

using namespace tbc;

int main(int argc, char **argv) {
  CLI::App app{"Runs a Program that tbc compiled.", "tbc-run"};
  app.set_version_flag("--version", "tbc-run " TBC_VERSION);
  auto options = cli::addRunOptions(app);
  cli::Shell shell;
  shell.action = [&] { return cli::runProgram(*options); };
  shell.explain = [&](const CLI::ParseError &error) {
    std::cerr << "tbc-run: " << cli::describedError(app, error).message
              << "\ntbc-run: see 'tbc-run --help'\n";
  };
  return cli::runShell(app, argc, argv, shell);
}
