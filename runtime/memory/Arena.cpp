//===- Arena.cpp - Buffers with offsets in one piece of memory -------------===//

#include "runtime/memory/Arena.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

namespace tbc::memory {

namespace {

constexpr int64_t mostPairs = int64_t(1) << 24;

/// Buffers by begin, and by end.
struct Order {
  std::vector<size_t> byFirst, byLast;

  explicit Order(const std::vector<Lifetime> &lifetimes) : byFirst(lifetimes.size()) {
    std::iota(byFirst.begin(), byFirst.end(), size_t(0));
    byLast = byFirst;
    std::sort(byFirst.begin(), byFirst.end(), [&](size_t a, size_t b) {
      const Lifetime &x = lifetimes[a], &y = lifetimes[b];
      return std::make_tuple(x.first, -x.bytes, a) < std::make_tuple(y.first, -y.bytes, b);
    });
    std::sort(byLast.begin(), byLast.end(), [&](size_t a, size_t b) {
      return std::make_pair(lifetimes[a].last, a) < std::make_pair(lifetimes[b].last, b);
    });
  }
};

/// Calls begin(i) and end(i) for every buffer in order of time. At one time all begins come before
/// all ends.
template <typename Begin, typename End>
void sweep(const std::vector<Lifetime> &lifetimes, const Order &order, Begin begin, End end) {
  size_t ended = 0;
  for (size_t next : order.byFirst) {
    while (lifetimes[order.byLast[ended]].last < lifetimes[next].first)
      end(order.byLast[ended++]);
    begin(next);
  }
}

/// Holes of an arena; it grows if every hole is too small.
class Holes {
public:
  int64_t take(int64_t bytes) {
    auto best = bySize.lower_bound({bytes, 0});
    if (best != bySize.end()) {
      auto [size, offset] = *best;
      remove(offset, size);
      if (size > bytes)
        add(offset + bytes, size - bytes);
      return offset;
    }
    // A hole at the end is enlarged.
    int64_t offset = end;
    if (!byOffset.empty()) {
      auto [lastOffset, lastSize] = *byOffset.rbegin();
      if (lastOffset + lastSize == end) {
        offset = lastOffset;
        remove(lastOffset, lastSize);
      }
    }
    end = offset + bytes;
    return offset;
  }

  void give(int64_t offset, int64_t bytes) {
    auto after = byOffset.lower_bound(offset);
    if (after != byOffset.end() && after->first == offset + bytes) {
      int64_t size = after->second;
      remove(offset + bytes, size);
      bytes += size;
      after = byOffset.lower_bound(offset);
    }
    if (after != byOffset.begin()) {
      auto [beforeOffset, size] = *std::prev(after);
      if (beforeOffset + size == offset) {
        remove(beforeOffset, size);
        offset = beforeOffset;
        bytes += size;
      }
    }
    add(offset, bytes);
  }

  int64_t bytes() const { return end; }

private:
  void add(int64_t offset, int64_t bytes) {
    byOffset[offset] = bytes;
    bySize.insert({bytes, offset});
  }
  void remove(int64_t offset, int64_t bytes) {
    byOffset.erase(offset);
    bySize.erase({bytes, offset});
  }

  std::map<int64_t, int64_t> byOffset; // to the size
  std::set<std::pair<int64_t, int64_t>> bySize;
  int64_t end = 0;
};

Layout layOutInTime(const std::vector<Lifetime> &lifetimes, const Order &order) {
  Layout layout;
  layout.offsets.assign(lifetimes.size(), 0);
  Holes holes;
  sweep(
      lifetimes, order,
      [&](size_t i) {
        if (int64_t bytes = alignedBytes(lifetimes[i].bytes))
          layout.offsets[i] = holes.take(bytes);
      },
      [&](size_t i) {
        if (int64_t bytes = alignedBytes(lifetimes[i].bytes))
          holes.give(layout.offsets[i], bytes);
      });
  layout.bytes = holes.bytes();
  return layout;
}

/// The number of pairs of buffers with overlapping lifetimes.
int64_t countPairs(const std::vector<Lifetime> &lifetimes, const Order &order) {
  int64_t live = 0, pairs = 0;
  sweep(lifetimes, order, [&](size_t) { pairs += live++; }, [&](size_t) { --live; });
  return pairs;
}

/// Disjoint byte intervals, ascending, with gaps between them.
class Stretches {
public:
  void add(int64_t begin, int64_t end) {
    auto first = std::lower_bound(list.begin(), list.end(), begin, endsBefore);
    auto last = first;
    for (; last != list.end() && last->begin <= end; ++last) {
      begin = std::min(begin, last->begin);
      end = std::max(end, last->end);
    }
    if (first == last) {
      list.insert(first, {begin, end});
      return;
    }
    *first = {begin, end};
    list.erase(first + 1, last);
  }

