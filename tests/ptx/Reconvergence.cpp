//===- Reconvergence.cpp - Reconvergence points of branches ----------------===//
//
// The immediate post-dominator of each branch, by the algorithm of Cooper, Harvey and Kennedy, "A
// Simple, Fast Dominance Algorithm" (2001), on the reversed graph. Example: in `@%p bra ELSE; A;
// bra END; ELSE: B; END: C` the lanes of the first branch reconverge at C.
//
//===----------------------------------------------------------------------===//

#include "tests/ptx/Decode.h"

#include <algorithm>
#include <functional>

namespace tbc::ptx {

void findReconvergence(std::vector<Instruction> &code) {
  const int end = int(code.size()); // successor of every exit
  std::vector<bool> begins(size_t(end) + 1, false);
  begins[0] = begins[size_t(end)] = true;
  for (int i = 0; i < end; ++i)
    if (code[size_t(i)].control == Control::Branch) {
      begins[size_t(code[size_t(i)].target)] = true;
      begins[size_t(i) + 1] = true;
    } else if (code[size_t(i)].control == Control::Exit) {
      begins[size_t(i) + 1] = true;
    }
  // Basic blocks by index; the last is the end.
  std::vector<int> firsts, blockOf(size_t(end) + 1);
  for (int i = 0; i <= end; ++i) {
    if (begins[size_t(i)])
      firsts.push_back(i);
    blockOf[size_t(i)] = int(firsts.size()) - 1;
  }
  int numBlocks = int(firsts.size()), last = numBlocks - 1;
  std::vector<std::vector<int>> after(static_cast<size_t>(numBlocks)),
      before(static_cast<size_t>(numBlocks));
  for (int block = 0; block < last; ++block) {
    const Instruction &i = code[size_t(firsts[size_t(block) + 1]) - 1];
    std::vector<int> &next = after[size_t(block)];
    bool isAlways = i.guard < 0;
    if (i.control == Control::Branch)
      next.push_back(blockOf[size_t(i.target)]);
    if (i.control == Control::Exit)
      next.push_back(last);
    if (i.control == Control::None || i.control == Control::Barrier || !isAlways)
      next.push_back(block + 1);
    for (int other : next)
      before[size_t(other)].push_back(block);
  }
  // Blocks from the end backwards, in post-order.
  std::vector<int> order, rank(size_t(numBlocks), -1);
  std::vector<std::pair<int, size_t>> stack = {{last, 0}};
  std::vector<bool> isSeen(size_t(numBlocks), false);
  isSeen[size_t(last)] = true;
  while (!stack.empty()) {
    auto &[block, index] = stack.back();
    if (index < before[size_t(block)].size()) {
      int other = before[size_t(block)][index++];
      if (!isSeen[size_t(other)]) {
        isSeen[size_t(other)] = true;
        stack.emplace_back(other, 0);
      }
      continue;
    }
    rank[size_t(block)] = int(order.size());
    order.push_back(block);
    stack.pop_back();
  }
  std::vector<int> dominator(size_t(numBlocks), -1);
  dominator[size_t(last)] = last;
  auto meet = [&](int a, int b) {
    while (a != b) {
      while (rank[size_t(a)] < rank[size_t(b)])
        a = dominator[size_t(a)];
      while (rank[size_t(b)] < rank[size_t(a)])
        b = dominator[size_t(b)];
    }
    return a;
  };
  for (bool isChanged = true; isChanged;) {
    isChanged = false;
    for (auto block = order.rbegin(); block != order.rend(); ++block) {
      if (*block == last)
        continue;
      int found = -1;
      for (int next : after[size_t(*block)])
        if (dominator[size_t(next)] >= 0)
          found = found < 0 ? next : meet(next, found);
      if (found != dominator[size_t(*block)]) {
        dominator[size_t(*block)] = found;
        isChanged = true;
      }
    }
  }
  for (int i = 0; i < end; ++i) {
    Instruction &branch = code[size_t(i)];
    if (branch.control != Control::Branch || branch.guard < 0)
      continue;
    int meeting = dominator[size_t(blockOf[size_t(i)])];
    branch.reconvergence = meeting < 0 || meeting == last ? -1 : firsts[size_t(meeting)];
  }
}

} // namespace tbc::ptx
