//===- NodeTest.cpp - Runs one of ONNX's backend tests --------------------===//

#include "tests/conformance/NodeTest.h"

#include "frontend/onnx/Import.h"
#include "frontend/onnx/Model.h"
#include "ir/Interpreter.h"
#include "tests/conformance/TestData.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"

#include <algorithm>
#include <csignal>
#include <functional>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tbc::conformance {

using kernels::Arith;
using kernels::Tensor;

namespace {

/// One set of inputs with its expected outputs.
struct DataSet {
  std::filesystem::path folder;
  std::vector<std::string> names;
  std::vector<Tensor> inputs;

  bool isEmpty(size_t i) const { return inputs[i].numElements() == 0; }
  bool isFloat(size_t i) const { return kernels::isFloat(inputs[i].dtype()); }
};

DataSet readInputs(const std::filesystem::path &folder, const frontend::Model &model) {
  DataSet data;
  data.folder = folder;
  std::vector<std::filesystem::path> paths = listTensorFiles(folder, "input");
  if (paths.size() != model.inputs.size())
    throw std::runtime_error("there are " + std::to_string(paths.size()) + " inputs for " +
                             std::to_string(model.inputs.size()));
  for (size_t i = 0; i < paths.size(); ++i) {
    if (!model.inputs[i]->type().has_tensor_type())
      throw UnsupportedData("input '" + model.inputs[i]->name() + "' is not a tensor");
    data.names.push_back(model.inputs[i]->name());
    data.inputs.push_back(readTensorFile(paths[i], Arith::Native));
  }
  return data;
}

/// Returns the choices of inputs to hold constant, in the order in which they are tried. The first
/// holds only empty inputs. `choice[i]` is true if input i is held.
std::vector<std::vector<bool>> choicesOf(const DataSet &data) {
  size_t count = data.inputs.size();
  std::vector<std::vector<bool>> choices;
  auto add = [&](const std::function<bool(size_t)> &isHeld) {
    std::vector<bool> choice;
    for (size_t i = 0; i < count; ++i)
      choice.push_back(data.isEmpty(i) || isHeld(i));
    if (std::find(choices.begin(), choices.end(), choice) == choices.end())
      choices.push_back(choice);
  };
  add([](size_t) { return false; });
  // Shapes, axes, counts, indices; then also paddings, limits, ratios.
  add([&](size_t i) { return i > 0 && !data.isFloat(i); });
  add([&](size_t i) { return !data.isFloat(i); });
  add([&](size_t i) { return i > 0; });
  bool mayHoldAll = true;
  for (size_t i = 0; i < count; ++i)
    mayHoldAll &= !data.isFloat(i) || data.isEmpty(i) || data.inputs[i].shape().empty();
  if (mayHoldAll)
    add([](size_t) { return true; });
  else
    choices.erase(std::remove(choices.begin(), choices.end(), std::vector<bool>(count, true)),
                  choices.end());
  return choices;
}

Tensor inF64(const std::filesystem::path &folder, size_t i) {
  return readTensorFile(folder / ("input_" + std::to_string(i) + ".pb"), Arith::F64);
}

/// Returns the arguments of the imported function: inputs that are not held, then parameters.
llvm::SmallVector<Tensor> argumentsOf(const frontend::ImportedModel &model, const DataSet &data) {
  llvm::SmallVector<Tensor> arguments;
  for (const frontend::ModelValue &input : model.inputs) {
    auto it = std::find(data.names.begin(), data.names.end(), input.name);
    arguments.push_back(data.inputs.at(it - data.names.begin()));
  }
  for (const frontend::ParameterSource &source : model.parameters) {
    Result<Tensor> tensor = frontend::loadParameter(source, Arith::Native);
    if (!tensor)
      throw std::runtime_error(tensor.error().message);
    arguments.push_back(*tensor);
  }
  return arguments;
}

Verdict evaluateAndCompare(mlir::MLIRContext &context, const frontend::ImportedModel &model,
                           const DataSet &data) {
  std::string diagnostic;
  mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &given) {
    diagnostic += given.str();
    return mlir::success();
  });
  auto function = *model.module.get().getOps<mlir::func::FuncOp>().begin();
  auto results = evaluateFunction(function, argumentsOf(model, data), Arith::Native);
  if (mlir::failed(results))
    return {Outcome::Failed, "evaluation failed: " + diagnostic};
  std::vector<std::filesystem::path> expected = listTensorFiles(data.folder, "output");
  if (expected.size() != model.outputs.size())
    return {Outcome::Failed, "has " + std::to_string(model.outputs.size()) + " outputs, expected " +
                                 std::to_string(expected.size())};
  for (size_t i = 0; i < expected.size(); ++i) {
    std::string text = difference((*results)[i], readTensorFile(expected[i], Arith::Native));
    if (!text.empty())
      return {Outcome::Failed, "output '" + model.outputs[i].name + "': " + text};
  }
  return {Outcome::Passed, ""};
}

