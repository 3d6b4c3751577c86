//===- KernelCheck.cpp - Kernels of single ops against references -----------===//

#include "tests/codegen/cpu/KernelCheck.h"

#include "codegen/cuda/EmitCudaKernel.h"
#include "codegen/region/KernelOp.h"
#include "codegen/region/RegionFunction.h"
#include "ir/Evaluate.h"
#include "ir/Interpreter.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace mlir;

namespace tbc {

using kernels::Arith;
using kernels::Tensor;

static std::optional<Compiled> compile(const OpCase &opCase, const std::string &text,
                                       const region::EmitFn &emit, int number) {
  Compiled result;
  result.opCase = opCase;
  result.module = std::make_unique<ParsedModule>(text);
  if (!*result.module)
    return std::nullopt;
  cuda::prepareContext(result.module->context);
  func::FuncOp function = result.module->function("f");
  SmallVector<Operation *> ops;
  for (Operation &op : function.getBody().front().without_terminator())
    ops.push_back(&op);
  result.region = region::makeRegionFunction(
      ops, function.getArguments(), function.getBody().front().getTerminator()->getOperands());
  if (!result.region)
    return std::nullopt;
  auto domain = region::findDomain(region::functionOf(*result.region));
  if (failed(domain))
    return std::nullopt;
  result.domain = *domain;
  auto kernel = emit(region::functionOf(*result.region), *domain);
  if (failed(kernel))
    return std::nullopt;
  result.kernel = std::move(*kernel);
  result.symbol = "kernel_" + std::to_string(number);
  return result;
}

std::optional<Compiled> compileCase(const OpCase &opCase, const region::EmitFn &emit, int number) {
  return compile(opCase, opCase.module(), emit, number);
}

std::optional<Compiled> compileFunction(const std::string &name, const std::string &text,
                                        const region::EmitFn &emit, int number) {
  EXPECT_TRUE(ParsedModule(text)) << name; // otherwise it would count as a case without a kernel
  return compile({name, "", ""}, text, emit, number);
}

region::KernelSource sourceOf(Compiled &compiled) {
  region::nameFunctions(*compiled.kernel.module, compiled.symbol);
  std::string text;
  llvm::raw_string_ostream stream(text);
  compiled.kernel.module->print(stream);
  return {compiled.symbol, text};
}

OpCase withType(OpCase opCase, const std::string &from, const std::string &to) {
  for (std::string *list : {&opCase.operands, &opCase.results})
    for (size_t at = 0; (at = list->find(from, at)) != std::string::npos; at += to.size())
      list->replace(at, from.size(), to);
  return opCase;
}

/// Returns `count` of the columns of a tensor in f64, from column `first` on.
static Tensor columnsOf(const Tensor &whole, int64_t first, int64_t count) {
  kernels::TensorType type = whole.type();
  const int64_t pitch = type.shape.back();
  type.shape.back() = count;
  const std::vector<double> all = whole.toDoubles();
  std::vector<double> part;
  for (int64_t i = 0; i < kernels::numElements(type.shape); ++i)
    part.push_back(all[size_t(i / count * pitch + first + i % count)]);
  return Tensor::fromDoubles(type, Arith::F64, part);
}

/// Returns the steps and magnitude of the region in f64, see ErrorBound.
static ErrorBound boundOf(Compiled &compiled, const std::vector<Tensor> &operands, int lanes) {
  ErrorBound bound;
  SmallVector<RankTensors> inputs;
  // What the kernel reads: operands, or columns of them.
  for (auto [argument, array] : llvm::zip_equal(region::functionOf(*compiled.region).getArguments(),
                                                compiled.domain.arguments)) {
    const Tensor &operand = operands[size_t(array.buffer)];
    inputs.push_back({array.isWhole() ? operand
                                      : columnsOf(operand, array.first,
                                                  tensorType(argument).getShape().back())});
  }
  auto observe = [&](Operation *op, ArrayRef<RankTensors> results) {
    bound.steps += 1;
    auto kernel = dyn_cast<region::KernelOpInterface>(op);
    if (kernel && kernel.getCombiner() != region::Combiner::None) {
      int64_t terms = tensorType(op->getOperand(0)).getNumElements() /
                      std::max<int64_t>(1, tensorType(op->getResult(0)).getNumElements());
      bound.steps += double(terms) / (compiled.domain.isVectorReduced ? lanes : 1) + lanes;
    }
    for (const RankTensors &result : results)
      bound.stepMagnitude = std::max(bound.stepMagnitude, largestMagnitude(result[0]));
  };
  reshard::Mesh mesh;
  EXPECT_TRUE(succeeded(
      evaluateOnRanks(region::functionOf(*compiled.region), inputs, mesh, Arith::F64, observe)));
  for (const Tensor &operand : operands)
    bound.stepMagnitude = std::max(bound.stepMagnitude, largestMagnitude(operand));
  return bound;
}

static std::vector<Tensor> evaluate(Compiled &compiled, Arith arith) {
  std::vector<Tensor> operands = operandsFor(compiled.opCase, *compiled.module, arith);
  auto results = evaluateFunction(compiled.module->function("f"), operands, arith);
  if (failed(results)) {
    ADD_FAILURE() << compiled.module->messages;
    return {};
  }
  return {results->begin(), results->end()};
}

void check(Compiled &compiled, const RunFn &runKernel, int lanes, bool inPieces) {
  SCOPED_TRACE(testing::PrintToString(compiled.opCase));
  std::vector<Tensor> exact = evaluate(compiled, Arith::F64);
  std::vector<Tensor> reference = evaluate(compiled, Arith::Native);
  std::vector<Tensor> operands = operandsFor(compiled.opCase, *compiled.module, Arith::Native);
  std::vector<kernels::TensorType> types;
  for (const Tensor &tensor : reference)
    types.push_back(tensor.type());
  KernelRun run;
  run.extent = compiled.kernel.extent;
  std::vector<Tensor> whole = runKernel(run, operands, types);

  ErrorBound bound =
      boundOf(compiled, operandsFor(compiled.opCase, *compiled.module, Arith::F64), lanes);
  for (size_t r = 0; r < whole.size(); ++r) {
    if (!kernels::isFloat(types[r].dtype)) {
      EXPECT_TRUE(kernels::bitwiseEqual(whole[r], reference[r])) << "result " << r;
      continue;
    }
    bound.referenceError = largestDifference(reference[r], exact[r]);
    bound.magnitude = largestMagnitude(exact[r]);
    EXPECT_LE(largestDifference(whole[r], exact[r]), bound.of(types[r].dtype)) << "result " << r;
  }

  if (inPieces) {
    run.step = 1, run.backwards = true;
    std::vector<Tensor> pieces = runKernel(run, operands, types);
    for (size_t r = 0; r < whole.size(); ++r)
      EXPECT_TRUE(kernels::bitwiseEqual(whole[r], pieces[r])) << "in pieces, result " << r;
  }
  auto checkInPlace = [&] {
    std::vector<Tensor> made = runKernel(run, operands, types);
    for (size_t r = 0; r < whole.size(); ++r)
      EXPECT_TRUE(kernels::bitwiseEqual(whole[r], made[r]))
          << "result " << r << " with results over operands "
          << testing::PrintToString(run.inPlace);
  };
  std::vector<std::pair<int, int>> together;
  std::set<size_t> taken;
  for (size_t r = 0; r < whole.size(); ++r) {
    bool isPlaced = false;
    for (size_t o = 0; o < operands.size(); ++o) {
      if (!compiled.kernel.mayOverwrite[r][o])
        continue;
      run.inPlace = {{int(r), int(o)}};
      checkInPlace();
      if (!isPlaced && taken.insert(o).second) {
        together.push_back(run.inPlace[0]);
        isPlaced = true;
      }
    }
  }
  if (together.size() > 1) {
    run.inPlace = together;
    checkInPlace();
  }
}

std::set<std::string> checkAll(const std::vector<OpCase> &cases, const cpu::CpuTarget &target,
                               const region::EmitFn &emit, int lanes) {
  std::vector<Compiled> compiled;
  std::set<std::string> ops;
  for (const OpCase &opCase : cases)
    if (auto one = compileCase(opCase, emit, int(compiled.size()))) {
      ops.insert(opCase.mnemonic);
      compiled.push_back(std::move(*one));
    }
  checkCompiled(compiled, target, lanes);
  return ops;
}

void checkCompiled(std::vector<Compiled> &compiled, const cpu::CpuTarget &target, int lanes) {
  std::vector<region::KernelSource> sources;
  for (Compiled &one : compiled)
    sources.push_back(sourceOf(one));
  KernelLibrary library(sources, target);
  if (!library.isOpen())
    return;
  for (Compiled &one : compiled)
    check(
        one,
        [kernel = library.find(one.symbol, one.kernel)](const KernelRun &run, const auto &operands,
                                                        const auto &types) {
          return runKernel(kernel, run, operands, types);
        },
        lanes, /*inPieces=*/true);
}

std::vector<OpCase> allCases() {
  std::vector<OpCase> cases = differentiableCases();
  const std::vector<OpCase> &composite = compositeCases();
  cases.insert(cases.end(), composite.begin(), composite.end());
  return cases;
}

std::vector<OpCase> otherCases() {
  std::string adaptive = "beta1 = 0.9 : f64, beta2 = 0.95 : f64, epsilon = 1.0e-8 : f64, "
                         "weight_decay = 0.1 : f64";
  std::map<unsigned, std::vector<int64_t>> step = {{5, {3}}}, stepBehindTwo = {{2, {3}}},
                                           stepBehindFour = {{4, {3}}};
  return {
      {"not", "2x3xi1", "2x3xi1"},
      {"and", "2x3xi1, 2x3xi1", "2x3xi1"},
      {"or", "2x3xi1, 2x3xi1", "2x3xi1"},
      {"bitwise_and", "2x3xi32, 2x3xi32", "2x3xi32"},
      {"bitwise_or", "2x3xi64, 2x3xi64", "2x3xi64"},
      {"bitwise_xor", "2x3xi16, 2x3xi16", "2x3xi16"},
      {"add", "7xi64, 7xi64", "7xi64"},
      {"add", "7xui16, 7xui16", "7xui16"},
      {"sub", "5x7xui32, 5x7xui32", "5x7xui32"},
      {"random_uniform_train", "i64, 3xi64, 37xi64", "3x37xf32", "seed = 3 : i64, key = 17 : i64"},
      {"random_uniform_train", "i64, 1xi64", "1xf32", "seed = -1 : i64, key = 4294967295 : i64"},
      {"is_nan", "2x3xf32", "2x3xi1"},
      {"compare", "2x3xf32, 2x3xf32", "2x3xi1", "predicate = \"le\""},
      {"compare", "2x3xi64, 2x3xi64", "2x3xi1", "predicate = \"ge\""},
      {"compare", "2x3xi1, 2x3xi1", "2x3xi1", "predicate = \"lt\""},
      {"relu_grad", "2x3xf32, 2x3xf32", "2x3xf32"},
      {"cast", "5x7xi64", "5x7xf32"},
      {"cast", "5x7xui32", "5x7xf32"},
      {"cast", "5x7xi64", "5x7xui16"},
      {"cast", "5x7xi64", "5x7xui32"},
      {"compare", "2x3xui32, 2x3xui32", "2x3xi1", "predicate = \"lt\""},
      {"cast", "5x7xi1", "5x7xbf16"},
      {"cast", "5x7xf32", "5x7xf16"},
      {"cast", "5x7xbf16", "5x7xi1"},
      {"scale_by", "9xf32, f32", "9xf32"},
      {"clip_value", "9xf32", "9xf32", "limit = 0.5 : f64"},
      {"update_if", "9xf32, 9xf32, i1", "9xf32"},
      {"sgd", "9xf32, 9xf32, f32", "9xf32", "weight_decay = 0.1 : f64"},
      {"sgd_momentum", "9xf32, 9xf32, 9xf32, f32", "9xf32, 9xf32",
       "momentum = 0.9 : f64, nesterov = true, weight_decay = 0.1 : f64"},
      {"adagrad", "9xf32, 9xf32, 9xf32, f32, i64", "9xf32, 9xf32",
       "rate_decay = 0.1 : f64, epsilon = 1.0e-10 : f64, weight_decay = 0.1 : f64", true,
       std::nullopt, stepBehindFour},
      {"divide_by_root", "9xf32, 9xf32", "9xf32", "epsilon = 1.0e-8 : f64", true},
      {"muon_momentum", "9xf32, 9xf32", "9xf32, 9xf32", "momentum = 0.9 : f64, nesterov = true"},
      {"divide_by_norm", "9xf32, 9xf32", "9xf32", "epsilon = 1.0e-7 : f64"},
      {"weighted_sum", "9xbf16, 9xbf16", "9xbf16", "alpha = -4.775 : f64, beta = 2.0315 : f64"},
      {"muon_step", "9xf32, 9xf32, f32", "9xf32", "scale = 2.0 : f64, weight_decay = 0.1 : f64"},
      {"factored_moment", "9xf32, 9xf32, i64", "9xf32", "count = 4 : i64, beta2_decay = -0.8 : f64",
       true, std::nullopt, stepBehindTwo},
      {"factored_direction", "9xf32, 9xf32, 9xf32, 9xf32", "9xf32",
       "count = 2 : i64, epsilon = 0.5 : f64"},
      {"root_direction", "9xf32, 9xf32", "9xf32", "epsilon = 0.5 : f64"},
      {"adafactor_step", "9xf32, 9xf32, f32, f32, f32, i64", "9xf32",
       "count = 9 : i64, clip_threshold = 1.5 : f64, epsilon = 0.5 : f64, weight_decay = 0.1 : f64",
       true, std::nullopt, step},
      {"adam", "9xf32, 9xf32, 9xf32, 9xf32, f32, i64", "9xf32, 9xf32, 9xf32", adaptive, true,
       std::nullopt, step},
      {"adamw", "9xf32, 9xbf16, 9xf32, 9xf32, f32, i64", "9xf32, 9xf32, 9xf32", adaptive, true,
       std::nullopt, step},
  };
}

std::vector<std::string> columnFunctions() {
  // U and V: columns of x[ROWS, WIDTH] from FIRST and SECOND on, COUNT each.
  const std::vector<std::string> texts = {
      R"(
func.func @f(%x: tensor<ROWSxWIDTHxTYPE>) -> tensor<ROWSxCOUNTxTYPE> {
  %u = U
  %v = V
  %s = tbc.silu %v : (tensor<ROWSxCOUNTxTYPE>) -> tensor<ROWSxCOUNTxTYPE>
  %y = tbc.mul %u, %s : tensor<ROWSxCOUNTxTYPE>
  return %y : tensor<ROWSxCOUNTxTYPE>
})",
      R"(
func.func @f(%x: tensor<ROWSxWIDTHxTYPE>, %dy: tensor<ROWSxCOUNTxTYPE>)
    -> (tensor<ROWSxTWICExTYPE>, tensor<ROWSxCOUNTxTYPE>) {
  %u = U
  %v = V
  %du = tbc.mul %dy, %v : tensor<ROWSxCOUNTxTYPE>
  %dv = tbc.mul %dy, %u : tensor<ROWSxCOUNTxTYPE>
  %g = tbc.neg %dv : tensor<ROWSxCOUNTxTYPE>
  %dx = tbc.concat %du, %g {dim = 1 : i64}
      : (tensor<ROWSxCOUNTxTYPE>, tensor<ROWSxCOUNTxTYPE>) -> tensor<ROWSxTWICExTYPE>
  return %dx, %dv : tensor<ROWSxTWICExTYPE>, tensor<ROWSxCOUNTxTYPE>
})",
      R"(
func.func @f(%x: tensor<ROWSxWIDTHxTYPE>, %w: tensor<COUNTxTYPE>)
    -> (tensor<ROWSxTWICExTYPE>, tensor<ROWSxTYPE>) {
  %u = U
  %v = V
  %n = tbc.softmax %u {dim = 1 : i64} : (tensor<ROWSxCOUNTxTYPE>) -> tensor<ROWSxCOUNTxTYPE>
  %b = tbc.broadcast %w {dims = array<i64: 1>} : (tensor<COUNTxTYPE>) -> tensor<ROWSxCOUNTxTYPE>
  %y = tbc.mul %n, %b : tensor<ROWSxCOUNTxTYPE>
  %s = tbc.reduce_sum %v {dims = array<i64: 1>} : (tensor<ROWSxCOUNTxTYPE>) -> tensor<ROWSxTYPE>
  %z = tbc.concat %v, %y {dim = 1 : i64}
      : (tensor<ROWSxCOUNTxTYPE>, tensor<ROWSxCOUNTxTYPE>) -> tensor<ROWSxTWICExTYPE>
  return %z, %s : tensor<ROWSxTWICExTYPE>, tensor<ROWSxTYPE>
})",
      R"(
