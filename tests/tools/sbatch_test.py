"""usage: sbatch_test.py TBC SOURCE_DIR

`tbc run --print-sbatch`: the script has nodes, tasks and flags of the run; bash and Slurm accept it.
Under a Slurm of this machine it trains; it is requeued when a rank is killed and when it is warned,
goes on from its checkpoint, and stays cancelled.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

TBC, SOURCE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
UNDER_SLURM = "--under-slurm"


def tbc(folder, *words, code=0):
    run = subprocess.run([TBC, *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=300)
    assert run.returncode == code, f"{words}: exit code {run.returncode}\n{run.stdout}{run.stderr}"
    return run.stdout if code == 0 else run.stderr


def settings(script):
    """Returns the options of Slurm in a script. Example: {"nodes": "2", "requeue": None}."""
    found = re.findall(r"(?m)^#SBATCH --([a-z-]+)(?:=(.*))?$", script)
    return {key: value or None for key, value in found}


class SbatchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = Path(cls.temporary.name)
        tbc(cls.folder, "plan", SOURCE / "models/tiny-gpt2.onnx", "--gpus", "2", "--mesh", "dp=2", "--batch", "8", "--seq", "16",
            "--precision", "f32", "--cluster", "cpu-local", "-o", "plan.json")  # fmt: skip
        tbc(cls.folder, "compile", "plan.json", "-o", "my program")
        tbc(cls.folder, "plan", SOURCE / "models/gpt2.onnx", "--gpus", "16", "--batch", "64", "--seq", "256", "--mesh", "dp=16", "-o", "gpu.json")

    def script(self, *words):
        text = tbc(self.folder, "run", *words, "--print-sbatch")
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)
        return text

    def test_a_program_with_checkpoints(self):
        flags = ["--steps", "5", "--no-shuffle", "--lr", "0.01", "--log", "it's.jsonl", "--checkpoint", "saved"]
        script = self.script("my program", *flags)
        self.assertEqual(settings(script), {
            "job-name": "my-program", "nodes": "1", "ntasks-per-node": "2", "distribution": "block", "exclusive": None,
            "requeue": None, "open-mode": "append", "signal": "USR1@300"})  # fmt: skip
        line, = re.findall(r"(?m)^srun (.*) \|\| code=\$\?$", script)
        words = shlex.split(line)
        start = words.index("tbc-run")
        self.assertEqual(words[start + 1], "my program")
        self.assertEqual(sorted(words[start + 2:]), sorted([*flags, "--resume"]))
        self.assertNotIn("NCCL", script)
        self.assertNotIn("tbc compile", script)
        # The same with --resume given.
        self.assertEqual(self.script("my program", *flags, "--resume").count("--resume"), 1)

    def test_a_plan_for_gpus(self):
        script = self.script("gpu.json", "--steps", "3")
        self.assertEqual(settings(script), {
            "job-name": "gpu.program", "nodes": "2", "ntasks-per-node": "8", "gpus-per-node": "8", "distribution": "block",
            "exclusive": None, "no-requeue": None})  # fmt: skip
        self.assertIn("\nexport NCCL_NVLS_ENABLE=1\n", script)
        self.assertIn("\ntbc compile gpu.json -o gpu.program --target cuda\n", script)
        self.assertIn("tbc-run gpu.program --steps 3 ||", script)
        self.assertNotIn("scontrol", script)

    def test_a_plan_for_cpus(self):
        script = self.script("plan.json")
        self.assertIn("\ntbc compile plan.json -o plan.program\n", script)
        self.assertNotIn("gpus", script)

    def test_what_is_refused(self):
        tbc(self.folder, "plan", SOURCE / "models/gpt2.onnx", "--gpus", "12", "--batch", "48", "--seq", "256", "--mesh", "dp=12", "-o", "odd.json")
        for words, message in (
            (["odd.json"], "12 ranks do not fill nodes of 8 devices"), (["plan.json", "--nproc", "2"], "excludes"),
            (["plan.json", "--lr-min", "2"], "--lr-min is above --lr"), (["absent.json"], "absent.json"),
            (["plan.json", "--resume"], "--resume needs --checkpoint"),
        ):  # fmt: skip
            self.assertIn(message, tbc(self.folder, "run", *words, "--print-sbatch", code=2))

    def test_slurm_runs_it(self):
        (self.folder / "job.sh").write_text(self.script("my program", "--steps", "100000000", "--every", "20", "--checkpoint", "saved"))
        (self.folder / "gpu.sh").write_text(self.script("gpu.json"))
        run = subprocess.run([SOURCE / "tests/tools/with_slurm", sys.executable, "-B", __file__, TBC, SOURCE, UNDER_SLURM], cwd=self.folder,
                             capture_output=True, text=True, timeout=400, env={**os.environ, "PATH": f"{TBC.parent}:{os.environ['PATH']}"})  # fmt: skip
        if run.returncode == 77:
            self.skipTest(run.stderr.strip())
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)


#
# Below: what runs beside a Slurm.
#


def slurm(*words, code=0):
    run = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert run.returncode == code, f"{words}: {run.stdout}{run.stderr}"
    return run.stdout + run.stderr


def state(job):
    text = slurm("scontrol", "show", "job", job)
    return re.search(r"JobState=(\S+)", text)[1], int(re.search(r"Restarts=(\d+)", text)[1])


def wait(condition, what, seconds=180):
    """Waits until `condition` holds; seldom asks, for machines that are busy."""
    for _ in range(seconds * 4):
        if condition():
            return
        time.sleep(0.25)
    output = Path("job.out")
    raise AssertionError(f"{what}\n{output.read_text()[-3000:] if output.exists() else 'no output'}")


def steps(text):
    return [int(step) for step in re.findall(r"(?m)^step (\d+)/", text)]


def checkpoints():
    """Returns the finished checkpoints; others have a longer name."""
    return [path for path in Path("saved").glob("step-*") if re.fullmatch(r"step-\d+", path.name)]


def ranks():
    """Returns the processes of this folder's job."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"tbc-run\0my program" in file.read_bytes() and os.readlink(file.parent / "cwd") == os.getcwd():
                found.append(int(file.parent.name))
        except OSError:  # it is gone
            continue
    return found


