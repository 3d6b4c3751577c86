"""usage: run_output_test.py TBC SOURCE_DIR

Tests the output of a training run: TensorBoard's event files, JSON lines, a progress bar on a
terminal.
"""

import array
import importlib.util
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from terminal import on_terminal

MLP_WIDTH = 32

TBC, SOURCE = (Path(sys.argv.pop(1)).resolve(), Path(sys.argv.pop(1)).resolve()) if len(sys.argv) > 2 else (None, None)


def crc32c(data):
    """Returns the CRC-32C of `data`, computed bit by bit as in RFC 3720."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    data = Path(path).read_bytes()
    at = 0
    while at < len(data):
        header = data[at : at + 8]
        (length,) = struct.unpack("<Q", header)
        assert struct.unpack("<I", data[at + 8 : at + 12])[0] == masked(header), "checksum of a length"
        body = data[at + 12 : at + 12 + length]
        assert len(body) == length, "a record is cut off"
        assert struct.unpack("<I", data[at + 12 + length : at + 16 + length])[0] == masked(body), "checksum of a record"
        yield body
        at += 16 + length


def fields(message):
    """Returns the fields of a protobuf message, as (number, value)."""

    def varint(at):
        value = shift = 0
        while True:
            byte = message[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return value, at

    at = 0
    while at < len(message):
        key, at = varint(at)
        kind = key & 7
        if kind == 0:
            value, at = varint(at)
        elif kind == 1:
            value, at = struct.unpack("<d", message[at : at + 8])[0], at + 8
        elif kind == 5:
            value, at = struct.unpack("<f", message[at : at + 4])[0], at + 4
        else:
            assert kind == 2, kind
            size, at = varint(at)
            value, at = message[at : at + size], at + size
        yield key >> 3, value


def scalars(path):
    """Returns {(step, tag): value} of an event file, and the steps at which runs started."""
    values, starts = {}, []
    for number, record in enumerate(records(path)):
        event = dict(fields(record))
        assert event[1] > 1.7e9, "seconds since 1970"
        if number == 0:
            assert event[3] == b"brain.Event:2", event
        if 7 in event:
            starts.append(event[2])
        for kind, value in fields(event.get(5, b"")):
            assert kind == 1
            entry = dict(fields(value))
            values[event[2], entry[1].decode()] = entry[2]
    return values, starts


class RunOutputTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="tbc-output-"))
        cls.tbc("plan", SOURCE / "models/tiny-gpt2.onnx", "--gpus", 2, "--cluster", "cpu-local", "--mesh",
                "dp=2", "--batch", 8, "--seq", 16, "--precision", "f32", "--clip-norm", 1, "-o", "plan.json")  # fmt: skip
        cls.tbc("compile", "plan.json", "-o", "program")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    @classmethod
    def tbc(cls, *arguments):
        run = subprocess.run([TBC, *map(str, arguments)], cwd=cls.folder, capture_output=True, text=True, timeout=300)
        assert run.returncode == 0, run.stderr
        return run.stdout

    def test_event_files_have_what_the_log_has(self):
        flags = ["run", "program", "--log", "log.jsonl", "--tensorboard", "events", "--checkpoint", "saved"]
        self.tbc(*flags, "--steps", 2)
        self.tbc(*flags, "--steps", 4, "--resume")
        lines = [json.loads(line) for line in (self.folder / "log.jsonl").read_text().splitlines()]
        self.assertEqual([line["step"] for line in lines], [1, 2, 3, 4])
        files = sorted((self.folder / "events").iterdir(), key=lambda path: path.stat().st_mtime_ns)
        self.assertEqual(len(files), 2)
        values = {}
        for path, starts in zip(files, ([], [3])):
            found, began = scalars(path)
            self.assertEqual(began, starts)
            values.update(found)
        for line in lines:
            for tag, key in (("loss", "loss"), ("learning_rate", "lr"), ("gradient_norm", "gradient_norm"),
                             ("mfu", "mfu"), ("tokens_per_second", "tokens_per_second"),
                             ("resident_bytes", "resident_bytes")):  # fmt: skip
                self.assertAlmostEqual(values[line["step"], tag] / line[key], 1, places=3, msg=(tag, line))
            self.assertGreater(line["gradient_norm"], 0)
            self.assertGreater(line["resident_bytes"], line["planned_bytes"])

    def losses(self, log, key="loss"):
        lines = [json.loads(line) for line in (self.folder / log).read_text().splitlines()]
        return [(line["step"], line[key]) for line in lines if key in line]

    def tokens(self, name, count):
        (self.folder / name).write_bytes(array.array("H", [7 * i % 251 for i in range(count)]).tobytes())

    def test_evaluation_sees_what_the_next_step_sees_and_changes_nothing(self):
        # 16 samples of 16 tokens: two global batches, in their order.
        self.tokens("text.bin", 16 * 16 + 1)
        data = ["--data", "text.bin", "--no-shuffle", "--steps", 4]
        self.tbc("run", "program", *data, "--log", "plain.jsonl")
        self.tbc("run", "program", *data, "--log", "both.jsonl", "--eval-data", "text.bin", "--eval-every", 2)
        self.assertEqual(self.losses("both.jsonl"), self.losses("plain.jsonl"))
        evaluated = self.losses("both.jsonl", "evaluation_loss")
        self.assertEqual([step for step, _ in evaluated], [2, 4])
        # With a learning rate of 0 every batch keeps its loss, so evaluation gives the mean of
        # both.
        self.tbc("run", "program", *data, "--lr", 0, "--log", "still.jsonl", "--eval-data", "text.bin")
        still = self.losses("still.jsonl")
        ((_, mean),) = self.losses("still.jsonl", "evaluation_loss")
        self.assertEqual(still[0][1], still[2][1])
        self.assertAlmostEqual(mean, (still[0][1] + still[1][1]) / 2, places=12)

    def test_nothing_is_dropped_in_evaluation(self):
        for name, more in {"dropping": [], "keeping": ["--no-dropout"]}.items():
            self.tbc("plan", SOURCE / "models/gpt2-8l.onnx", "--gpus", 2, "--mesh", "dp=2", "--batch", 4, "--seq", 16,
                     "--precision", "f32", "-o", f"{name}.json", *more)  # fmt: skip
            self.tbc("compile", f"{name}.json", "-o", name)
        self.tokens("dropped.bin", 4 * 16 + 1)
        for kernels, places in {"native": 5, "reference": 12}.items():
            losses, evaluated = [], []
            for name in ("dropping", "keeping"):
                self.tbc("run", name, "--data", "dropped.bin", "--steps", 1, "--lr", 0, "--log", f"{name}.jsonl",
                         "--eval-data", "dropped.bin", "--kernels", kernels)  # fmt: skip
                losses.append(self.losses(f"{name}.jsonl")[0][1])
                evaluated.append(self.losses(f"{name}.jsonl", "evaluation_loss")[0][1])
            self.assertNotAlmostEqual(losses[0], losses[1], places=4)
            self.assertAlmostEqual(evaluated[0], evaluated[1], places=places)
            self.assertAlmostEqual(evaluated[1], losses[1], places=places)

    def test_a_pipeline_evaluates_too(self):
        self.tbc("plan", SOURCE / "models/tiny-gpt2.onnx", "--gpus", 2, "--mesh", "pp=2", "--micro-batch", 2, "--batch",
                 8, "--seq", 16, "--precision", "f32", "--clip-norm", 1, "-o", "pp.json")  # fmt: skip
        self.tbc("compile", "pp.json", "-o", "pipeline")
        self.tokens("piped.bin", 16 * 16 + 1)
        flags = ["--data", "piped.bin", "--steps", 2, "--eval-data", "piped.bin", "--arith", "f64"]
        self.tbc("run", "program", *flags, "--log", "dp.jsonl")
        self.tbc("run", "pipeline", *flags, "--log", "pp.jsonl")
        ((_, one),) = self.losses("dp.jsonl", "evaluation_loss")
        ((_, other),) = self.losses("pp.jsonl", "evaluation_loss")
        self.assertAlmostEqual(one, other, places=9)
        self.assertEqual(len(self.losses("pp.jsonl", "gradient_norm")), 2)

    def test_wider_tokens_are_not_read_in_halves(self):
        for form, bits, advice in (("I", 16, "give --token-bits 32"), ("Q", 32, "write them in 32 bits")):
            tokens = array.array(form, [7 * i % 251 for i in range(8 * 16 + 1)] + [1])
            (self.folder / "wide.bin").write_bytes(tokens.tobytes())
            code, said = self.shell(f'"$0" run program --data wide.bin --token-bits {bits}')
            self.assertEqual(code, 2, said)
            self.assertIn(f"wide.bin: every second token of {bits} bits is 0, as in a file of wider tokens; {advice}", said)
        (self.folder / "wide.bin").write_bytes(array.array("I", [7 * i % 251 for i in range(8 * 16 + 1)]).tobytes())
        self.tbc("run", "program", "--data", "wide.bin", "--token-bits", 32)

    def test_epochs_are_steps(self):
        # two global batches of 8, four samples are left over
        self.tokens("epochs.bin", 20 * 16 + 1)
        self.tbc("run", "program", "--data", "epochs.bin", "--epochs", 3, "--log", "epochs.jsonl", "--lr-schedule",
                 "linear")  # fmt: skip
        self.assertEqual(self.losses("epochs.jsonl", "epoch"), [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2)])
        self.assertEqual(self.losses("epochs.jsonl", "lr")[-1][1], 0)
        run = subprocess.run([TBC, "run", "program", "--epochs", "1"], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(run.returncode, 2)
        self.assertIn("this data has no end; give --steps", run.stderr)

    def test_a_dev_run_leaves_nothing(self):
        out = self.tbc("run", "program", "--fast-dev-run", "--steps", 50, "--checkpoint", "dev", "--log", "dev.jsonl",
                       "--eval-data", "synthetic")  # fmt: skip
        self.assertEqual([line.split("  ")[0] for line in out.splitlines()], ["step 1/1"] * 2)
        self.assertIn("evaluation loss", out)
        self.assertFalse((self.folder / "dev").exists() or (self.folder / "dev.jsonl").exists())

    def test_a_profile_is_a_trace_of_all_ranks(self):
        self.tbc("run", "program", "--steps", 3, "--profile", "trace.json")
        trace = json.loads((self.folder / "trace.json").read_text())
        events = trace["traceEvents"]
        names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        self.assertEqual(names, {0: "rank 0 (dp=0)", 1: "rank 1 (dp=1)"})
        ends = {}
        for event in events:
            self.assertIn(event["ph"], ("M", "X"))
            if event["ph"] == "M":
                continue
            self.assertEqual(set(event), {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"})
            self.assertGreaterEqual(event["dur"], 0)
            # Events of one thread do not overlap.
            place = event["pid"], event["tid"]
            self.assertGreaterEqual(event["ts"], ends.get(place, 0) - 0.01, event)
            ends[place] = event["ts"] + event["dur"]
        for rank in 0, 1:
            mine = [event for event in events if event["ph"] == "X" and event["pid"] == rank]
            self.assertEqual([event["name"] for event in mine if event["cat"] == "block"],
                             ["forward", "backward", "update"])  # fmt: skip
            self.assertTrue(any(event["args"].get("op") == "all_reduce" for event in mine))
            self.assertTrue(all(event["args"]["bytes"] > 0 for event in mine if event["cat"] == "communication"))
        # The ranks of one all_reduce overlap in time, on one clock.
        last = {event["pid"]: event for event in events if event.get("cat") == "communication"}
        self.assertEqual(last[0]["name"], last[1]["name"])
        self.assertLess(last[0]["ts"], last[1]["ts"] + last[1]["dur"])
        self.assertLess(last[1]["ts"], last[0]["ts"] + last[0]["dur"])

    def test_a_nan_is_traced_to_its_op_rank_and_micro_batch(self):
        self.tbc("plan", SOURCE / "models/tiny-mlp.onnx", "--gpus", 2, "--mesh", "dp=2", "--micro-batch", 2, "--batch",
                 8, "--precision", "f32", "-o", "mlp.json")  # fmt: skip
        self.tbc("compile", "mlp.json", "-o", "mlp")
        inputs = json.loads((self.folder / "mlp/run.json").read_text())["inputs"]
        flags = ["run", "mlp", "--no-shuffle", "--detect-anomaly"]
        for entry in inputs:
            if entry["kind"] == "label":
                self.npy(entry["name"], "<i8", (16,), bytes(16 * 8))
            else:
                values = array.array("f", [0.5] * (16 * MLP_WIDTH))
                values[6 * MLP_WIDTH + 3] = math.nan
                self.npy(entry["name"], "<f4", (16, MLP_WIDTH), values.tobytes())
            flags += ["--data"] if "--data" not in flags else []
            flags.append(f"{entry['name']}={entry['name']}.npy")
        run = subprocess.run([TBC, *flags], cwd=self.folder, capture_output=True, text=True, timeout=300)
        self.assertEqual(run.returncode, 6, run.stderr)
        self.assertRegex(run.stderr, r"rank 1: step 1, stage 0, forward block, instruction \d+ \(.*einsum.*\), "
                                     r"micro-batch 1: it makes NaN at element ")  # fmt: skip

    def test_a_trained_model_is_the_model_with_its_new_weights(self):
        self.tbc("run", "program", "--steps", 3, "--checkpoint", "kept", "--lr", 0.01, "--log", "trained.jsonl",
                 "--eval-data", "synthetic", "--eval-batches", 1)  # fmt: skip
        out = self.tbc("checkpoint", "consolidate", "kept", "--model", SOURCE / "models/tiny-gpt2.onnx", "-o",
                       "trained.onnx")  # fmt: skip
        self.assertIn("wrote trained.onnx from kept/step-00000003", out)
        self.tbc("plan", "trained.onnx", "--gpus", 2, "--mesh", "dp=2", "--batch", 8, "--seq", 16, "--precision", "f32",
                 "--clip-norm", 1, "-o", "again.json")  # fmt: skip
        self.tbc("compile", "again.json", "-o", "again")
        self.tbc("run", "again", "--steps", 1, "--log", "again.jsonl")
        # Its first step has the loss of the trained weights' evaluation.
        ((_, evaluated),) = self.losses("trained.jsonl", "evaluation_loss")
        self.assertEqual(self.losses("again.jsonl"), [(1, evaluated)])
        before, after = self.losses("trained.jsonl")[0][1], evaluated
        self.assertNotEqual(before, after)

    @unittest.skipUnless(importlib.util.find_spec("onnxruntime"), "onnxruntime is not installed (PyPI has it)")
    def test_onnx_runtime_has_the_loss_of_a_trained_model(self):
        import numpy as np
        import onnxruntime

        self.tokens("learned.bin", 8 * 16 + 1)
        self.tbc("run", "program", "--data", "learned.bin", "--no-shuffle", "--steps", 3, "--lr", 0.01, "--checkpoint",
                 "learned", "--log", "learned.jsonl", "--eval-data", "learned.bin")  # fmt: skip
        self.tbc("checkpoint", "consolidate", "learned", "--model", SOURCE / "models/tiny-gpt2.onnx", "-o",
                 "learned.onnx")  # fmt: skip
        session = onnxruntime.InferenceSession(self.folder / "learned.onnx", providers=["CPUExecutionProvider"])
        tokens = np.fromfile(self.folder / "learned.bin", np.uint16).astype(np.int64)
        inputs, labels = tokens[:-1].reshape(8, 16), tokens[1:].reshape(8, 16)
        logits = session.run(None, {session.get_inputs()[0].name: inputs})[0].astype(np.float64)
        shifted = logits - logits.max(axis=-1, keepdims=True)
        chosen = np.take_along_axis(shifted, labels[..., None], axis=-1)[..., 0]
        loss = (np.log(np.exp(shifted).sum(axis=-1)) - chosen).mean()
        ((_, evaluated),) = self.losses("learned.jsonl", "evaluation_loss")
        self.assertAlmostEqual(loss, evaluated, places=5)

    def test_a_model_that_was_not_trained_is_refused(self):
        self.tbc("run", "program", "--steps", 1, "--checkpoint", "other")
        run = subprocess.run([TBC, "checkpoint", "consolidate", "other", "--model", SOURCE / "models/tiny-mlp.onnx",
                              "-o", "wrong.onnx"], cwd=self.folder, capture_output=True, text=True)  # fmt: skip
        self.assertEqual(run.returncode, 2)
        self.assertIn("tiny-mlp.onnx is not the model that the checkpoint is of", run.stderr)
        self.assertFalse((self.folder / "wrong.onnx").exists())

    def npy(self, name, dtype, shape, data):
        header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
        header += " " * (-(len(header) + 11) % 64) + "\n"
        text = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data
        (self.folder / f"{name}.npy").write_bytes(text)

    def test_a_terminal_gets_a_bar(self):
        code, out, text = on_terminal([TBC, "run", "program", "--steps", "3"], cwd=self.folder)
        self.assertEqual(code, 0)
        self.assertIn("] 2/3, ", text)
        self.assertTrue(text.endswith("\r\x1b[K"), text)
        self.assertNotIn(b"\x1b", out)
        self.assertEqual(out.count(b"\n"), 3)

    def shell(self, script):
        run = subprocess.run(["sh", "-c", script, TBC], cwd=self.folder, capture_output=True, text=True, timeout=300)
        return run.returncode, run.stderr

    def test_a_full_output_ends_the_run_at_once_with_a_checkpoint(self):
        run = '"$0" run program --steps 1000000 --checkpoint'
        for number, (flags, output) in enumerate({"--log full.jsonl > /dev/full": "stdout", "--log /dev/full": "--log /dev/full"}.items()):
            code, said = self.shell(f"{run} full{number} {flags}")
            self.assertEqual(code, 1, said)
            self.assertIn(f"could not write all of {output}: No space left on device; the run ends after step 2", said)
            self.assertIn(f"rank 0: could not write all of {output}", said)
            self.assertTrue((self.folder / f"full{number}/step-00000002").is_dir())
        self.assertEqual([step for step, _ in self.losses("full.jsonl")], [1, 2])

    def test_a_full_output_in_the_last_step_is_an_error(self):
        code, said = self.shell('"$0" run program --steps 1 > /dev/full')
        self.assertEqual(code, 1, said)
        self.assertIn("could not write all of stdout: No space left on device\n", said)

    def test_a_reader_that_leaves_ends_the_run(self):
        code, said = self.shell('{ "$0" run program --steps 1000000; echo $? > code.txt; } | head -n 1 > first.txt')
        self.assertEqual((self.folder / "code.txt").read_text(), "1\n", said)
        self.assertIn("could not write all of stdout: Broken pipe; the run ends after step ", said)

    def test_a_small_limit_of_open_files_is_named(self):
        for limit in (8, 12):
            code, said = self.shell(f'ulimit -n {limit}; "$0" run program --connect-timeout 1')
            self.assertIn(code, (6, 7), said)
            self.assertIn(f"too many open files for its limit of {limit}; raise the limit (ulimit -n)", said)

    def test_a_full_folder_of_temporary_files_is_an_error(self):
        code, said = self.shell("trap '' XFSZ; ulimit -f 1; \"$0\" compile plan.json -o large --no-cache")
        self.assertEqual(code, 1, said)
        self.assertRegex(said, r"^tbc: cannot write .*/tbc-kernels-.*: File too large")

    def test_what_a_killed_run_left_of_a_checkpoint_is_removed(self):
        names = ("step-00000031.tmp", "step-31.tmp", "step-00000031.old.tmp", "mine.tmp")
        for name in names:
            (self.folder / "left" / name).mkdir(parents=True)
            (self.folder / "left" / name / "rank-0.safetensors").write_text("x")
        self.tbc("run", "program", "--steps", 1, "--checkpoint", "left", "--resume")
        found = {path.name for path in (self.folder / "left").iterdir()}
        self.assertEqual(found, {"step-00000001", *names[1:]})

    def test_no_file_takes_the_place_of_a_closed_stdout(self):
        code, said = self.shell('"$0" run program --steps 1 --log closed.jsonl >&-')
        self.assertEqual(code, 1, said)
        self.assertIn("could not write all of stdout: Bad file descriptor\n", said)
        for line in (self.folder / "closed.jsonl").read_text().splitlines():
            self.assertEqual(json.loads(line)["step"], 1)

    def test_a_bar_fits_a_narrow_terminal(self):
        run = ["env", "COLUMNS=30", TBC, "run", "program", "--steps", "3"]
        code, _, text = on_terminal(run, cwd=self.folder)
        self.assertEqual(code, 0)
        self.assertRegex(text, r"\r\[[=> ]{5,20}\] 2/3, ")
        for part in re.findall(r"\r([^\r\n]+)\x1b\[K", text):
            self.assertLess(len(part), 30, part)

    def test_a_message_takes_the_place_of_the_bar(self):
        script = """
            "$0" run program --steps 1000000 --log killed.jsonl > out.txt & launcher=$!
            while [ "$(cat killed.jsonl 2> /dev/null | wc -l)" -lt 3 ]; do sleep 0.05; done
            set -- $(cat /proc/$launcher/task/$launcher/children)
            kill -9 $2
            wait $launcher
            """
        code, _, text = on_terminal(["sh", "-c", script, TBC], cwd=self.folder)
        self.assertEqual(code, 6, text)
        lines = [line.rpartition("\r")[2] for line in text.replace("\r\n", "\n").split("\n")]
        self.assertIn("\x1b[Ktbc: rank 1 was killed by signal 9 (Killed); "
                      "the system does so when memory runs out", lines)


if __name__ == "__main__":
    unittest.main()