func.func @f(%x: tensor<ROWSxWIDTHxTYPE>) -> (tensor<COUNTxTYPE>, tensor<COUNTxf32>) {
  %u = U
  %v = V
  %s = tbc.reduce_sum %u {dims = array<i64: 0>} : (tensor<ROWSxCOUNTxTYPE>) -> tensor<COUNTxTYPE>
  %p = tbc.mul %u, %v : tensor<ROWSxCOUNTxTYPE>
  %t = tbc.reduce_sum %p {dims = array<i64: 0>} : (tensor<ROWSxCOUNTxTYPE>) -> tensor<COUNTxTYPE>
  %w = tbc.cast %t : (tensor<COUNTxTYPE>) -> tensor<COUNTxf32>
  return %s, %w : tensor<COUNTxTYPE>, tensor<COUNTxf32>
})",
      R"(
func.func @f(%x: tensor<ROWSxWIDTHxTYPE>, %h: tensor<ROWSx3xCOUNTxTYPE>)
    -> tensor<ROWSx3xCOUNTxTYPE> {
  %u = U
  %v = V
  %scale = tbc.broadcast %u {dims = array<i64: 0, 2>}
      : (tensor<ROWSxCOUNTxTYPE>) -> tensor<ROWSx3xCOUNTxTYPE>
  %shift = tbc.broadcast %v {dims = array<i64: 0, 2>}
      : (tensor<ROWSxCOUNTxTYPE>) -> tensor<ROWSx3xCOUNTxTYPE>
  %m = tbc.mul %h, %scale : tensor<ROWSx3xCOUNTxTYPE>
  %y = tbc.add %m, %shift : tensor<ROWSx3xCOUNTxTYPE>
  return %y : tensor<ROWSx3xCOUNTxTYPE>
})"};
  struct Sizes {
    int rows, width, first, second, count;
    const char *type;
  };
  std::vector<std::string> functions;
  for (const Sizes &n : {Sizes{4, 64, 0, 32, 32, "bf16"}, Sizes{3, 7, 0, 4, 3, "f32"},
                         Sizes{5, 24, 16, 8, 8, "bf16"}, Sizes{1, 40, 3, 20, 17, "f32"},
                         Sizes{2, 5, 1, 1, 4, "bf16"}, Sizes{300, 99, 0, 66, 33, "f32"},
                         Sizes{2, 2000, 0, 1000, 1000, "bf16"}})
    for (std::string text : texts) {
      auto replace = [&](const std::string &name, const std::string &by) {
        for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at))
          text.replace(at, name.size(), by);
      };
      auto cut = [](const char *first) {
        return "tbc.slice %x {dim = 1 : i64, offset = " + std::string(first) +
               " : i64, size = COUNT : i64} : (tensor<ROWSxWIDTHxTYPE>) -> tensor<ROWSxCOUNTxTYPE>";
      };
      replace("= U\n", "= " + cut("FIRST") + "\n"), replace("= V\n", "= " + cut("SECOND") + "\n");
      replace("ROWS", std::to_string(n.rows)), replace("WIDTH", std::to_string(n.width));
      replace("FIRST", std::to_string(n.first)), replace("SECOND", std::to_string(n.second));
      replace("COUNT", std::to_string(n.count)), replace("TWICE", std::to_string(2 * n.count));
      replace("TYPE", n.type);
      functions.push_back(text);
    }
  return functions;
}

