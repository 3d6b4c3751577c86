#!/usr/bin/env bash
# Everything that can be checked and measured on a machine with NVIDIA GPUs, in one command and under eleven minutes.
# usage: tests/bench/gpu.sh [--emulated] [BUILD_DIR] [OUTPUT_DIR]      (default: build and gpu-results)
# --emulated: on the emulated GPUs of the build (docs/gpus.md), with fewer steps and ten times the time; parts that measure a
# device are left out, each by name.
# Writes OUTPUT_DIR/gpu.json (of each part a verdict, its seconds and what it measured) and the output of each part beside it.
# A part that takes longer than its share of the eleven minutes is ended and has failed.
# Exit code: 0 all parts passed, 1 one failed, 77 there is no GPU or nothing is built (said on stderr).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

emulated=0 stretch=1 steps=10 models='*OnGpu*'
if [[ ${1:-} == --emulated ]]; then emulated=1 stretch=10 steps=3 models='*OnGpu*/3'; shift; fi
buildDir=${1:-build} output=${2:-gpu-results}
skip() { printf 'gpu.sh: skipped: %s\n' "$*" >&2; exit 77; }
if ((emulated)); then
  [[ -f $buildDir/emulated-gpu/libcuda.so.1 ]] || skip "$buildDir/emulated-gpu is not built; run ./bootstrap first"
  LD_LIBRARY_PATH=$(realpath "$buildDir/emulated-gpu") TBC_EMULATED_GPUS=4
  export LD_LIBRARY_PATH TBC_EMULATED_GPUS
else
  command -v nvidia-smi >/dev/null || skip "there is no nvidia-smi, so no driver of NVIDIA"
  nvidia-smi -L >/dev/null 2>&1 || skip "nvidia-smi finds no GPU"
fi
for program in comm-conformance cuda-kernels run-reference tbc; do
  [[ -x $buildDir/bin/$program ]] || skip "$buildDir/bin/$program is not built; run ./bootstrap first"
done
mkdir -p "$output" || exit 1

parts=() failed=0
# part NAME SECONDS COMMAND...: runs it for at most so long and notes how it ended, with $output/NAME.json if it wrote that
part() {
  local name=$1 limit=$(($2 * stretch)) begin=$SECONDS verdict=passed measured=""
  shift 2
  rm -f "$output/$name.json"
  timeout --kill-after=5 "$limit" "$@" >"$output/$name.txt" 2>&1
  case $? in
    0) ;;
    124 | 137) verdict="took longer than $limit s" failed=1 ;;
    *) verdict=failed failed=1 ;;
  esac
  # A suite of which nothing was run has shown nothing.
  if grep -q 'Running 0 tests' "$output/$name.txt"; then verdict=failed failed=1; fi
  [[ -s $output/$name.json ]] && measured=", \"measured\": $(cat "$output/$name.json")"
  printf '%-12s %s, %d s (%s)\n' "$name" "$verdict" $((SECONDS - begin)) "$output/$name.txt"
  parts+=("\"$name\": {\"verdict\": \"$verdict\", \"seconds\": $((SECONDS - begin))$measured}")
}

# device NAME WHAT SECONDS COMMAND...: a part that says something of a device only
device() {
  local name=$1 what=$2
  shift 2
  if ! ((emulated)); then part "$name" "$@"; return; fi
  printf '%-12s left out: an emulator has no %s\n' "$name" "$what"
  parts+=("\"$name\": {\"verdict\": \"left out: an emulator has no $what\", \"seconds\": 0}")
}

export TBC_GPU_TESTS=1
device machine nvidia-smi 10 nvidia-smi
part doctor 30 "$buildDir/bin/tbc" doctor
part conformance 60 "$buildDir/bin/comm-conformance" --gtest_filter='*NcclDevices*'
part kernels 60 "$buildDir/bin/cuda-kernels" --gtest_filter='DeviceTest.*AgreeWithTheReference'
part libraries 60 "$buildDir/bin/cuda-kernels" --gtest_filter='LibraryDeviceTest.*'
part pytorch 60 "$buildDir/bin/run-reference" --gtest_filter="$models"
device bandwidth 'bytes per second' 30 "$buildDir/bin/cuda-kernels" --gtest_filter='DeviceTest.BytesPerSecond'
((emulated)) || grep 'GB/s' "$output/bandwidth.txt"
device calibration speed 60 "$buildDir/bin/tbc" calibrate --gpus "$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')" -o "$output/cluster.toml"
part losses 120 python3 tests/bench/gpu_bench.py losses --steps $steps --tbc "$buildDir/bin/tbc" --json "$output/losses.json"
part graphs 60 python3 tests/bench/gpu_bench.py graphs --steps $steps --tbc "$buildDir/bin/tbc" --json "$output/graphs.json"
part repeats 40 python3 tests/bench/gpu_bench.py repeats --steps $steps --tbc "$buildDir/bin/tbc" --json "$output/repeats.json"
device speed speed 110 python3 tests/bench/gpu_bench.py speed --tbc "$buildDir/bin/tbc" --json "$output/speed.json" --seconds 100
cat "$output/losses.txt" "$output/graphs.txt"
((emulated)) || cat "$output/speed.txt"

joined=$(printf '%s, ' "${parts[@]}")
printf '{"version": 2, %s}\n' "${joined%, }" >"$output/gpu.json"
echo "wrote $output/gpu.json"
exit "$failed"
