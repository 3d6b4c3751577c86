#!/usr/bin/env bash
# Everything that can be checked and measured on machines with NVIDIA GPUs, in stages; eight minutes on one H200.
# usage: tests/bench/gpu.sh [--emulated] [BUILD_DIR] [OUTPUT_DIR]      (default: build and gpu-results)
#        tests/bench/gpu.sh --nodes SHARED [BUILD_DIR] [OUTPUT_DIR]    (by a launcher, on every node)
# Stage one-gpu: numbers first, then libraries, bytes per second, and speed beside PyTorch where that finds a GPU.
# Stage node: all GPUs of this machine, with ranks as tbc run starts them, so over NVLink; a killed and a stopped rank.
# Stage nodes: two machines or more. SHARED is a folder that all see. Example:
#   torchrun --nnodes 2 --nproc-per-node 8 --rdzv-endpoint HOST:29400 --no-python tests/bench/gpu.sh --nodes /shared/gpu
# --emulated: on the emulated GPUs of the build (docs/gpus.md), with fewer steps and ten times the time; parts that need
# a device are left out, each by name.
# Writes OUTPUT_DIR/gpu.json (of each part its stage, verdict, seconds, numbers, and where to look if it failed) and the
# output of each part beside it. A part that takes longer than its share is ended and has failed.
# Exit code: 0 all parts passed, 1 one failed, 77 there is no GPU or a program is missing (said on stderr).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

emulated=0 stretch=1 steps=10 models='*OnGpu*' shared=""
case ${1:-} in
  --emulated) emulated=1 stretch=10 steps=3 models='*OnGpu*/3'; shift ;;
  --nodes)
    [[ -n ${2:-} ]] || { echo "gpu.sh: --nodes needs a folder that all nodes see" >&2; exit 1; }
    shared=$2
    shift 2
    ;;
esac
buildDir=${1:-build} output=${2:-gpu-results}
skip() { printf 'gpu.sh: skipped: %s\n' "$*" >&2; exit 77; }
if ((emulated)); then
  [[ -f $buildDir/emulated-gpu/libcuda.so.1 ]] || skip "$buildDir/emulated-gpu is not built; run ./bootstrap first"
  LD_LIBRARY_PATH=$(realpath "$buildDir/emulated-gpu") TBC_EMULATED_GPUS=4 gpus=2
  export LD_LIBRARY_PATH TBC_EMULATED_GPUS
else
  command -v nvidia-smi >/dev/null || skip "there is no nvidia-smi, so no driver of NVIDIA"
  nvidia-smi -L >/dev/null 2>&1 || skip "nvidia-smi finds no GPU"
  gpus=$(nvidia-smi -L | grep -c '^GPU ')
fi
for program in comm-conformance cuda-kernels run-reference tbc; do
  [[ -x $buildDir/bin/$program ]] || skip "$buildDir/bin/$program is not built; run ./bootstrap first"
done
mkdir -p "$output" || exit 1

# Where to look first if a part fails.
declare -A look=(
  [doctor]="the lines that begin with wrong: a driver, a library or its version; all else depends on them"
  [kernels]="the op that is named: PTX that a device executes in another way than the emulator; run it with compute-sanitizer"
  [libraries]="the op that is named: cuBLASLt or cuDNN, their versions (doctor.txt); LD_LIBRARY_PATH without them uses kernels of ours"
  [pytorch]="whether kernels and libraries passed; if so, the first step whose loss differs"
  [bandwidth]="nvidia-smi for other processes, clocks and power limits (machine.txt)"
  [calibration]="the first line that says error; NCCL_DEBUG=WARN says more"
  [conformance]="NCCL: NCCL_DEBUG=WARN; on hosts with several networks NCCL_SOCKET_IFNAME"
  [losses]="the first mesh that is WRONG; with --offload all, pinned memory (ulimit -l)"
  [graphs]="what --cuda-graphs off does: if that is right, the capture (docs/gpus.md, steps as graphs)"
  [repeats]="which library is not deterministic: NCCL_ALGO and NCCL_PROTO, cuBLASLt's workspace"
  [speed]="gpu-results/speed.txt: the model that did not end; tbc program show PROGRAM --roofline says what bounds it"
  [meshes]="the lines that say look at: graphs, registered memory or peer access; nvidia-smi topo -m shows NVLink"
  [killed]="what the job printed: it has to end by itself with exit code 6 and name the rank"
  [stopped]="what the job printed: it has to end within its time-out with exit code 7 and name the rank"
  [nodes]="whether meshes passed on each node; NCCL_SOCKET_IFNAME, NCCL_IB_HCA, firewalls; NCCL_DEBUG=INFO names the network"
)
parts=() failed=0 stage=""
begin() { stage=$1; printf '%s\n' "stage $1: $2"; }
# part NAME SECONDS COMMAND...: runs it for at most so long and notes how it ended, with $output/NAME.json if it wrote that
part() {
  local name=$1 limit=$(($2 * stretch)) begin=$SECONDS verdict=passed measured=""
  shift 2
  rm -f "$output/$name.json"
  timeout --kill-after=5 "$limit" "$@" >"$output/$name.txt" 2>&1
  case $? in
    0) ;;
    124 | 137) verdict="took longer than $limit s" ;;
    *) verdict=failed ;;
  esac
  # A suite of which nothing was run has shown nothing.
  if grep -q 'Running 0 tests' "$output/$name.txt"; then verdict=failed; fi
  [[ -s $output/$name.json ]] && measured=", \"measured\": $(cat "$output/$name.json")"
  printf '%-12s %s, %d s (%s)\n' "$name" "$verdict" $((SECONDS - begin)) "$output/$name.txt"
  if [[ $verdict != passed ]]; then
    failed=1
    if [[ -n ${look[$name]:-} ]]; then
      printf '%-12s look at: %s\n' "" "${look[$name]}"
      measured+=", \"look_at\": \"${look[$name]}\""
    fi
  fi
  parts+=("\"$name\": {\"stage\": \"$stage\", \"verdict\": \"$verdict\", \"seconds\": $((SECONDS - begin))$measured}")
}
# without NAME REASON: a part that is left out
without() {
  printf '%-12s left out: %s\n' "$1" "$2"
  parts+=("\"$1\": {\"stage\": \"$stage\", \"verdict\": \"left out: $2\", \"seconds\": 0}")
}
# device NAME WHAT SECONDS COMMAND...: a part that says something of a device only
device() {
  local name=$1 what=$2
  shift 2
  if ((emulated)); then without "$name" "an emulator has no $what"; else part "$name" "$@"; fi
}
finish() {
  local joined
  joined=$(printf '%s, ' "${parts[@]}")
  printf '{"version": 3, %s}\n' "${joined%, }" >"$1"
  echo "wrote $1"
  exit "$failed"
}
export TBC_GPU_TESTS=1

