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
  Weight newWeight(Weight::Cut cut, int stage);
  int addWeight(Weight::Cut cut, int stage);
  void makeLayers();
  /// A weight that an earlier dense layer uses too, or a new one.
  int tiedWeight(int stage);
  void makeSchedule();

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
  std::string meanName(int stage, size_t layer) const;
  std::string layerName(int stage, size_t layer) const;
  bool isLast(int stage) const { return stage == numStages - 1; }
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

  // Blocks.
  Shape full() const { return {rows, width}; }
  Shape cutColumns() const { return {rows, width / tp}; }
  Shape cutRows() const { return {rows / tp, width}; }
  ValueId exchange(BlockBuilder &b, int stage, ValueId value, bool toRows);
  ValueId relu(BlockBuilder &b, int stage, const std::string &name, ValueId value, Shape shape);
  ValueId layerForward(BlockBuilder &b, int stage, size_t index, ValueId h);
  void accumulate(BlockBuilder &b, int stage, const Weight &weight, ValueId lhs, ValueId rhs,
                  std::map<std::string, ValueId> &sums);
  ValueId reluBackward(BlockBuilder &b, int stage, const std::string &saved, ValueId g,
                       Shape shape);
  ValueId layerBackward(BlockBuilder &b, int stage, size_t index, ValueId g,
                        std::map<std::string, ValueId> &sums, bool needsInput);
  static int64_t skipChannel(size_t skip) { return 1000 + int64_t(skip); }
  void forward(int stage);
  void backward(int stage);
  /// Whether a layer of stage 0 before this one has a weight to train.
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
  int numStages = 1;
  Axes pipeline, data, tensor, zero, rest; // data = zero and rest
  int64_t tp = 1, rows = 2, width = 2;     // of the local activation
  std::vector<Weight> weights;
  std::vector<std::vector<Layer>> layers; // by stage
  std::vector<std::pair<int, int>> skips; // from, to
  bool isClipping = false;
  int numIds = 0;
};

} // namespace tbc::program::random

#endif // TBC_TESTS_RUNTIME_SUPPORT_RANDOMPROGRAMMAKER_H
