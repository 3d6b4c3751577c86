#!/usr/bin/env python3
"""Trains on several GPUs as a user starts it. tests/bench/gpu.sh runs all of it.

    tests/bench/gpu_node.py meshes  --tbc build/bin/tbc --ranks 8 [--json FILE]
    tests/bench/gpu_node.py killed  --tbc build/bin/tbc --ranks 8 [--json FILE]
    tests/bench/gpu_node.py stopped --tbc build/bin/tbc --ranks 8 [--json FILE]
    tests/bench/gpu_node.py nodes   --tbc build/bin/tbc --folder SHARED [--pretend 2] [--json FILE]

meshes: `tbc run` starts the ranks, each on a GPU of its own, so NCCL uses NVLink if available.
Every loss of tiny-gpt2 must be within 1e-4 of one process on CPUs. A failing mesh is run again without
graphs, without registered memory and without peer access. The first variant that passes tells
where to look.

killed, stopped: one rank gets SIGKILL or SIGSTOP in the middle of a run. The job must end within
its time-out and name that rank.

nodes: the ranks of a launcher over several nodes (torchrun --no-python, srun), each of which runs
this program. Rank 0 compiles into SHARED, a folder that all nodes see. With --pretend N this
machine stands for N nodes of one rank.

--target cpu runs the same on CPUs.
"""

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "tiny-gpt2.onnx"
TOLERANCE = 1e-4
# Seconds beyond the time-out within which a job must end: reports, aborts, and the launcher's own
# delay.
GRACE = 60
# Features turned off in turn for a failing mesh: (name, flags, variables).
VARIANTS = [
    ("graphs", ["--cuda-graphs", "off"], {}),
    ("registered memory", [], {"TBC_NCCL_REGISTER": "0"}),
    ("NVLink or PCIe peer access", [], {"NCCL_P2P_DISABLE": "1"}),
]


def meshes_of(ranks):
    """Returns the meshes of `ranks` ranks. Example: 8 ranks give dp=8, fsdp=8, tp=4 x dp=2, pp=2 x
    dp=4, and two meshes of three axes.
    """
    meshes = [f"dp={ranks}", f"fsdp={ranks}", f"tp={min(ranks, 4)}" + (f",dp={ranks // 4}" if ranks > 4 else "")]
    if ranks % 2 == 0:
        meshes.append(f"pp=2,dp={ranks // 2}" if ranks > 2 else "pp=2")
    if ranks % 8 == 0:
        meshes += [f"dp={ranks // 4},fsdp=2,tp=2", f"pp=2,fsdp={ranks // 4},tp=2"]
    return meshes


def batch_of(ranks):
    return max(16, 2 * ranks)


class Failed(Exception):
    """A command that failed; the text is its output."""


