//===- Vocabulary.cpp - Native kernels over numbered rows and classes ----------===//

#include "runtime/cpu/Families.h"
#include "runtime/cpu/Floats.h"
#include "runtime/kernels/Scalar.h"

#include <limits>

namespace tbc::cpu {

using kernels::Attrs;
using kernels::DType;
using kernels::require;
using kernels::TensorType;

namespace {

/// The local part of a vocabulary: ascending numbers, then padding.
class Numbers {
public:
  Numbers(const int64_t *numbers, int64_t size) : numbers(numbers) {
    while (count < size && numbers[count] >= 0)
      ++count;
  }

  int64_t valid() const { return count; }

  /// Returns the index of a number; -1 if it is on another rank.
  int64_t find(int64_t number) const {
    const int64_t *found = std::lower_bound(numbers, numbers + count, number);
    return found == numbers + count || *found != number ? -1 : found - numbers;
  }

  /// Returns the rows of indices; -1 for those on other ranks. KernelError for an index beyond the
  /// vocabulary.
  std::vector<int64_t> findRows(const int64_t *indices, int64_t numIndices, int64_t last) const {
    std::vector<int64_t> places(size_t(numIndices), -1);
    for (int64_t i = 0; i < numIndices; ++i) {
      int64_t index = indices[i];
      require(index >= -last - 1 && index <= last, [&] {
        return "index " + std::to_string(index) + " is out of range for a table of " +
               std::to_string(last + 1) + " rows";
      });
      places[size_t(i)] = find(index < 0 ? index + last + 1 : index);
    }
    return places;
  }

  /// Returns the index of a label's class; -1 if it is on another rank or `ignored`.
  int64_t findClass(int64_t label, int64_t ignored, int64_t last) const {
    require(label == ignored || (label >= 0 && label <= last), [&] {
      return "label " + std::to_string(label) + " is neither one of the " +
             std::to_string(last + 1) + " classes nor the ignored index " + std::to_string(ignored);
    });
    return label == ignored ? -1 : find(label);
  }

private:
  const int64_t *numbers;
  int64_t count = 0;
};

struct Table {
  int64_t rows, width;
};

Table tableOf(const TensorType &type) {
  int64_t rows = type.shape[0];
  return {rows, rows ? kernels::numElements(type.shape) / rows : 0};
}

bool hasLongNumbers(const Types &operands, std::initializer_list<size_t> which) {
  return std::all_of(which.begin(), which.end(),
                     [&](size_t i) { return operands[i].dtype == DType::I64; });
}

/// The embedding of any dtype.
NativeKernel embedding(const Types &operands) {
  Table table = tableOf(operands[0]);
  int64_t bytes = table.width * byteWidth(operands[0].dtype);
  int64_t numIndices = kernels::numElements(operands[1].shape);
  return [=](Threads &threads, const Buffers &buffers) {
    std::vector<int64_t> places =
        Numbers(buffers.operand<int64_t>(2), table.rows)
            .findRows(buffers.operand<int64_t>(1), numIndices, *buffers.operand<int64_t>(3));
    threads.runRanges(numIndices, rowsPerPiece(table.width), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        char *out = buffers.result<char>(0) + i * bytes;
        if (places[size_t(i)] < 0)
          std::memset(out, 0, size_t(bytes));
        else
          std::memcpy(out, buffers.operand<char>(0) + places[size_t(i)] * bytes, size_t(bytes));
      }
    });
  };
}

/// Threads share the rows of the table. Each adds the updates of a row in their order.
NativeKernel embeddingGrad(const Types &operands, const Types &results) {
  Table table = tableOf(results[0]);
  int64_t numIndices = kernels::numElements(operands[1].shape);
  DType from = operands[0].dtype, to = results[0].dtype;
  return [=](Threads &threads, const Buffers &buffers) {
    std::vector<int64_t> places =
        Numbers(buffers.operand<int64_t>(2), table.rows)
            .findRows(buffers.operand<int64_t>(1), numIndices, *buffers.operand<int64_t>(3));
    std::vector<std::pair<int64_t, int64_t>> updates; // row, index
    for (int64_t i = 0; i < numIndices; ++i)
      if (places[size_t(i)] >= 0)
        updates.emplace_back(places[size_t(i)], i);
    std::sort(updates.begin(), updates.end());
    threads.runRanges(table.rows, rowsPerPiece(table.width), [&](int64_t begin, int64_t end) {
      FloatsIn update(buffers.operands[0], from);
      std::vector<float> sum(static_cast<size_t>(table.width));
      std::memset(buffers.result<char>(0) + begin * table.width * byteWidth(to), 0,
                  size_t((end - begin) * table.width * byteWidth(to)));
      auto next = std::lower_bound(updates.begin(), updates.end(), std::pair(begin, int64_t(0)));
      while (next != updates.end() && next->first < end) {
        int64_t row = next->first;
        std::fill(sum.begin(), sum.end(), 0.0f);
        for (; next != updates.end() && next->first == row; ++next)
          vectors().addScaled(update.at(next->second * table.width, table.width), sum.data(),
                              table.width, 1);
        FloatsOut out(buffers.results[0], to);
        std::copy(sum.begin(), sum.end(), out.at(row * table.width, table.width));
        out.finish();
      }
    });
  };
}

/// Classes converted at a time.
constexpr int64_t chunk = 4096;

