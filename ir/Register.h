//===- Register.h - Adds the families of ops to the dialect ----------------===//

#ifndef TBC_IR_REGISTER_H
#define TBC_IR_REGISTER_H

#include "ir/Tbc.h"

namespace tbc {

template <typename... Ops> void insertOps(TbcDialect &dialect) {
  (mlir::RegisteredOperationName::insert<Ops>(dialect), ...);
}

/// One function per family, in the generated sources.
void registerActivationOps(TbcDialect &dialect);
void registerAttentionOps(TbcDialect &dialect);
void registerCollectiveOps(TbcDialect &dialect);
void registerContractionOps(TbcDialect &dialect);
void registerConvolutionOps(TbcDialect &dialect);
void registerElementwiseOps(TbcDialect &dialect);
void registerExpertsOps(TbcDialect &dialect);
void registerGradientOps(TbcDialect &dialect);
void registerHostOps(TbcDialect &dialect);
void registerIndexingOps(TbcDialect &dialect);
void registerLossOps(TbcDialect &dialect);
void registerMovementOps(TbcDialect &dialect);
void registerNormalizationOps(TbcDialect &dialect);
void registerOptimizerOps(TbcDialect &dialect);
void registerPoolingOps(TbcDialect &dialect);
void registerRandomOps(TbcDialect &dialect);
void registerRecurrentOps(TbcDialect &dialect);
void registerReshardOps(TbcDialect &dialect);
void registerVocabularyOps(TbcDialect &dialect);

} // namespace tbc

#endif // TBC_IR_REGISTER_H
