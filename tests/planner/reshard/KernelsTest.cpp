//===- KernelsTest.cpp - The ops of a block that share a kernel -------------===//

#include "planner/reshard/Kernels.h"
#include "tests/planner/reshard/GraphBuilder.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <set>

namespace tbc::reshard {
namespace {

using test::GraphBuilder;

const Mesh mesh{{{"dp", 2}, {"tp", 2}}};
const AxisRef dp = wholeAxis(mesh, 0), tp = wholeAxis(mesh, 1);

/// A graph whose ops are nests of loops unless said otherwise.
struct Step : GraphBuilder {
  Step() : GraphBuilder({{'b', 8}, {'s', 6}, {'h', 4}, {'f', 12}}) {}

  /// A nest of loops. Letters without a place in the result are reduced.
  int nest(const std::string &id, const std::string &spec, std::vector<int> operands) {
    int value = forward(id, spec, std::move(operands));
    opOf(value).isLoopNest = true;
    for (Loop &loop : opOf(value).loops)
      loop.isReduced = loop.resultDims.empty();
    return value;
  }
  /// A norm: reduced along `letter`, which the result has.
  int norm(const std::string &id, const std::string &spec, std::vector<int> operands, char letter) {
    int value = nest(id, spec, std::move(operands));
    for (Loop &loop : opOf(value).loops)
      loop.isReduced |= loop.factor == letter;
    return value;
  }
  int view(const std::string &id, const std::string &spec, std::vector<int> operands) {
    int value = nest(id, spec, std::move(operands));
    opOf(value).kernelClass = KernelClass::None;
    return value;
  }

