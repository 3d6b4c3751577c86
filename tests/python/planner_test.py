"""usage: planner_test.py SOURCE_DIR TBC   (by the Python of the installed package)

The compiled planner within Python: answers equal the command's, keywords are its flags, errors are
its errors, other threads run, and Ctrl-C ends it.
"""

import contextlib
import importlib.metadata
import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
from pathlib import Path

SOURCE, TBC = (Path(sys.argv.pop(1)).resolve(), Path(sys.argv.pop(1)).resolve())

import tbc  # noqa: E402

GPT2, TINY = SOURCE / "models/gpt2.onnx", SOURCE / "models/tiny-gpt2.onnx"
SMALL = {"gpus": 4, "batch": 8, "seq": 16, "precision": "f32"}


def setUpModule():
    warnings.simplefilter("ignore", tbc.TbcWarning)
    os.chdir(tempfile.mkdtemp(prefix="tbc-python-"))


def command(*words):
    done = subprocess.run([TBC, *map(str, words)], capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


class PlanTest(unittest.TestCase):
    def test_package_is_the_installed_one(self):
        self.assertNotIn(str(SOURCE / "python"), tbc.__file__)
        self.assertEqual(tbc.version(), importlib.metadata.version("tbc"))
        self.assertTrue(Path(tbc.__file__).with_name("py.typed").exists())

    def test_plan_is_that_of_the_command(self):
        plan = tbc.plan(GPT2, gpus=16, batch=512)
        code, text, _ = command("plan", GPT2, "--gpus", 16, "--batch", 512, "--json")
        self.assertEqual(code, 0)
        self.assertEqual(plan.text(Path.cwd()), text)
        self.assertEqual(plan.ranks, 16)
        self.assertLess(plan.memory.bytes.low, plan.memory.bytes.high)

    def test_numbers_are_written_as_by_the_command(self):
        from tbc.fingerprint import canonical_text

        written = {1.979e15: "1.979e+15", 1e15: "1e+15", 9.89e14: "989000000000000.0", 1.5e16: "1.5e+16", -2.25e15: "-2.25e+15",
                   1234567890123456.5: "1.2345678901234565e+15", 1e-5: "1e-05", 0.1: "0.1"}  # fmt: skip
        for number, text in written.items():
            self.assertEqual(canonical_text(number), text + "\n")

    def test_keywords_are_the_flags(self):
        plan = tbc.plan(
            TINY, **SMALL, mesh={"dp": 2, "tp": 2}, no_decay=["*.bias", "*.ln*"], clip_norm=0.5, memory_risk=True, forbid=None,
            no_dropout=False,
        )  # fmt: skip
        flags = ["--mesh", "dp=2,tp=2", "--no-decay", "*.bias", "--no-decay", "*.ln*", "--clip-norm", "0.5", "--memory-risk"]
        for key, value in SMALL.items():
            flags += ["--" + key, value]
        self.assertEqual(plan.text(Path.cwd()), command("plan", TINY, *flags, "--json")[1])

    def test_types_are_those_of_the_flags(self):
        script = SOURCE / "python/wheel/keywords.py"
        library = Path(tbc.__file__).parent / "lib/libtbc.so"
        subprocess.run([sys.executable, script, "--check"], check=True, env={**os.environ, "TBC_LIBRARY": str(library)})

    def test_bytes_are_a_model_and_are_saved_beside_the_plan(self):
        plan = tbc.plan(TINY.read_bytes(), **SMALL)
        self.assertIn("bound by", plan.explain())
        folder = Path(tempfile.mkdtemp())
        plan.save(folder / "plan.json")
        self.assertEqual((folder / "plan.onnx").read_bytes(), TINY.read_bytes())
        code, _, errors = command("explain", folder / "plan.json", "--memory")
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual(tbc.Plan.load(folder / "plan.json").json, plan.json)

    def test_cluster_object_and_text(self):
        cluster = tbc.Cluster.from_toml(tbc.Cluster("a100-80gb-sxm").toml.replace('"a100-80gb-sxm"', '"mine"'))
        self.assertEqual(cluster.json["name"], "mine")
        self.assertEqual(tbc.plan(TINY, **SMALL, cluster=cluster).json["cluster"]["name"], "mine")
        self.assertIn("h100-sxm", tbc.Cluster.presets())

    def test_other_commands(self):
        self.assertEqual(tbc.check(TINY, seq=16)["format"], "tbc-check")
        model = tbc.new("llama", layers=2, hidden=64, ffn=128, heads=4, vocab=256)
        self.assertEqual(tbc.plan(model, gpus=2, seq=32).ranks, 2)
        self.assertIn("tbc.", tbc.command("plan", TINY, emit="ir", **SMALL))
        judged = tbc.judge("per_device_train_batch_size=4 bf16=True fsdp=full_shard", model=GPT2, gpus=16, seq=256, alone=True)
        self.assertEqual((judged["kind"], judged["legal"]), ("trainer", True))
        sizes = tbc.size(GPT2, seq=1024, tokens="1B", gpus_from=8, gpus_to=16, cluster="h100-sxm")
        self.assertEqual(sizes["format"], "tbc-size")
        for name in ("run", "", "plna"):
            with self.assertRaisesRegex(tbc.UsageError, f'"{name}" is none of the commands that plan: check, cluster, new, plan'):
                tbc.command(name, TINY)


class AnswersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.plan = tbc.plan(TINY, **SMALL, mesh="dp=2,tp=2")

    def test_explain_and_report(self):
        self.plan.save("plan.json")
        self.assertEqual(self.plan.explain(why="tp=4"), command("explain", "plan.json", "--why", "tp=4")[1])
        self.assertEqual(self.plan.report(comms=True)["about"], "communication")

    def test_differences(self):
        self.assertEqual(self.plan.diff(self.plan), [])
        other = tbc.plan(TINY, **SMALL, mesh="tp=4")
        first = self.plan.diff(other)[0]
        self.assertEqual((first.what, first.this, first.other), ("mesh", "dp=2 tp=2", "tp=4"))
        with self.assertRaisesRegex(TypeError, r"expected a Plan, not 'x'; tbc\.Plan\.load\(path\)"):
            self.plan.diff("x")

    def test_export_is_that_of_the_command(self):
        self.plan.save("plan.json")
        self.plan.export("dot", "a.dot")
        self.assertEqual(command("export", "plan.json", "--to", "dot", "-o", "b.dot")[0], 0)
        self.assertEqual(Path("a.dot").read_text(), Path("b.dot").read_text())

    def test_verify_runs_the_ranks(self):
        self.assertEqual(self.plan.verify(residues_only=True)["format"], "tbc-verify")

    def test_page_of_a_notebook(self):
        page = self.plan._repr_html_()
        self.assertEqual(page.count("<rect"), self.plan.ranks + 2)
        self.assertIn("dp=2, tp=2", page)

    def test_tables(self):
        try:
            import pandas  # noqa: F401
        except ImportError:
            with self.assertRaises(ImportError):
                self.plan.to_pandas()
        else:
            self.assertEqual(len(self.plan.to_pandas()), len(self.plan.parameters))


class ErrorTest(unittest.TestCase):
    def fails(self, kind, flags, *words, **keywords):
        """The function raises the command's error: same text, code and exit code."""
        with self.assertRaises(kind) as caught:
            tbc.plan(*words, **keywords)
        code, _, errors = command("plan", *words, *flags)
        self.assertEqual(caught.exception.exit_code, code)
        self.assertIn("tbc: " + caught.exception.message + "\n", errors)
        self.assertIn(f"[{caught.exception.code}]", errors)
        return caught.exception

    def test_usage(self):
        error = self.fails(tbc.UsageError, ["--gpus", 8, "--mehs=dp=8"], GPT2, gpus=8, mehs={"dp": 8})
        self.assertEqual(error.code, "TBC0201")
        self.assertIn("did you mean --mesh?", error.message)
        self.fails(tbc.UsageError, ["--gpus=eight"], GPT2, gpus="eight")
        self.fails(tbc.UsageError, ["--mesh=", "--gpus=8"], GPT2, mesh={}, gpus=8)
        self.fails(tbc.UsageError, ["--gpus=8", "--cluster=h1000"], GPT2, gpus=8, cluster="h1000")
        self.fails(tbc.UsageError, [], GPT2)
        with self.assertRaisesRegex(tbc.UsageError, "gpus: True is for switches, and --gpus takes a value"):
            tbc.plan(GPT2, gpus=True)
        self.assertTrue(issubclass(tbc.UsageError, ValueError))

    def test_model(self):
        Path("broken.onnx").write_bytes(b"no model")
        self.fails(tbc.ModelRejected, ["--gpus", 2], "broken.onnx", gpus=2)

    def test_memory(self):
        self.fails(tbc.NoFeasiblePlan, ["--gpus", 2, "--memory-limit", "1MiB"], GPT2, gpus=2, memory_limit="1MiB")

    def test_wrong_objects(self):
        with self.assertRaisesRegex(TypeError, "not int"):
            tbc.plan(3, gpus=2)
        with self.assertRaisesRegex(TypeError, "emit"):
            tbc.plan(TINY, gpus=2, emit="ir")

    def test_warnings_are_warnings_of_python(self):
        with self.assertWarnsRegex(tbc.TbcWarning, "sequence length 1024"):
            tbc.plan(GPT2, gpus=2)
        with self.assertWarnsRegex(tbc.TbcWarning, "--pad-vocabulary 64 has no effect: the model has no vocabulary"):
            tbc.plan(SOURCE / "models/tiny-mlp.onnx", gpus=2, loss="mse", pad_vocabulary=64)


class LongCallTest(unittest.TestCase):
    # A search of several seconds.
    LONG = {"gpus": 512, "tie_percent": 0.0}

    @classmethod
    def setUpClass(cls):
        cls.model = tbc.new("llama", layers=32)

    def test_progress_is_told_and_its_exception_ends_the_search(self):
        phases = []

        class Enough(Exception):
            pass

        def tell(progress):
            phases.append(progress)
            if progress.total:
                raise Enough

        with self.assertRaises(Enough):
            tbc.plan(self.model, **self.LONG, progress=tell)
        self.assertEqual(phases[0].phase, "importing the model")
        self.assertLess(phases[-1].done, phases[-1].total)

    def test_bar_names_the_phases(self):
        with contextlib.redirect_stderr(io.StringIO()) as shown:
            tbc.plan(GPT2, gpus=64, progress=True)
        # tqdm shows the first word of a phase, the text bar all of it.
        self.assertRegex(shown.getvalue(), "importing the model|searching")

    def test_ctrl_c_ends_it(self):
        begin = []

        def tell(progress):
            if progress.total and not begin:
                begin.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)

        with self.assertRaises(KeyboardInterrupt):
            tbc.plan(self.model, **self.LONG, progress=tell)
        self.assertLess(time.monotonic() - begin[0], 20)
        self.assertEqual(tbc.plan(TINY, **SMALL).ranks, 4)  # the next call works

    def test_other_threads_run(self):
        counts, is_done = [0], threading.Event()

        def count():
            while not is_done.is_set():
                counts[0] += 1
                time.sleep(0.001)

        thread = threading.Thread(target=count)
        thread.start()
        begin = time.monotonic()
        tbc.plan(GPT2, gpus=64)
        seconds = time.monotonic() - begin
        is_done.set()
        thread.join()
        self.assertGreater(counts[0], 100 * min(seconds, 1.0))

    def test_threads_plan_one_after_the_other(self):
        plans = {}

        def work(mesh):
            plans[mesh] = tbc.plan(TINY, **SMALL, mesh=mesh)

        threads = [threading.Thread(target=work, args=(mesh,)) for mesh in ("dp=4", "tp=4", "fsdp=4")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual({mesh: plan.mesh for mesh, plan in plans.items()}, {"dp=4": {"dp": 4}, "tp=4": {"tp": 4}, "fsdp=4": {"fsdp": 4}})


class ProgramTest(unittest.TestCase):
    def test_programs_of_the_wheel_run(self):
        for name in ("tbc", "tbc-run"):
            file = Path(sys.executable).with_name(name)
            done = subprocess.run([file, "--version"], capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout.strip(), f"{name} {tbc.version()}")

    def test_program_plans_compiles_and_runs(self):
        program = Path(sys.executable).with_name("tbc")
        flags = ["--gpus", "2", "--mesh", "dp=2", "--batch", "4", "--seq", "16", "--precision", "f32"]
        for words in (["plan", TINY, *flags, "-o", "p.json"], ["compile", "p.json", "-o", "program", "--no-kernels"],
                      ["run", "program", "--steps", "2"]):  # fmt: skip
            done = subprocess.run([program, *words], capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)


unittest.main(verbosity=2)
