//===- HidingNumber.h - Numbers that masks add to scores -------------------===//

#ifndef TBC_IR_HIDINGNUMBER_H
#define TBC_IR_HIDINGNUMBER_H

namespace tbc {

/// Returns true if a score plus `number` has no weight after a softmax. Masks of BERT add -10000,
/// rounded to -9984 in bf16. Example: true for -1e9, false for -100.
inline bool hidesScores(double number) { return number <= -9984; }

} // namespace tbc

#endif // TBC_IR_HIDINGNUMBER_H
