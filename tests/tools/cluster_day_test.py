"""usage: cluster_day_test.py CPACK BUILD_DIR SOURCE_DIR

The day of docs/cluster-day.md: its commands, from the .tar.gz of cpack alone and without a compiler,
on two nodes. A node is a network namespace with its own host name and slurmd. The test makes the
pretrained weights, kills all processes of a node, and reads the trained weights. Exits with 77,
saying why, without root, ip(8), Slurm or munge. If the test itself is killed, its daemons end with it,
and the next one removes its namespaces and its folder.
"""

import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import safetensors_file

CPACK, BUILD, SOURCE = sys.argv[1:4]
PAGE = Path(SOURCE) / "docs/cluster-day.md"
NEEDED = ("ip", "nsenter", "setpriv", "unshare", "munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "squeue", "scancel")
# Programs of the commands on the page and of batch scripts. There is no compiler among them.
TOOLS = ("bash", "cat", "env", "gzip", "ls", "od", "sed", "sh", "tail", "tar", "tr", *NEEDED[7:])
CONFIG = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 2, "n_embd": 32, "n_head": 2, "n_positions": 16,
          "vocab_size": 64, "activation_function": "gelu_new", "tie_word_embeddings": True}  # fmt: skip
SLURM = """ClusterName=day
SlurmctldHost=n1(10.199.8.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
ReturnToService=1
SelectType=select/cons_tres
KillWait=5
MessageTimeout=10
TCPTimeout=5
NodeName=n1 NodeAddr=10.199.8.1 CPUs={cpus} State=UNKNOWN
NodeName=n2 NodeAddr=10.199.8.2 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES State=UP
"""
# The parts of torchrun that the page uses. Its agent keeps the master port to itself.
TORCHRUN = """#!{python}
import argparse, os, subprocess, sys
parser = argparse.ArgumentParser()
parser.add_argument("--no-python", action="store_true")
for flag in ("--nnodes", "--node-rank", "--nproc-per-node", "--master-port"):
    parser.add_argument(flag, type=int)
parser.add_argument("--master-addr")
parser.add_argument("command", nargs=argparse.REMAINDER)
a = parser.parse_args()
ranks = [subprocess.Popen(a.command, env=dict(
    os.environ, RANK=str(a.node_rank * a.nproc_per_node + local), LOCAL_RANK=str(local), LOCAL_WORLD_SIZE=str(a.nproc_per_node),
    WORLD_SIZE=str(a.nnodes * a.nproc_per_node), MASTER_ADDR=a.master_addr, MASTER_PORT=str(a.master_port),
    TORCHELASTIC_RUN_ID="day", TORCHELASTIC_USE_AGENT_STORE="True")) for local in range(a.nproc_per_node)]
sys.exit(max(rank.wait() for rank in ranks))
"""


#
# Weights
#


def bfloat16(value):
    """Returns the bits of a float, rounded to the nearest even bfloat16."""
    bits, = struct.unpack("<I", struct.pack("<f", value))
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def shapes():
    """Returns {name: shape} as GPT-2's file on the hub has them."""
    n, vocab, length = CONFIG["n_embd"], CONFIG["vocab_size"], CONFIG["n_positions"]
    found = {"wte.weight": [vocab, n], "wpe.weight": [length, n], "ln_f.weight": [n], "ln_f.bias": [n]}
    for block in range(CONFIG["n_layer"]):
        parts = {"ln_1.weight": [n], "ln_1.bias": [n], "attn.c_attn.weight": [n, 3 * n], "attn.c_attn.bias": [3 * n],
                 "attn.c_proj.weight": [n, n], "attn.c_proj.bias": [n], "ln_2.weight": [n], "ln_2.bias": [n],
                 "mlp.c_fc.weight": [n, 4 * n], "mlp.c_fc.bias": [4 * n], "mlp.c_proj.weight": [4 * n, n], "mlp.c_proj.bias": [n]}  # fmt: skip
        found.update({f"h.{block}.{name}": shape for name, shape in parts.items()})
    return found


def count(shape):
    size = 1
    for extent in shape:
        size *= extent
    return size


