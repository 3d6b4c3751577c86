//===- Control.cpp - If, Loop and Scan, decided at import ------------------===//
//
// A branch is taken and a loop unrolled if its conditions and counts derive from shapes and
// constants.
//
//===----------------------------------------------------------------------===//

#include "frontend/onnx/Batch.h"
#include "frontend/onnx/NodeContext.h"
#include "frontend/onnx/PerSample.h"

#include <algorithm>

namespace tbc::frontend {

namespace {

std::string iteration(int64_t i) { return "[" + std::to_string(i) + "]"; }

/// Returns the value of a condition; ImportError if it depends on data.
bool decide(const Value &condition, const std::string &what) {
  if (!condition.isSplat())
    throw ImportError(what + " is computed from data; only conditions that follow from shapes and "
                             "constants are supported. Export the model with the condition fixed "
                             "(--fix holds an input constant), or write it with Where; "
                             "docs/export.md, \"Samples\", has forms without loops over samples");
  return condition.splatReal() != 0;
}

void setOutputs(NodeContext &node, const std::vector<Value> &results) {
  if (results.size() != node.numOutputs())
    throw ImportError("has " + std::to_string(node.numOutputs()) + " outputs, but its graph has " +
                      std::to_string(results.size()));
  for (size_t i = 0; i < results.size(); ++i)
    node.setOutput(i, results[i]);
}

void importIf(NodeContext &node) {
  bool taken = decide(node.input(0), "the condition");
  setOutputs(node, node.runBody(node.body(taken ? "then_branch" : "else_branch"), {}, ""));
}

/// Stacks the slices of a loop's collected output along a new dim `axis`.
Value stack(Emitter &emitter, const std::vector<Value> &slices, int64_t axis) {
  if (slices.empty())
    throw ImportError("runs no iteration, so an output that collects one value of each has no "
                      "elements; this is not supported");
  unsigned dim = checkAxis(axis, int64_t(slices[0].rank()) + 1);
  std::vector<Value> parts;
  for (const Value &slice : slices) {
    if (slice.perSample)
      throw ImportError("collects values in a loop over samples. " + perSampleRemedy());
    parts.push_back(unsqueeze(slice, {dim}));
  }
  return concat(emitter, parts, dim);
}

/// The iteration after which a loop without a trip count is tried as one over samples.
constexpr int64_t longLoop = 64;

/// Imports a loop without a trip count as one over samples. Returns false if it is none.
bool runsOverSamples(NodeContext &node) {
  try {
    importSampleLoop(node, node.emitter.marker);
    return true;
  } catch (const UsageError &) {
    throw;
  } catch (const ImportError &) {
    return false;
  }
}

/// Inputs: trip count (optional), condition (optional), then the carried values. The body takes
/// (iteration, condition, carried...) and returns (condition, carried..., one slice of each
/// collected output...).
void importLoop(NodeContext &node) {
  const Body &body = node.body("body");
  if (node.numInputs() < 2 || body.inputs.size() != node.numInputs() ||
      body.outputs.size() < body.inputs.size() - 1)
    throw ImportError("carries " + std::to_string(node.numInputs()) +
                      " - 2 values through a graph of " + std::to_string(body.inputs.size()) +
                      " inputs and " + std::to_string(body.outputs.size()) + " outputs");
  size_t numCarried = node.numInputs() - 2, numCollected = body.outputs.size() - 1 - numCarried;
  std::optional<int64_t> count;
  if (node.hasInput(0)) {
    if (!node.input(0).isSplat())
      throw ImportError("the trip count is computed from data; export the model with a fixed one");
    count = node.input(0).splatInt();
  }
  bool goesOn = !node.hasInput(1) || decide(node.input(1), "the first condition");
  if (count && goesOn && node.emitter.dependsOnBatch(*count))
    return importSampleLoop(node, *count);
  std::vector<Value> carried;
  for (size_t i = 0; i < numCarried; ++i)
    carried.push_back(node.anyInput(2 + i));
  std::vector<std::vector<Value>> collected(numCollected);
  for (int64_t i = 0; goesOn && (!count || i < *count); ++i) {
    // A loop that only its condition ends may end at the number of samples.
    if (i == longLoop && !count && runsOverSamples(node))
      return;
    std::vector<Value> arguments{Value::ofKnown(DType::I64, Known::ofInt(i)),
                                 Value::ofSplat(DType::Bool, {}, 1)};
    arguments.insert(arguments.end(), carried.begin(), carried.end());
    std::vector<Value> results = node.runBody(body, arguments, iteration(i));
    // With a trip count and no condition, the body's condition has no effect.
    if (node.hasInput(1) || !count)
      goesOn = decide(results[0], "the condition after iteration " + std::to_string(i));
    carried.assign(results.begin() + 1, results.begin() + 1 + int64_t(numCarried));
    for (size_t k = 0; k < numCollected; ++k)
      collected[k].push_back(results[1 + numCarried + k]);
  }
  if (node.numOutputs() > numCarried + numCollected)
    throw ImportError("has more outputs than its graph");
  for (size_t i = 0; i < numCarried; ++i)
    node.setOutput(i, carried[i]);
  for (size_t k = 0; k < numCollected; ++k)
    if (node.wantsOutput(numCarried + k))
      node.setOutput(numCarried + k, stack(node.emitter, collected[k], 0));
}

/// Returns entry `i` of a list of integers; 0 if the list is shorter.
int64_t entry(const std::vector<int64_t> &list, size_t i) { return i < list.size() ? list[i] : 0; }

/// Inputs: the states, then the tensors read slice by slice. The body takes (states..., slices...)
/// and returns (states..., slices of the results...).
void importScan(NodeContext &node) {
  Emitter &e = node.emitter;
  const Body &body = node.body("body");
  int64_t numScanned = node.attrInt("num_scan_inputs", 0);
  if (numScanned < 1 || numScanned > int64_t(node.numInputs()) ||
      body.inputs.size() != node.numInputs())
    throw ImportError("scans " + std::to_string(numScanned) + " of " +
                      std::to_string(node.numInputs()) + " inputs through a graph of " +
                      std::to_string(body.inputs.size()));
  size_t numStates = node.numInputs() - size_t(numScanned);
  if (body.outputs.size() < numStates || body.outputs.size() != node.numOutputs())
    throw ImportError("has " + std::to_string(node.numOutputs()) + " outputs, but its graph has " +
                      std::to_string(body.outputs.size()));
  std::vector<int64_t> inputAxes = node.attrInts("scan_input_axes", {});
  std::vector<int64_t> inputDirections = node.attrInts("scan_input_directions", {});
  std::vector<int64_t> outputAxes = node.attrInts("scan_output_axes", {});
  std::vector<int64_t> outputDirections = node.attrInts("scan_output_directions", {});
  std::vector<Value> states, scanned;
  std::vector<unsigned> axes;
  for (size_t i = 0; i < numStates; ++i)
    states.push_back(node.input(i));
  for (size_t i = numStates; i < node.numInputs(); ++i) {
    scanned.push_back(node.input(i));
    axes.push_back(checkAxis(entry(inputAxes, i - numStates), node.input(i).rank()));
  }
  int64_t count = scanned[0].shape[axes[0]];
  for (size_t i = 0; i < scanned.size(); ++i)
    if (scanned[i].shape[axes[i]] != count)
      throw ImportError("scans inputs of different lengths");
  if (e.dependsOnBatch(count))
    throw ImportError("scans over the batch. " + perSampleRemedy());
  std::vector<std::vector<Value>> collected(body.outputs.size() - numStates);
  for (int64_t step = 0; step < count; ++step) {
    std::vector<Value> arguments = states;
    for (size_t i = 0; i < scanned.size(); ++i) {
      int64_t at = entry(inputDirections, i) ? count - 1 - step : step;
      arguments.push_back(squeeze(e, slice(e, scanned[i], axes[i], at, 1, 1), {axes[i]}));
    }
    std::vector<Value> results = node.runBody(body, arguments, iteration(step));
    states.assign(results.begin(), results.begin() + int64_t(numStates));
    for (size_t k = 0; k < collected.size(); ++k)
      collected[k].push_back(results[numStates + k]);
  }
  for (size_t i = 0; i < numStates; ++i)
    node.setOutput(i, states[i]);
  for (size_t k = 0; k < collected.size(); ++k) {
    if (entry(outputDirections, k))
      std::reverse(collected[k].begin(), collected[k].end());
    if (node.wantsOutput(numStates + k))
      node.setOutput(numStates + k, stack(e, collected[k], entry(outputAxes, k)));
  }
}

} // namespace

llvm::ArrayRef<OpImporter> controlOps() {
  static const OpImporter ops[] = {
      {"", "If", importIf, "then_branch else_branch"}, // takes one branch
      {"", "Loop", importLoop},
      {"", "Scan", importScan},
  };
  return ops;
}

} // namespace tbc::frontend
