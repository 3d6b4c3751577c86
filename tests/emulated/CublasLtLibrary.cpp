//===- CublasLtLibrary.cpp - libcublasLt.so.12 of the emulated GPUs --------===//

#include "tests/emulated/Libraries.h"
#include "tests/runtime/cuda/FakeCublasLt.h"

namespace tbc::emulated {

const cuda::CublasLt &cublasTable() {
  static auto &made = *new test::FakeCublasLt(driver());
  if (librariesRefuse())
    made.isOfAnotherMajor();
  return test::FakeCublasLt::table();
}

} // namespace tbc::emulated

extern "C" {
size_t cublasLtGetVersion() { return 120300; }
const char *cublasLtGetStatusString(tbc::cuda::CublasCode code) {
  return tbc::emulated::cublasTable().getStatusString(code);
}
}
