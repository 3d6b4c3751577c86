//===- HeaderChecks.h - Compares two declarations --------------------------===//
//
// At compile time, of our declarations and those of NVIDIA's headers.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_RUNTIME_CUDA_HEADERCHECKS_H
#define TBC_TESTS_RUNTIME_CUDA_HEADERCHECKS_H

#include <cstddef>
#include <type_traits>

namespace tbc::cuda {

template <typename T> constexpr bool isNumber = std::is_integral_v<T> || std::is_enum_v<T>;

/// Whether the two are passed alike.
template <typename Ours, typename Theirs> constexpr bool isPassedAlike() {
  if constexpr (std::is_pointer_v<Ours>)
    return std::is_pointer_v<Theirs>;
  else if constexpr (isNumber<Ours>)
    return isNumber<Theirs> && sizeof(Ours) == sizeof(Theirs);
  else
    return std::is_class_v<Ours> && std::is_class_v<Theirs> && sizeof(Ours) == sizeof(Theirs) &&
           alignof(Ours) == alignof(Theirs) && std::is_trivially_copyable_v<Ours>;
}

template <typename OurResult, typename... Ours, typename TheirResult, typename... Theirs>
constexpr bool isCalledAlike(OurResult (*)(Ours...), TheirResult (*)(Theirs...)) {
  if constexpr (sizeof...(Ours) != sizeof...(Theirs))
    return false;
  else
    return isPassedAlike<OurResult, TheirResult>() && (isPassedAlike<Ours, Theirs>() && ...);
}

// The check itself: it tells these apart.
static_assert(isCalledAlike((int (*)(void *, size_t)) nullptr, (int (*)(int *, size_t)) nullptr));
static_assert(!isCalledAlike((int (*)(void *, size_t)) nullptr, (int (*)(int *, int)) nullptr));
static_assert(!isCalledAlike((int (*)(void *)) nullptr, (int (*)(int *, size_t)) nullptr));

template <typename Ours, typename Theirs> constexpr bool equal(Ours ours, Theirs theirs) {
  return static_cast<long long>(ours) == static_cast<long long>(theirs);
}

} // namespace tbc::cuda

#endif // TBC_TESTS_RUNTIME_CUDA_HEADERCHECKS_H