std::vector<OpCase> nanCases() {
  const std::string rows = "dims = array<i64: 1>", columns = "dims = array<i64: 0>";
  std::vector<OpCase> cases;
  for (const char *op : {"relu", "abs", "exp", "log", "tanh", "erf", "sigmoid", "sin", "cos",
                         "atan", "floor", "round", "sqrt", "silu"})
    cases.push_back({op, "5x37xf32", "5x37xf32"});
  for (const char *op : {"maximum", "minimum", "relu_grad", "pow"})
    cases.push_back({op, "5x37xf32, 5x37xf32", "5x37xf32", "", op == std::string("pow")});
  for (const char *predicate : {"eq", "ne", "lt", "le", "gt", "ge"})
    cases.push_back({"compare", "5x37xf32, 5x37xf32", "5x37xi1",
                     std::string("predicate = \"") + predicate + "\""});
  cases.push_back({"cast", "5x37xf32", "5x37xbf16"});
  cases.push_back({"cast", "5x37xf32", "5x37xf16"});
  cases.push_back({"cast", "5x37xf32", "5x37xi1"});
  cases.push_back({"softmax", "9x37xf32", "9x37xf32", "dim = 1 : i64"});
  cases.push_back({"reduce_max", "9x70xf32", "9xf32", rows});
  cases.push_back({"reduce_max", "9x64xbf16", "9xbf16", rows});
  cases.push_back({"reduce_max", "3x9001xbf16", "3xbf16", rows});
  cases.push_back({"reduce_max", "9x37xf32", "37xf32", columns});
  cases.push_back({"reduce_max", "1031x24xbf16", "24xbf16", columns});
  for (OpCase &opCase : cases)
    opCase.nanEvery = opCase.operands.find("9") == 0 ? 150 : 11; // some rows have none
  return cases;
}

