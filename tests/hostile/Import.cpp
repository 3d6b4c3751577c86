//===- Import.cpp - Imports a file and measures its time ------------------===//

#include "tests/hostile/Import.h"

#include "frontend/onnx/Import.h"

#include "mlir/IR/MLIRContext.h"

#include <cstdlib>
#include <ctime>

namespace tbc::test {

/// Returns the processor time of this thread. It does not depend on other work of the machine.
static double processorSeconds() {
  struct timespec time = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

ImportOutcome importOutcome(const std::string &path) {
  double begin = processorSeconds();
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  Result<frontend::ImportedModel> model = frontend::importOnnx(context, path, {});
  ImportOutcome outcome;
  outcome.seconds = processorSeconds() - begin;
  if (!model) {
    outcome.code = int(model.error().code);
    outcome.message = model.error().message;
  }
  return outcome;
}

bool namesAPlace(const std::string &message) {
  for (const char *place :
       {"at byte ", "node '", "tensor '", "initializer '", "input '", "output '", "initializer has",
        "function '", "the local functions expand", "nodes that are not supported", "operator set",
        "the graph has no", "its graph has no nodes", "the batch is", "initializer tensors",
        "the sequence length is", "the file is empty"})
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
