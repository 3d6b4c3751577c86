//===- Environment.cpp - Which rank this process is ------------------------===//

#include "runtime/launch/Environment.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sched.h>
#include <sstream>
#include <thread>
#include <unistd.h>

namespace tbc::launch {

std::optional<std::string> systemVariable(const std::string &name) {
  const char *value = std::getenv(name.c_str());
  if (!value || !*value)
    return std::nullopt;
  return value;
}

std::string toString(const MeetingPoint &point) {
  if (point.kind == MeetingPoint::Kind::File)
    return "file://" + point.path;
  bool hasColon = point.host.find(':') != std::string::npos;
  return "tcp://" + (hasColon ? "[" + point.host + "]" : point.host) + ":" +
         std::to_string(point.port);
}

static std::optional<int64_t> wholeNumber(const std::string &text) {
  if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::strtoll(text.c_str(), nullptr, 10);
}

static Error wrong(const std::string &name, const std::string &value, const std::string &wanted) {
  return {ErrorCode::Usage, "the environment says " + name + "=" + value + "; " + wanted};
}

/// Reads a variable that must be a number if it is set; returns `otherwise` if it is not.
static Result<int64_t> number(const GetVariable &get, const std::string &name, int64_t otherwise) {
  std::optional<std::string> text = get(name);
  if (!text)
    return otherwise;
  std::optional<int64_t> value = wholeNumber(*text);
  if (!value)
    return wrong(name, *text, "it must be a whole number");
  return *value;
}

namespace {
/// The variables of one kind of launcher; an empty name means it has no such variable.
struct Dialect {
  const char *launcher, *rank, *size, *localRank, *localSize, *job;
};
} // namespace

// torchrun first: it may itself run under Slurm or MPI.
static const Dialect dialects[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "", "SLURM_JOB_ID"},
    {"LSF", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK", "",
     "LSB_JOBID"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_JOBID"},
};

/// Returns the rendezvous of torchrun and hand-made environments.
static Result<std::optional<MeetingPoint>> masterOf(const GetVariable &get) {
  std::optional<std::string> host = get("MASTER_ADDR"), port = get("MASTER_PORT");
  if (!host && !port)
    return std::optional<MeetingPoint>();
  if (!host || !port)
    return Error{ErrorCode::Usage, "the environment has one of MASTER_ADDR and MASTER_PORT only"};
  std::optional<int64_t> value = wholeNumber(*port);
  if (!value || *value < 1 || *value > 65534)
    return wrong("MASTER_PORT", *port, "it must be a port");
  MeetingPoint point;
  point.host = *host;
  // Under torchrun its agent's own store occupies MASTER_PORT.
  bool hasAgent = get("TORCHELASTIC_USE_AGENT_STORE") == std::optional<std::string>("True");
  point.port = int(*value) + (hasAgent ? 1 : 0);
  return std::optional<MeetingPoint>(point);
}

/// Returns whether LSF gave the job one host; its list is "host slots host slots …".
static bool isOneLsfHost(const GetVariable &get) {
  std::istringstream list(get("LSB_MCPU_HOSTS").value_or(""));
  std::string host, slots;
  return list >> host >> slots && !(list >> host);
}

/// Returns the rendezvous under Slurm: its first host, and a port computed from the job number, the
/// same on all hosts.
static std::optional<MeetingPoint> slurmMeeting(const GetVariable &get, const std::string &job) {
  std::optional<std::string> hosts = get("SLURM_STEP_NODELIST");
  if (!hosts)
    hosts = get("SLURM_JOB_NODELIST");
  if (!hosts || firstHost(*hosts).empty())
    return std::nullopt;
  MeetingPoint point;
  point.host = firstHost(*hosts);
  point.port = 20000 + int(std::strtoll(job.c_str(), nullptr, 10) % 10000);
  return point;
}

/// Returns the parent of a process and its start time in ticks since boot; nullopt if the process
/// is gone.
static std::optional<std::pair<pid_t, std::string>> parentAndStart(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text(std::istreambuf_iterator<char>(file), {});
  size_t end = text.rfind(')'); // the name before it may contain any character
  if (end == std::string::npos)
    return std::nullopt;
  std::istringstream fields(text.substr(end + 1));
  std::string state, start;
  pid_t parent = 0;
  fields >> state >> parent;
  constexpr int fieldsBetween = 17; // ppid is field 4 and starttime field 22 of proc(5)
  for (int i = 0; i <= fieldsBetween && fields; ++i)
    fields >> start;
  return std::pair(parent, start);
}

static bool hasVariable(pid_t pid, const std::string &name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ");
  std::string text = std::string(1, '\0') + std::string(std::istreambuf_iterator<char>(file), {});
  return text.find('\0' + name + "=") != std::string::npos;
}

/// Returns the id of the process that started the ranks of this host, as "1234-567890": its process
/// number and start time. It is the nearest ancestor without `rankVariable` in its environment, so
/// shells and wrappers in between do not count. The id is equal for all ranks of the job and
/// differs between jobs.
static std::string starterOf(const std::string &rankVariable) {
  pid_t pid = getppid();
  std::optional<std::pair<pid_t, std::string>> found = parentAndStart(pid);
  while (found && found->first > 1 && hasVariable(pid, rankVariable)) {
    pid = found->first;
    found = parentAndStart(pid);
  }
  return found ? std::to_string(pid) + "-" + found->second : "";
}

Result<std::optional<RankPlace>> placeFromEnvironment(const GetVariable &get) {
  for (const Dialect &dialect : dialects) {
    // The size alone is also set for a shell in an allocation.
    if (!get(dialect.rank) || !get(dialect.size))
      continue;
    RankPlace place;
    place.launcher = dialect.launcher;
    Result<int64_t> rank = number(get, dialect.rank, 0), size = number(get, dialect.size, 1);
    Result<int64_t> local = number(get, dialect.localRank, 0);
    Result<int64_t> localSize =
        *dialect.localSize ? number(get, dialect.localSize, 0) : Result<int64_t>(int64_t(0));
    for (const Result<int64_t> *value : {&rank, &size, &local, &localSize})
      if (!*value)
        return value->error();
    if (*rank >= *size)
      return wrong(dialect.rank, std::to_string(*rank),
                   "it must be below " + std::string(dialect.size) + "=" + std::to_string(*size));
    place.rank = *rank;
    place.numRanks = *size;
    place.localRank = *local;
    place.isOneHost = *localSize == *size;
    place.job = get(dialect.job).value_or("");
    // MPICH's process manager names no job.
    if (place.launcher == "PMI" && place.isOneHost && place.job.empty())
      place.job = starterOf(dialect.rank);
    // Kubeflow's operator sets torchrun's variables except LOCAL_RANK, because a pod has one rank.
    if (place.launcher == "torchrun" && get("KUBERNETES_PORT") && !get("LOCAL_RANK"))
      place.launcher = "Kubeflow";
    if (place.launcher == "LSF")
      place.isOneHost = isOneLsfHost(get);
    Result<std::optional<MeetingPoint>> master = masterOf(get);
    if (!master)
      return master.error();
    place.meeting = *master;
    if (std::string(dialect.launcher) == "Slurm") {
      place.isOneHost =
          get("SLURM_STEP_NUM_NODES").value_or(get("SLURM_NNODES").value_or("")) == "1";
      place.job += "." + get("SLURM_STEP_ID").value_or("0");
      if (!place.meeting && !place.isOneHost)
        place.meeting = slurmMeeting(get, place.job);
    }
    if (!place.meeting && place.isOneHost && !place.job.empty()) {
      // On one host a folder needs no free port.
      MeetingPoint folder;
      folder.kind = MeetingPoint::Kind::File;
      std::string name = place.job;
      for (char &c : name)
        c = std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' ? c : '_';
      folder.path =
          get("TMPDIR").value_or("/tmp") + "/tbc-" + std::to_string(getuid()) + "-" + name;
      folder.isOurs = true;
      place.meeting = folder;
    }
    return std::optional<RankPlace>(place);
  }
  return std::optional<RankPlace>();
}

Result<std::optional<MeetingPoint>> parseMeetingPoint(const std::string &text) {
  auto failed = [&](const std::string &why) {
    return Error{ErrorCode::Usage,
                 "--init " + text + ": " + why + "; give env://, tcp://HOST:PORT or file://PATH"};
  };
  MeetingPoint point;
  if (text == "env://")
    return std::optional<MeetingPoint>();
  if (text.rfind("file://", 0) == 0) {
    point.kind = MeetingPoint::Kind::File;
    point.path = text.substr(7);
    if (point.path.empty() || point.path[0] != '/')
      return failed("the path must be absolute");
    return std::optional<MeetingPoint>(point);
  }
  if (text.rfind("tcp://", 0) != 0)
    return failed("no such kind of rendezvous");
  std::string rest = text.substr(6);
  size_t colon = rest.rfind(':');
  std::optional<int64_t> port =
      colon == std::string::npos ? std::nullopt : wholeNumber(rest.substr(colon + 1));
  if (!port || *port < 1 || *port > 65535)
    return failed("it has no port");
  point.host = rest.substr(0, colon);
  if (point.host.size() > 2 && point.host.front() == '[' && point.host.back() == ']')
    point.host = point.host.substr(1, point.host.size() - 2);
  if (point.host.empty())
    return failed("it has no host");
  point.port = int(*port);
  return std::optional<MeetingPoint>(point);
}

int64_t numLocalRanks(const RankPlace &place, const GetVariable &get) {
  for (const Dialect &dialect : dialects) {
    if (place.launcher != dialect.launcher)
      continue;
    // Slurm has "4", or "4(x2),3" for nodes that differ; the first number is good enough.
    std::string name = *dialect.localSize ? dialect.localSize : "SLURM_STEP_TASKS_PER_NODE";
    std::string text = get(name).value_or("");
    std::optional<int64_t> value = wholeNumber(text.substr(0, text.find_first_of("(,")));
    if (value && *value > 0)
      return *value;
  }
  return place.isOneHost ? place.numRanks : 1;
}

int64_t numCores() {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  if (sched_getaffinity(0, sizeof mine, &mine) == 0)
    return std::max(1, CPU_COUNT(&mine));
  return std::max<int64_t>(1, int64_t(std::thread::hardware_concurrency()));
}

std::string firstHost(const std::string &hostList) {
  size_t open = hostList.find('['), comma = hostList.find(',');
  if (open == std::string::npos || comma < open)
    return hostList.substr(0, comma);
  size_t close = hostList.find(']', open);
  std::string ranges =
      hostList.substr(open + 1, close == std::string::npos ? close : close - open - 1);
  std::string first = ranges.substr(0, ranges.find_first_of(",-"));
  std::string rest = close == std::string::npos ? "" : hostList.substr(close + 1);
  return hostList.substr(0, open) + first + rest.substr(0, rest.find(','));
}

bool isLoopback(const std::string &host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

} // namespace tbc::launch
