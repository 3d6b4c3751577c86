//===- CudaTarget.cpp - Target GPUs of compiled kernels ---------------------===//

#include "codegen/cuda/CudaTarget.h"

#include <algorithm>
#include <sstream>

namespace tbc::cuda {

Result<CudaTarget> parseCudaTarget(const std::string &architectures) {
  // The architectures known to both LLVM 19 and PTX 8.0 (CUDA 12.0).
  static const std::vector<int> known = {80, 86, 87, 89, 90};
  CudaTarget target;
  std::istringstream stream(architectures);
  for (std::string word; std::getline(stream, word, ',');) {
    auto isIt = [&](int sm) { return word == "sm_" + std::to_string(sm); };
    auto found = std::find_if(known.begin(), known.end(), isIt);
    if (found == known.end())
      return Error{ErrorCode::Usage,
                   "--arch " + word +
                       ": there are sm_80, sm_86, sm_87, sm_89 and sm_90; later GPUs execute what "
                       "is for sm_90"};
    target.architectures.push_back(*found);
  }
  std::sort(target.architectures.begin(), target.architectures.end());
  auto last = std::unique(target.architectures.begin(), target.architectures.end());
  target.architectures.erase(last, target.architectures.end());
  if (target.architectures.empty())
    return Error{ErrorCode::Usage,
                 "--arch names no architecture; try " + std::string(defaultArchitectures)};
  return target;
}

} // namespace tbc::cuda
