//===- KernelCheck.cpp - Comparison of a kernel with the reference kernels ---===//

#include "runtime/cpu/KernelCheck.h"
#include "runtime/kernels/Kernel.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>

namespace tbc::cpu {

using kernels::Arith;
using kernels::DType;
using kernels::Tensor;
using program::ValueId;

namespace {

using Values = std::map<ValueId, Tensor>;

/// Computes all values of `work` by the reference kernels, in `arith`.
Values evaluate(const KernelWork &work, const std::vector<Tensor> &operands, Arith arith) {
  Values values;
  for (size_t i = 0; i < operands.size(); ++i)
    values[work.values.operands[i]] = operands[i];
  for (int i = work.first; i < work.first + work.count; ++i) {
    const program::Instruction &instruction = work.block->instructions[size_t(i)];
    kernels::KernelFn kernel = kernels::findKernel(instruction.op);
    kernels::require(kernel != nullptr, [&] { return "there is no kernel " + instruction.op; });
    std::vector<Tensor> inputs;
    std::vector<kernels::TensorType> types;
    for (ValueId value : instruction.operands)
      inputs.push_back(values.at(value));
    for (ValueId value : instruction.results)
      types.push_back(work.stage->values[size_t(value)]);
    std::vector<Tensor> results = kernel({arith}, instruction.attrs, inputs, types);
    for (size_t r = 0; r < results.size(); ++r)
      values[instruction.results[r]] = results[r];
  }
  return values;
}

std::vector<Tensor> inF64(const std::vector<Tensor> &tensors, bool asMagnitudes) {
  std::vector<Tensor> result;
  for (const Tensor &tensor : tensors) {
    if (!kernels::isFloat(tensor.dtype()) || tensor.numElements() == 0) {
      result.push_back(tensor.numElements() == 0 ? Tensor::zeros(tensor.type(), Arith::F64)
                                                 : tensor);
      continue;
    }
    std::vector<double> values = tensor.toDoubles();
    if (asMagnitudes)
      for (double &value : values)
        value = std::fabs(value);
    result.push_back(Tensor::fromDoubles(tensor.type(), Arith::F64, values));
  }
  return result;
}

double largestMagnitude(const Tensor &tensor) {
  double largest = 0;
  if (kernels::isFloat(tensor.dtype()))
    for (double value : tensor.toDoubles())
      if (std::isfinite(value))
        largest = std::max(largest, std::fabs(value));
  return largest;
}

/// Infinite if one value is not finite and the other differs from it.
double difference(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b)))
    return 0;
  double result = std::fabs(a - b);
  return std::isnan(result) ? std::numeric_limits<double>::infinity() : result;
}

double ulp(DType type, double magnitude) {
  double unit = type == DType::BF16 ? 0x1p-7 : type == DType::F16 ? 0x1p-10 : 0x1p-23;
  double least = type == DType::F16 ? 0x1p-24 : 0x1p-126; // subnormal numbers may become 0
  return std::max(unit * magnitude, least);
}

/// Returns the number of terms of the longest sum in an instruction. A sum over dims has (elements
/// of an operand) / (elements of the smallest result) terms. A matmul [m, k] x [k, n] -> [m, n] has
/// k = sqrt(m k * k n / (m n)). Example: operands of 6 and 12 elements, a result of 8: 3 terms.
double termsOf(const program::Stage &stage, const program::Instruction &instruction) {
  auto elements = [&](ValueId value) {
    return std::max(1.0, double(kernels::numElements(stage.values[size_t(value)].shape)));
  };
  double smallest = INFINITY, largest = 1, terms = 1, first = 1, second = 1;
  for (ValueId value : instruction.results) {
    smallest = std::min(smallest, elements(value));
    largest = std::max(largest, elements(value));
  }
  for (ValueId value : instruction.operands) {
    double size = elements(value);
    terms = std::max(terms, size / smallest);
    second = std::max(second, std::min(first, size));
    first = std::max(first, size);
  }
  return std::max(terms, std::sqrt(first * second / largest));
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

} // namespace

