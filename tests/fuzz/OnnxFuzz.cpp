//===- OnnxFuzz.cpp - Any bytes as an ONNX model --------------------------===//

#include "tests/fuzz/Fuzz.h"

#include "frontend/onnx/Import.h"

#include "mlir/IR/MLIRContext.h"

#include <sys/mman.h>
#include <unistd.h>

using namespace tbc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  int file = ::memfd_create("model", MFD_CLOEXEC);
  fuzz::require(file >= 0 && ::write(file, data, size) == ssize_t(size), "a file in memory");
  std::string path = "/proc/self/fd/" + std::to_string(file);
  {
    mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
    Result<frontend::ImportedModel> model = frontend::importOnnx(context, path, {});
    if (!model) {
      fuzz::require(model.error().code == ErrorCode::ModelRejected, "a bad model is rejected");
      fuzz::require(model.error().message.rfind(path, 0) == 0, "the message names the file");
      fuzz::require(model.error().message.size() < 6000 + 4 * size,
                    "the message is of a fair size");
    }
  }
  ::close(file);
  return 0;
}
