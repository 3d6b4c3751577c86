//===- RandomProgramMaker.h - The parts of a random program -----------------===//
//
// Internal to RandomProgram.h. RandomProgram.cpp draws the network and its schedule.
// RandomStorage.cpp stores and sends values. RandomBlocks.cpp and RandomUpdate.cpp write blocks.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_TESTS_RUNTIME_SUPPORT_RANDOMPROGRAMMAKER_H
#define TBC_TESTS_RUNTIME_SUPPORT_RANDOMPROGRAMMAKER_H

#include "tests/runtime/support/ProgramBuilder.h"
#include "tests/runtime/support/RandomProgram.h"

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace tbc::program::random {

using Kind = schedule::Action::Kind;
using kernels::Shape;
using Axes = std::vector<AxisRef>;

/// A weight [width, width] and its storage on ranks.
struct Weight {
  std::string name;
  enum class Cut { None, Columns, Rows } cut = Cut::None; // over the tensor axis
  /// 0: replicas; 1: optimizer state sharded over the zero axes; 2: gradient too; 3: weight too.
  int zero = 0;
  bool isFlat = true; // pieces are flat chunks; else runs of dim 0 (of the local tensor)
  bool isFrozen = false;
  bool accumulatesByHand = false; // reads the gradient, adds, writes it
  bool hasGradientTensor = true;
  bool tiesFirst = true;     // in update: reduce over stages before data
  bool reducesTwice = false; // over data: reduce one axis after the other
  bool isClipped = false;
  std::vector<int> holders; // stages, ascending
};

struct Layer {
  enum class Form { Relu, Dense, Pair, SequencePair, ExchangePair, Statistics };
  Form form = Form::Relu;
  int first = -1, second = -1; // weights
  bool isResidual = false;     // its input is added to its output
};

class Maker {
public:
  explicit Maker(const RandomProgramOptions &options) : options(options), random(options.seed) {}
  Program make();

private:
  unsigned below(unsigned n) { return unsigned(random() % n); }
  bool oneIn(unsigned n) { return below(n) == 0; }

  // Network and schedule.
  void makeMesh();
  void placeChunks();
  int stageOf(int chunk) const { return chunkStage[size_t(chunk)]; }
  /// Returns the block of a chunk, with the stage's own chunk numbering.
  BlockId blockOf(Kind kind, int chunk) const;
  Weight newWeight(Weight::Cut cut, int stage);
  int addWeight(Weight::Cut cut, int stage);
  void makeLayers();
  /// Returns a weight of an earlier dense layer, or a new one.
  int tiedWeight(int stage);
  void makeSchedule();
  void makeTable();

  // Storage.
  static void append(Axes &to, const Axes &axes) { to.insert(to.end(), axes.begin(), axes.end()); }
  /// The piece of the weight after the split over the tensor axis.
  Piece usedPiece(const Weight &weight) const;
  /// The piece of `usedPiece` over the zero axes.
  Piece zeroPiece(const Weight &weight) const;
  Piece pieceAt(const Weight &weight, int level) const;
  Shape usedShape(const Weight &weight) const { return localShape(usedPiece(weight)); }
  Shape zeroShape(const Weight &weight) const { return localShape(zeroPiece(weight)); }
  bool isTied(const Weight &weight) const { return weight.holders.size() > 1; }
  void makeTensors();
  std::string meanName(int chunk, size_t layer) const;
  std::string layerName(int chunk, size_t layer) const;
  bool isLast(int chunk) const { return chunk == numChunks - 1; }
  void makeSlots(int stage);
  /// Saves a value for the backward block.
  void save(BlockBuilder &b, int stage, const std::string &name, ValueId value);

  // Communication.
  std::string newId(const std::string &what, int stage);
  ValueId allReduce(BlockBuilder &b, int stage, const std::string &what, ValueId value,
                    const Axes &axes, std::vector<int> stages = {},
                    ReduceKind reduce = ReduceKind::Sum);
  /// Adds a collective along a dim with local size `k`, or on the flattened tensor (dim -1).
  ValueId along(BlockBuilder &b, int stage, const std::string &what, InstructionKind kind,
                ValueId value, const Axes &axes, int dim, int64_t k, Shape result);
  ValueId overZero(BlockBuilder &b, int stage, const std::string &what, InstructionKind kind,
                   const Weight &weight, ValueId value);
  ValueId use(BlockBuilder &b, int stage, const Weight &weight);
  /// Hands a value to another chunk: sends it, or saves it if both chunks are on one stage.
  void pass(BlockBuilder &b, const std::string &what, ValueId value, int from, int to,
            int64_t channel);
  ValueId take(BlockBuilder &b, const std::string &what, int from, int to, int64_t channel);
  int laneOf(int from, int to) const;

  // Blocks.
  Shape full() const { return {rows, width}; }
  Shape cutColumns() const { return {rows, width / tp}; }
  Shape cutRows() const { return {rows / tp, width}; }
  ValueId exchange(BlockBuilder &b, int stage, ValueId value, bool toRows);
  ValueId relu(BlockBuilder &b, int stage, const std::string &name, ValueId value, Shape shape);
  ValueId layerForward(BlockBuilder &b, int chunk, size_t index, ValueId h);
  /// Accumulates the gradient of a weight from a saved forward value and a cotangent. If the
  /// schedule splits backward, this is deferred to wgrad.
  void accumulate(BlockBuilder &b, int stage, const Weight &weight, const std::string &saved,
                  ValueId g, std::map<std::string, ValueId> &sums);
  void accumulateNow(BlockBuilder &b, int stage, const Weight &weight, ValueId lhs, ValueId rhs,
                     std::map<std::string, ValueId> &sums);
  ValueId reluBackward(BlockBuilder &b, int stage, const std::string &saved, ValueId g,
                       Shape shape);
  ValueId layerBackward(BlockBuilder &b, int chunk, size_t index, ValueId g,
                        std::map<std::string, ValueId> &sums, bool needsInput);
  static int64_t skipChannel(size_t skip) { return 1000 + int64_t(skip); }
  void forward(int chunk);
  void backward(int chunk);
  void weightPart(int chunk);
  /// Returns whether an earlier layer of chunk 0 has a trainable weight.
  bool needsGradient(size_t layer) const;

  // Update.
  /// Returns the complete gradient, sharded as the optimizer state.
  ValueId reducedGradient(BlockBuilder &b, int stage, const Weight &weight);
  void update(int stage);
  /// Returns the sum of squares of all clipped gradients over all stages, each element once.
  ValueId norm(BlockBuilder &b, int stage,
               const std::vector<std::pair<const Weight *, ValueId>> &gradients);
  /// A stage without clipped weights joins the sum of the others and stores the result.
  std::string unusedNorm(int stage);

  const RandomProgramOptions &options;
  std::mt19937 random;
  Program program;
  int numStages = 1, numChunks = 1;
  std::vector<int> chunkStage; // by chunk
  bool partsBackward = false;
  struct Later {
    int weight; // its index
    std::string saved, cotangent;
  };
  std::vector<Later> later;                // of the current chunk
  Axes pipeline, data, tensor, zero, rest; // data = zero and rest
  int64_t tp = 1, rows = 2, width = 2;     // of the local activation
  std::vector<Weight> weights;
  std::vector<std::vector<Layer>> layers; // by chunk
  std::vector<std::pair<int, int>> skips; // from, to
  bool isClipping = false;
  int numIds = 0;
};

} // namespace tbc::program::random

#endif // TBC_TESTS_RUNTIME_SUPPORT_RANDOMPROGRAMMAKER_H
