//===- Jax.cpp - A plan as a JAX mesh with PartitionSpecs -------------------===//

#include "tools/export/Jax.h"

#include "planner/support/Format.h"

#include <algorithm>
#include <map>

namespace tbc::exporter {

using planner::AxisNames;
using planner::format;
using planner::LayoutParameters;
using planner::TensorPlacement;

namespace {

/// The axes of each dim, as a PartitionSpec has them.
using Spec = std::vector<AxisNames>;

/// Parameters whose placement a PartitionSpec approaches, by reason.
struct Differences {
  std::vector<std::string> segments, whole;
};

} // namespace

/// Returns the axes of a dim. Segments become one contiguous split over their axes.
static AxisNames axesOf(const planner::DimSplit &dim, bool &hasSegments) {
  if (dim.segments.empty())
    return dim.axes;
  AxisNames axes;
  for (const planner::SplitFactor &factor : dim.segments.front())
    axes.insert(axes.end(), factor.axes.begin(), factor.axes.end());
  hasSegments |= !axes.empty();
  return axes;
}

static int64_t sizeOf(const PlanFacts &facts, const AxisNames &axes) {
  int64_t size = 1;
  for (const planner::LayoutAxis &axis : facts.plan->layout.axes)
    if (std::find(axes.begin(), axes.end(), axis.axis) != axes.end())
      size *= axis.size;
  return size;
}

/// Returns the spec of a placement. Flat chunks become chunks of the first dim that they divide.
static Spec specOf(const PlanFacts &facts, const TensorPlacement &placement,
                   const std::vector<int64_t> &shape, bool &hasSegments, bool &isWhole) {
  Spec spec;
  for (const planner::DimSplit &dim : placement.dims)
    spec.push_back(axesOf(dim, hasSegments));
  if (placement.flat.empty())
    return spec;
  int64_t parts = sizeOf(facts, placement.flat);
  for (size_t dim = 0; dim < spec.size(); ++dim)
    if (shape[dim] / sizeOf(facts, spec[dim]) % parts == 0) {
      spec[dim].insert(spec[dim].end(), placement.flat.begin(), placement.flat.end());
      return spec;
    }
  isWhole = true;
  return spec;
}

/// Example: {{"fsdp"}, {}, {"dp", "tp"}} gives P("fsdp", None, ("dp", "tp")).
static std::string toPython(Spec spec) {
  while (!spec.empty() && spec.back().empty())
    spec.pop_back();
  std::string text;
  for (const AxisNames &axes : spec) {
    std::string dim;
    for (const std::string &axis : axes)
      dim += (dim.empty() ? "" : ", ") + pythonText(axis);
    text += (text.empty() ? "" : ", ") + (axes.empty()       ? "None"
                                          : axes.size() == 1 ? dim
                                                             : "(" + dim + ")");
  }
  return "P(" + text + ")";
}

static bool hasSubAxes(const PlanFacts &facts) {
  auto isSub = [](const AxisNames &axes) {
    return std::any_of(axes.begin(), axes.end(),
                       [](const std::string &axis) { return axis.find(':') != std::string::npos; });
  };
  for (const LayoutParameters &group : facts.plan->layout.parameters)
    for (const planner::DimSplit &dim : group.used.dims)
      if (isSub(dim.axes))
        return true;
  return false;
}

static std::string parameterTable(const PlanFacts &facts, Differences &differences) {
  std::map<std::string, std::string> rows;
  for (const LayoutParameters &group : facts.plan->layout.parameters) {
    bool hasSegments = false, isWhole = false;
    std::string stored = toPython(specOf(facts, group.stored, group.shape, hasSegments, isWhole));
    std::string used = toPython(specOf(facts, group.used, group.shape, hasSegments, isWhole));
    std::string state =
        group.isTrained ? toPython(specOf(facts, group.state, group.shape, hasSegments, isWhole))
                        : std::string("None");
    for (const std::string &name : group.names) {
      rows[name] = stored + ", " + used + ", " + state;
      if (hasSegments)
        differences.segments.push_back(name);
      if (isWhole)
        differences.whole.push_back(name);
    }
  }
  std::string text = "# By parameter: between steps, where ops read it, and its optimizer states.\n"
                     "PARAMETERS = {\n";
  for (const auto &[name, row] : rows)
    text += "    " + pythonText(name) + ": (" + row + "),\n";
  return text + "}\n";
}

/// Returns the spec of activations between blocks, or None where blocks differ.
static std::string residualSpec(const PlanFacts &facts) {
  std::string found;
  for (const planner::LayoutBoundary &boundary : facts.plan->layout.boundaries)
    for (const planner::LayoutTensor &tensor : boundary.outputs) {
      bool hasSegments = false, isWhole = false;
      std::string spec =
          toPython(specOf(facts, tensor.placement, tensor.shape, hasSegments, isWhole));
      if (hasSegments || tensor.shape.size() != 3 || (!found.empty() && found != spec))
        return "None";
      found = spec;
    }
  return found.empty() ? "None" : found;
}

static const char *const functions = R"python(

def make_mesh(devices=None):
    """Returns the plan's mesh. Ranks are devices in their order, the last axis the fastest."""
    devices = jax.devices() if devices is None else devices
    ranks = int(np.prod(list(AXES.values())))
    if len(devices) != ranks:
        raise ValueError(f"the plan is for {ranks} devices, and there are {len(devices)}")
    return Mesh(np.asarray(devices).reshape(tuple(AXES.values())), tuple(AXES))


def place(parameters, mesh, form=0):
    """Puts {name: array} where the plan stores it (form 0), reads it (1), or has its states (2)."""
    unknown = sorted(set(parameters) ^ set(PARAMETERS))
    if unknown:
        raise ValueError(f"parameters differ from the plan's: {', '.join(unknown[:5])}")
    return {
        name: jax.device_put(value, NamedSharding(mesh, PARAMETERS[name][form]))
        for name, value in parameters.items()
    }


def constrained(parameters, mesh, form):
    """The same within jit."""
    return {
        name: jax.lax.with_sharding_constraint(value, NamedSharding(mesh, PARAMETERS[name][form]))
        for name, value in parameters.items()
    }


def residual(value, mesh):
    """Places an activation between blocks as the plan does."""
    return value if RESIDUAL is None else jax.lax.with_sharding_constraint(value, NamedSharding(mesh, RESIDUAL))


def checkpointed(block, index):
    """Returns the function of block `index` with the plan's recompute."""
    mode = RECOMPUTE if index < RECOMPUTED_BLOCKS else WEAKER_RECOMPUTE
    if mode == "none":
        return block
    return jax.checkpoint(block, policy=jax.checkpoint_policies.dots_saveable if mode == "selective" else None)


def make_step(loss, mesh):
    """Returns a jitted function of parameters and a global batch: the loss and its gradients.

    `loss(parameters, inputs)` is the mean over the samples of a micro-batch. Gradients lie as the
    optimizer's states do.
    """

