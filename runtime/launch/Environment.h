//===- Environment.h - Which rank this process is --------------------------===//
//
// Part of tbc. Plain C++. Who started the process says it in the environment:
//
//   torchrun, `env://`   RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT
//   Slurm (srun)         SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_STEP_NODELIST
//   Open MPI (mpirun)    OMPI_COMM_WORLD_RANK, .._SIZE, .._LOCAL_RANK, .._LOCAL_SIZE
//   Kubeflow's operator  as torchrun, without LOCAL_RANK; KUBERNETES_PORT
//   LSF (jsrun)          JSM_NAMESPACE_RANK, .._SIZE, .._LOCAL_RANK, LSB_JOBID, LSB_MCPU_HOSTS
//   MPICH, other PMI     PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS; where the last is
//                        PMI_SIZE, all ranks are on one host and the process that started them
//                        names the job
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_LAUNCH_ENVIRONMENT_H
#define TBC_RUNTIME_LAUNCH_ENVIRONMENT_H

#include "runtime/abi/Status.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tbc::launch {

/// The value of an environment variable; nothing if it is not set or empty.
using GetVariable = std::function<std::optional<std::string>(const std::string &name)>;
std::optional<std::string> systemVariable(const std::string &name);

/// Where ranks meet.
struct MeetingPoint {
  enum class Kind { Tcp, File };
  Kind kind = Kind::Tcp;
  std::string host; // of Tcp
  int port = 0;
  std::string path; // of File
  /// Whether the folder is made for this job by tbc, so that rank 0 removes it.
  bool isOurs = false;
};

/// "tcp://127.0.0.1:29400", "file:///tmp/job".
std::string toString(const MeetingPoint &point);

/// What a process knows about itself among the others.
struct RankPlace {
  std::string launcher; // "torchrun", "Kubeflow", "Slurm", "Open MPI", "LSF", "PMI"
  int64_t rank = 0, numRanks = 1;
  int64_t localRank = 0;
  /// Whether all ranks run on this host, as far as the launcher says.
  bool isOneHost = false;
  /// Names the job among the user's; empty if the launcher gives it no name.
  std::string job;
  std::optional<MeetingPoint> meeting;
};

/// The place that a launcher gave this process, or nothing if none did. Errors: Usage, naming the
/// variable, for what cannot be read or contradicts itself.
Result<std::optional<RankPlace>> placeFromEnvironment(const GetVariable &get);

/// How many ranks of the job run on this machine, as far as the launcher says; at least 1.
int64_t numLocalRanks(const RankPlace &place, const GetVariable &get);

/// The cores that this process may run on.
int64_t numCores();

/// Reads `--init`: "tcp://HOST:PORT" (HOST in brackets if it has colons), "file://PATH", or
/// "env://" for nothing. Errors: Usage.
Result<std::optional<MeetingPoint>> parseMeetingPoint(const std::string &text);

/// The first host of a Slurm list: "node[03-05,9],other" is node03. Empty for an empty list.
std::string firstHost(const std::string &hostList);

/// Whether a name or address means this machine only.
bool isLoopback(const std::string &host);

} // namespace tbc::launch

#endif // TBC_RUNTIME_LAUNCH_ENVIRONMENT_H
