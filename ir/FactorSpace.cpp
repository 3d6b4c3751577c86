//===- FactorSpace.cpp - Dims as sums of products of factors ---------------===//

#include "ir/FactorSpace.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace tbc {

using Node = FactorSpace::Node;

Node FactorSpace::add(Kind kind, int64_t size, std::vector<Node> children) {
  Entry entry;
  entry.kind = kind;
  entry.size = size;
  for (Node child : children)
    entries[find(child)].isNested = true;
  entry.children = std::move(children);
  entries.push_back(std::move(entry));
  return Node(entries.size()) - 1;
}

/// Returns true if `node` has more than `maxLeaves` leaves. A wide factor of a product is one leaf,
/// a wide term makes its sum wide. Every node on the stack has at least one leaf, so the search
/// ends after as many steps.
bool FactorSpace::hasManyLeaves(Node node) const {
  std::vector<Node> pending{node};
  for (size_t leaves = 0; !pending.empty();) {
    if (leaves + pending.size() > maxLeaves)
      return true;
    const Entry &entry = entries[find(pending.back())];
    pending.pop_back();
    if (entry.wide)
      return true;
    if (entry.children.empty())
      ++leaves;
    for (Node child : entry.children)
      if (entry.kind == Kind::Product && entries[find(child)].wide)
        ++leaves;
      else
        pending.push_back(child);
  }
  return false;
}

/// Makes `node` opaque if it has more than `maxLeaves` leaves, and returns true if so. The factors
/// of a product are closed one by one. Example: of batch x 4095 tokens that two slices cut into
/// tokens, the batch stays shardable.
bool FactorSpace::becomesWide(Node node) {
  node = find(node);
  if (entries[node].wide || !hasManyLeaves(node))
    return entries[node].wide;
  if (entries[node].kind == Kind::Product) {
    for (Node child : std::vector<Node>(entries[node].children))
      becomesWide(child);
    if (!hasManyLeaves(node))
      return false;
  }
  makeOpaque(node);
  return entries[node].wide = true;
}

Node FactorSpace::leaf(int64_t size) { return add(Kind::Leaf, size, {}); }

Node FactorSpace::product(std::vector<Node> nodes) {
  if (nodes.size() == 1)
    return nodes[0];
  int64_t size = 1;
  for (Node node : nodes)
    size *= entries[find(node)].size;
  return add(Kind::Product, size, std::move(nodes));
}

Node FactorSpace::sum(std::vector<Node> nodes) {
  if (nodes.size() == 1)
    return nodes[0];
  int64_t size = 0;
  for (Node node : nodes)
    size += entries[find(node)].size;
  Node result = add(Kind::Sum, size, std::move(nodes));
  becomesWide(result);
  return result;
}

Node FactorSpace::find(Node node) const {
  while (entries[node].forward >= 0)
    node = entries[node].forward;
  return node;
}

int64_t FactorSpace::size(Node node) const { return entries[find(node)].size; }

bool FactorSpace::isShardable(reshard::FactorId factor) const {
  return !entries[find(Node(factor))].opaque;
}

void FactorSpace::makeOpaque(Node node) {
  std::vector<Node> pending{node};
  while (!pending.empty()) {
    Entry &entry = entries[find(pending.back())];
    pending.pop_back();
    if (entry.opaque) // and so is all below it
      continue;
    entry.opaque = true;
    pending.insert(pending.end(), entry.children.begin(), entry.children.end());
  }
}

bool FactorSpace::contains(Node tree, Node leaf) const {
  if (find(tree) == leaf)
    return true;
  if (!entries[leaf].isNested)
    return false;
  visited.resize(entries.size(), 0);
  ++walk;
  std::vector<Node> pending{tree};
  while (!pending.empty()) {
    Node node = find(pending.back());
    pending.pop_back();
    if (node == leaf)
      return true;
    if (std::exchange(visited[node], walk) != walk)
      pending.insert(pending.end(), entries[node].children.begin(), entries[node].children.end());
  }
  return false;
}

void FactorSpace::bind(Node leaf, Node other) {
  // A leaf inside its own image: the other factors have size 1, and the two cannot be told apart.
  if (contains(other, leaf))
    return;
  if (entries[leaf].opaque)
    makeOpaque(other);
  entries[leaf].forward = other;
  entries[other].isNested |= entries[leaf].isNested;
}

std::vector<Node> FactorSpace::factors(Node node) const {
  node = find(node);
  if (entries[node].kind != Kind::Product || entries[node].wide)
    return {node};
  std::vector<Node> result;
  for (Node child : entries[node].children)
    for (Node factor : factors(child))
      result.push_back(factor);
  return result;
}

std::vector<Node> FactorSpace::terms(Node node) const {
  node = find(node);
  if (entries[node].kind != Kind::Sum || entries[node].wide)
    return {node};
  std::vector<Node> result;
  for (Node child : entries[node].children)
    for (Node term : terms(child))
      result.push_back(term);
  return result;
}

/// Gives up on a common structure: both become one opaque leaf.
void FactorSpace::merge(Node a, Node b) {
  makeOpaque(a);
  makeOpaque(b);
}