  std::vector<std::string> kernels(const Assignment &assignment) const {
    std::vector<std::string> list;
    for (const auto &[block, kernels] : planKernels(graph, assignment, derive(graph, assignment)))
      for (const Kernel &kernel : kernels) {
        std::string text;
        for (int op : kernel.ops)
          text += (text.empty() ? "" : " ") + graph.ops[size_t(op)].id;
        if (kernel.joinsPrevious)
          text += " with the rows";
        list.push_back(kernel.isNest ? text : "(" + text + ")");
      }
    return list;
  }
  std::vector<std::string> kernels() const { return kernels(test::replicated(graph, mesh)); }
};

using Texts = std::vector<std::string>;

TEST(Kernels, ChainsJoinAcrossTheOrderOfOps) {
  Step g;
  int x = g.input("x", "bsh"), w = g.parameter("w", "hf");
  int a = g.nest("neg", "bsh->bsh", {x});
  int y = g.forward("einsum", "bsh,hf->bsf", {a, w});
  int late = g.nest("sum", "bsh->h", {a}); // behind the matmul, joins its producer before it
  int gelu = g.nest("gelu", "bsf->bsf", {y});
  g.forward("loss", "bsf,h->", {gelu, late});
  EXPECT_EQ(g.kernels(), (Texts{"neg sum", "(einsum)", "gelu", "(loss)"}));
}

TEST(Kernels, AnOperandMustExistWhereTheKernelBegins) {
  Step g;
  int x = g.input("x", "bsh"), w = g.parameter("w", "hf"), v = g.parameter("v", "fh");
  int a = g.nest("neg", "bsh->bsh", {x});
  int y = g.forward("in", "bsh,hf->bsf", {a, w});
  int z = g.forward("out", "bsf,fh->bsh", {y, v});
  int sum = g.nest("add", "bsh,bsh->bsh", {a, z}); // cannot join neg
  g.forward("loss", "bsh->", {sum});
  EXPECT_EQ(g.kernels(), (Texts{"neg", "(in)", "(out)", "add", "(loss)"}));
}

TEST(Kernels, NormsTakeTheirResidualAdds) {
  Step g;
  int x = g.input("x", "bsh"), r = g.input("r", "bsh"), scale = g.parameter("scale", "h");
  int h = g.nest("add", "bsh,bsh->bsh", {x, r});
  int y = g.norm("norm", "bsh,h->bsh", {h, scale}, 'h');
  g.forward("loss", "bsh,bsh->", {y, h});
  EXPECT_EQ(g.kernels(), (Texts{"add norm", "(loss)"}));
}

TEST(Kernels, ReductionsOverDifferentLoopsStayApart) {
  Step g;
  int x = g.input("x", "bsh");
  int a = g.nest("neg", "bsh->bsh", {x});
  int rows = g.nest("rows", "bsh->bs", {a});
  int columns = g.nest("columns", "bsh->h", {a});
  g.forward("loss", "bs,h->", {rows, columns});
  EXPECT_EQ(g.kernels(), (Texts{"neg rows", "columns with the rows", "(loss)"}));
}

/// The gradients of a norm and of its scale: the sums follow the rows, before the matmul of the
/// weight's gradient.
TEST(Kernels, ColumnSumsFollowTheirRows) {
  Step g;
  int y = g.input("y", "bsf"), w = g.parameter("w", "hf"), x = g.input("x", "bsh");
  int r = g.input("r", "bsh"), dg = g.input("dg", "bsh"), other = g.input("other", "bsh");
  auto matmul = [&](const std::string &id, const std::string &spec, std::vector<int> operands) {
    int value = g.forward(id, spec, std::move(operands));
    g.opOf(value).kernelClass = KernelClass::Matmul;
    return value;
  };
  int dx = matmul("dx", "bsf,hf->bsh", {y, w});
  int dw = matmul("dw", "bsh,bsf->hf", {x, y});
  int dy = g.nest("add", "bsh,bsh->bsh", {dx, dg});
  int dn = g.norm("norm_grad", "bsh,bsh->bsh", {dy, x}, 'h');
  int dh = g.nest("residual", "bsh,bsh->bsh", {dn, r});
  int scale = g.nest("scale_grad", "bsh,bsh->h", {dy, x});
  int cast = g.nest("cast", "h->h", {scale});
  int bias = g.nest("bias_grad", "bsh->h", {dh});
  int part = g.nest("part", "bsh->sh", {other}); // over some of the rows
  g.forward("loss", "bsh,h,h,hf,sh->", {dh, cast, bias, dw, part});
  EXPECT_EQ(g.kernels(),
            (Texts{"(dx)", "add norm_grad residual", "scale_grad cast bias_grad with the rows",
                   "(dw)", "part", "(loss)"}));
}

/// Sums that need a later matmul, and sums that share no value with the rows before.
TEST(Kernels, OtherColumnSumsStayWhereTheyAre) {
  Step g;
  int x = g.input("x", "bsh"), w = g.parameter("w", "hf"), v = g.parameter("v", "fh");
  int n = g.norm("norm", "bsh->bsh", {x}, 'h');
  int f = g.forward("in", "bsh,hf->bsf", {n, w});
  int late = g.forward("out", "bsf,fh->bsh", {f, v});
  int product = g.nest("mul", "bsh,bsh->bsh", {n, late});
  int sum = g.nest("sum", "bsh->h", {product});
  int z = g.input("z", "bsh");
  int rows = g.norm("rows", "bsh->bsh", {x}, 'h');
  int unrelated = g.nest("unrelated", "bsh->h", {z});
  g.forward("loss", "bsh,bsh,h,h->", {n, rows, sum, unrelated});
  for (const std::string &kernel : g.kernels())
    EXPECT_EQ(kernel.find("with the rows"), std::string::npos) << kernel;
}

/// Rows that follow their matmul stand before an operand of the sums that was made in between.
/// Example: bias gradients of an encoder that runs twice are added.
TEST(Kernels, ColumnSumsStayBehindTheirOperands) {
  Step g;
  int y = g.input("y", "bsf"), w = g.parameter("w", "hf"), x = g.input("x", "bsh");
  int dx = g.forward("dx", "bsf,hf->bsh", {y, w});
  g.opOf(dx).kernelClass = KernelClass::Matmul;
  int part = g.forward("part", "bsh->h", {x});
  int rows = g.norm("rows", "bsh,bsh->bsh", {dx, x}, 'h');
  int sums = g.nest("sums", "bsh->h", {rows});
  int total = g.nest("total", "h,h->h", {sums, part});
  g.forward("loss", "bsh,h->", {rows, total});
  EXPECT_EQ(g.kernels(), (Texts{"(dx)", "rows", "(part)", "sums total", "(loss)"}));
}

/// Sums over the same rows share a kernel if they stand together, even without a common value.
TEST(Kernels, NeighboursThatReduceTheSameLoopsJoin) {
  Step g;
  int x = g.input("x", "bsh"), y = g.input("y", "bsh"), z = g.input("z", "bsf");
  int first = g.nest("first", "bsh->h", {x});
  int second = g.nest("second", "bsh->h", {y});
  int cast = g.nest("cast", "h->h", {second});
  int other = g.nest("other", "bsf->f", {z}); // other columns
  int neg = g.nest("neg", "bsh->bsh", {y});
  int third = g.nest("third", "bsh->h", {x}); // neg stands between
  g.forward("loss", "h,h,f,bsh,h->", {first, cast, other, neg, third});
  EXPECT_EQ(g.kernels(), (Texts{"first second cast", "other", "neg", "third", "(loss)"}));
}

/// Reading the rows of a matrix and writing its columns is no nest: no loop is innermost in both.
TEST(Kernels, ATransposeOfTheInnermostDimIsNoNest) {
  Step g;
  int x = g.input("x", "bh");
  int t = g.view("transpose", "bh->hb", {x});
  int y = g.nest("neg", "hb->hb", {t});
  g.forward("loss", "hb->", {y});
  EXPECT_EQ(g.kernels(), (Texts{"(transpose)", "neg", "(loss)"}));
}

/// A bias is repeated along the rows right where it is added, behind the matmul.
TEST(Kernels, ViewsWaitForTheirReader) {
  Step g;
  int x = g.input("x", "bsh"), w = g.parameter("w", "hf"), bias = g.parameter("bias", "f");
  int repeated = g.view("broadcast", "f->bsf", {bias});
  int y = g.forward("einsum", "bsh,hf->bsf", {x, w});
  int sum = g.nest("add", "bsf,bsf->bsf", {y, repeated});
  g.forward("loss", "bsf->", {sum});
  EXPECT_EQ(g.kernels(), (Texts{"(einsum)", "broadcast add", "(loss)"}));
}

/// The gradients of a linear layer: each matmul has its only reader right behind it.
TEST(Kernels, TheOnlyReaderOfAMatmulFollowsIt) {
  Step g;
  int y = g.input("y", "bsf"), w = g.parameter("w", "hf"), x = g.input("x", "bsh");
  int r = g.input("r", "bsh");
  auto matmul = [&](const std::string &id, const std::string &spec, std::vector<int> operands) {
    int value = g.forward(id, spec, std::move(operands));
    g.opOf(value).kernelClass = KernelClass::Matmul;
    return value;
  };
  int dx = matmul("dx", "bsf,hf->bsh", {y, w});
  int dw = matmul("dw", "bsh,bsf->hf", {x, y});
  int sum = g.nest("add", "bsh,bsh->bsh", {dx, r});
  int cast = g.nest("cast", "hf->hf", {dw});
  int both = matmul("both", "bsh,hf->bsf", {sum, cast});
  int twice = matmul("twice", "bsf,bsh->hf", {both, sum});
  int neg = g.nest("neg", "bsf->bsf", {both}); // `twice` reads it, too
  g.forward("loss", "bsf,hf->", {neg, twice});
  EXPECT_EQ(g.kernels(),
            (Texts{"(dx)", "add", "(dw)", "cast", "(both)", "(twice)", "neg", "(loss)"}));
}

/// An operand that is made between the matmul and its reader, and one that needs a collective.
TEST(Kernels, AReaderStaysBehindItsOperands) {
  Step g;
  int y = g.input("y", "bsf"), w = g.parameter("w", "hf"), v = g.parameter("v", "fh");
  int dx = g.forward("dx", "bsf,hf->bsh", {y, w});
  g.opOf(dx).kernelClass = KernelClass::Matmul;
  int other = g.forward("other", "bsf,fh->bsh", {y, v});
  int late = g.forward("late", "bsh->bsh", {other});
  int sum = g.nest("add", "bsh,bsh->bsh", {dx, late});
  g.forward("loss", "bsh->", {sum});
  EXPECT_EQ(g.kernels(), (Texts{"(dx)", "(other)", "(late)", "add", "(loss)"}));

  Step h;
  int x = h.input("x", "bsh"), in = h.parameter("in", "hf"), out = h.parameter("out", "fh");
  int a = h.forward("first", "bsh,hf->bsf", {x, in});
  int b = h.forward("second", "bsf,fh->bsh", {a, out}); // partial over tp
  h.opOf(b).kernelClass = KernelClass::Matmul;
  int aside = h.forward("aside", "bsf->bsf", {a});
  int read = h.nest("neg", "bsh->bsh", {b});
  h.forward("loss", "bsh,bsf->", {read, aside});
  Assignment split = test::replicated(h.graph, mesh);
  for (const char *op : {"first", "second", "aside"})
    test::shard(h.graph, split.strategies[size_t(h.opIndex(op))], h.opIndex(op), 'f', {tp});
  EXPECT_EQ(h.kernels(split), (Texts{"(first)", "(second)", "(aside)", "neg", "(loss)"}));
  EXPECT_EQ(h.kernels(), (Texts{"(first)", "(second)", "neg", "(aside)", "(loss)"}));
}

TEST(Kernels, ASecondCopyStaysApart) {
  Step g;
  int x = g.input("x", "bsh"), w = g.parameter("w", "hf"), r = g.input("r", "bsf");
  int y = g.forward("einsum", "bsh,hf->bsf", {x, w});
  int sum = g.nest("add", "bsf,bsf->bsf", {y, r});
  int copy = g.view("reshape", "bsf->bsf", {sum});
  g.forward("loss", "bsf,bsf->", {sum, copy});
  EXPECT_EQ(g.kernels(), (Texts{"(einsum)", "add", "reshape", "(loss)"}));
}

TEST(Kernels, ConstantsAreExecutedByEachReader) {
  Step g;
  int x = g.input("x", "bsh");
  int one = g.generator("one", "bsh");
  g.opOf(one).isLoopNest = true;
  int a = g.nest("add", "bsh,bsh->bsh", {x, one});
  int y = g.forward("own", "bsh->bsh", {a});
  int b = g.nest("mul", "bsh,bsh->bsh", {y, one});
  g.forward("loss", "bsh->", {b});
  EXPECT_EQ(g.kernels(), (Texts{"one add", "(own)", "one mul", "(loss)"}));
}

/// A value that needs a collective is another array behind it.
TEST(Kernels, CollectivesCutKernels) {
  Step g;
  int x = g.input("x", "bsh"), w = g.parameter("w", "hf"), v = g.parameter("v", "fh");
  int y = g.forward("in", "bsh,hf->bsf", {x, w});
  int gelu = g.nest("gelu", "bsf->bsf", {y});
  int z = g.forward("out", "bsf,fh->bsh", {gelu, v});
  int a = g.nest("neg", "bsh->bsh", {z});
  int b = g.nest("exp", "bsh->bsh", {a});
  g.forward("loss", "bsh->", {b});
  Assignment split = test::replicated(g.graph, mesh);
  for (const char *op : {"in", "gelu", "out"})
    test::shard(g.graph, split.strategies[size_t(g.opIndex(op))], g.opIndex(op), 'f', {tp});
  // neg splits the tokens, exp is whole: an all_gather between them.
  test::shard(g.graph, split.strategies[size_t(g.opIndex("neg"))], g.opIndex("neg"), 's', {tp});
  EXPECT_EQ(g.kernels(split), (Texts{"(in)", "gelu", "(out)", "neg", "exp", "(loss)"}));
  EXPECT_EQ(g.kernels(), (Texts{"(in)", "gelu", "(out)", "neg exp", "(loss)"}));
}

/// Attention of q, k and v, each 'h' columns of x with 'f' = 3 'h', and its gradient.
struct Columns : Step {
  Columns() {
    int x = input("x", "bsh"), w = parameter("w", "hf");
    packed = forward("einsum", "bsh,hf->bsf", {x, w});
    cuts("", Phase::Forward);
    int o = forward("attention", "bsh,bsh,bsh->bsh", parts);
    opOf(o).columns = {ColumnUse::Kind::Takes, 0, false};
    result = o;
  }
  int cut(const std::string &id, int64_t first, Phase phase) {
    int value = phase == Phase::Forward ? forward(id, "bsf->bsh", {packed})
                                        : backward(id, result, "bsf->bsh", {packed});
    opOf(value).kernelClass = KernelClass::None;
    opOf(value).columns = {ColumnUse::Kind::Cuts, first};
    return value;
  }
  void cuts(const std::string &suffix, Phase phase) {
    parts = {cut("q" + suffix, 0, phase), cut("k" + suffix, 4, phase), cut("v" + suffix, 8, phase)};
  }
  /// Adds the gradient, with the op that joins its results.
  void addGradient() {
    int cotangent = forward("loss", "bsh->bsh", {result});
    cuts(".rc", Phase::Backward);
    std::vector<int> operands = {cotangent};
    operands.insert(operands.end(), parts.begin(), parts.end());
    grad = backward("grad", result, "bsh,bsh,bsh,bsh->bsh,bsh,bsh", operands);
    opOf(grad).columns = {ColumnUse::Kind::Takes, 1, true};
    const std::vector<int> made = opOf(grad).results;
    joined = backward("concat", result, "bsh,bsh,bsh->bsf", made);
    opOf(joined).kernelClass = KernelClass::None;
    opOf(joined).columns = {ColumnUse::Kind::Joins};
  }