  /// The lowest offset >= `offset` with `bytes` free bytes.
  int64_t lowestFree(int64_t offset, int64_t bytes) const {
    auto next = std::lower_bound(list.begin(), list.end(), offset + 1, endsBefore);
    for (; next != list.end() && next->begin - offset < bytes; ++next)
      offset = next->end;
    return offset;
  }

private:
  struct Stretch {
    int64_t begin, end;
  };
  static bool endsBefore(const Stretch &stretch, int64_t at) { return stretch.end < at; }

  std::vector<Stretch> list;
};

/// Places buffers one by one, each as low as the earlier ones with overlapping lifetimes allow.
///
/// It uses a segment tree over the times at which buffers begin; two overlapping
/// lifetimes have one of these times in common. A lifetime is a few nodes. Each node has two sets:
/// the bytes taken during all of its time, and at some time of it (Bentley, "Solutions to Klee's
/// rectangle problems", 1977).
class LowestPlaces {
public:
  LowestPlaces(const std::vector<Lifetime> &lifetimes, const Order &order) : lifetimes(lifetimes) {
    for (size_t i : order.byFirst)
      if (times.empty() || times.back() < lifetimes[i].first)
        times.push_back(lifetimes[i].first);
    while (numLeaves < times.size())
      numLeaves *= 2;
  }

  Layout run(const std::vector<size_t> &order) {
    Layout layout;
    layout.offsets.assign(lifetimes.size(), 0);
    throughout.assign(2 * numLeaves, {});
    sometimes.assign(2 * numLeaves, {});
    for (size_t i : order) {
      int64_t bytes = alignedBytes(lifetimes[i].bytes);
      if (bytes == 0)
        continue;
      findNodes(lifetimes[i]);
      int64_t offset = lowest(bytes);
      layout.offsets[i] = offset;
      layout.bytes = std::max(layout.bytes, offset + bytes);
      for (size_t node : covered) {
        throughout[node].add(offset, offset + bytes);
        sometimes[node].add(offset, offset + bytes);
      }
      for (size_t node : above)
        sometimes[node].add(offset, offset + bytes);
    }
    return layout;
  }

private:
  /// Finds the largest nodes that make up `life`, and all their ancestors.
  void findNodes(const Lifetime &life) {
    covered.clear();
    above.clear();
    auto rank = [&](auto at) { return size_t(at - times.begin()); };
    const size_t first = rank(std::lower_bound(times.begin(), times.end(), life.first));
    const size_t end = rank(std::upper_bound(times.begin(), times.end(), life.last));
    // Upwards from both ends: `left` and `right` begin at the leaves of the first and last time.
    size_t left = first + numLeaves, right = end - 1 + numLeaves;
    size_t low = left, high = right + 1;
    for (size_t length = 1; left > 0; left /= 2, right /= 2, length *= 2) {
      auto isInside = [&](size_t node) {
        size_t begin = node * length - numLeaves;
        return begin >= first && begin + length <= end;
      };
      if (!isInside(left))
        above.push_back(left);
      if (right != left && !isInside(right))
        above.push_back(right);
      if (low < high && low % 2 == 1)
        covered.push_back(low++);
      if (low < high && high % 2 == 1)
        covered.push_back(--high);
      low /= 2;
      high /= 2;
    }
  }

  int64_t lowest(int64_t bytes) const {
    int64_t offset = 0;
    for (int64_t before = -1; before != offset;) {
      before = offset;
      for (size_t node : above)
        offset = throughout[node].lowestFree(offset, bytes);
      for (size_t node : covered)
        offset = sometimes[node].lowestFree(offset, bytes);
    }
    return offset;
  }