def write_pretrained(folder):
    """Writes config.json and model.safetensors in bfloat16, with masks that no parameter takes."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1))
    draw = random.Random(1)
    tensors = {}
    for name, shape in shapes().items():
        isGain = name.endswith("weight") and "ln_" in name
        numbers = [1.0 if isGain else draw.gauss(0, 0.05) for _ in range(count(shape))]
        tensors[name] = ("BF16", shape, b"".join(struct.pack("<H", bfloat16(number)) for number in numbers))
    length = CONFIG["n_positions"]
    mask = b"".join(struct.pack("<f", column <= row) for row in range(length) for column in range(length))
    for block in range(CONFIG["n_layer"]):
        tensors[f"h.{block}.attn.bias"] = ("F32", [1, 1, length, length], mask)
    safetensors_file.write(folder / "model.safetensors", tensors)


def check_trained(folder):
    """Compares trained/ with pretrained/, and with the checkpoint in f32."""
    assert (folder / "trained/config.json").read_bytes() == (folder / "pretrained/config.json").read_bytes()
    assert sorted(os.listdir(folder / "trained")) == ["config.json", "model.safetensors"]
    before, metadata = safetensors_file.read(folder / "pretrained/model.safetensors")
    after, newMetadata = safetensors_file.read(folder / "trained/model.safetensors")
    exact, _ = safetensors_file.read(folder / "exact.safetensors")
    assert metadata == newMetadata, newMetadata
    assert list(before) == list(after), "other names or another order"
    for name, (dtype, shape, data) in after.items():
        assert (dtype, shape) == before[name][:2], name
        if name.endswith(".attn.bias"):
            assert data == before[name][2], name
            continue
        ours = exact["transformer." + name]
        assert ours[:2] == ("F32", shape), (name, ours[:2])
        rounded = b"".join(struct.pack("<H", bfloat16(number)) for number, in struct.iter_unpack("<f", ours[2]))
        assert data == rounded, f"{name} has other values than the checkpoint"
        assert data != before[name][2], f"{name} was not trained"


def load_in_transformers(folder):
    """Loads trained/ in transformers, where it is installed."""
    python = sys.executable
    if subprocess.run([python, "-c", "import torch, transformers"], capture_output=True).returncode != 0:
        print("transformers is not installed: names, shapes, types and values were compared, nothing was loaded by it")
        return
    code = ("import transformers; model, info = transformers.AutoModelForCausalLM.from_pretrained('trained', output_loading_info=True); "
            "assert not info['missing_keys'] and not info['mismatched_keys'], info")  # fmt: skip
    subprocess.run([python, "-c", code], cwd=folder, check=True, timeout=120)


#
# Nodes
#


def is_running(owner):
    """Whether process `owner` is a run of this test."""
    try:
        return Path(__file__).name in Path(f"/proc/{owner}/cmdline").read_text()
    except OSError:
        return False


def kill_all_of(namespace):
    """Kills every process of a network namespace."""
    run = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True)
    for pid in run.stdout.split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass


def remove_leftovers():
    """Removes namespaces, their processes, and folders of runs of this test that were killed."""
    for name in sorted(os.listdir("/run/netns") if os.path.isdir("/run/netns") else []):
        found = re.fullmatch(r"tbcday\d-(\d+)", name)
        if found and not is_running(found[1]):
            kill_all_of(name)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
            print(f"removed {name} of a run that was killed", flush=True)
    for owner in sorted(Path(tempfile.gettempdir()).glob("tbc-day-*/owner")):
        if not is_running(owner.read_text()):
            shutil.rmtree(owner.parent)


class Nodes:
    """Two network namespaces, n1 and n2, with a Slurm over both."""

    def __init__(self, folder):
        self.folder = folder
        self.names = {node: f"tbcday{number}-{os.getpid()}" for number, node in enumerate(("n1", "n2"), 1)}
        self.daemons = []
        self.hosts = folder / "hosts"
        self.hosts.write_text("127.0.0.1 localhost\n10.199.8.1 n1\n10.199.8.2 n2\n")

    def __enter__(self):
        try:
            self.make_network()
            self.start_slurm()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for daemon in self.daemons:
            daemon.terminate()
        for node in self.names:
            self.kill(node)
        for daemon in self.daemons:
            daemon.wait(timeout=60)
        for name in self.names.values():
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def make_network(self):
        first, second = self.names.values()
        links = f"d1-{os.getpid()}", f"d2-{os.getpid()}"
        commands = [f"netns add {first}", f"netns add {second}", f"link add {links[0]} type veth peer name {links[1]}"]
        for number, (name, link) in enumerate(zip((first, second), links), 1):
            commands += [f"link set {link} netns {name}", f"-n {name} addr add 10.199.8.{number}/24 dev {link}",
                         f"-n {name} link set {link} up", f"-n {name} link set lo up"]  # fmt: skip
        for command in commands:
            run = subprocess.run(["ip", *command.split()], capture_output=True, text=True)
            if run.returncode != 0 and command.startswith("netns"):
                skip(f"network namespaces cannot be made: {run.stderr.strip()}")
            assert run.returncode == 0, command + run.stderr

    def on(self, node, *words):
        """Returns a command that runs `words` on a node."""
        setup = f'hostname {node} && mount --bind {self.hosts} /etc/hosts && exec "$@"'
        # Not by "ip netns exec": it hides /sys/fs/cgroup, which slurmd needs.
        return ["nsenter", f"--net=/run/netns/{self.names[node]}", "unshare", "--uts", "--mount", "sh", "-c", setup, "sh", *map(str, words)]

    def daemon(self, *words):
        log = open(self.folder / f"daemon-{len(self.daemons)}.txt", "w")
        # They end with this process, even if it is killed.
        words = ["setpriv", "--pdeathsig", "KILL", *map(str, words)]
        self.daemons.append(subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.environment()))
        log.close()

    def environment(self):
        return {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin", "SLURM_CONF": str(self.folder / "slurm.conf")}

    def start_slurm(self):
        munge = self.folder / "munge"
        munge.mkdir(mode=0o700)
        (munge / "key").write_bytes(os.urandom(128))
        (munge / "key").chmod(0o400)
        (self.folder / "state").mkdir()
        (self.folder / "slurm.conf").write_text(SLURM.format(folder=self.folder, cpus=os.cpu_count()))
        self.daemon("munged", "--foreground", "--force", f"--key-file={munge}/key", f"--socket={munge}/sock", f"--pid-file={munge}/pid",
                    f"--log-file={munge}/log", f"--seed-file={munge}/seed")  # fmt: skip
        self.wait(lambda: (munge / "sock").exists(), "munged does not start")
        self.daemon(*self.on("n1", "slurmctld", "-D"))
        for node in self.names:
            self.daemon(*self.on(node, "slurmd", "-D"))
        self.wait(lambda: self.slurm("sinfo", "-h", "-o", "%T", check=False).split() == ["idle"], "Slurm does not start")

    def slurm(self, *words, check=True):
        run = subprocess.run(self.on("n1", *words), capture_output=True, text=True, env=self.environment(), timeout=120)
        assert not check or run.returncode == 0, f"{words}: {run.stdout}{run.stderr}"
        return run.stdout

    def state(self, job):
        text = self.slurm("scontrol", "show", "job", job)
        return re.search(r"JobState=(\S+)", text)[1], int(re.search(r"Restarts=(\d+)", text)[1])

    def kill(self, node):
        kill_all_of(self.names[node])

    def wait(self, condition, what, seconds=300):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                logs = [f"{path.name}: {path.read_text()[-1500:]}" for path in sorted(self.folder.glob("*.out")) + sorted(self.folder.glob("*.log"))]
                raise AssertionError("\n".join([what, *logs]))
            time.sleep(0.2)


#
# The day
#


def skip(why):
    print(f"cluster_day: {why}", file=sys.stderr)
    sys.exit(77)


class Day:
    def __init__(self, folder, nodes):
        self.folder, self.nodes = folder, nodes
        self.blocks = [re.findall(r"(?m)^\$ (.*)$", block) for block in re.findall(r"(?ms)^```\n(.*?)^```$", PAGE.read_text())]
        assert len(self.blocks) == 6 and all(self.blocks), self.blocks
        tools = folder / "tools"
        tools.mkdir()
        for name in TOOLS:
            (tools / name).symlink_to(shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin"))
        (tools / "torchrun").write_text(TORCHRUN.format(python=sys.executable))
        (tools / "torchrun").chmod(0o755)
        package = re.search(r"export PATH=\$PWD/(\S+):\$PATH", PAGE.read_text())[1]
        self.variables = {"PATH": f"{folder / package}:{tools}", "HOME": str(folder), "SLURM_CONF": str(folder / "slurm.conf"), "LC_ALL": "C.UTF-8"}

    def start(self, block, node="n1", **variables):
        script = "set -euo pipefail\n" + "\n".join(self.blocks[block])
        return subprocess.Popen(self.nodes.on(node, "env", "-i", *(f"{key}={value}" for key, value in {**self.variables, **variables}.items()),
                                              shutil.which("bash"), "-c", script),
                                cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip

    def run(self, block, **variables):
        run = self.start(block, **variables)
        output, _ = run.communicate(timeout=300)
        assert run.returncode == 0, "\n".join([*self.blocks[block], output])

    def losses(self, name):
        path = self.folder / name
        lines = path.read_text().splitlines() if path.exists() else []
        return {line["step"]: line["loss"] for line in map(json.loads, filter(lambda line: line.endswith("}"), lines))}

    def under_torchrun(self):
        runs = [self.start(2, node, NODE_RANK=rank) for rank, node in enumerate(self.nodes.names)]
        outputs = [run.communicate(timeout=300)[0] for run in runs]
        assert [run.returncode for run in runs] == [0, 0], "\n".join(outputs)

    def lose_a_node(self):
        job = (self.folder / "job.id").read_text().strip()
        self.nodes.wait(lambda: len(self.losses("log.jsonl")) > 20 and any((self.folder / "saved").glob("step-*")), "it does not train")
        assert self.nodes.state(job) == ("RUNNING", 0)
        self.nodes.kill("n2")
        # As the health check of a cluster does; Slurm itself would wait for SlurmdTimeout.
        self.nodes.slurm("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=lost")
        self.nodes.wait(lambda: self.nodes.state(job) == ("PENDING", 1), "the job is not requeued")

    def go_on(self):
        job = (self.folder / "fewer.id").read_text().strip()
        self.nodes.wait(lambda: self.nodes.state(job)[0] in ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL"), "the job does not end")
        assert self.nodes.state(job) == ("COMPLETED", 0), (self.folder / "fewer.out").read_text()

    def check_losses(self):
        log, torchrun = self.losses("log.jsonl"), self.losses("torchrun.jsonl")
        assert sorted(torchrun) == list(range(1, 11)), sorted(torchrun)
        assert {step: log[step] for step in torchrun} == torchrun, "Slurm and torchrun differ"
        lines = (self.folder / "log.jsonl").read_text().splitlines()
        last = max(log)
        assert [json.loads(line)["step"] for line in lines] == list(range(1, last + 1)), "steps are missing or twice"
        # The second job began at the step of a checkpoint, not at 1.
        steps = [int(step) for step in re.findall(r"(?m)^step (\d+)/", (self.folder / "fewer.out").read_text())]
        assert steps[-1] == last and 5 < steps[0] <= last - 19, (steps[:1], last)
        assert log[last] < log[1], (log[1], log[last])
        print(f"loss {log[1]:.4f} at step 1 on 4 ranks, {log[last]:.4f} at step {last} on 2 ranks")


def main():
    missing = [name for name in NEEDED if not shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]
    if missing:
        skip(f"no {', '.join(missing)}")
    if os.geteuid() != 0:
        skip("needs root")
    remove_leftovers()
    # So that both are left as at the end: `with` below takes the nodes and the folder away.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="tbc-day-") as temporary:
        folder = Path(temporary)
        folder.chmod(0o755)
        (folder / "owner").write_text(str(os.getpid()))
        made = subprocess.run([CPACK, "-G", "TGZ", "-B", folder], cwd=BUILD, capture_output=True, text=True)
        assert made.returncode == 0, made.stdout + made.stderr
        write_pretrained(folder / "pretrained")
        draw = random.Random(2)
        (folder / "tokens.bin").write_bytes(b"".join(struct.pack("<H", (index // 3 + draw.randrange(2)) % 50) for index in range(2001)))
        with Nodes(folder) as nodes:
            day = Day(folder, nodes)
            for name, part in (("install", lambda: day.run(0)), ("plan", lambda: day.run(1)), ("torchrun", day.under_torchrun),
                               ("submit", lambda: day.run(3)), ("lose a node", day.lose_a_node), ("submit again", lambda: day.run(4)),
                               ("go on", day.go_on), ("weights out", lambda: day.run(5))):  # fmt: skip
                began = time.monotonic()
                part()
                print(f"{time.monotonic() - began:5.1f} s  {name}", flush=True)
        tbc = subprocess.run([shutil.which("tbc", path=day.variables["PATH"]), "checkpoint", "consolidate", "saved", "-o", "exact.safetensors"],
                             cwd=folder, capture_output=True, text=True)  # fmt: skip
        assert tbc.returncode == 0, tbc.stderr
        day.check_losses()
        check_trained(folder)
        load_in_transformers(folder)
        assert (folder / "day.html").read_text().count("fsdp=2") > 0


if __name__ == "__main__":
    main()