  int packed, result, grad = -1, joined = -1;
  std::vector<int> parts;
};

TEST(Kernels, ColumnsOfOneTensorAreTakenInPlace) {
  Columns g;
  g.addGradient();
  g.backward("end", g.result, "bsf->", {g.joined});
  EXPECT_EQ(g.kernels(), (Texts{"(einsum)", "(q k v attention)", "(loss)",
                                "(q.rc k.rc v.rc grad concat)", "(end)"}));
  // The packed tensor with its tokens split, and the parts whole: three all_gathers of parts.
  Assignment split = test::replicated(g.graph, mesh);
  for (const char *op : {"einsum", "q", "k", "v"})
    test::shard(g.graph, split.strategies[size_t(g.opIndex(op))], g.opIndex(op), 's', {tp});
  EXPECT_EQ(g.kernels(split)[1], "(q)");
}

TEST(Kernels, ColumnsWithAnotherReaderOrOrderAreCopied) {
  const Texts apart = {"(einsum)", "(q)", "(k)", "(v)", "(attention)"};
  auto first = [&](const Columns &g) {
    Texts all = g.kernels();
    all.resize(apart.size());
    return all;
  };
  Columns read; // k is read twice
  read.forward("loss", "bsh,bsh->", {read.result, read.parts[1]});
  EXPECT_EQ(first(read), apart);
  Columns order; // v before k
  order.opOf(order.parts[1]).columns.first = 8;
  order.opOf(order.parts[2]).columns.first = 4;
  order.forward("loss", "bsh->", {order.result});
  EXPECT_EQ(first(order), apart);
  Columns part; // q again in place of v: not all columns
  part.opOf(part.parts[2]).columns.first = 0;
  part.forward("loss", "bsh->", {part.result});
  EXPECT_EQ(first(part), apart);
}

TEST(Kernels, ColumnsThatAreNotJoinedAreMadeApart) {
  Columns g;
  g.addGradient();
  const int dk = g.opOf(g.grad).results[1];
  g.backward("end", g.result, "bsf,bsh->", {g.joined, dk});
  EXPECT_EQ(g.kernels(), (Texts{"(einsum)", "(q k v attention)", "(loss)", "(q.rc)", "(k.rc)",
                                "(v.rc)", "(grad)", "(concat)", "(end)"}));
}

/// A gate u * silu(v) and its gradient. u and v, each 'h', are columns of x with 'f' = 3 'h'.
struct Gate : Step {
  Gate() {
    int x = input("x", "bsh"), w = parameter("w", "hf");
    packed = forward("einsum", "bsh,hf->bsf", {x, w});
    u = cut("u", 0, Phase::Forward), v = cut("v", 4, Phase::Forward);
    gated = nest("mul", "bsh,bsh->bsh", {u, nest("silu", "bsh->bsh", {v})});
  }
  int cut(const std::string &id, int64_t first, Phase phase) {
    int value = phase == Phase::Forward ? forward(id, "bsf->bsh", {packed})
                                        : backward(id, gated, "bsf->bsh", {packed});
    opOf(value).kernelClass = KernelClass::None;
    opOf(value).columns = {ColumnUse::Kind::Cuts, first};
    return value;
  }
  int gradientNest(const std::string &id, const std::string &spec, std::vector<int> operands) {
    int value = backward(id, gated, spec, std::move(operands));
    opOf(value).isLoopNest = true;
    return value;
  }
  void addGradient() {
    int cotangent = forward("loss", "bsh->bsh", {gated});
    int u2 = cut("u.rc", 0, Phase::Backward), v2 = cut("v.rc", 4, Phase::Backward);
    du = gradientNest("du", "bsh,bsh->bsh", {cotangent, v2});
    int dv = gradientNest("dv", "bsh,bsh,bsh->bsh", {cotangent, u2, v2});
    joined = backward("concat", gated, "bsh,bsh->bsf", {du, dv});
    opOf(joined).columns = {ColumnUse::Kind::Joins};
  }

