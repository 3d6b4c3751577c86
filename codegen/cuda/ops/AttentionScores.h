//===- AttentionScores.h - Scores and masks in tiled attention --------------===//
//
// Internal to the kernels of attention. The sums of a product of rows and a tile of others become
// scores, weights and gradients of scores. Rows are queries or keys; the others are then keys or
// queries.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_CODEGEN_CUDA_OPS_ATTENTIONSCORES_H
#define TBC_CODEGEN_CUDA_OPS_ATTENTIONSCORES_H

#include "codegen/cuda/ops/AttentionTiles.h"

namespace tbc::cuda {

class AttentionScores {
public:
  using Value = mlir::Value;
  using Values = llvm::SmallVector<Value>;

  /// `isGradient`: the last result of the call is the workspace with two numbers of each query
  /// (`emitRowNumbers`).
  AttentionScores(const ThreadKernel &k, const AttentionCall &a, const AttentionTiles &tiles,
                  bool isOfQueries, bool isGradient);

  int64_t numRows() const { return isOfQueries ? a.queries : a.keys; }
  int64_t numOthers() const { return isOfQueries ? a.keys : a.queries; }

  /// What a query or a key adds to the masks and scores of its pairs; null where there is no such
  /// mask.
  struct Side {
    Value isKey, order, segment, position, number;
    Values biases;          // offsets
    Value logSum, innerSum; // of a query, in the gradient
  };
  /// `mayBeAbsent`: the token may be beyond the last one; its numbers are then those of the last.
  Side sideOf(bool isQuery, Value token, bool mayBeAbsent) const;
  struct Row {
    Value token;
    Side side;
  };

  /// Others that a row reads, begin <= j < end, without the masks that are data; null where there
  /// is no bound.
  struct Range {
    Value begin, end;
  };
  /// Returns the tiles of others that a row from `first` to `last` may read.
  Range tilesOf(Value first, Value last) const;

  /// The sample and the query head of the pairs from here on.
  void setHead(Value sample, Value head);

  /// The numbers of a lane's pairs, in the order of the sums of products.
  struct Pairs {
    Values products;  // then scores in units, -infinity where hidden
    Values weights;   // gradient: that multiply do
    Values gradients; // products of do and v, then gradients of scores
    Values kept;      // dropout factors, null without dropout
  };
  /// Makes scores of products; in the gradient also weights and gradients. `ofBias`: gradients of
  /// the score itself, not of the product under its cap.
  void evaluate(Value tile, llvm::ArrayRef<Row> rows, Pairs &pairs, bool ofBias) const;

  /// Scores are kept in units of 1 / log2(e), so that 2^z is the weight of z; without a cap and
  /// biases in units of the scale, so that they are the products themselves. Returns log2(e) times
  /// the score of one unit.
  double unit() const { return areProducts() ? scale : 1; }
  Value inUnits(Value x) const { return areProducts() ? e.mul(x, k.number(unit())) : x; }
  /// Returns 2^(unit z - shift).
  Value powerOf(Value z, Value shift) const;
  Value times(Value x, Value factor) const { return factor ? e.mul(x, factor) : x; }

private:
  bool areProducts() const { return a.cap == 0 && a.biases.empty() && scale > 0; }
  Range rangeOf(Value token) const;
  Range inTile(Value token, Value origin) const;
  Value reads(const Side &row, const Range &range, const Side &other, int64_t column) const;
  struct Score {
    Value z, slope; // in units; the derivative of the cap, null if there is none
  };
  Score scoreOf(Value product, const Side &row, const Side &other) const;
  Value keptOf(const Side &row, const Side &other) const;

  const ThreadKernel &k;
  const region::Elements &e;
  const AttentionCall &a;
  const AttentionTiles &tiles;
  const bool isOfQueries, isGradient;
  const double scale; // log2(e) times that of the op
  Value sample, head;
  // What the sample and the head add to offsets of biases and numbers of dropout.
  Values headBiases;
  Value headNumber;
};

} // namespace tbc::cuda

#endif // TBC_CODEGEN_CUDA_OPS_ATTENTIONSCORES_H
