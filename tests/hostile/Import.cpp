//===- Import.cpp - Imports a file and watches the clock ------------------===//

#include "tests/hostile/Import.h"

#include "frontend/onnx/Import.h"

#include "mlir/IR/MLIRContext.h"

#include <chrono>
#include <cstdlib>

namespace tbc::test {

ImportOutcome importOutcome(const std::string &path) {
  auto begin = std::chrono::steady_clock::now();
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  Result<frontend::ImportedModel> model = frontend::importOnnx(context, path, {});
  ImportOutcome outcome;
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!model) {
    outcome.code = int(model.error().code);
    outcome.message = model.error().message;
  }
  return outcome;
}

bool namesAPlace(const std::string &message) {
  for (const char *place :
       {"at byte ", "node '", "tensor '", "initializer '", "input '", "output '", "initializer has",
        "nodes that are not supported", "operator set", "the graph has no",
        "its graph has no nodes", "the batch is", "initializer tensors", "the sequence length is",
        "the file is empty"})
    if (message.find(place) != std::string::npos)
      return true;
  return false;
}

double maxSeconds() {
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
  return 60;
#endif
#endif
  return 10;
}

int numberFromEnvironment(const char *name, int otherwise) {
  const char *text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

} // namespace tbc::test
