//===- KernelClass.cpp - Kinds of kernels, for the cost model --------------===//

#include "planner/reshard/KernelClass.h"

#include <cassert>

namespace tbc::reshard {

namespace {
/// One class. No field has a default, so that a new row answers every question.
struct Row {
  const char *name;
  bool isMatrix;
  bool readsRegisters;
  bool readsPart;
  std::optional<KernelClass> broader;
  bool isOwn;
};
} // namespace

static Row matrixRow(const char *name, std::optional<KernelClass> broader = std::nullopt) {
  return {name, true, false, false, broader, /*isOwn=*/false};
}
static Row ownRow(const char *name, KernelClass broader) {
  return {name, true, false, false, broader, /*isOwn=*/true};
}

/// Returns nullopt for an integer beyond the last class.
static std::optional<Row> findRow(KernelClass kernelClass) {
  switch (kernelClass) {
  case KernelClass::Matmul:
    return matrixRow("matmul");
  case KernelClass::Fp8Matmul:
    return matrixRow("fp8_matmul", KernelClass::Matmul);
  case KernelClass::GroupedMatmul:
    return ownRow("grouped_matmul", KernelClass::Matmul);
  case KernelClass::Conv:
    return matrixRow("conv");
  case KernelClass::Attention:
    return matrixRow("attention");
  case KernelClass::CausalAttention:
    return matrixRow("causal_attention", KernelClass::Attention);
  case KernelClass::TiledAttention:
    return ownRow("tiled_attention", KernelClass::Attention);
  case KernelClass::CausalTiledAttention:
    return ownRow("causal_tiled_attention", KernelClass::CausalAttention);
  case KernelClass::Elementwise:
    return Row{"elementwise", false, true, false, std::nullopt, false};
  case KernelClass::Rounding:
    return Row{"rounding", false, false, false, KernelClass::Elementwise, true};
  case KernelClass::Reduction:
    return Row{"reduction", false, true, false, std::nullopt, false};
  case KernelClass::Gather:
    return Row{"gather", false, false, true, std::nullopt, false};
  case KernelClass::None:
    return Row{"none", false, false, false, std::nullopt, false};
  }
  return std::nullopt;
}

static Row row(KernelClass kernelClass) {
  std::optional<Row> row = findRow(kernelClass);
  assert(row && "every class has a row");
  return *row;
}

const std::vector<KernelClass> &kernelClasses() {
  static const std::vector<KernelClass> classes = [] {
    std::vector<KernelClass> all;
    for (int i = 0; findRow(KernelClass(i)); ++i)
      all.push_back(KernelClass(i));
    return all;
  }();
  return classes;
}

const char *name(KernelClass kernelClass) { return row(kernelClass).name; }

std::optional<KernelClass> parseKernelClass(std::string_view word) {
  for (KernelClass kernelClass : kernelClasses())
    if (name(kernelClass) == word)
      return kernelClass;
  return std::nullopt;
}

bool isMatrixClass(KernelClass kernelClass) { return row(kernelClass).isMatrix; }
bool isOwnClass(KernelClass kernelClass) { return row(kernelClass).isOwn; }
bool readsRegisters(KernelClass kernelClass) { return row(kernelClass).readsRegisters; }
bool readsPart(KernelClass kernelClass) { return row(kernelClass).readsPart; }

std::optional<KernelClass> broaderClass(KernelClass kernelClass) {
  return row(kernelClass).broader;
}

} // namespace tbc::reshard
