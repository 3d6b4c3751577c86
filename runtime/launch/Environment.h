//===- Environment.h - The rank of this process ----------------------------===//
//
// Part of tbc. Plain C++. Launchers describe the process in the environment:
//
//   torchrun, `env://`   RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT
//   Slurm (srun)         SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_STEP_NODELIST
//   Open MPI (mpirun)    OMPI_COMM_WORLD_RANK, .._SIZE, .._LOCAL_RANK, .._LOCAL_SIZE
//   Kubeflow's operator  as torchrun, without LOCAL_RANK; KUBERNETES_PORT
//   LSF (jsrun)          JSM_NAMESPACE_RANK, .._SIZE, .._LOCAL_RANK, LSB_JOBID, LSB_MCPU_HOSTS
//   MPICH, other PMI     PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS
//
// If PMI's MPI_LOCALNRANKS equals PMI_SIZE, all ranks are on one host, and the process that started
// them names the job.
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

/// Returns the value of an environment variable, or nullopt if it is unset or empty.
using GetVariable = std::function<std::optional<std::string>(const std::string &name)>;
std::optional<std::string> systemVariable(const std::string &name);

/// The address of the rendezvous.
struct MeetingPoint {
  enum class Kind { Tcp, File };
  Kind kind = Kind::Tcp;
  std::string host; // of Tcp
  int port = 0;
  std::string path; // of File
  /// Whether tbc makes the folder for this job; rank 0 then removes it.
  bool isOurs = false;
};

/// Returns, for example, "tcp://127.0.0.1:29400" or "file:///tmp/job".
std::string toString(const MeetingPoint &point);

/// The rank of this process and its job.
struct RankPlace {
  std::string launcher; // "torchrun", "Kubeflow", "Slurm", "Open MPI", "LSF", "PMI"
  int64_t rank = 0, numRanks = 1;
  int64_t localRank = 0;
  /// Whether all ranks run on this host, as far as the launcher says.
  bool isOneHost = false;
  /// Distinguishes the user's jobs; empty if the launcher names none.
  std::string job;
  std::optional<MeetingPoint> meeting;
};

/// Returns the rank that a launcher gave this process; nullopt without a launcher. Errors: Usage,
/// naming the variable, for malformed or contradictory values.
Result<std::optional<RankPlace>> placeFromEnvironment(const GetVariable &get);

/// Returns the number of the job's ranks on this machine, as far as the launcher says; at least 1.
int64_t numLocalRanks(const RankPlace &place, const GetVariable &get);

/// Returns the number of cores that this process may use.
int64_t numCores();

/// Reads `--init`: "tcp://HOST:PORT" (HOST in brackets if it has colons), "file://PATH", or
/// "env://" for nullopt. Errors: Usage.
Result<std::optional<MeetingPoint>> parseMeetingPoint(const std::string &text);

/// Returns the first host of a Slurm list; empty for an empty list. Example: "node[03-05,9],other"
/// gives node03.
std::string firstHost(const std::string &hostList);

/// Returns whether a name or address is a loopback one.
bool isLoopback(const std::string &host);

} // namespace tbc::launch

#endif // TBC_RUNTIME_LAUNCH_ENVIRONMENT_H