/// Calls begin(row), then fn(row, x, first class, classes) for its valid classes in order, then
/// end(row), for every row.
template <typename Begin, typename Fn, typename End>
void forRows(Threads &threads, const TensorType &logits, const void *x, int64_t valid, Begin begin,
             Fn fn, End end) {
  int64_t size = logits.shape.back(), rows = size ? kernels::numElements(logits.shape) / size : 0;
  threads.runRanges(rows, rowsPerPiece(size), [&](int64_t first, int64_t last) {
    FloatsIn in(x, logits.dtype);
    for (int64_t row = first; row < last; ++row) {
      auto state = begin(row);
      for (int64_t at = 0; at < valid; at += chunk) {
        int64_t n = std::min(chunk, valid - at);
        fn(state, row, in.at(row * size + at, n), at, n);
      }
      end(state, row);
    }
  });
}

NativeKernel classMax(const Types &operands) {
  return [=, logits = operands[0]](Threads &threads, const Buffers &buffers) {
    int64_t valid = Numbers(buffers.operand<int64_t>(1), logits.shape.back()).valid();
    forRows(
        threads, logits, buffers.operands[0], valid,
        [](int64_t) { return std::numeric_limits<float>::lowest(); },
        [](float &most, int64_t, const float *x, int64_t, int64_t n) {
          most = kernels::larger(most, vectors().largest(x, n));
        },
        [&](float most, int64_t row) { buffers.result<float>(0)[row] = most; });
  };
}

/// The attributes of class_sums{..}.
struct ClassWeights {
  float onLabel, onAll;
  int64_t ignored;
  explicit ClassWeights(const Attrs &attrs)
      : onLabel(float(attrs.getDouble("label_weight"))),
        onAll(float(attrs.getDouble("class_weight"))), ignored(attrs.getInt("ignore_index")) {}
};

NativeKernel classSums(const Attrs &attrs, const Types &operands) {
  return [logits = operands[0], weights = ClassWeights(attrs)](Threads &threads,
                                                               const Buffers &buffers) {
    Numbers numbers(buffers.operand<int64_t>(3), logits.shape.back());
    int64_t last = *buffers.operand<int64_t>(4);
    struct Sums {
      int64_t place;
      double denominator = 0, all = 0, label = 0;
    };
    forRows(
        threads, logits, buffers.operands[0], numbers.valid(),
        [&](int64_t row) {
          return Sums{numbers.findClass(buffers.operand<int64_t>(2)[row], weights.ignored, last)};
        },
        [&](Sums &sums, int64_t row, const float *x, int64_t at, int64_t n) {
          sums.denominator += double(vectors().sumOfExp(x, n, buffers.operand<float>(1)[row]));
          if (weights.onAll != 0)
            sums.all += double(vectors().sum(x, n));
          if (sums.place >= at && sums.place < at + n)
            sums.label = double(x[sums.place - at]);
        },
        [&](const Sums &sums, int64_t row) {
          buffers.result<float>(0)[row] = float(sums.denominator);
          buffers.result<float>(1)[row] =
              float(double(weights.onLabel) * sums.label + double(weights.onAll) * sums.all);
        });
  };
}

NativeKernel classSumsGrad(const Attrs &attrs, const Types &operands, const Types &results) {
  return [logits = operands[0], result = results[0].dtype,
          weights = ClassWeights(attrs)](Threads &threads, const Buffers &buffers) {
    Numbers numbers(buffers.operand<int64_t>(3), logits.shape.back());
    int64_t last = *buffers.operand<int64_t>(4), size = logits.shape.back();
    struct Row {
      int64_t place;
      FloatsOut out;
    };
    forRows(
        threads, logits, buffers.operands[0], numbers.valid(),
        [&](int64_t row) {
          return Row{numbers.findClass(buffers.operand<int64_t>(2)[row], weights.ignored, last),
                     FloatsOut(buffers.results[0], result)};
        },
        [&](Row &state, int64_t row, const float *x, int64_t at, int64_t n) {
          float *dx = state.out.at(row * size + at, n);
          float dtarget = buffers.operand<float>(6)[row];
          vectors().scaledExp(x, dx, n, buffers.operand<float>(1)[row],
                              buffers.operand<float>(5)[row], dtarget * weights.onAll);
          if (state.place >= at && state.place < at + n)
            dx[state.place - at] += dtarget * weights.onLabel;
          state.out.finish();
        },
        [&](Row &, int64_t row) {
          int64_t bytes = byteWidth(result), valid = numbers.valid();
          std::memset(buffers.result<char>(0) + (row * size + valid) * bytes, 0,
                      size_t((size - valid) * bytes));
        });
  };
}

bool areF32(const Types &types, std::initializer_list<size_t> which) {
  return std::all_of(which.begin(), which.end(),
                     [&](size_t i) { return types[i].dtype == DType::F32; });
}

} // namespace

NativeKernel makeVocabulary(std::string_view op, const Attrs &attrs, const Types &operands,
                            const Types &results) {
  if (op == "embedding" && hasLongNumbers(operands, {1, 2, 3}))
    return embedding(operands);
  if (op == "embedding_grad" && isNativeFloat(operands[0].dtype) &&
      isNativeFloat(results[0].dtype) && hasLongNumbers(operands, {1, 2, 3}))
    return embeddingGrad(operands, results);
  if (op == "class_max" && isNativeFloat(operands[0].dtype) && areF32(results, {0}) &&
      hasLongNumbers(operands, {1}))
    return classMax(operands);
  if (op == "class_sums" && isNativeFloat(operands[0].dtype) && areF32(operands, {1}) &&
      areF32(results, {0, 1}) && hasLongNumbers(operands, {2, 3, 4}))
    return classSums(attrs, operands);
  if (op == "class_sums_grad" && isNativeFloat(operands[0].dtype) &&
      isNativeFloat(results[0].dtype) && areF32(operands, {1, 5, 6}) &&
      hasLongNumbers(operands, {2, 3, 4}))
    return classSumsGrad(attrs, operands, results);
  return nullptr;
}

} // namespace tbc::cpu
