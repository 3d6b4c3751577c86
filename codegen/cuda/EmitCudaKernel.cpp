//===- EmitCudaKernel.cpp - Lower a function of tbc ops to GPU threads ------===//

#include "codegen/cuda/EmitCudaKernel.h"

#include "codegen/cuda/ExpandMath.h"
#include "codegen/cuda/NestEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace tbc::cuda {

using region::Domain;

namespace {

/// A launch that reduces whole rows.
class WholeEmitter final : public NestEmitter {
public:
  WholeEmitter(func::FuncOp function, const Domain &domain, Form form)
      : NestEmitter(function, domain, form) {}

protected:
  region::Kernel emit() override;

private:
  /// Stores the results without reduced loops. One lane stores if all lanes of the warp have the
  /// same value.
  void storeOnce();
  void emitPass(const Domain::Pass &work);
  SmallVector<Value> overReduced(const Domain::Pass &work, ArrayRef<Value> carried);
  SmallVector<Value> overRow(const Domain::Pass &work, ArrayRef<Value> carried);
};

} // namespace

region::Kernel WholeEmitter::emit() {
  region::Kernel kernel = open(numThreads);
  splitThread(thread);
  for (pass = 0; pass <= domain.numPasses; ++pass)
    if (Domain::Pass work = domain.passOf(function, pass); !work.isEmpty())
      emitPass(work);
  storeOnce();
  expandMath(*kernel.module);
  return kernel;
}

void WholeEmitter::storeOnce() {
  OpBuilder::InsertionGuard guard(builder);
  SmallVector<int> results = domain.resultsBehindPasses(function);
  if (results.empty())
    return;
  values.clear();
  if (domain.isVectorReduced && warp > 1) {
    Value isFirst = e.make<arith::CmpIOp>(arith::CmpIPredicate::eq, lane, integer(0));
    auto branch = builder.create<scf::IfOp>(loc, isFirst, /*withElseRegion=*/false);
    builder.setInsertionPoint(branch.thenBlock()->getTerminator());
  }
  store(results);
  values.clear();
}

void WholeEmitter::emitPass(const Domain::Pass &work) {
  SmallVector<Value> carried = overReduced(work, identities(work));
  for (auto [reduction, sum] : llvm::zip_equal(work.reductions, carried))
    sums[reduction->getResult(0)] =
        domain.isVectorReduced
            ? combineOverWarp(builder, loc, overLanes(reduction, sum), isSum(reduction), form)
            : sum;
}

SmallVector<Value> WholeEmitter::overReduced(const Domain::Pass &work, ArrayRef<Value> carried) {
  if (domain.reduced.empty())
    return overRow(work, carried);
  return emitLoop(integer(0), integer(reducedSize), 1, carried,
                  [&](Value index, ArrayRef<Value> inner) {
                    splitIndex(domain.reduced, index);
                    return overRow(work, inner);
                  });
}

SmallVector<Value> WholeEmitter::overRow(const Domain::Pass &work, ArrayRef<Value> carried) {
  if (!domain.isVectorReduced)
    return emitAt(work, carried);
  Value first = position;
  SmallVector<Value> result = emitLoop(first, integer(vectorSize), int64_t(warp) * width, carried,
                                       [&](Value index, ArrayRef<Value> inner) {
                                         position = index;
                                         return emitAt(work, inner);
                                       });
  position = first;
  return result;
}

namespace {

/// The code of a thread of one flat loop, without the frame of a kernel.
class ThreadEmitter final : public NestEmitter {
public:
  ThreadEmitter(func::FuncOp function, const Domain &domain, Form form)
      : NestEmitter(function, domain, form) {}

  static bool isFlat(const Domain &domain) {
    return domain.rows.empty() && domain.reduced.empty() && domain.numPasses == 0;
  }

protected:
  region::Kernel emit() override;
};

} // namespace

region::Kernel ThreadEmitter::emit() {
  region::Kernel kernel;
  kernel.module = ModuleOp::create(loc);
  kernel.extent = numThreads;
  builder.setInsertionPointToEnd(kernel.module->getBody());
  SmallVector<Type> types = {builder.getI64Type()};
  types.append(size_t(numBuffers()), LLVM::LLVMPointerType::get(builder.getContext()));
  auto body =
      builder.create<func::FuncOp>(loc, region::kKernelName, builder.getFunctionType(types, {}));
  Block *entry = body.addEntryBlock();
  builder.setInsertionPointToEnd(entry);
  buffers.assign(std::next(entry->args_begin()), entry->args_end());
  position = e.mul(entry->getArgument(0), integer(width));
  store(domain.resultsBehindPasses(function));
  builder.create<func::ReturnOp>(loc);
  expandMath(*kernel.module);
  return kernel;
}

FailureOr<region::Kernel> emitThread(func::FuncOp function, const Domain &domain, Form form) {
  if (!ThreadEmitter::isFlat(domain))
    return failure();
  return ThreadEmitter(function, domain, form).run();
}

void prepareContext(MLIRContext &context) {
  region::prepareContext(context);
  context.loadDialect<NVVM::NVVMDialect>();
}

FailureOr<region::Kernel> emitCudaKernel(func::FuncOp function, const Domain &domain, Form form) {
  if (!domain.columnSums.empty()) {
    if (form == Form::Host)
      return failure();
    return emitColumnSums(function, domain);
  }
  if (std::unique_ptr<NestEmitter> parts = makePartsEmitter(function, domain, form))
    return parts->run();
  return WholeEmitter(function, domain, form).run();
}

} // namespace tbc::cuda
