//===- CudnnLibrary.cpp - libcudnn.so.9 of the emulated GPUs ---------------===//

#include "tests/emulated/Libraries.h"
#include "tests/runtime/cuda/FakeCudnn.h"

namespace tbc::emulated {

const cuda::Cudnn &cudnnTable() {
  static auto &made = *new test::FakeCudnn(driver());
  if (librariesRefuse())
    made.isOfAnotherMajor();
  return test::FakeCudnn::table();
}

} // namespace tbc::emulated

extern "C" {
size_t cudnnGetVersion() { return tbc::emulated::cudnnTable().getVersion(); }
const char *cudnnGetErrorString(tbc::cuda::CudnnCode code) {
  return tbc::emulated::cudnnTable().getErrorString(code);
}
void cudnnGetLastErrorString(char *text, size_t bytes) {
  tbc::emulated::cudnnTable().getLastError(text, bytes);
}
}