if [[ -n $shared ]]; then
  begin nodes "ranks of a launcher on several machines"
  part nodes 600 python3 tests/bench/gpu_node.py nodes --steps $steps --tbc "$buildDir/bin/tbc" --folder "$shared" --json "$output/nodes.json"
  cat "$output/nodes.txt"
  finish "$output/gpu-nodes-${RANK:-0}.json"
fi

begin one-gpu "numbers, then bytes per second and speed"
device machine nvidia-smi 10 nvidia-smi
part doctor 30 "$buildDir/bin/tbc" doctor
part kernels 180 "$buildDir/bin/cuda-kernels" --gtest_filter='DeviceTest.*AgreeWithTheReference'
part libraries 60 "$buildDir/bin/cuda-kernels" --gtest_filter='LibraryDeviceTest.*'
part pytorch 60 "$buildDir/bin/run-reference" --gtest_filter="$models"
part conformance 180 "$buildDir/bin/comm-conformance" --gtest_filter='*NcclDevices*'
part losses 120 python3 tests/bench/gpu_bench.py losses --steps $steps --tbc "$buildDir/bin/tbc" --json "$output/losses.json"
part graphs 60 python3 tests/bench/gpu_bench.py graphs --steps $steps --tbc "$buildDir/bin/tbc" --json "$output/graphs.json"
part repeats 40 python3 tests/bench/gpu_bench.py repeats --steps $steps --tbc "$buildDir/bin/tbc" --json "$output/repeats.json"
device bandwidth 'bytes per second' 30 "$buildDir/bin/cuda-kernels" --gtest_filter='DeviceTest.BytesPerSecond'
((emulated)) || grep 'GB/s' "$output/bandwidth.txt"
device calibration speed 60 "$buildDir/bin/tbc" calibrate --gpus "$gpus" -o "$output/cluster.toml"
device speed speed 110 python3 tests/bench/gpu_bench.py speed --tbc "$buildDir/bin/tbc" --calibrated "$output/cluster.toml" --json "$output/speed.json" --seconds 100

begin node "all GPUs of this machine, as tbc run starts them"
if ((gpus < 2)); then
  for name in meshes killed stopped; do without "$name" "this machine has $gpus GPU"; done
else
  part meshes 180 python3 tests/bench/gpu_node.py meshes --ranks "$gpus" --steps $steps --tbc "$buildDir/bin/tbc" --json "$output/meshes.json"
  part killed 120 python3 tests/bench/gpu_node.py killed --ranks "$gpus" --tbc "$buildDir/bin/tbc" --json "$output/killed.json"
  part stopped 120 python3 tests/bench/gpu_node.py stopped --ranks "$gpus" --tbc "$buildDir/bin/tbc" --json "$output/stopped.json"
fi

begin nodes "ranks of a launcher on several machines"
if ((emulated)); then
  # Two nodes of one rank each, both this machine.
  part nodes 60 python3 tests/bench/gpu_node.py nodes --pretend 2 --steps $steps --tbc "$buildDir/bin/tbc" --json "$output/nodes.json"
else
  without nodes "start it by a launcher: torchrun --nnodes 2 --nproc-per-node $gpus --no-python tests/bench/gpu.sh --nodes SHARED"
fi

for name in losses graphs meshes speed; do
  [[ -f $output/$name.txt ]] && cat "$output/$name.txt"
done
finish "$output/gpu.json"
