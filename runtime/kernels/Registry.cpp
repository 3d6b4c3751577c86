//===- Registry.cpp - All kernels by mnemonic ------------------------------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Activation.h"
#include "runtime/kernels/Attention.h"
#include "runtime/kernels/Convolution.h"
#include "runtime/kernels/CrossEntropy.h"
#include "runtime/kernels/Einsum.h"
#include "runtime/kernels/Elementwise.h"
#include "runtime/kernels/Experts.h"
#include "runtime/kernels/Indexing.h"
#include "runtime/kernels/Kernel.h"
#include "runtime/kernels/Movement.h"
#include "runtime/kernels/Normalization.h"
#include "runtime/kernels/Optimizer.h"
#include "runtime/kernels/Pooling.h"
#include "runtime/kernels/Random.h"
#include "runtime/kernels/Recurrent.h"
#include "runtime/kernels/Reduction.h"
#include "runtime/kernels/Vocabulary.h"

#include <map>

using namespace tbc::kernels;

static const std::map<std::string_view, KernelEntry> &registry() {
  static const std::map<std::string_view, KernelEntry> kernels = [] {
    std::map<std::string_view, KernelEntry> result;
    for (const KernelTable *table :
         {&elementwiseKernels(), &movementKernels(), &reductionKernels(), &einsumKernels(),
          &indexingKernels(), &convolutionKernels(), &poolingKernels(), &activationKernels(),
          &normalizationKernels(), &batchNormKernels(), &attentionKernels(), &crossEntropyKernels(),
          &optimizerKernels(), &expertKernels(), &randomKernels(), &recurrentKernels(),
          &vocabularyKernels()})
      for (const KernelEntry &entry : *table)
        require(result.emplace(entry.mnemonic, entry).second, [&] {
          return "two kernels are registered for '" + std::string(entry.mnemonic) + "'";
        });
    return result;
  }();
  return kernels;
}

KernelFn tbc::kernels::findKernel(std::string_view opMnemonic) {
  auto it = registry().find(opMnemonic);
  return it == registry().end() ? nullptr : it->second.kernel;
}

bool tbc::kernels::isElementwiseKernel(std::string_view opMnemonic) {
  auto it = registry().find(opMnemonic);
  return it != registry().end() && it->second.isElementwise;
}

std::vector<std::string> tbc::kernels::kernelNames() {
  std::vector<std::string> names;
  for (const auto &[mnemonic, kernel] : registry())
    names.emplace_back(mnemonic);
  return names;
}
