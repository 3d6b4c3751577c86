//===- main.cpp - The tbc-run program ------------------------------------------===//
//
// What a node needs to run a compiled Program: no compiler, no planner, no ONNX.
//
//===----------------------------------------------------------------------===//

#include "tools/tbc-run/RunCommand.h"

#include <CLI/CLI.hpp>

#include <exception>
#include <iostream>

#ifndef TBC_VERSION
#error "TBC_VERSION is set by the build"
#endif

using namespace tbc;

static int run(int argc, char **argv) {
  CLI::App app{"Runs a Program that tbc compiled.", "tbc-run"};
  app.set_version_flag("--version", "tbc-run " TBC_VERSION);
  auto options = cli::addRunOptions(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp &request) {
    return app.exit(request);
  } catch (const CLI::CallForVersion &request) {
    return app.exit(request);
  } catch (const CLI::ParseError &error) {
    std::cerr << "tbc-run: " << error.what() << "\ntbc-run: see 'tbc-run --help'\n";
    return int(ErrorCode::Usage);
  }
  Result<int> code = cli::runProgram(*options);
  if (code)
    return *code;
  std::cerr << "tbc-run: " << code.error().message << "\n";
  return int(code.error().code);
}

int main(int argc, char **argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception &error) {
    std::cerr << "tbc-run: " << error.what() << "\n";
    return int(ErrorCode::Other);
  }
}