  const std::vector<Lifetime> &lifetimes;
  std::vector<int64_t> times; // ascending
  size_t numLeaves = 1;
  std::vector<Stretches> throughout, sometimes; // by node; node n has 2n and 2n + 1 below it
  std::vector<size_t> covered, above;
};

} // namespace

int64_t mostLiveBytes(const std::vector<Lifetime> &lifetimes) {
  // Each lifetime adds its bytes at its first time, and takes them away after its last.
  std::vector<std::pair<int64_t, int64_t>> changes; // time, bytes
  changes.reserve(2 * lifetimes.size());
  for (const Lifetime &lifetime : lifetimes) {
    changes.push_back({lifetime.first, alignedBytes(lifetime.bytes)});
    changes.push_back({lifetime.last + 1, -alignedBytes(lifetime.bytes)});
  }
  // At one time ends come first: they have ended before it.
  std::sort(changes.begin(), changes.end());
  int64_t live = 0, most = 0;
  for (const auto &[time, bytes] : changes)
    most = std::max(most, live += bytes);
  return most;
}

Layout assignOffsets(const std::vector<Lifetime> &lifetimes) {
  Order order(lifetimes);
  Layout best = layOutInTime(lifetimes, order);
  const int64_t least = mostLiveBytes(lifetimes);
  if (best.bytes <= least)
    return best;
  if (countPairs(lifetimes, order) > mostPairs)
    return best;
  LowestPlaces places(lifetimes, order);
  auto size = [&](size_t i) { return double(lifetimes[i].bytes); };
  auto area = [&](size_t i) {
    return double(lifetimes[i].bytes) * double(lifetimes[i].last - lifetimes[i].first + 1);
  };
  for (bool byArea : {false, true}) {
    std::vector<size_t> sorted = order.byFirst;
    std::sort(sorted.begin(), sorted.end(), [&](size_t a, size_t b) {
      double x = byArea ? area(a) : size(a), y = byArea ? area(b) : size(b);
      return x != y ? x > y : a < b;
    });
    Layout layout = places.run(sorted);
    if (layout.bytes < best.bytes)
      best = std::move(layout);
    if (best.bytes <= least)
      break;
  }
  return best;
}

/// The smallest n such that micro-batch m can use instance m mod n.
static int64_t ringSize(const std::vector<Lifetime> &instances) {
  int64_t count = int64_t(instances.size());
  std::vector<Lifetime> units;
  for (const Lifetime &instance : instances)
    if (instance.first <= instance.last)
      units.push_back({1, instance.first, instance.last});
  int64_t least = std::max<int64_t>(1, mostLiveBytes(units) / alignmentBytes);
  for (int64_t size = least; size < count; ++size) {
    bool fits = true;
    for (int64_t m = 0; fits && m < size; ++m) {
      std::vector<std::pair<int64_t, int64_t>> turns; // for one ring instance, in order of time
      for (int64_t n = m; n < count; n += size)
        if (instances[size_t(n)].first <= instances[size_t(n)].last)
          turns.push_back({instances[size_t(n)].first, instances[size_t(n)].last});
      std::sort(turns.begin(), turns.end());
      for (size_t i = 1; fits && i < turns.size(); ++i)
        fits = turns[i - 1].second < turns[i].first;
    }
    if (fits)
      return size;
  }
  return count;
}

/// Shortens a periodic list to its period. Example: 0, 8, 0, 8 becomes 0, 8.
static void shorten(std::vector<int64_t> &offsets) {
  for (size_t period = 1; period < offsets.size(); ++period)
    if (std::equal(offsets.begin() + int64_t(period), offsets.end(), offsets.begin())) {
      offsets.resize(period);
      return;
    }
}

/// `frames` in an order of their own.
static FrameLayout layOutInOrder(const std::vector<std::vector<Lifetime>> &frames) {
  FrameLayout rings;
  std::vector<Lifetime> all;
  for (const std::vector<Lifetime> &instances : frames) {
    std::vector<int64_t> &offsets = rings.offsets.emplace_back();
    for (int64_t i = 0, n = ringSize(instances); i < n; ++i) {
      offsets.push_back(rings.bytes);
      rings.bytes += alignedBytes(instances[0].bytes);
    }
    for (Lifetime instance : instances) {
      // An instance without a lifetime may have any offset.
      if (instance.first > instance.last)
        instance = {0, 0, 0};
      all.push_back(instance);
    }
  }
  if (rings.bytes <= mostLiveBytes(all))
    return rings;
  Layout layout = assignOffsets(all);
  if (layout.bytes >= rings.bytes)
    return rings;
  FrameLayout packed;
  packed.bytes = layout.bytes;
  auto next = layout.offsets.begin();
  for (const std::vector<Lifetime> &instances : frames) {
    std::vector<int64_t> &offsets =
        packed.offsets.emplace_back(next, next + int64_t(instances.size()));
    for (size_t m = 0; m < offsets.size(); ++m)
      if (instances[m].first > instances[m].last)
        offsets[m] = 0;
    next += int64_t(instances.size());
    for (int64_t offset : offsets)
      packed.bytes = std::max(packed.bytes, offset + alignedBytes(instances[0].bytes));
    shorten(offsets);
  }
  return packed;
}

FrameLayout layOutFrames(const std::vector<std::vector<Lifetime>> &frames) {
  auto isBefore = [](const Lifetime &a, const Lifetime &b) {
    return std::make_tuple(-a.bytes, a.first, a.last) < std::make_tuple(-b.bytes, b.first, b.last);
  };
  std::vector<size_t> order(frames.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::lexicographical_compare(frames[a].begin(), frames[a].end(), frames[b].begin(),
                                        frames[b].end(), isBefore);
  });
  std::vector<std::vector<Lifetime>> sorted;
  for (size_t frame : order)
    sorted.push_back(frames[frame]);
  FrameLayout laidOut = layOutInOrder(sorted), layout;
  layout.bytes = laidOut.bytes;
  layout.offsets.resize(frames.size());
  for (size_t i = 0; i < order.size(); ++i)
    layout.offsets[order[i]] = std::move(laidOut.offsets[i]);
  return layout;
}

} // namespace tbc::memory