    def step(parameters, batch):
        parts = jax.tree.map(lambda x: x.reshape(MICRO_BATCHES, -1, *x.shape[1:]), batch)

        def micro_batch(total, part):
            part = jax.tree.map(
                lambda x: jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*tuple(INPUTS)[: x.ndim]))), part
            )
            value, gradients = jax.value_and_grad(lambda p: loss(constrained(p, mesh, 1), part))(parameters)
            return jax.tree.map(lambda a, b: a + b / MICRO_BATCHES, total, (value, gradients)), None

        zeros = (jnp.zeros((), jnp.float32), jax.tree.map(jnp.zeros_like, parameters))
        zeros = (zeros[0].astype(jax.eval_shape(loss, parameters, jax.tree.map(lambda x: x[0], parts)).dtype), zeros[1])
        (value, gradients), _ = jax.lax.scan(micro_batch, zeros, parts)
        return value, constrained(gradients, mesh, 2)

    return jax.jit(step)
)python";

Result<Exported> writeJax(const PlanFacts &facts) {
  Limits limits("JAX");
  limits.refuseFp8(facts.job());
  const planner::Plan &plan = *facts.plan;
  const planner::MeshShape &mesh = facts.mesh();
  if (mesh.pp > 1)
    limits.refuse(format("pp=%lld; a jitted program has no stages", (long long)mesh.pp),
                  "plan with pp=1, or export --to torchtitan");
  if (plan.offload.optimizer || plan.offload.residuals || !plan.offload.ops.empty())
    limits.refuse("offload of " + planner::offloadText(plan.offload), "plan with --offload none");
  if (hasSubAxes(facts))
    limits.refuse("parameters that are split over a part of an axis", "plan with another mesh");
  if (mesh.cp > 1 && plan.zigzag)
    limits.refuse("zigzag order of sequences over cp; shards of JAX are contiguous",
                  "plan with --sequence-order contiguous");
  Differences differences;
  std::string parameters = parameterTable(facts, differences);
  auto list = [](const std::vector<std::string> &names) {
    return names.front() +
           (names.size() > 1 ? format(" and %zu others", names.size() - 1) : std::string());
  };
  if (!differences.segments.empty())
    limits.warn("ContiguousSegments", list(differences.segments) +
                                          ": the plan splits each of several joined matrices, a "
                                          "PartitionSpec all together; XLA moves the parts");
  if (!differences.whole.empty())
    limits.warn("WholeStates", list(differences.whole) +
                                   ": no dim is a multiple of the shards, so each device has all "
                                   "of it; the plan pads");
  if (facts.job().precision != planner::Precision::F32)
    limits.warn("PrecisionInLoss",
                std::string("the plan has matmuls in ") + planner::name(facts.job().precision) +
                    ": your loss casts parameters" +
                    (facts.job().precision == planner::Precision::F16 ? ", and is scaled" : ""));
  if (facts.hasSetting("clip_norm") || facts.hasSetting("clip_value"))
    limits.warn("ClippingInOptimizer", "your optimizer clips gradients");
  if (mesh.cp > 1)
    limits.warn("ContextForm", std::string("the plan has ") + reshard::name(plan.context) +
                                   " attention over cp; XLA chooses its own collectives");
  if (Status status = limits.status(); !status)
    return status.error();

  std::string text = header(facts, limits.warnings(), "#");
  text += "import jax\nimport jax.numpy as jnp\nimport numpy as np\n"
          "from jax.sharding import Mesh, NamedSharding\n"
          "from jax.sharding import PartitionSpec as P\n\nAXES = {";
  std::string axes, data;
  for (const planner::LayoutAxis &axis : plan.layout.axes) {
    axes += (axes.empty() ? "" : ", ") + pythonText(axis.axis) + ": " + std::to_string(axis.size);
    if (const std::vector<std::string> &names = planner::dataAxisNames();
        std::count(names.begin(), names.end(), axis.axis) > 0)
      data += pythonText(axis.axis) + ", ";
  }
  text += (axes.empty() ? "\"dp\": 1" : axes) + "}\n";
  text += format("MICRO_BATCHES = %lld  # of %lld samples over all ranks\n",
                 (long long)plan.accumulation,
                 (long long)plan.microBatch * (long long)mesh.dataRanks());
  text += "INPUTS = P(" + (data.empty() ? std::string("None") : "(" + data + ")") +
          (mesh.cp > 1 ? ", \"cp\"" : "") + ")  # of a micro-batch\n";
  text += "RESIDUAL = " + residualSpec(facts) + "  # activations between blocks\n";
  const planner::Recompute &recompute = plan.recompute;
  int64_t blocks = recompute.share.isAll() ? facts.numBlocks : recompute.share.blocks;
  text += "RECOMPUTE, WEAKER_RECOMPUTE = " + pythonText(planner::name(recompute.mode)) + ", " +
          pythonText(planner::name(planner::weakerMode(recompute.mode))) + "\n";
  text += format("RECOMPUTED_BLOCKS = %lld  # of %lld; the others have the weaker mode\n",
                 (long long)blocks, (long long)facts.numBlocks);
  text += "\n" + parameters + functions;
  return Exported{text, limits.warnings()};
}

} // namespace tbc::exporter