ReferenceResults evaluateReference(const KernelWork &work, const std::vector<Tensor> &operands) {
  ReferenceResults reference;
  Values native = evaluate(work, operands, Arith::Native);
  Values exact = evaluate(work, inF64(operands, /*asMagnitudes=*/false), Arith::F64);
  double largest = 0, steps = 0;
  for (const auto &[value, tensor] : exact)
    largest = std::max(largest, largestMagnitude(tensor));
  try {
    for (const auto &[value, tensor] :
         evaluate(work, inF64(operands, /*asMagnitudes=*/true), Arith::F64))
      largest = std::max(largest, largestMagnitude(tensor));
  } catch (const kernels::KernelError &) {
    // The op has no meaning on magnitudes; the values themselves are the bound.
  }
  constexpr double roundingsOfComposite = 24, deviations = 8, unit = 0x1p-24;
  for (int i = work.first; i < work.first + work.count; ++i)
    steps += 4 * roundingsOfComposite +
             deviations * std::sqrt(termsOf(*work.stage, work.block->instructions[size_t(i)]));
  for (ValueId value : work.values.results) {
    const Tensor &rounded = native.at(value), &whole = exact.at(value);
    double bound = 0;
    if (kernels::isFloat(rounded.dtype())) {
      std::vector<double> a = rounded.toDoubles(), b = whole.toDoubles();
      double error = 0, magnitude = 0;
      for (size_t i = 0; i < a.size(); ++i)
        if (double one = difference(a[i], b[i]); std::isfinite(one)) {
          error = std::max(error, one);
          magnitude = std::max(magnitude, std::isfinite(b[i]) ? std::fabs(b[i]) : 0);
        }
      bound = 4 * error + ulp(rounded.dtype(), magnitude) + unit * steps * largest;
    }
    reference.native.push_back(rounded);
    reference.exact.push_back(whole);
    reference.bounds.push_back(bound);
  }
  return reference;
}

ReferenceResults addedByReference(const kernels::TensorType &slot,
                                  const std::vector<Tensor> &terms) {
  std::vector<double> a = terms[0].toDoubles(), b = terms[1].toDoubles();
  double largest = std::max(largestMagnitude(terms[0]), largestMagnitude(terms[1]));
  for (size_t i = 0; i < a.size(); ++i)
    a[i] += b[i];
  ReferenceResults reference;
  if (a.empty())
    return {{Tensor::zeros(slot, Arith::Native)}, {Tensor::zeros(slot, Arith::F64)}, {0}};
  reference.native.push_back(Tensor::fromDoubles(slot, Arith::Native, a));
  reference.exact.push_back(Tensor::fromDoubles(slot, Arith::F64, a));
  // Each term is rounded once to the slot's type, and the sum once.
  reference.bounds.push_back(3 * ulp(slot.dtype, 2 * largest));
  return reference;
}

double worstOf(const ReferenceResults &reference, const std::vector<Tensor> &made,
               std::string &why) {
  double worst = 0;
  for (size_t r = 0; r < made.size(); ++r) {
    std::vector<double> native = reference.native[r].toDoubles(),
                        exact = reference.exact[r].toDoubles(), got = made[r].toDoubles();
    bool isFloat = kernels::isFloat(made[r].dtype());
    for (size_t i = 0; i < got.size(); ++i) {
      // A value that overflows to infinity in the result's type is finite in f64, so it is left
      // out.
      if (isFloat ? !std::isfinite(native[i]) && difference(got[i], native[i]) == 0
                  : native[i] != exact[i])
        continue;
      double error = difference(got[i], exact[i]);
      double ratio = error == 0 ? 0 : isFloat ? error / reference.bounds[r] : INFINITY;
      if (ratio <= worst)
        continue;
      worst = ratio;
      if (ratio > 1)
        why = "element " + std::to_string(i) + " of result " + std::to_string(r) + " (" +
              toString(made[r].type()) + ") is " + number(got[i]) +
              ", the reference kernel gives " + number(native[i]) +
              (isFloat ? ", exact " + number(exact[i]) + ", bound " + number(reference.bounds[r])
                       : "");
    }
  }
  return worst;
}

bool KernelComparisons::begin(const std::string &key) {
  std::lock_guard<std::mutex> lock(mutex);
  return most == 0 || begun[key]++ < most;
}

void KernelComparisons::add(const std::string &key, const KernelComparison &one) {
  std::lock_guard<std::mutex> lock(mutex);
  auto [line, isNew] = lines.try_emplace(key, one);
  if (isNew)
    return;
  KernelComparison &all = line->second;
  all.count += one.count;
  all.worst = std::max(all.worst, one.worst);
  if (all.difference.empty() && !one.difference.empty()) {
    all.difference = one.difference;
    all.place = one.place;
  }
}

std::vector<KernelComparison> KernelComparisons::list() const {
  std::lock_guard<std::mutex> lock(mutex);
  std::vector<KernelComparison> result;
  for (const auto &entry : lines)
    result.push_back(entry.second);
  return result;
}

} // namespace tbc::cpu