  int packed, u, v, gated, du = -1, joined = -1;
};

TEST(Kernels, NestsReadAndWriteColumnsWhereTheyLie) {
  Gate g;
  g.addGradient();
  g.backward("end", g.gated, "bsf->", {g.joined});
  EXPECT_EQ(g.kernels(),
            (Texts{"(einsum)", "v silu u mul", "(loss)", "v.rc du u.rc dv concat", "(end)"}));
  // Each of two kernels cuts what it reads.
  Gate two;
  int late = two.forward("out", "bsh->bsh", {two.gated});
  two.forward("loss", "bsh->", {two.nest("add", "bsh,bsh->bsh", {late, two.v})});
  EXPECT_EQ(two.kernels(), (Texts{"(einsum)", "v silu u mul", "(out)", "v add", "(loss)"}));
}

TEST(Kernels, ColumnsOfOtherReadersAreMade) {
  Gate read; // u is also read by a matmul
  read.forward("loss", "bsh,bsh->", {read.gated, read.u});
  EXPECT_EQ(read.kernels(), (Texts{"(einsum)", "(u)", "v silu mul", "(loss)"}));
  Gate made; // of an op in the same nest
  made.opOf(made.packed).isLoopNest = true;
  made.forward("loss", "bsh->", {made.gated});
  EXPECT_EQ(made.kernels()[0], "(einsum)");
  Gate apart; // a part is read outside
  apart.addGradient();
  apart.backward("end", apart.gated, "bsf,bsh->", {apart.joined, apart.du});
  EXPECT_EQ(apart.kernels(),
            (Texts{"(einsum)", "v silu u mul", "(loss)", "v.rc du u.rc dv", "(concat)", "(end)"}));
}

/// A kernel that reads columns where another one has stored them does not cut them behind that.
TEST(Kernels, StoredColumnsAreCutBeforeTheirReaders) {
  Gate g;
  int turned = g.view("transpose", "bhs->bsh", {g.input("t", "bhs")}); // is in no nest
  int product = g.nest("product", "bsh,bsh->bsh", {g.v, turned});
  g.forward("loss", "bsh,bsh->", {g.gated, g.nest("add", "bsh,bsh->bsh", {product, g.v})});
  EXPECT_EQ(g.kernels(), (Texts{"(einsum)", "v silu u mul", "(v)", "(transpose)", "product",
                                "v add", "(loss)"}));
}

TEST(Kernels, HaveAtMostSoManyOps) {
  Step g;
  int x = g.input("x", "bsh");
  constexpr int numOps = 3 * maxKernelOps + 5;
  for (int i = 0; i < numOps; ++i)
    x = g.nest("op" + std::to_string(i), "bsh->bsh", {x});
  g.forward("loss", "bsh->", {x});
  BlockKernels kernels = planKernels(g.graph, test::replicated(g.graph, mesh),
                                     derive(g.graph, test::replicated(g.graph, mesh)));
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels.begin()->second.size(), 5u);
  for (const Kernel &kernel : kernels.begin()->second)
    EXPECT_LE(kernel.ops.size(), size_t(maxKernelOps));
}

/// Every op stands in one kernel of its block, behind the makers of its operands.
TEST(Kernels, AreAnOrderOfTheBlock) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    unsigned state = seed * 2654435761U + 1;
    auto random = [&](unsigned n) {
      state = state * 1664525U + 1013904223U;
      return int((state >> 16) % n);
    };
    Step g;
    std::vector<int> values = {g.input("x", "bsh"), g.input("y", "bsh")};
    std::vector<int> vectors = {g.parameter("scale", "h")};
    for (int i = 0; i < 25; ++i) {
      std::string id = "op" + std::to_string(i);
      int a = values[size_t(random(unsigned(values.size())))];
      int b = values[size_t(random(unsigned(values.size())))];
      int v = vectors[size_t(random(unsigned(vectors.size())))];
      switch (random(7)) {
      case 0:
        values.push_back(g.nest(id, "bsh,bsh->bsh", {a, b}));
        break;
      case 5:
        values.push_back(g.forward(id, "bsh,bsh->bsh", {a, b}));
        g.opOf(values.back()).kernelClass = KernelClass::Matmul;
        break;
      case 1:
        values.push_back(g.forward(id, "bsh,bsh->bsh", {a, b}));
        break;
      case 2:
        values.push_back(g.norm(id, "bsh,h->bsh", {a, v}, 'h'));
        break;
      case 3:
        vectors.push_back(g.nest(id, "bsh->h", {a}));
        break;
      case 4:
        values.push_back(g.view(id, "h->bsh", {v}));
        break;
      default:
        values.push_back(g.nest(id, "bsh,h->bsh", {a, v}));
      }
    }
    g.forward("loss", "bsh,h->", {values.back(), vectors.back()});
    Assignment assignment = test::dataParallel(g.graph, mesh, {dp});
    std::set<int> done;
    size_t numOps = 0;
    for (const auto &[block, kernels] :
         planKernels(g.graph, assignment, derive(g.graph, assignment)))
      for (const Kernel &kernel : kernels) {
        EXPECT_TRUE(kernel.isNest || kernel.ops.size() == 1);
        for (int op : kernel.ops) {
          for (int value : g.graph.ops[size_t(op)].operands) {
            int producer = g.graph.values[size_t(value)].producer;
            EXPECT_TRUE(producer < 0 || done.count(producer)) << "seed " << seed;
          }
          EXPECT_TRUE(done.insert(op).second) << "seed " << seed;
          ++numOps;
        }
      }
    EXPECT_EQ(numOps, g.graph.ops.size()) << "seed " << seed;
  }
}

} // namespace
} // namespace tbc::reshard
