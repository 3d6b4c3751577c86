//===- ScoreTerms.h - Terms between a matmul and its softmax ---------------===//

#ifndef TBC_PASSES_RAISE_SCORETERMS_H
#define TBC_PASSES_RAISE_SCORETERMS_H

#include "passes/raise/MaskTerms.h"

#include "ir/Elementwise.h"

namespace tbc::raise {

/// Whether `op` casts between floats.
bool isFloatCast(mlir::Operation *op);

/// A number times a tensor that is added to scores.
struct Bias {
  View view;
  double factor = 1;
};

/// A tensor that scores are multiplied with, or divided by.
struct ScoreFactor {
  View view;
  bool divides = false;
};

/// Weights of a softmax that are multiplied by `kept`, and whose rows then sum to 1 again.
struct Renormalized {
  mlir::Value weights, kept;
};

/// Matches w / select(sum(w) > 0, sum(w), 1) over the last dim, w = softmax * kept. Rows without a
/// positive sum may be replaced by 0 after it. With a mask as `kept` it is the softmax of the kept
/// scores, and 0 in rows without any. Files of jax2onnx have the attention of Flax so.
std::optional<Renormalized> matchRenormalized(mlir::Operation *op);

/// The terms of an attention's scores: a factor, masks, biases and a soft cap. It walks from the
/// softmax up to the matmul of queries and keys. Example: softmax(q k' / 8 + bias) has the scale
/// 1/8 and one bias.
class ScoreTerms {
public:
  /// `reason` is set where an attention cannot be raised.
  ScoreTerms(DimTable &table, std::string &reason) : table(table), reason(reason) {}

  /// Walks one step up through scores: a factor, a mask, a cast or a view. Returns false for any
  /// other op.
  bool stepUp(View &scores);
  /// Walks up from queries or keys through views and factors.
  void stepThroughFactors(View &view);
  /// Adds the mask that weights were multiplied with before their rows were normalized again.
  /// Returns false if `kept` is not made of booleans.
  bool addMaskOfWeights(View kept);
  void clear();

  double scale = 1;
  /// In order from the softmax upwards: the first one was applied last.
  std::vector<MaskStep> masks;
  /// The tensors that are added to scores and are no masks.
  llvm::SmallVector<Bias> biases;
  /// Tensors that scale the scores before anything is added, such as a learned temperature.
  llvm::SmallVector<ScoreFactor> factors;
  /// The bound of the scores before biases and masks; 0: none.
  double softCap = 0;
  /// The opposite of a mask is added: it shows what a mask of a finite number has hidden.
  bool undoesMasks = false;

private:
  bool stepThroughProduct(mlir::Operation *op, View &scores);
  bool addStep(MaskStep step);
  bool addTerm(View term, double factor);
  void separateMasks(View term, double factor, std::vector<MaskStep> &found,
                     llvm::SmallVectorImpl<Bias> &rests);

  DimTable &table;
  std::string &reason;
};

} // namespace tbc::raise

#endif // TBC_PASSES_RAISE_SCORETERMS_H