def under_slurm():
    slurm("sbatch", "--test-only", "job.sh")
    # All lines are read; there are no GPUs here.
    assert "gres" in slurm("sbatch", "--test-only", "gpu.sh", code=1)
    job = slurm("sbatch", "--parsable", "--output=job.out", "job.sh").strip()
    output = Path("job.out")

    def is_running(after):
        current = state(job)
        if current == ("PENDING", after) and after > 0:
            # Slurm delays requeued jobs by two minutes.
            subprocess.run(["scontrol", "update", f"JobId={job}", "StartTime=now"], capture_output=True)
        return current == ("RUNNING", after)

    def trains(after):
        """Waits until the job has restarted `after` times and trained on from a checkpoint."""
        wait(lambda: is_running(after), f"it does not start after {after} requeues")
        size = output.stat().st_size if output.exists() else 0
        wait(lambda: output.exists() and max(steps(output.read_text()[size:]), default=0) > 0 and checkpoints(), "it does not train")
        return output.read_text()

    trains(0)
    os.kill(ranks()[-1], 9)
    wait(lambda: state(job)[1] == 1, "not requeued after a killed rank")
    text = trains(1)
    # The second life begins behind a checkpoint, not at step 1.
    assert sum(step == 1 for step in steps(text)) == 1, text[:3000]
    slurm("scancel", "--signal=USR1", job)
    wait(lambda: state(job)[1] == 2, "not requeued after the warning")
    trains(2)
    slurm("scancel", job)
    wait(lambda: state(job)[0] == "CANCELLED", "not cancelled")
    time.sleep(2)
    assert state(job) == ("CANCELLED", 2), state(job)


if __name__ == "__main__":
    if sys.argv[3:] == [UNDER_SLURM]:
        under_slurm()
    else:
        unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