def checked(command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def compiled(tbc, folder, mesh, ranks, target):
    """Returns the folder of tiny-gpt2's compiled Program. The global batch is `batch_of(ranks)`
    under every mesh.
    """
    name = f"{mesh.replace(',', '-').replace('=', '')}-{target}"
    sizes = ["--batch", str(batch_of(ranks)), "--seq", "16"] + (["--micro-batch", "2"] if "pp" in mesh else [])
    product = 1
    for axis in mesh.split(","):
        product *= int(axis.split("=")[1])
    checked([tbc, "plan", MODEL, "--gpus", product, "--mesh", mesh, "--precision", "f32", *sizes, "-o", f"{name}.json"], cwd=folder)
    checked([tbc, "compile", f"{name}.json", "--target", target, "-o", name], cwd=folder)
    return name


def losses_of(log):
    return [json.loads(line)["loss"] for line in Path(log).read_text(encoding="utf-8").splitlines()]


LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID")


def trained(options, folder, program, flags=(), variables=None, alone=False):
    """Returns the losses of a run. `tbc run` starts its ranks, or the launcher above; `alone`
    ignores the launcher.
    """
    log = Path(folder, f"{program}.jsonl")
    log.unlink(missing_ok=True)
    command = [options.tbc, "run", program, "--init-weights", "1", "--steps", options.steps, "--timeout", options.timeout, "--log", log]
    environment = {name: value for name, value in os.environ.items() if not (alone and name in LAUNCHER)}
    checked([*command, *flags], cwd=folder, env={**environment, **(variables or {})}, timeout=options.timeout + GRACE)
    return losses_of(log)


def difference(found, reference):
    if len(found) != len(reference):
        return float("inf")
    return max(abs(a - b) / abs(b) for a, b in zip(found, reference))


def passes(options, folder, program, reference, flags=(), variables=None):
    """Returns whether a run has the reference's losses, and a sentence."""
    try:
        found = difference(trained(options, folder, program, flags, variables), reference)
    except (Failed, subprocess.TimeoutExpired) as wrong:
        return False, str(wrong)
    return found <= TOLERANCE, f"losses at most {found:.1e} from one process"


def accused(options, folder, program, reference):
    """Returns the feature that makes a mesh fail: the first variant without it that passes."""
    for what, flags, variables in VARIANTS:
        if passes(options, folder, program, reference, flags, variables)[0]:
            return what
    return "none of graphs, registered memory, peer access alone"


def meshes(options, folder):
    program = compiled(options.tbc, folder, "dp=1", options.ranks, "cpu")
    reference, report = trained(options, folder, program), {}
    for mesh in meshes_of(options.ranks):
        program = compiled(options.tbc, folder, mesh, options.ranks, options.target)
        is_right, said = passes(options, folder, program, reference)
        report[mesh] = {"right": is_right, "said": said}
        print(f"{mesh:20} {'right' if is_right else 'WRONG'}: {said}", flush=True)
        if not is_right and options.target == "cuda":
            report[mesh]["look_at"] = accused(options, folder, program, reference)
            print(f"{mesh:20} look at: {report[mesh]['look_at']}", flush=True)
    return report, any(not entry["right"] for entry in report.values())


def children_of(parent):
    """Returns the process ids of a process's children, earlier ranks first."""
    listed = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="utf-8")
    return [int(word) for word in listed.split()]


def disturbed(options, folder, which):
    """Sends a signal to a rank of a job after three steps. Returns its exit code, the seconds from
    there, and its output.
    """
    program = compiled(options.tbc, folder, f"dp={options.ranks}", options.ranks, options.target)
    log, said = Path(folder, "disturbed.jsonl"), Path(folder, "disturbed.txt")
    command = [options.tbc, "run", program, "--init-weights", "1", "--steps", "1000000", "--timeout", str(options.fault_timeout), "--log", log]
    with said.open("w", encoding="utf-8") as out, subprocess.Popen([str(word) for word in command], cwd=folder, stdout=out, stderr=out) as job:
        try:
            begin = time.monotonic()
            while not log.exists() or log.read_text(encoding="utf-8").count("\n") < 3:
                if job.poll() is not None or time.monotonic() > begin + options.timeout + GRACE:
                    raise Failed(f"the run did not come to step 3:\n{said.read_text(encoding='utf-8')}")
                time.sleep(0.05)
            ranks = children_of(job.pid)
            victim = len(ranks) - 1
            os.kill(ranks[victim], which)
            begin = time.monotonic()
            try:
                code = job.wait(options.fault_timeout + GRACE)
            except subprocess.TimeoutExpired:
                code = None
            return victim, code, time.monotonic() - begin, said.read_text(encoding="utf-8")
        finally:
            end(job)


def end(job):
    """Ends a job and its ranks, including stopped ones."""
    if job.poll() is not None:
        return
    for rank in children_of(job.pid):
        os.kill(rank, signal.SIGKILL)
    job.kill()


def fault(options, folder, which, wanted):
    victim, code, seconds, said = disturbed(options, folder, which)
    is_named = re.search(rf"\brank {victim}\b", said) is not None
    is_right = code == wanted and is_named
    does = "did not end" if code is None else f"ended with {code} (wanted {wanted})"
    sentence = f"{seconds:.1f} s after {which.name} to rank {victim} of {options.ranks} the job {does} and {'names' if is_named else 'DOES NOT NAME'} it"
    print(sentence if is_right else f"{sentence}\n{said}")
    return {"code": code, "seconds": seconds, "named": is_named, "right": is_right}, not is_right


def killed(options, folder):
    return fault(options, folder, signal.SIGKILL, 6)


def stopped(options, folder):
    return fault(options, folder, signal.SIGSTOP, 7)


def waited_for(path, seconds):
    begin = time.monotonic()
    while not path.exists():
        if time.monotonic() > begin + seconds:
            raise Failed(f"rank 0 did not write {path} in {seconds} s: is {path.parent} a folder that all nodes see?")
        time.sleep(0.1)


