#!/usr/bin/env bash
# Everything that can be checked and measured on a machine with NVIDIA GPUs, in one command.
# usage: tests/bench/gpu.sh [BUILD_DIR] [OUTPUT_DIR]      (default: build and gpu-results)
# Writes OUTPUT_DIR/gpu.json (a verdict and the seconds of each part) and the output of each part beside it.
# Exit code: 0 all parts that there are passed, 1 one failed, 77 there is no GPU (said on stderr).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

buildDir=${1:-build} output=${2:-gpu-results}
skip() { printf 'gpu.sh: skipped: %s\n' "$*" >&2; exit 77; }
command -v nvidia-smi >/dev/null || skip "there is no nvidia-smi, so no driver of NVIDIA"
nvidia-smi -L >/dev/null 2>&1 || skip "nvidia-smi finds no GPU"
for program in comm-conformance cuda-kernels; do
  [[ -x $buildDir/bin/$program ]] || skip "$buildDir/bin/$program is not built; run ./bootstrap first"
done
mkdir -p "$output" || exit 1

parts=() failed=0
# part NAME COMMAND...: runs it and notes how it ended
part() {
  local name=$1 begin=$SECONDS verdict=passed
  shift
  if ! "$@" >"$output/$name.txt" 2>&1; then verdict=failed failed=1; fi
  # A suite of which nothing was run has shown nothing.
  if grep -q 'Running 0 tests' "$output/$name.txt"; then verdict=failed failed=1; fi
  printf '%-12s %s, %d s (%s)\n' "$name" "$verdict" $((SECONDS - begin)) "$output/$name.txt"
  parts+=("\"$name\": {\"verdict\": \"$verdict\", \"seconds\": $((SECONDS - begin))}")
}
# missing NAME WHY: what is not there to be run
missing() {
  printf '%-12s not run: %s\n' "$1" "$2"
  parts+=("\"$1\": {\"verdict\": \"not run\", \"why\": \"$2\"}")
}

export TBC_GPU_TESTS=1
part machine nvidia-smi
part conformance "$buildDir/bin/comm-conformance" --gtest_filter='*NcclDevices*'
part kernels "$buildDir/bin/cuda-kernels" --gtest_filter='DeviceTest.KernelsAgreeWithTheReference'
part bandwidth "$buildDir/bin/cuda-kernels" --gtest_filter='DeviceTest.BytesPerSecond'
grep 'GB/s' "$output/bandwidth.txt"
missing calibration "tbc calibrate measures no GPUs yet"
missing models "tbc compile has no --target cuda yet"
missing speed "tbc compile has no --target cuda yet"

joined=$(printf '%s, ' "${parts[@]}")
printf '{"version": 1, %s}\n' "${joined%, }" >"$output/gpu.json"
echo "wrote $output/gpu.json"
exit "$failed"
