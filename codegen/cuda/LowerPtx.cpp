//===- LowerPtx.cpp - Compile the text of kernels to PTX --------------------===//

#include "codegen/cuda/LowerPtx.h"

#include "codegen/cuda/DeviceMath.h"
#include "codegen/cuda/EmitCudaKernel.h"
#include "codegen/region/KernelPasses.h"

#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"

#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Metadata.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

#include <mutex>

using namespace mlir;

namespace tbc::cuda {
namespace {

constexpr const char *triple = "nvptx64-nvidia-cuda";
constexpr const char *ptxVersion = "+ptx80";
constexpr const char *boundName = "maxntidx"; // of the threads of a block

void initializeTargets() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
}

/// Whether the target has an instruction for the function.
bool isInstruction(llvm::StringRef function) {
  static constexpr const char *prefixes[] = {
      "llvm.nvvm.",       "llvm.fma.",       "llvm.fmuladd.",  "llvm.sqrt.",
      "llvm.fabs.",       "llvm.minnum.",    "llvm.maxnum.",   "llvm.minimum.",
      "llvm.maximum.",    "llvm.floor.",     "llvm.ceil.",     "llvm.trunc.",
      "llvm.rint.",       "llvm.roundeven.", "llvm.copysign.", "llvm.smin.",
      "llvm.smax.",       "llvm.umin.",      "llvm.umax.",     "llvm.abs.",
      "llvm.fshl.",       "llvm.fshr.",      "llvm.ctlz.",     "llvm.ctpop.",
      "llvm.is.fpclass.", "llvm.assume",     "llvm.lifetime.", "llvm.vector.reduce.",
      "llvm.nearbyint.",  "llvm.round."};
  return llvm::any_of(prefixes, [&](const char *prefix) { return function.starts_with(prefix); });
}

struct Lowering {
  Lowering() : context(dialects()) {
    context.disableMultithreading();
    context.loadAllAvailableDialects();
    initializeTargets();
  }
  static DialectRegistry dialects() {
    DialectRegistry registry = region::kernelDialects();
    registry.insert<NVVM::NVVMDialect>();
    registerNVVMDialectTranslation(registry);
    return registry;
  }
  Error failed(const std::string &what) const {
    return {ErrorCode::Other, "a kernel for GPUs could not be compiled: " + what + diagnostics};
  }

  /// Joins the functions of all texts, in order, in one module. Shared memory of one name is one
  /// variable.
  Result<OwningOpRef<ModuleOp>> join(const std::vector<std::string> &texts) {
    OwningOpRef<ModuleOp> all = ModuleOp::create(UnknownLoc::get(&context));
    for (const std::string &text : texts) {
      OwningOpRef<ModuleOp> one = parseSourceString<ModuleOp>(text, &context);
      if (!one)
        return failed("its text cannot be read");
      for (auto function : llvm::make_early_inc_range(one->getOps<func::FuncOp>())) {
        function->remove();
        all->push_back(function);
      }
      for (auto global : llvm::make_early_inc_range(one->getOps<LLVM::GlobalOp>()))
        if (!all->lookupSymbol(global.getSymName())) {
          global->remove();
          all->getBody()->push_front(global);
        }
    }
    return all;
  }

  /// Marks kernels with their launch bounds, unless they have some (`allowThreads`).
  static void markKernels(llvm::Module &module) {
    llvm::LLVMContext &context = module.getContext();
    llvm::NamedMDNode *annotations = module.getOrInsertNamedMetadata("nvvm.annotations");
    llvm::SmallPtrSet<llvm::Metadata *, 8> bounded;
    for (llvm::MDNode *node : annotations->operands())
      if (cast<llvm::MDString>(node->getOperand(1))->getString() == boundName)
        bounded.insert(node->getOperand(0));
    auto annotate = [&](llvm::Function &function, const char *name, int value) {
      llvm::Metadata *node[] = {llvm::ValueAsMetadata::get(&function),
                                llvm::MDString::get(context, name),
                                llvm::ConstantAsMetadata::get(llvm::ConstantInt::get(
                                    llvm::Type::getInt32Ty(context), uint64_t(value)))};
      annotations->addOperand(llvm::MDNode::get(context, node));
    };
    for (llvm::Function &function : module) {
      if (function.isDeclaration())
        continue;
      function.setCallingConv(llvm::CallingConv::PTX_Kernel);
      annotate(function, "kernel", 1);
      if (!bounded.contains(llvm::ValueAsMetadata::get(&function)))
        annotate(function, boundName, threadsPerBlock);
    }
  }

  Result<std::string> emit(llvm::Module &module, int architecture) {
    std::string message;
    const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, message);
    if (!target)
      return failed(message);
    std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(
        triple, "sm_" + std::to_string(architecture), ptxVersion, llvm::TargetOptions(),
        llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::Aggressive));
    module.setTargetTriple(triple);
    module.setDataLayout(machine->createDataLayout());
    markKernels(module);
    region::optimizeKernels(module, *machine);
    for (const llvm::Function &function : module)
      if (function.isDeclaration() && !function.use_empty() && !isInstruction(function.getName()))
        return failed("it calls " + function.getName().str() + ", which no GPU has");
    llvm::SmallVector<char, 0> bytes;
    llvm::raw_svector_ostream stream(bytes);
    llvm::legacy::PassManager emission;
    if (machine->addPassesToEmitFile(emission, stream, nullptr,
                                     llvm::CodeGenFileType::AssemblyFile))
      return failed("LLVM has no PTX");
    emission.run(module);
    return std::string(bytes.begin(), bytes.end());
  }

  MLIRContext context;
  std::string diagnostics;
};

} // namespace

Result<std::string> lowerToPtx(const std::vector<std::string> &texts, int architecture) {
  Lowering lowering;
  ScopedDiagnosticHandler handler(&lowering.context, [&](Diagnostic &diagnostic) {
    lowering.diagnostics += "\n" + diagnostic.str();
    return success();
  });
  auto module = lowering.join(texts);
  if (!module)
    return module.error();
  useDeviceMath(**module);
  region::allowContraction(**module);
  PassManager passes(&lowering.context);
  region::addKernelPasses(passes);
  if (mlir::failed(passes.run(**module)))
    return lowering.failed("a pass failed");
  llvm::LLVMContext llvmContext;
  std::unique_ptr<llvm::Module> translated = translateModuleToLLVMIR(**module, llvmContext);
  if (!translated)
    return lowering.failed("it has no translation to LLVM");
  return lowering.emit(*translated, architecture);
}

} // namespace tbc::cuda
