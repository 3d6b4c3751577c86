//===- cudnn_headers_test.cpp - Our declarations against cuDNN's headers ----===//
//
// Compiled only if the headers are installed. All checks happen at compile time: the values of
// enumerators, and for every function the number of parameters and how each is passed.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Cudnn.h"
#include "tests/runtime/cuda/HeaderChecks.h"

#include <gtest/gtest.h>

#include <cudnn_graph.h>

namespace tbc::cuda {
namespace {

constexpr Cudnn cudnn;
#define TBC_CHECK(name, symbol, ...)                                                               \
  static_assert(isCalledAlike(decltype(cudnn.name)(), decltype (&::symbol)()), #symbol);
TBC_CUDNN_FUNCTIONS(TBC_CHECK)
#undef TBC_CHECK
static_assert(isCalledAlike(decltype(cudnn.getVersion)(), &::cudnnGetVersion));
static_assert(isCalledAlike(decltype(cudnn.getErrorString)(), &::cudnnGetErrorString));
static_assert(sizeof(CudnnDescriptor) == sizeof(cudnnBackendDescriptor_t));

static_assert(equal(CudnnCode::Success, CUDNN_STATUS_SUCCESS));
static_assert(equal(CudnnCode::BadParameter, CUDNN_STATUS_BAD_PARAM));
static_assert(equal(CudnnCode::NotSupported, CUDNN_STATUS_NOT_SUPPORTED));
static_assert(equal(CudnnType::F32, CUDNN_DATA_FLOAT));
static_assert(equal(CudnnType::F16, CUDNN_DATA_HALF));
static_assert(equal(CudnnType::I32, CUDNN_DATA_INT32));
static_assert(equal(CudnnType::BF16, CUDNN_DATA_BFLOAT16));
static_assert(equal(CudnnType::Boolean, CUDNN_DATA_BOOLEAN));
static_assert(equal(CudnnPointwise::Add, CUDNN_POINTWISE_ADD));
static_assert(equal(CudnnPointwise::Mul, CUDNN_POINTWISE_MUL));
static_assert(equal(CudnnPointwise::Div, CUDNN_POINTWISE_DIV));
static_assert(equal(CudnnPointwise::Sub, CUDNN_POINTWISE_SUB));
static_assert(equal(CudnnPointwise::Exp, CUDNN_POINTWISE_EXP));
static_assert(equal(CudnnPointwise::Log, CUDNN_POINTWISE_LOG));
static_assert(equal(CudnnPointwise::Identity, CUDNN_POINTWISE_IDENTITY));
static_assert(equal(CudnnPointwise::GreaterOrEqual, CUDNN_POINTWISE_CMP_GE));
static_assert(equal(CudnnPointwise::Index, CUDNN_POINTWISE_GEN_INDEX));
static_assert(equal(CudnnPointwise::Select, CUDNN_POINTWISE_BINARY_SELECT));
static_assert(equal(CudnnReduction::Add, CUDNN_REDUCE_TENSOR_ADD));
static_assert(equal(CudnnReduction::Max, CUDNN_REDUCE_TENSOR_MAX));
static_assert(equal(CudnnConvolution::CrossCorrelation, CUDNN_CROSS_CORRELATION));
static_assert(equal(CudnnHeuristic::Fallback, CUDNN_HEUR_MODE_FALLBACK));
static_assert(equal(CudnnHeuristic::A, CUDNN_HEUR_MODE_A));
static_assert(equal(CudnnNote::TensorCore, CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
static_assert(equal(CudnnNote::DownConvertInputs, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS));
static_assert(equal(CudnnNote::ReducedPrecisionReduction,
                    CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION));
static_assert(equal(CudnnNote::Nondeterministic, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
static_assert(equal(CudnnKind::Pointwise, CUDNN_BACKEND_POINTWISE_DESCRIPTOR));
static_assert(equal(CudnnKind::Convolution, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR));
static_assert(equal(CudnnKind::Engine, CUDNN_BACKEND_ENGINE_DESCRIPTOR));
static_assert(equal(CudnnKind::EngineConfig, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
static_assert(equal(CudnnKind::EngineHeuristic, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
static_assert(equal(CudnnKind::ExecutionPlan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
static_assert(equal(CudnnKind::ConvolutionForward,
                    CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR));
static_assert(equal(CudnnKind::ConvolutionBackwardFilter,
                    CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR));
static_assert(equal(CudnnKind::ConvolutionBackwardData,
                    CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR));
static_assert(equal(CudnnKind::OperationPointwise, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR));
static_assert(equal(CudnnKind::OperationGraph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
static_assert(equal(CudnnKind::VariantPack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
static_assert(equal(CudnnKind::Tensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR));
static_assert(equal(CudnnKind::Matmul, CUDNN_BACKEND_MATMUL_DESCRIPTOR));
static_assert(equal(CudnnKind::OperationMatmul, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR));
static_assert(equal(CudnnKind::Reduction, CUDNN_BACKEND_REDUCTION_DESCRIPTOR));
static_assert(equal(CudnnKind::OperationReduction, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR));
static_assert(equal(CudnnKind::OperationReshape, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR));
static_assert(equal(CudnnAttribute::PointwiseMode, CUDNN_ATTR_POINTWISE_MODE));
static_assert(equal(CudnnAttribute::PointwiseType, CUDNN_ATTR_POINTWISE_MATH_PREC));
static_assert(equal(CudnnAttribute::PointwiseAxis, CUDNN_ATTR_POINTWISE_AXIS));
static_assert(equal(CudnnAttribute::ConvolutionType, CUDNN_ATTR_CONVOLUTION_COMP_TYPE));
static_assert(equal(CudnnAttribute::ConvolutionMode, CUDNN_ATTR_CONVOLUTION_CONV_MODE));
static_assert(equal(CudnnAttribute::ConvolutionDilations, CUDNN_ATTR_CONVOLUTION_DILATIONS));
static_assert(equal(CudnnAttribute::ConvolutionStrides, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES));
static_assert(equal(CudnnAttribute::ConvolutionPostPads, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS));
static_assert(equal(CudnnAttribute::ConvolutionPrePads, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS));
static_assert(equal(CudnnAttribute::ConvolutionSpatialDims, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS));
static_assert(equal(CudnnAttribute::HeuristicMode, CUDNN_ATTR_ENGINEHEUR_MODE));
static_assert(equal(CudnnAttribute::HeuristicGraph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
static_assert(equal(CudnnAttribute::HeuristicResults, CUDNN_ATTR_ENGINEHEUR_RESULTS));
static_assert(equal(CudnnAttribute::ConfigEngine, CUDNN_ATTR_ENGINECFG_ENGINE));
static_assert(equal(CudnnAttribute::PlanConfig, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG));
static_assert(equal(CudnnAttribute::PlanWorkspaceBytes, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
static_assert(equal(CudnnAttribute::ForwardAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA));
static_assert(equal(CudnnAttribute::ForwardBeta, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA));
static_assert(equal(CudnnAttribute::ForwardConvolution,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC));
static_assert(equal(CudnnAttribute::ForwardW, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W));
static_assert(equal(CudnnAttribute::ForwardX, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X));
static_assert(equal(CudnnAttribute::ForwardY, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y));
static_assert(equal(CudnnAttribute::DataAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA));
static_assert(equal(CudnnAttribute::DataBeta, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA));
static_assert(equal(CudnnAttribute::DataConvolution,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC));
static_assert(equal(CudnnAttribute::DataW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W));
static_assert(equal(CudnnAttribute::DataDx, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX));
static_assert(equal(CudnnAttribute::DataDy, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY));
static_assert(equal(CudnnAttribute::FilterAlpha,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA));
static_assert(equal(CudnnAttribute::FilterBeta, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA));
static_assert(equal(CudnnAttribute::FilterConvolution,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC));
static_assert(equal(CudnnAttribute::FilterDw, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW));
static_assert(equal(CudnnAttribute::FilterX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X));
static_assert(equal(CudnnAttribute::FilterDy, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY));
static_assert(equal(CudnnAttribute::PointwiseDescriptor,
                    CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR));
static_assert(equal(CudnnAttribute::PointwiseX, CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
static_assert(equal(CudnnAttribute::PointwiseB, CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
static_assert(equal(CudnnAttribute::PointwiseY, CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
static_assert(equal(CudnnAttribute::PointwiseAlpha1, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1));
static_assert(equal(CudnnAttribute::PointwiseAlpha2, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2));
static_assert(equal(CudnnAttribute::PointwiseT, CUDNN_ATTR_OPERATION_POINTWISE_TDESC));
static_assert(equal(CudnnAttribute::GraphHandle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE));
static_assert(equal(CudnnAttribute::GraphOperations, CUDNN_ATTR_OPERATIONGRAPH_OPS));
static_assert(equal(CudnnAttribute::TensorAlignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT));
static_assert(equal(CudnnAttribute::TensorType, CUDNN_ATTR_TENSOR_DATA_TYPE));
static_assert(equal(CudnnAttribute::TensorDims, CUDNN_ATTR_TENSOR_DIMENSIONS));
static_assert(equal(CudnnAttribute::TensorStrides, CUDNN_ATTR_TENSOR_STRIDES));
static_assert(equal(CudnnAttribute::TensorId, CUDNN_ATTR_TENSOR_UNIQUE_ID));
static_assert(equal(CudnnAttribute::TensorIsVirtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL));
static_assert(equal(CudnnAttribute::TensorIsByValue, CUDNN_ATTR_TENSOR_IS_BY_VALUE));
static_assert(equal(CudnnAttribute::PackIds, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS));
static_assert(equal(CudnnAttribute::PackPointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS));
static_assert(equal(CudnnAttribute::PackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE));
static_assert(equal(CudnnAttribute::EngineNotes, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE));
static_assert(equal(CudnnAttribute::MatmulType, CUDNN_ATTR_MATMUL_COMP_TYPE));
static_assert(equal(CudnnAttribute::MatmulA, CUDNN_ATTR_OPERATION_MATMUL_ADESC));
static_assert(equal(CudnnAttribute::MatmulB, CUDNN_ATTR_OPERATION_MATMUL_BDESC));
static_assert(equal(CudnnAttribute::MatmulC, CUDNN_ATTR_OPERATION_MATMUL_CDESC));
static_assert(equal(CudnnAttribute::MatmulDescriptor, CUDNN_ATTR_OPERATION_MATMUL_DESC));
static_assert(equal(CudnnAttribute::ReductionOperator, CUDNN_ATTR_REDUCTION_OPERATOR));
static_assert(equal(CudnnAttribute::ReductionType, CUDNN_ATTR_REDUCTION_COMP_TYPE));
static_assert(equal(CudnnAttribute::ReductionX, CUDNN_ATTR_OPERATION_REDUCTION_XDESC));
static_assert(equal(CudnnAttribute::ReductionY, CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
static_assert(equal(CudnnAttribute::ReductionDescriptor, CUDNN_ATTR_OPERATION_REDUCTION_DESC));
static_assert(equal(CudnnAttribute::ReshapeX, CUDNN_ATTR_OPERATION_RESHAPE_XDESC));
static_assert(equal(CudnnAttribute::ReshapeY, CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
static_assert(equal(CudnnAttributeType::Handle, CUDNN_TYPE_HANDLE));
static_assert(equal(CudnnAttributeType::DataType, CUDNN_TYPE_DATA_TYPE));
static_assert(equal(CudnnAttributeType::Boolean, CUDNN_TYPE_BOOLEAN));
static_assert(equal(CudnnAttributeType::Int64, CUDNN_TYPE_INT64));
static_assert(equal(CudnnAttributeType::Float, CUDNN_TYPE_FLOAT));
static_assert(equal(CudnnAttributeType::Pointer, CUDNN_TYPE_VOID_PTR));
static_assert(equal(CudnnAttributeType::ConvolutionMode, CUDNN_TYPE_CONVOLUTION_MODE));
static_assert(equal(CudnnAttributeType::Heuristic, CUDNN_TYPE_HEUR_MODE));
static_assert(equal(CudnnAttributeType::Note, CUDNN_TYPE_NUMERICAL_NOTE));
static_assert(equal(CudnnAttributeType::PointwiseMode, CUDNN_TYPE_POINTWISE_MODE));
static_assert(equal(CudnnAttributeType::Descriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR));
static_assert(equal(CudnnAttributeType::ReductionOperator, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE));

TEST(CudnnHeaders, VersionsAreCountedAsOursAre) {
  EXPECT_EQ(CUDNN_VERSION, CUDNN_MAJOR * 10000 + CUDNN_MINOR * 100 + CUDNN_PATCHLEVEL);
}

} // namespace
} // namespace tbc::cuda
