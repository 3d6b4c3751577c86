//===- Passes.td - The pass that applies a plan ----------------------------===//

#ifndef TBC_DRIVER_PASSES
#define TBC_DRIVER_PASSES

include "mlir/Pass/PassBase.td"

def ApplyPlanPass : Pass<"tbc-apply-plan", "mlir::ModuleOp"> {
  let summary = "Annotates a training step with the decisions of a plan.json";
  let description = [{
    Attributes hold the decisions:

    - on the module: mesh, micro-batches, schedule, buckets and prefetch;
    - on the arguments of @train: how parameters are stored, gathered and reduced;
    - on ops: the axes of their loops (`tbc.strategy`), the begins of chunks, and marks for recompute and
      offload.

    The pass is not in passes/, because passes/ does not depend on plan files.

    ```mlir
    // before
    module {
      func.func @train(%w: tensor<8x4xf32> {tbc.role = #tbc.role<param>, tbc.name = "w"}, ...) ... {
        %0 = tbc.einsum %x, %w {tbc.id = "l", ...} : ...
    // after, for dp = 2 and tp = 2
    module attributes {tbc.mesh = #tbc.mesh<"dp"=2, "tp"=2>, tbc.batch = 8 : i64, tbc.micro_batches = 4 : i64, ...} {
      func.func @train(%w: tensor<8x4xf32> {tbc.role = #tbc.role<param>, tbc.name = "w",
          tbc.parameter_plan = #tbc.parameter_plan<zero = 0, zero_axes = [], reduce_axes = ["dp"]>}, ...) ... {
        %0 = tbc.einsum %x, %w {tbc.id = "l", tbc.strategy = #tbc.strategy<{0 = ["dp"], 2 = ["tp"]}>, ...} : ...
    ```
  }];
  let options = [
    Option<"plan", "plan", "std::string", "\"\"", "the plan.json of this step">,
  ];
  let dependentDialects = ["::tbc::TbcDialect"];
}

#endif // TBC_DRIVER_PASSES