void FactorSpace::unify(Node a, Node b) {
  a = find(a);
  b = find(b);
  if (a == b)
    return;
  assert(entries[a].size == entries[b].size && "unified dims have one size");
  if (entries[a].kind == Kind::Leaf && entries[b].kind == Kind::Leaf) {
    // The older leaf stays, so that ids do not depend on the order of later ops.
    if (b < a)
      std::swap(a, b);
    entries[a].opaque |= entries[b].opaque;
    entries[a].isNested |= entries[b].isNested;
    entries[b].forward = a;
    return;
  }
  if (entries[a].kind == Kind::Leaf)
    return bind(a, b);
  if (entries[b].kind == Kind::Leaf)
    return bind(b, a);
  // Leaves below may have got structure since the node was made.
  bool isWide = becomesWide(a);
  if (becomesWide(b) || isWide)
    return merge(a, b);
  bool done = false;
  if (entries[a].kind == Kind::Sum && entries[b].kind == Kind::Sum)
    done = unifySums(a, b);
  else if (entries[a].kind == Kind::Product && entries[b].kind == Kind::Product)
    done = unifyProducts(a, b);
  else if (entries[a].kind == Kind::Product)
    done = splitLeadingFactor(a, b);
  else
    done = splitLeadingFactor(b, a);
  if (!done)
    merge(a, b);
}

/// Walks two products side by side, splitting the larger leaf where prefix products differ.
bool FactorSpace::unifyProducts(Node a, Node b) {
  std::vector<Node> left = factors(a), right = factors(b);
  size_t i = 0, j = 0;
  while (i < left.size() && j < right.size()) {
    Node x = find(left[i]), y = find(right[j]);
    int64_t xs = entries[x].size, ys = entries[y].size;
    if (xs == ys) {
      unify(x, y);
      ++i, ++j;
      continue;
    }
    // Factors of size 1 that face another size carry no information.
    if (xs == 1 || ys == 1) {
      xs == 1 ? ++i : ++j;
      continue;
    }
    bool leftLarger = xs > ys;
    Node large = leftLarger ? x : y, small = leftLarger ? y : x;
    int64_t smallSize = entries[small].size;
    if (entries[large].kind == Kind::Product) {
      auto inner = factors(large);
      auto &list = leftLarger ? left : right;
      size_t at = leftLarger ? i : j;
      list.erase(list.begin() + at);
      list.insert(list.begin() + at, inner.begin(), inner.end());
      continue;
    }
    if (smallSize == 0 || entries[large].size % smallSize != 0 ||
        entries[large].kind != Kind::Leaf || contains(small, large))
      return false;
    Node rest = leaf(entries[large].size / smallSize);
    bool opaque = entries[large].opaque;
    entries[large].forward = add(Kind::Product, entries[large].size, {small, rest});
    if (opaque)
      makeOpaque(large);
    (leftLarger ? left[i] : right[j]) = rest;
    leftLarger ? ++j : ++i;
  }
  return true;
}

/// Walks two sums side by side, splitting the larger leaf where boundaries differ.
bool FactorSpace::unifySums(Node a, Node b) {
  std::vector<Node> left = terms(a), right = terms(b);
  size_t i = 0, j = 0;
  while (i < left.size() && j < right.size()) {
    Node x = find(left[i]), y = find(right[j]);
    int64_t xs = entries[x].size, ys = entries[y].size;
    if (xs == ys) {
      unify(x, y);
      ++i, ++j;
      continue;
    }
    bool leftLarger = xs > ys;
    Node large = leftLarger ? x : y, small = leftLarger ? y : x;
    int64_t smallSize = entries[small].size;
    if (entries[large].kind == Kind::Product) {
      // Cut the product where the small term ends.
      Node cut = sum({leaf(smallSize), leaf(entries[large].size - smallSize)});
      if (!splitLeadingFactor(large, cut))
        return false;
    }
    large = find(large);
    if (entries[large].kind == Kind::Leaf) {
      Node rest = leaf(entries[large].size - smallSize);
      bool opaque = entries[large].opaque;
      entries[large].forward = add(Kind::Sum, entries[large].size, {small, rest});
      if (opaque)
        makeOpaque(large);
      (leftLarger ? left[i] : right[j]) = rest;
      leftLarger ? ++j : ++i;
      continue;
    }
    auto inner = terms(large);
    if (inner.size() < 2)
      return false;
    auto &list = leftLarger ? left : right;
    size_t at = leftLarger ? i : j;
    list.erase(list.begin() + at);
    list.insert(list.begin() + at, inner.begin(), inner.end());
  }
  return true;
}

