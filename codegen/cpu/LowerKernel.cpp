//===- LowerKernel.cpp - Compile the text of a kernel to an object file -----===//

#include "codegen/cpu/LowerKernel.h"

#include "codegen/region/KernelPasses.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Export.h"

#include "llvm/IR/Constants.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

#include <mutex>

using namespace mlir;

namespace tbc::cpu {

using namespace region;
namespace {

constexpr const char *triple = "x86_64-unknown-linux-gnu";

void initializeTargets() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
  });
}

} // namespace

struct KernelLowering::State {
  explicit State(CpuTarget target) : target(std::move(target)), context(kernelDialects()) {
    context.disableMultithreading();
    context.loadAllAvailableDialects();
    initializeTargets();
  }

  Error failed(const std::string &what) const {
    return {ErrorCode::Other, "a kernel could not be compiled: " + what + diagnostics};
  }

  std::unique_ptr<llvm::TargetMachine> makeMachine(std::string &message) const {
    const llvm::Target *llvmTarget = llvm::TargetRegistry::lookupTarget(triple, message);
    if (!llvmTarget)
      return nullptr;
    return std::unique_ptr<llvm::TargetMachine>(llvmTarget->createTargetMachine(
        triple, target.name, "", llvm::TargetOptions(), llvm::Reloc::PIC_, std::nullopt,
        llvm::CodeGenOptLevel::Aggressive));
  }

  void setAttributes(llvm::Module &module, const llvm::TargetMachine &machine) const {
    module.setTargetTriple(triple);
    module.setDataLayout(machine.createDataLayout());
    // Sets the vector width to the machine's. By default LLVM halves vectors of 512 bits.
    std::string bits = std::to_string(32 * target.lanes);
    for (llvm::Function &function : module) {
      if (function.isDeclaration())
        continue;
      function.addFnAttr("target-cpu", target.name);
      function.addFnAttr("prefer-vector-width", bits);
      function.addFnAttr("min-legal-vector-width", bits);
      function.addFnAttr(llvm::Attribute::NoUnwind);
    }
  }

  Result<std::string> toObject(llvm::Module &module) {
    std::string message;
    std::unique_ptr<llvm::TargetMachine> machine = makeMachine(message);
    if (!machine)
      return failed(message);
    setAttributes(module, *machine);
    optimizeKernels(module, *machine);
    llvm::SmallVector<char, 0> bytes;
    llvm::raw_svector_ostream stream(bytes);
    llvm::legacy::PassManager emission;
    if (machine->addPassesToEmitFile(emission, stream, nullptr, llvm::CodeGenFileType::ObjectFile))
      return failed("LLVM has no object files for " + std::string(triple));
    emission.run(module);
    return std::string(bytes.begin(), bytes.end());
  }

  CpuTarget target;
  MLIRContext context;
  std::string diagnostics;
};

KernelLowering::KernelLowering(CpuTarget target)
    : state(std::make_unique<State>(std::move(target))) {}
KernelLowering::~KernelLowering() = default;

Result<std::string> KernelLowering::lower(const std::string &text) {
  state->diagnostics.clear();
  ScopedDiagnosticHandler handler(&state->context, [&](Diagnostic &diagnostic) {
    state->diagnostics += "\n" + diagnostic.str();
    return success();
  });
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &state->context);
  if (!module)
    return state->failed("its text cannot be read");
  allowContraction(*module);
  PassManager passes(&state->context);
  addKernelPasses(passes);
  if (mlir::failed(passes.run(*module)))
    return state->failed("a pass failed");
  llvm::LLVMContext llvmContext;
  std::unique_ptr<llvm::Module> translated = translateModuleToLLVMIR(*module, llvmContext);
  if (!translated)
    return state->failed("it has no translation to LLVM");
  return state->toObject(*translated);
}

Result<std::string>
KernelLowering::defineTexts(const std::vector<std::pair<std::string, std::string>> &texts) {
  llvm::LLVMContext context;
  llvm::Module module("texts", context);
  for (const auto &[symbol, text] : texts) {
    llvm::Constant *value = llvm::ConstantDataArray::getString(context, text);
    new llvm::GlobalVariable(module, value->getType(), /*isConstant=*/true,
                             llvm::GlobalValue::ExternalLinkage, value, symbol);
  }
  return state->toObject(module);
}

} // namespace tbc::cpu
