//===- Space.cpp - The search space left open by the user -----------------===//

#include "planner/pins/Space.h"
#include "planner/pins/Conditions.h"
#include "planner/plan/PlanNames.h"
#include "planner/support/Format.h"
#include "runtime/abi/ClosestWord.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

namespace tbc::planner {

static Error usage(const std::string &message) { return Error{ErrorCode::Usage, message}; }

static std::string suggest(const std::string &word, const std::vector<std::string> &candidates) {
  std::string closest = closestWord(word, candidates);
  return closest.empty() ? "" : "; did you mean " + closest + "?";
}

std::vector<int64_t> divisorsOf(int64_t n) {
  std::vector<int64_t> small, large;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0)
      continue;
    small.push_back(d);
    if (d != n / d)
      large.push_back(n / d);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

/// Returns a number of graph blocks, at least 1; unset for other text.
static std::optional<int64_t> blockNumber(const std::string &digits) {
  bool isNumber = !digits.empty() && digits.size() < 9 &&
                  digits.find_first_not_of("0123456789") == std::string::npos;
  if (!isNumber || std::stoll(digits) < 1)
    return std::nullopt;
  return std::stoll(digits);
}

/// Reads --recompute; "selective" or "full" may be followed by ":" and a number of graph blocks.
static Status readRecompute(const std::string &text, RecomputePins &read) {
  std::vector<std::string> words = {"auto"};
  for (RecomputeMode mode : recomputeModes())
    words.push_back(name(mode));
  size_t colon = text.find(':');
  const std::string word = text.substr(0, colon);
  read.mode = parseRecomputeMode(word);
  if (!read.mode && word != words[0])
    return usage("--recompute " + text + ": choices are " + joined(words) + suggest(word, words));
  if (colon == std::string::npos)
    return Status();
  read.blocks = blockNumber(text.substr(colon + 1));
  if (!read.mode || read.mode == RecomputeMode::None || !read.blocks)
    return usage("--recompute " + text +
                 ": a number of blocks follows selective or full, such as selective:8");
  return Status();
}

/// Reads --offload: the offloaded data, and its number of graph blocks.
static Status readOffload(const Pins &pins, OffloadPins &read) {
  const std::vector<std::string> choices = {"none", "optimizer", "residuals", "all", "auto"};
  size_t colon = pins.offload.find(':');
  const std::string offload = pins.offload.substr(0, colon);
  if (std::find(choices.begin(), choices.end(), offload) == choices.end())
    return usage("--offload " + pins.offload + ": choices are " + joined(choices) +
                 suggest(offload, choices));
  read.states = offload == "optimizer" || offload == "all";
  read.residuals = offload == "residuals" || offload == "all";
  read.isAsNeeded = pins.offloadsAsNeeded && colon == std::string::npos;
  if (colon == std::string::npos)
    return Status();
  std::optional<int64_t> number = blockNumber(pins.offload.substr(colon + 1));
  if (!read.residuals || !number)
    return usage("--offload " + pins.offload +
                 ": a number of blocks follows residuals or all, such as residuals:8");
  read.blocks = number;
  return Status();
}

/// Reads the size of `flag`: auto, none or bytes.
static Status readSize(const char *flag, const std::string &text, std::optional<int64_t> &read) {
  if (text == "none") {
    read = 0;
  } else if (text != "auto") {
    Result<int64_t> bytes = parseBytes(text);
    if (!bytes || *bytes < 1)
      return usage(flag + (" " + text) + ": expected auto, none, or a size such as 25MiB");
    read = *bytes;
  }
  return Status();
}

/// Reads --bucket-size, --gather-size and --prefetch.
static Status readOverlap(const Pins &pins, OverlapPins &read) {
  for (Status status : {readSize("--bucket-size", pins.bucketSize, read.bucketBytes),
                        readSize("--gather-size", pins.gatherSize, read.gatherBytes)})
    if (!status)
      return status;
  if (pins.prefetch == "none") {
    read.prefetch = 0;
  } else if (pins.prefetch != "auto") {
    int64_t number = 0;
    const char *last = pins.prefetch.data() + pins.prefetch.size();
    auto [end, code] = std::from_chars(pins.prefetch.data(), last, number);
    if (code != std::errc() || end != last || number < 1 || number > maxPrefetch)
      return usage("--prefetch " + pins.prefetch +
                   ": expected auto, none, or a number of gathers from 1 to " +
                   std::to_string(maxPrefetch));
    read.prefetch = number;
  }
  return Status();
}

/// Samples meet within a micro-batch only, so pins may not ask for several. `pinned` is the pinned
/// mesh; without one the data ranks are open.
static Status checkMeeting(const Job &job, const Pins &pins, const MeshShape &pinned,
                           const std::string &meeting) {
  if (meeting.empty() || !pins.microBatch)
    return Status::ok();
  const int64_t micro = *pins.microBatch, ranks = pinned.dataRanks();
  const bool isPossible = pins.mesh.empty()
                              ? job.globalBatch % micro == 0 && job.globalBatch / micro <= job.gpus
                              : micro == (job.globalBatch + ranks - 1) / ranks;
  if (isPossible)
    return Status::ok();
  const std::string other =
      pins.mesh.empty() ? "" : ", or choose --batch " + std::to_string(micro * ranks);
  return usage("--micro-batch " + std::to_string(micro) + " splits --batch " +
               std::to_string(job.globalBatch) + " into several micro-batches, but op \"" +
               meeting +
               "\" joins the samples of the whole batch, as contrastive losses do; leave "
               "--micro-batch out" +
               other);
}

Result<Space> Space::make(const Job &job, const Pins &pins, int64_t experts,
                          const std::string &meeting, const RunnablePlans &runnable,
                          const ExecutorSizes &sizes) {
  if (job.gpus < 1 || job.gpus > mostDevices)
    return usage("--gpus " + std::to_string(job.gpus) +
                 ": a plan is for 1 to 1,048,576 devices; name a number of these");
  if (job.globalBatch < 1 || job.globalBatch > (int64_t(1) << 40))
    return usage("--batch " + std::to_string(job.globalBatch) + ": must be between 1 and 2^40");
  if (Status status = checkConditions(pins); !status)
    return status.error();
  Space space(job, pins, experts, meeting, runnable, sizes);
  // If requested by name, all blocks recompute, instead of the fewest that fit.
  for (const Condition &condition : pins.conditions)
    if (condition.decision == "recompute" && !condition.isForbidden && pins.recomputeIsOpen())
      space.pins.recompute = condition.value;
  if (Status status = space.readMesh(); !status)
    return status.error();
  if (Status status = checkMeeting(job, pins, space.pinned, meeting); !status)
    return status.error();
  if (Status status = space.checkStrategy(); !status)
    return status.error();
  if (Status status = sizes.check(pins, space.pinned, job.gpus); !status)
    return status.error();
  if (Status status = space.readSchedule(); !status)
    return status.error();
  if (Status status = space.checkContext(); !status)
    return status.error();
  if (Status status = readRecompute(space.pins.recompute, space.recomputePins); !status)
    return status.error();
  if (Status status = readOffload(pins, space.offloadPins); !status)
    return status.error();
  if (Status status = readOverlap(pins, space.overlapPins); !status)
    return status.error();
  if (pins.microBatch && *pins.microBatch < 1)
    return usage("--micro-batch " + std::to_string(*pins.microBatch) + ": must be at least 1");
  if (pins.memoryLimitBytes && *pins.memoryLimitBytes < 1)
    return usage("--memory-limit must be at least one byte");
  if (pins.top < 1)
    return usage("--top " + std::to_string(pins.top) + ": must be at least 1");
  return space;
}

Status Space::readMesh() {
  std::string text;
  for (const auto &[name, size] : pins.mesh) {
    if (std::find(axisNames().begin(), axisNames().end(), name) == axisNames().end() || size < 1)
      return usage("mesh axis \"" + name + "\" of size " + std::to_string(size) + ": axes are " +
                   joined(axisNames()) + ", of size 1 or more");
    *pinned.find(name) = size;
    text += (text.empty() ? "" : ",") + name + "=" + std::to_string(size);
  }
  if (pins.mesh.empty())
    return Status::ok();
  if (pinned.numRanks() != job.gpus)
    return usage("--mesh " + text + " has " + std::to_string(pinned.numRanks()) +
                 " ranks, but --gpus is " + std::to_string(job.gpus));
  if (pinned.ep > 1 && experts == 1)
    return usage("--mesh " + text +
                 ": axis ep splits experts, and the model has no routed experts whose weights are "
                 "tensors over all of them; use dp or fsdp instead");
  if (experts % pinned.ep != 0)
    return usage("--mesh " + text + ": axis ep of size " + std::to_string(pinned.ep) +
                 " does not divide the " + std::to_string(experts) + " experts of the model");
  if (!job.batchIsDefault && job.globalBatch % pinned.dataRanks() != 0)
    return usage("--mesh " + text + " has " + std::to_string(pinned.dataRanks()) +
                 " data-parallel ranks, which do not divide --batch " +
                 std::to_string(job.globalBatch));
  if (pins.microBatch && !job.batchIsDefault &&
      job.globalBatch % (pinned.dataRanks() * *pins.microBatch) != 0)
    return usage("--micro-batch " + std::to_string(*pins.microBatch) + " times the " +
                 std::to_string(pinned.dataRanks()) + " data-parallel ranks of --mesh " + text +
                 " does not divide --batch " + std::to_string(job.globalBatch));
  return Status::ok();
}

/// Returns the ZeRO mode of a strategy, or -1.
static int zeroOf(const std::string &strategy) {
  std::optional<ZeroChoice> choice = zeroOfStrategy(strategy);
  return choice ? choice->zero : -1;
}

/// Checks --strategy and --zero against each other and against the pinned mesh.
Status Space::checkStrategy() {
  const std::string &strategy = pins.strategy;
  const auto &names = strategyNames();
  if (std::find(names.begin(), names.end(), strategy) == names.end())
    return usage("--strategy " + strategy + ": strategies are " + joined(names) +
                 suggest(strategy, names));
  if (pins.zero && (*pins.zero < 0 || *pins.zero > 3))
    return usage("--zero " + std::to_string(*pins.zero) + ": must be 0, 1, 2 or 3");
  int zero = zeroOf(strategy);
  if (pins.zero && zero >= 0 && *pins.zero != zero)
    return usage("--strategy " + strategy + " means --zero " + std::to_string(zero) +
                 ", but --zero is " + std::to_string(*pins.zero));
  if (meshIsPinned() && !allowed(pinned)) {
    std::string mesh;
    for (const auto &[name, size] : pins.mesh)
      mesh += (mesh.empty() ? "" : ",") + name + "=" + std::to_string(size);
    return usage("--strategy " + strategy + " contradicts --mesh " + mesh + ": " +
                 (strategy == "tp" || strategy == "pp" ? "all devices must be on axis " + strategy
                  : strategy == "hybrid"               ? "two axes must be longer than 1"
                  : strategy == "hybrid-shard"         ? "dp and fsdp must both be longer than 1"
                                                       : "the mesh has no axis for it"));
  }
  return Status::ok();
}

/// Reads --schedule, and checks it, --virtual-stages and --placement against each other and against
/// the pinned mesh.
Status Space::readSchedule() {
  const std::vector<std::string> &schedules = schedule::scheduleNames();
  const std::string &name = pins.schedule;
  schedule = schedule::parseScheduleKind(name);
  if (!name.empty() && !schedule)
    return usage("--schedule " + name + ": schedules are " + joined(schedules) +
                 suggest(name, schedules));
  const std::vector<std::string> placements = {"loop", "v"};
  if (!pins.placement.empty() &&
      std::find(placements.begin(), placements.end(), pins.placement) == placements.end())
    return usage("--placement " + pins.placement + ": placements are " + joined(placements) +
                 suggest(pins.placement, placements));
  int64_t chunks = pins.virtualStages.value_or(0);
  std::string given = "--virtual-stages " + std::to_string(chunks);
  if (pins.virtualStages && (chunks < 1 || chunks > 64))
    return usage(given + ": must be between 1 and 64");
  const bool hasOneChunk = schedule && schedule::chunkRule(*schedule) == schedule::ChunkRule::One;
  if (chunks > 1 && hasOneChunk)
    return usage("--schedule " + name + " has one chunk per stage, but " + given +
                 " asks for more; use --schedule " + schedule::schedulesOfSeveralChunks("or"));
  if (chunks == 1 && schedule && schedule::chunkRule(*schedule) == schedule::ChunkRule::Several)
    return usage("--schedule " + name + " needs more than one chunk per stage, but is given " +
                 given);
  if (!pins.placement.empty() && (chunks == 1 || hasOneChunk))
    return usage("--placement " + pins.placement + " is about several chunks per stage, which " +
                 (chunks == 1 ? given : "--schedule " + name) + " excludes");
  if (meshIsPinned() && pinned.pp == 1 && (!name.empty() || chunks > 1 || !pins.placement.empty()))
    return usage((!name.empty() ? "--schedule " + name
                  : chunks > 1  ? given
                                : "--placement " + pins.placement) +
                 " is about pipeline stages, of which --mesh has none");
  return Status::ok();
}

/// Checks --sequence-order and --context. A pinned mesh must then have axis cp.
Status Space::checkContext() const {
  const std::vector<std::string> orders = {"contiguous", "zigzag"};
  if (!pins.sequenceOrder.empty() && pins.sequenceOrder != orders[0] &&
      pins.sequenceOrder != orders[1])
    return usage("--sequence-order " + pins.sequenceOrder + ": orders are " + joined(orders) +
                 suggest(pins.sequenceOrder, orders));
  if (!pins.sequenceOrder.empty() && meshIsPinned() && pinned.cp == 1)
    return usage("--sequence-order " + pins.sequenceOrder +
                 " is about axis cp, which --mesh has not");
  if (pins.context.empty())
    return Status::ok();
  const std::vector<std::string> forms = contextWords();
  if (!reshard::parseContextForm(pins.context))
    return usage("--context " + pins.context + ": forms of context parallelism are " +
                 joined(forms) + suggest(pins.context, forms));
  if (meshIsPinned() && pinned.cp == 1)
    return usage("--context " + pins.context + " is about axis cp, which --mesh has not");
  return Status::ok();
}

std::vector<reshard::ContextForm> Space::contexts(const MeshShape &mesh) const {
  using reshard::ContextForm;
  if (mesh.cp == 1)
    return {ContextForm::AllGather};
  if (std::optional<ContextForm> form = reshard::parseContextForm(pins.context))
    return {*form};
  std::vector<ContextForm> forms;
  for (ContextForm form : {ContextForm::Ring, ContextForm::AllToAll, ContextForm::AllGather})
    if (RunnablePlans::has(runnable.contexts, reshard::name(form)))
      forms.push_back(form);
  return forms;
}

std::vector<int> ScheduleChoice::chunkStage(int64_t stages) const {
  if (chunksPerStage == 1)
    return {};
  auto make = thereAndBack ? schedule::Pipeline::vee : schedule::Pipeline::loop;
  return make(int(stages), chunksPerStage).chunkStage;
}

bool Space::tensorAxisIsPinned() const {
  bool isAsked =
      std::any_of(pins.conditions.begin(), pins.conditions.end(), [](const Condition &c) {
        return c.decision == "tp" && c.value != "1" && !c.isForbidden;
      });
  return pinned.tp > 1 || pins.strategy == "tp" || isAsked;
}

bool Space::tensorAxisIsOpen() const {
  return !meshIsPinned() && pins.strategy == "auto" &&
         std::none_of(pins.conditions.begin(), pins.conditions.end(),
                      [](const Condition &c) { return c.decision == "tp"; });
}

/// Whether a condition asks for a value of `decision`.
static bool isAsked(const Pins &pins, const std::string &decision) {
  return std::any_of(pins.conditions.begin(), pins.conditions.end(),
                     [&](const Condition &c) { return c.decision == decision && !c.isForbidden; });
}

/// Whether pins ask for sharded parameters, which open meshes have over fsdp.
static bool asksForFsdp(const Pins &pins) {
  const ZeroChoice stored{3, false}, gathered{3, true};
  return pins.zero == 3 ||
         std::any_of(pins.conditions.begin(), pins.conditions.end(), [&](const Condition &c) {
           return c.decision == "zero" && !c.isForbidden &&
                  (c.value == zeroWord(stored) || c.value == zeroWord(gathered));
         });
}

/// Whether an executor runs plans on `mesh`, apart from axes that the user asks for.
static bool isRunnable(const Pins &pins, const RunnablePlans &runnable, const MeshShape &mesh) {
  if (pins.strategy != "auto")
    return true;
  for (const auto &[axis, size] : mesh.axes())
    if (size > 1 && !isAsked(pins, axis) && !RunnablePlans::has(runnable.axes, axis) &&
        !(mesh::row(Axis::ShardedData).name == std::string_view(axis) && asksForFsdp(pins)))
      return false;
  return runnable.shardsInGroups || mesh.dp == 1 || mesh.fsdp == 1;
}

bool Space::allowed(const MeshShape &mesh) const {
  const std::string &strategy = pins.strategy;
  int axes = mesh.numAxes();
  int64_t n = mesh.numRanks();
  bool free = meshIsPinned(); // a pinned mesh may add axes not named by the strategy
  if (!free && !(isRunnable(pins, runnable, mesh) && sizes.allows(mesh, tensorAxisIsPinned())))
    return false;
  if (strategy == "auto")
    return true;
  if (strategy == "tp")
    return mesh.tp == n;
  if (strategy == "pp")
    return mesh.pp == n;
  if (strategy == "hybrid")
    return axes >= 2;
  if (strategy == "hybrid-shard")
    return mesh.dp > 1 && mesh.fsdp > 1 && (free || mesh.dp * mesh.fsdp == n);
  if (strategy == "fsdp" || strategy == "shard-grad-op")
    return (free ? mesh.fsdp > 1 && mesh.dp == 1 : mesh.fsdp == n) || n == 1;
  if (strategy == "ddp")
    return (free ? mesh.dp > 1 && mesh.fsdp == 1 : mesh.dp == n) || n == 1;
  // zero1 to zero3: over dp, or over a pinned fsdp.
  return (free ? mesh.tokenRanks() > 1 : mesh.dp == n) || n == 1;
}

/// Returns the entries of `all` accepted by `keep`.
template <typename T, typename Keep> static std::vector<T> filtered(std::vector<T> all, Keep keep) {
  all.erase(std::remove_if(all.begin(), all.end(), [&](const T &x) { return !keep(x); }),
            all.end());
  return all;
}

/// Returns the sizes of an axis that are tried where `left` devices have no axis yet.
static std::vector<int64_t> sizesToTry(Axis axis, int64_t left, int64_t experts, const Pins &pins) {
  switch (axis) {
  case Axis::Pipeline:
  case Axis::Data:
  case Axis::Tensor:
    return divisorsOf(left);
  case Axis::Expert:
    return divisorsOf(std::gcd(left, experts));
  case Axis::ShardedData: // the last axis: all devices that are left
    return {left};
  case Axis::Context: { // else CandidateSpace::withContext() moves a factor of another axis to it
    const Condition *condition = askedSize(pins, Axis::Context);
    const int64_t asked = condition ? numberOf(*condition) : 1;
    return left % asked == 0 ? std::vector<int64_t>{asked} : std::vector<int64_t>{};
  }
  }
  return {};
}

std::vector<MeshShape> Space::meshes(int64_t devices) const {
  if (meshIsPinned())
    return {pinned};
  std::vector<MeshShape> meshes = {MeshShape()};
  for (Axis axis :
       {Axis::Pipeline, Axis::Tensor, Axis::Expert, Axis::Context, Axis::Data, Axis::ShardedData}) {
    std::vector<MeshShape> longer;
    for (MeshShape mesh : meshes)
      for (int64_t size : sizesToTry(axis, devices / mesh.numRanks(), experts, pins)) {
        mesh.of(axis) = size;
        longer.push_back(mesh);
        mesh.of(axis) = 1;
      }
    meshes = std::move(longer);
  }
  return filtered(std::move(meshes), [&](const MeshShape &mesh) {
    return allowed(mesh) && meets(pins.conditions, mesh);
  });
}

std::vector<ZeroChoice> Space::zeroChoices(const MeshShape &mesh) const {
  // A pinned axis fsdp asks for FSDP.
  const bool isPinned = pins.zero || zeroOf(pins.strategy) >= 0 || isAsked(pins, "zero") ||
                        (meshIsPinned() && mesh.fsdp > 1);
  return filtered(allZeroChoices(mesh), [&](const ZeroChoice &choice) {
    return meets(pins.conditions, "zero", zeroWord(choice)) &&
           (isPinned || RunnablePlans::has(runnable.zero, zeroWord(choice)));
  });
}

/// Returns the micro-batches that divide `batch`, before conditions.
static std::vector<int64_t> allMicroBatches(const Pins &pins, const std::string &meeting,
                                            const MeshShape &mesh, int64_t batch) {
  if (batch % mesh.dataRanks() != 0)
    return {};
  int64_t share = batch / mesh.dataRanks();
  if (!meeting.empty())
    return !pins.microBatch || *pins.microBatch == share ? std::vector<int64_t>{share}
                                                         : std::vector<int64_t>{};
  if (!pins.microBatch)
    return divisorsOf(share);
  if (share % *pins.microBatch != 0)
    return {};
  return {*pins.microBatch};
}

std::vector<int64_t> Space::microBatches(const MeshShape &mesh, int64_t batch) const {
  return filtered(allMicroBatches(pins, meeting, mesh, batch), [&](int64_t microBatch) {
    int64_t accumulation = batch / (mesh.dataRanks() * microBatch);
    return meets(pins.conditions, "micro-batch", std::to_string(microBatch)) &&
           meets(pins.conditions, "accumulation", std::to_string(accumulation));
  });
}

std::vector<RecomputeMode> Space::recomputeModes() const {
  std::vector<RecomputeMode> modes = planner::recomputeModes();
  if (recomputePins.mode)
    modes = {*recomputePins.mode};
  return filtered(std::move(modes), [&](RecomputeMode mode) {
    return meets(pins.conditions, "recompute", name(mode));
  });
}

bool Space::mayBePartial() const {
  return recomputePins.mayBePartial() &&
         (recomputePins.blocks || runnable.recompute != RecomputeShare::All);
}

std::vector<ScheduleChoice> Space::schedules(const MeshShape &mesh) const {
  const bool isPinned = !pins.schedule.empty() || isAsked(pins, "schedule");
  return filtered(allSchedules(mesh), [&](const ScheduleChoice &choice) {
    if (!isPinned && mesh.pp > 1 &&
        !RunnablePlans::has(runnable.schedules, scheduleWord(choice.schedule)))
      return false;
    if (choice.thereAndBack && !runnable.placesInV && pins.placement.empty())
      return false;
    return meets(pins.conditions, "schedule", scheduleWord(choice.schedule)) &&
           meets(pins.conditions, "virtual-stages", std::to_string(choice.chunksPerStage));
  });
}

std::vector<ZeroChoice> Space::allZeroChoices(const MeshShape &mesh) const {
  if (mesh.tokenRanks() == 1)
    return {{0, false}};
  bool keep = pins.strategy == "shard-grad-op";
  int zero = pins.zero ? *pins.zero : zeroOf(pins.strategy);
  // A pinned axis fsdp asks for FSDP. Pinned dp and ep say where gradients are summed, and leave
  // open whether optimizer states and gradients are sharded over them.
  if (zero < 0 && meshIsPinned() && mesh.fsdp > 1)
    zero = 3;
  bool both = mesh.dp > 1 && mesh.fsdp > 1;
  if (zero >= 0) {
    // Modes over one axis of either name are equal: open meshes use the usual name.
    bool strategyNamesAxis = zeroOf(pins.strategy) >= 0;
    if (!meshIsPinned() && !both && !strategyNamesAxis && (zero == 3) != (mesh.fsdp > 1))
      return {};
    if (!meshIsPinned() && both && zero == 0)
      return {};
    return {{zero, keep}};
  }
  if (both)
    return {{1, false}, {2, false}, {3, true}, {3, false}};
  if (mesh.fsdp > 1)
    return {{3, true}, {3, false}};
  return {{0, false}, {1, false}, {2, false}};
}

std::vector<ScheduleChoice> Space::allSchedules(const MeshShape &mesh) const {
  if (mesh.pp == 1)
    return {ScheduleChoice()};
  std::vector<ScheduleChoice> choices;
  auto add = [&](ScheduleKind kind, int chunks, bool thereAndBack) {
    bool fits = (schedule ? schedule == kind : schedule::isSearched(kind)) &&
                (!pins.virtualStages || *pins.virtualStages == chunks) &&
                (pins.placement.empty() || (chunks > 1 && thereAndBack == (pins.placement == "v")));
    ScheduleChoice choice{kind, chunks, thereAndBack};
    if (fits && std::find(choices.begin(), choices.end(), choice) == choices.end())
      choices.push_back(choice);
  };
  for (ScheduleKind kind : schedule::scheduleKinds())
    for (const schedule::Layout &layout : schedule::searchedLayouts(kind))
      add(kind, layout.chunksPerStage, layout.isVee);
  // Other numbers of chunks only on request.
  const int64_t chunks = pins.virtualStages.value_or(2);
  if (chunks > 1 && (pins.virtualStages || !pins.placement.empty()))
    for (ScheduleKind kind : schedule::scheduleKinds())
      if (schedule::chunkRule(kind) != schedule::ChunkRule::One)
        add(kind, int(chunks),
            pins.placement.empty() ? schedule::prefersVee(kind) : pins.placement == "v");
  return choices;
}

} // namespace tbc::planner