/// `product` = n x rest meets a sum of multiples of `rest`: n becomes a sum itself, and the product
/// the sum of its parts. Example: 5 x 2 meets 4 + 6, so n = 5 becomes 2 + 3.
bool FactorSpace::splitLeadingFactor(Node productNode, Node sumNode) {
  std::vector<Node> list = factors(productNode), parts = terms(sumNode);
  size_t lead = 0;
  while (lead < list.size() && entries[find(list[lead])].size == 1)
    ++lead;
  if (lead == list.size())
    return false;
  Node head = find(list[lead]);
  std::vector<Node> rest(list.begin() + lead + 1, list.end());
  int64_t restSize = 1;
  for (Node node : rest)
    restSize *= entries[find(node)].size;
  if (entries[head].kind != Kind::Leaf || restSize == 0)
    return false;
  for (Node part : parts)
    if (entries[find(part)].size % restSize != 0 || contains(part, head))
      return false;
  std::vector<Node> heads, terms;
  for (Node part : parts) {
    heads.push_back(leaf(entries[find(part)].size / restSize));
    std::vector<Node> term{heads.back()};
    term.insert(term.end(), rest.begin(), rest.end());
    terms.push_back(product(term));
  }
  bool opaque = entries[head].opaque;
  Node headSum = sum(heads);
  if (headSum != head)
    entries[head].forward = headSum;
  if (opaque)
    makeOpaque(headSum);
  Node whole = sum(terms);
  productNode = find(productNode);
  if (entries[productNode].kind == Kind::Product)
    entries[productNode].forward = whole;
  for (size_t i = 0; i < parts.size(); ++i)
    unify(parts[i], terms[i]);
  return true;
}

/// A product is a sum of products only if the sum is its first factor (rows of the outer sum).
bool FactorSpace::isSealable(Node node) {
  node = find(node);
  const Entry &entry = entries[node];
  if (entry.kind == Kind::Leaf || entry.opaque || sealable[node])
    return true;
  if (entry.kind == Kind::Product) {
    std::vector<Node> list = factors(node);
    for (size_t i = 1; i < list.size(); ++i)
      if (entries[find(list[i])].kind == Kind::Sum && !entries[find(list[i])].opaque)
        return false;
    if (!list.empty() && !isSealable(list[0])) // empty: of dims of size 1 alone
      return false;
  } else {
    for (Node child : entry.children)
      if (!isSealable(child))
        return false;
  }
  sealable[node] = true;
  return true;
}

/// Makes the sums opaque that stand behind the first factor of a product under `node`. The other
/// factors stay shardable. Example: of batch x (3 + 1), steps that a concatenation shifts, the
/// batch.
void FactorSpace::closeInnerSums(Node node) {
  node = find(node);
  if (entries[node].opaque || isSealable(node))
    return;
  if (entries[node].kind == Kind::Sum) {
    for (Node child : std::vector<Node>(entries[node].children))
      closeInnerSums(child);
    return;
  }
  std::vector<Node> list = factors(node);
  for (size_t i = 1; i < list.size(); ++i)
    if (entries[find(list[i])].kind == Kind::Sum)
      makeOpaque(list[i]);
  if (!list.empty())
    closeInnerSums(list[0]);
}

void FactorSpace::seal(const std::vector<Node> &nodes,
                       const std::vector<std::pair<Node, Node>> &same) {
  sealable.assign(entries.size(), false);
  for (Node node : nodes) {
    if (becomesWide(node))
      continue;
    closeInnerSums(node);
    if (!isSealable(node))
      makeOpaque(node);
  }
  for (bool isChanged = true; isChanged;) {
    isChanged = false;
    for (auto [a, b] : same)
      if (!haveOneStructure(a, b)) {
        merge(a, b);
        isChanged = true;
      }
  }
}

/// Whether the layouts of two dims have the same factors but for their ids; those of size 1 do not
/// count.
bool FactorSpace::haveOneStructure(Node a, Node b) const {
  auto sizes = [&](Node node) {
    std::vector<int64_t> list;
    for (const reshard::Segment &segment : layout(node).segments)
      for (const reshard::Factor &factor : segment.factors)
        if (factor.size != 1)
          list.push_back(factor.size);
    return list;
  };
  return find(a) == find(b) || sizes(a) == sizes(b);
}

reshard::DimLayout FactorSpace::layout(Node node) const {
  // Appends, and does not return, segments: a sequence built step by step is as many sums inside
  // each other, and each would copy all segments inside it.
  auto add = [this](auto &self, Node node, std::vector<reshard::Segment> &segments) -> void {
    node = find(node);
    const Entry &entry = entries[node];
    if (entry.kind == Kind::Leaf || entry.opaque) {
      segments.emplace_back().factors.push_back({node, entry.size});
      return;
    }
    if (entry.kind == Kind::Sum) {
      for (Node child : entry.children)
        self(self, child, segments);
      return;
    }
    size_t first = segments.size();
    if (entry.children.empty())
      segments.emplace_back();
    else
      self(self, entry.children[0], segments);
    for (size_t i = 1; i < entry.children.size(); ++i) {
      std::vector<reshard::Segment> inner;
      self(self, entry.children[i], inner);
      assert(inner.size() == 1 && "sealed");
      const std::vector<reshard::Factor> &factors = inner[0].factors;
      for (size_t j = first; j < segments.size(); ++j)
        segments[j].factors.insert(segments[j].factors.end(), factors.begin(), factors.end());
    }
  };
  reshard::DimLayout result;
  add(add, node, result.segments);
  return result;
}

} // namespace tbc