std::vector<OpCase> shapeCases() {
  std::vector<OpCase> cases;
  for (int n : {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 1000}) {
    std::string size = std::to_string(n), row = "3x" + size;
    for (std::string type : {"xf32", "xbf16"}) {
      std::string x = row + type, w = size + type;
      cases.push_back({"swiglu", x + ", " + x, x});
      cases.push_back({"broadcast", w, x, "dims = array<i64: 1>"});
      cases.push_back(
          {"layer_norm", x + ", " + w + ", " + w, x + ", 3xf32, 3xf32", "epsilon = 1.0e-5 : f64"});
      cases.push_back({"softmax", x, x, "dim = 1 : i64"});
      cases.push_back({"reduce_sum", x, w, "dims = array<i64: 0>"});
      cases.push_back({"reduce_sum", x, "3" + type, "dims = array<i64: 1>"});
      cases.push_back({"reduce_sum", x, type.substr(1), "dims = array<i64: 0, 1>"});
      cases.push_back({"norm_scale_grad", x + ", " + x + ", 3xf32, 3xf32", w});
    }
  }
  cases.push_back({"gelu", "20000xf32", "20000xf32", "approximate = \"tanh\""});
  cases.push_back({"mul", "2x9000xf32, 2x9000xf32", "2x9000xf32"});
  cases.push_back({"transpose", "3x4x37xf32", "4x3x37xf32", "permutation = array<i64: 1, 0, 2>"});
  cases.push_back({"reduce_sum", "3x5x40xf32", "5xf32", "dims = array<i64: 0, 2>"});
  cases.push_back({"reduce_sum", "3x5x40xf32", "3x40xf32", "dims = array<i64: 1>"});
  cases.push_back({"reduce_sum", "3x5x2x40xf32", "5x40xf32", "dims = array<i64: 0, 2>"});
  return cases;
}

} // namespace tbc