def nodes(options, folder):
    """Runs one rank of a launcher's job. Only rank 0 judges."""
    if options.pretend:
        return pretended(options, folder)
    numbers = [os.environ.get(name, os.environ.get(slurm)) for name, slurm in (("RANK", "SLURM_PROCID"), ("WORLD_SIZE", "SLURM_NTASKS"))]
    if None in numbers:
        raise Failed("nodes is started by a launcher: torchrun --no-python or srun, which number the ranks")
    rank, world = map(int, numbers)
    report, reference, is_wrong = {}, None, False
    if rank == 0:
        if Path(folder, "ready-0").exists():
            raise Failed(f"{folder} holds an earlier run: name an empty folder that all nodes see")
        reference = trained(options, folder, compiled(options.tbc, folder, "dp=1", world, "cpu"), alone=True)
    for number, mesh in enumerate(meshes_of(world)):
        ready = Path(folder, f"ready-{number}")
        if rank == 0:
            ready.write_text(compiled(options.tbc, folder, mesh, world, options.target), encoding="utf-8")
        waited_for(ready, options.timeout)
        program = ready.read_text(encoding="utf-8")
        is_right, said = True, ""
        # torchrun keeps its own port.
        variables = {"MASTER_PORT": str(int(os.environ["MASTER_PORT"]) + 1 + number)} if "MASTER_PORT" in os.environ else {}
        try:
            found = trained(options, folder, program, variables=variables) if rank == 0 else follow(options, folder, program, variables)
            if rank == 0:
                is_right, said = difference(found, reference) <= TOLERANCE, f"losses at most {difference(found, reference):.1e} from one process"
        except (Failed, subprocess.TimeoutExpired) as wrong:
            is_right, said = False, str(wrong)
        is_wrong |= not is_right
        report[mesh] = {"right": is_right, "said": said}
        if rank == 0 or not is_right:
            print(f"rank {rank}: {mesh:20} {'right' if is_right else 'WRONG'}: {said}", flush=True)
    return report, is_wrong


def pretended(options, folder):
    """Starts `options.pretend` ranks, each as the only one of its node."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    base = {**os.environ, "WORLD_SIZE": str(options.pretend), "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TBC_JOB_TOKEN": "of this bench"}
    command = [sys.executable, __file__, "nodes", "--tbc", options.tbc, "--folder", str(folder), "--steps", options.steps]
    command += ["--timeout", str(options.timeout), "--target", options.target]
    ranks = [subprocess.Popen([*command, "--json", str(Path(folder, f"rank-{rank}.json"))], env={**base, "RANK": str(rank)}) for rank in range(options.pretend)]
    codes = [rank.wait() for rank in ranks]
    report = Path(folder, "rank-0.json")
    return json.loads(report.read_text(encoding="utf-8")) if report.exists() else {"codes": codes}, any(codes)


def follow(options, folder, program, variables):
    """Runs a rank other than rank 0, which writes the log."""
    command = [options.tbc, "run", program, "--init-weights", "1", "--steps", options.steps, "--timeout", options.timeout]
    command += ["--log", f"{program}.jsonl"]
    checked(command, cwd=folder, env={**os.environ, **variables}, timeout=options.timeout + GRACE)
    return []


def main():
    parts = {"meshes": meshes, "killed": killed, "stopped": stopped, "nodes": nodes}
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("part", choices=parts)
    parser.add_argument("--tbc", required=True, type=lambda path: str(Path(path).resolve()))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", default="10")
    parser.add_argument("--timeout", type=int, default=120, help="of a run that must pass, in seconds")
    parser.add_argument("--fault-timeout", type=int, default=20, help="of a run that must fail")
    parser.add_argument("--folder", help="of nodes: a folder that all of them see")
    parser.add_argument("--pretend", type=int, default=0, help="of nodes: on this machine, so many nodes of one rank")
    parser.add_argument("--target", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--json")
    options = parser.parse_args()
    try:
        if options.folder:
            Path(options.folder).mkdir(parents=True, exist_ok=True)
            report, failed = parts[options.part](options, options.folder)
        else:
            with tempfile.TemporaryDirectory() as folder:
                report, failed = parts[options.part](options, folder)
    except Failed as wrong:
        print(wrong)
        return 1
    if options.json:
        Path(options.json).write_text(json.dumps(report), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
