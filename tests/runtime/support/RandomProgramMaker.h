//===- RandomProgramMaker.h - The parts of a random program -----------------===//
//
// Internal to RandomProgram.h. RandomProgram.cpp draws the network and its schedule,
// RandomStorage.cpp how values are held and sent, RandomBlocks.cpp and RandomUpdate.cpp write
// blocks.
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

/// A weight [width, width] and how ranks hold it.
struct Weight {
  std::string name;
  enum class Cut { None, Columns, Rows } cut = Cut::None; // over the tensor axis
  /// 0: replicas; 1: the optimizer state in pieces over the zero axes; 2: the gradient too; 3: the
  /// weight too.
  int zero = 0;
  bool isFlat = true; // pieces are flat chunks; else runs of dim 0 (of the local tensor)
  bool isFrozen = false;
  bool accumulatesByHand = false; // reads the gradient, adds, writes it
  bool hasGradientTensor = true;
  bool tiesFirst = true;     // in update: over stages before over data
  bool reducesTwice = false; // over data: one axis after the other
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

  // What there is.
  void makeMesh();
  void placeChunks();
  int stageOf(int chunk) const { return chunkStage[size_t(chunk)]; }
  /// A block of a chunk, as its stage numbers them.
  BlockId blockOf(Kind kind, int chunk) const;
  Weight newWeight(Weight::Cut cut, int stage);
  int addWeight(Weight::Cut cut, int stage);
  void makeLayers();
  /// A weight that an earlier dense layer uses too, or a new one.
  int tiedWeight(int stage);
  void makeSchedule();
  void makeTable();

  // How it is held.
  static void append(Axes &to, const Axes &axes) { to.insert(to.end(), axes.begin(), axes.end()); }
  /// The weight as the tensor axis cuts it.
  Piece usedPiece(const Weight &weight) const;
  /// The piece of that over the zero axes.
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
  /// Keeps a value for the backward block.
  void save(BlockBuilder &b, int stage, const std::string &name, ValueId value);

  // Communication.
  std::string newId(const std::string &what, int stage);
  ValueId allReduce(BlockBuilder &b, int stage, const std::string &what, ValueId value,
                    const Axes &axes, std::vector<int> stages = {},
                    ReduceKind reduce = ReduceKind::Sum);
  /// Along a dim whose local size is `k`, or flattened (dim -1).
  ValueId along(BlockBuilder &b, int stage, const std::string &what, InstructionKind kind,
                ValueId value, const Axes &axes, int dim, int64_t k, Shape result);
  ValueId overZero(BlockBuilder &b, int stage, const std::string &what, InstructionKind kind,
                   const Weight &weight, ValueId value);
  ValueId use(BlockBuilder &b, int stage, const Weight &weight);
  /// Hands a value to another chunk: sends it, or keeps it where that is on the same stage.
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
  /// The gradient of a weight from what forward saved and a cotangent; later where the schedule
  /// parts the backward.
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
  /// Whether a layer of chunk 0 before this one has a weight to train.
  bool needsGradient(size_t layer) const;

  // Update.
  /// The gradient, complete, in the piece of the optimizer state.
  ValueId reducedGradient(BlockBuilder &b, int stage, const Weight &weight);
  void update(int stage);
  /// The sum of squares of all clipped gradients, each element once, over all stages.
  ValueId norm(BlockBuilder &b, int stage,
               const std::vector<std::pair<const Weight *, ValueId>> &gradients);
  /// A stage without clipped weights meets the others, and keeps what it gets.
  std::string unusedNorm(int stage);

  const RandomProgramOptions &options;
  std::mt19937 random;
  Program program;
  int numStages = 1, numChunks = 1;
  std::vector<int> chunkStage; // by chunk
  bool partsBackward = false;
  struct Later {
    int weight; // its number
    std::string saved, cotangent;
  };
  std::vector<Later> later;                // of the chunk at hand
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