/// Runs one data set, with the first choice of held inputs that the importer accepts.
Verdict runDataSet(const std::filesystem::path &path, const DataSet &data) {
  Verdict refused{Outcome::Refused, ""};
  for (const std::vector<bool> &choice : choicesOf(data)) {
    frontend::ImportOptions options;
    options.fixedShapes = true;
    std::string held;
    for (size_t i = 0; i < choice.size(); ++i)
      if (choice[i]) {
        options.known[data.names[i]] = inF64(data.folder, i);
        held += (held.empty() ? "with " : ", ") + data.names[i];
      }
    if (!held.empty())
      held += " constant";
    mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
    Result<frontend::ImportedModel> model = frontend::importOnnx(context, path, options);
    if (model) {
      Verdict verdict = evaluateAndCompare(context, *model, data);
      if (verdict.outcome == Outcome::Passed)
        verdict.text = held;
      else if (!held.empty())
        verdict.text += " (" + held + ")";
      return verdict;
    }
    // Keeps the last choice's message.
    refused.text = model.error().message.substr(path.string().size() + 2);
  }
  return refused;
}

} // namespace

Verdict runTest(const std::filesystem::path &folder) {
  std::filesystem::path path = folder / "model.onnx";
  Result<std::unique_ptr<frontend::Model>> model = frontend::loadModel(path);
  if (!model)
    return {Outcome::Refused, model.error().message.substr(path.string().size() + 2)};
  Verdict verdict{Outcome::Failed, "it has no data sets"};
  try {
    for (int i = 0;; ++i) {
      std::filesystem::path set = folder / ("test_data_set_" + std::to_string(i));
      if (!std::filesystem::is_directory(set))
        return verdict;
      verdict = runDataSet(path, readInputs(set, **model));
      if (verdict.outcome != Outcome::Passed)
        return verdict;
    }
  } catch (const UnsupportedData &error) {
    return {Outcome::Refused, std::string("data: ") + error.what()};
  } catch (const std::exception &error) {
    return {Outcome::Failed, error.what()};
  }
}

Verdict runIsolated(const std::filesystem::path &folder, unsigned seconds) {
  int ends[2];
  if (pipe(ends) != 0)
    return {Outcome::Failed, "no pipe"};
  pid_t child = fork();
  if (child < 0)
    return {Outcome::Failed, "no process"};
  if (child == 0) {
    close(ends[0]);
    rlimit limit{seconds, seconds + 1};
    setrlimit(RLIMIT_CPU, &limit);
    Verdict verdict = runTest(folder);
    std::string message = std::to_string(int(verdict.outcome)) + verdict.text;
    for (size_t at = 0; at < message.size();) {
      ssize_t written = write(ends[1], message.data() + at, message.size() - at);
      if (written <= 0)
        break;
      at += size_t(written);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string message;
  char buffer[4096];
  for (ssize_t count; (count = read(ends[0], buffer, sizeof buffer)) > 0;)
    message.append(buffer, size_t(count));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status))
    return {Outcome::Failed,
            WTERMSIG(status) == SIGXCPU
                ? "took more than " + std::to_string(seconds) + " s of processor time"
                : "ended with signal " + std::to_string(WTERMSIG(status))};
  if (status != 0 || message.empty())
    return {Outcome::Failed, "ended without a verdict"};
  return {Outcome(message[0] - '0'), message.substr(1)};
}

} // namespace tbc::conformance
