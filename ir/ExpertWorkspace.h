//===- ExpertWorkspace.h - Memory of routed experts on GPUs -----------------===//
//
// Plain C++. The kernels on GPUs (codegen/cuda/ops/RoutedExperts.h) keep lists of tokens and rows
// of the hidden layer between their launches. Codegen places them by this layout, and the planner
// counts its bytes.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_IR_EXPERTWORKSPACE_H
#define TBC_IR_EXPERTWORKSPACE_H

#include <cstdint>

namespace tbc {

/// A layer of experts on one rank. `parts`: 2 with a gate, else 1.
struct ExpertSizes {
  int64_t t = 0, h = 0, e = 0, o = 0, f = 0; // tokens, width in, experts, width out, hidden width
  int64_t parts = 1, top = 1;
  int64_t elementBytes = 2;

  /// Rows of a tile of a grouped matmul. All rows of a tile belong to one expert.
  static constexpr int64_t tileRows = 128;
  /// Tokens that a thread lists for one expert.
  static constexpr int64_t tokensOfPiece = 64;

  /// Experts of a token, at most.
  int64_t chosen() const { return top < e ? top : e; }
  /// Tiles of the rows of all tokens, with at most 127 empty rows per expert. Example: 300 tokens
  /// with two of 8 experts: (600 + 8 * 127) / 128 = 12.
  int64_t tiles() const;
  int64_t rows() const { return tiles() * tileRows; }
  int64_t pieces() const;
};

/// Byte offsets of the arrays, each aligned to 256 bytes. Lists are i32, rows have the type of the
/// op, sums are f32.
struct ExpertWorkspace {
  /// `ranges`: ranges of columns with a sum of their own, for the gradient of the router's weights;
  /// 0: as many as the kernels on GPUs have, 4 per 128 columns of the hidden layer.
  ExpertWorkspace(const ExpertSizes &n, bool isGradient, int64_t ranges = 0);

  int64_t counts, totals;  // [piece, e], [e]: tokens of an expert
  int64_t starts, experts; // [e + 1]: first rows; [tile]
  int64_t tokens, rows;    // [row]: its token, or t; [t, chosen + 1]: rows of a token
  int64_t hidden;          // [row, f]
  int64_t made;            // [row, o], or [row, h] of the gradient
  int64_t first = 0;       // gradient: gate and up, or their gradients: [row, parts f]
  int64_t terms = 0;       // gradient: sums [row, range]
  int64_t ranges = 0;
  /// Example: 8,192 tokens, two of 8 experts, h = o = 2048, f = 4096, gated, bf16: 0.20 GiB
  /// forward, 0.47 GiB for the gradient.
  int64_t bytes = 0;
};

} // namespace tbc

#endif // TBC_IR_EXPERTWORKSPACE_H
