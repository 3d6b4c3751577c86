"""usage: report_test.py TBC SOURCE_DIR

The page of `tbc report` in a headless Chromium: it renders without a message or a request, search
and keys work, no window is too narrow. Exit code 77 if there is no Chromium.
"""

import csv
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TBC, SOURCE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
sys.path.insert(0, str(SOURCE / "tests/support"))
from browser import Browser, find_browser  # noqa: E402

MODELS = SOURCE / "models"
PLANS = {
    "dp": [MODELS / "gpt2.onnx", "--gpus", "16"],
    "pipeline": [MODELS / "tiny-gpt2.onnx", "--gpus", "8", "--mesh", "pp=4,dp=2", "--schedule", "zero-bubble",
                 "--batch", "64", "--seq", "8"],
    "chunks": [MODELS / "gpt2.onnx", "--gpus", "2", "--mesh", "pp=2", "--batch", "32", "--schedule", "interleaved",
               "--virtual-stages", "2"],
    "split": [MODELS / "gpt2.onnx", "--gpus", "16", "--mesh", "pp=2,fsdp=2,tp=4"],
    "experts": [MODELS / "moe-8l.onnx", "--gpus", "8", "--mesh", "ep=4,dp=2", "--batch", "64"],
}
HOSTILE = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>"
WIDTHS = (1280, 390)


def tbc(*arguments):
    return subprocess.run([TBC, *arguments], capture_output=True, text=True, timeout=120)


class ReportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.holder.name)
        for name, arguments in PLANS.items():
            run = tbc("plan", *arguments, "-o", cls.folder / f"{name}.json")
            assert run.returncode == 0, run.stderr
            cls.report(name)
        cls.report("dp", "pipeline", to="both")
        cls.browser = Browser(find_browser())

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()
        cls.holder.cleanup()

    @classmethod
    def report(cls, *names, to=None):
        page = cls.folder / f"{to or names[0]}.html"
        run = tbc("report", *(cls.folder / f"{name}.json" for name in names), "-o", page)
        assert run.returncode == 0, run.stderr
        return page

    def show(self, name, width=1280, dark=False):
        page = self.folder / f"{name}.html"
        self.browser.size(width, 800, dark)
        self.browser.open(page)
        return page

    def test_it_renders_without_a_message_or_a_request(self):
        for name in (*PLANS, "both"):
            for width, dark in ((1280, False), (390, True)):
                with self.subTest(name, width=width):
                    page = self.show(name, width, dark)
                    self.assertEqual(self.browser.messages(), [])
                    requested = [url for url in self.browser.requests() if not url.startswith("data:")]
                    self.assertEqual(requested, [page.as_uri()])
                    self.assertGreater(self.browser.run("document.querySelectorAll('section').length"), 6)
                    self.assertLess(page.stat().st_size, 1_500_000)

    def test_no_text_is_a_missing_value(self):
        for name in PLANS:
            self.show(name)
            text = self.browser.run("document.body.innerText")
            for word in ("undefined", "NaN", "[object", "Infinity"):
                self.assertNotIn(word, text, name)

    def test_no_window_is_too_narrow(self):
        for name in (*PLANS, "both"):
            for width in WIDTHS:
                self.show(name, width)
                self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), width, name)

    def test_the_first_screen_has_the_answers(self):
        self.show("dp")
        bottom = self.browser.run("document.querySelector('.pair').getBoundingClientRect().bottom")
        self.assertLess(bottom, 800)
        text = self.browser.run("document.body.innerText")
        view = json.loads(tbc("report", self.folder / "dp.json", "--json").stdout)["plans"][0]
        for word in ("Fits", "Mostly ", "Why not a simpler plan", view["others"][0]["name"], view["others"][0]["note"]):
            self.assertIn(word, text)

    def test_groups_that_nodes_hold_unevenly(self):
        """Seven ranks lie on nodes of six: six on one, and one on the other."""
        cluster = self.folder / "six.toml"
        cluster.write_text(tbc("cluster", "h100-sxm").stdout.replace("devices_per_node = 8", "devices_per_node = 6"))
        run = tbc("plan", MODELS / "tiny-gpt2.onnx", "--gpus", "7", "--mesh", "dp=7", "--batch", "7", "--seq", "8",
                  "--cluster", cluster, "-o", self.folder / "odd.json")
        self.assertIn("across 2 nodes, at least 1 of a group on each", run.stdout)
        self.report("odd")
        self.show("odd")
        self.assertIn("across 2 nodes, at least 1 of a group on each", self.browser.run("document.querySelector('#mesh').innerText"))

    def test_sends_between_stages_are_neither_exposed_nor_hidden(self):
        for name, words in (("dp", "step and device: "), ("pipeline", "step and device, without sends between stages: ")):
            text = tbc("explain", self.folder / f"{name}.json").stdout
            self.assertIn("\ncommunication per " + words, text)

    def test_search_finds_layers_by_name(self):
        self.show("dp")
        rows = "document.querySelectorAll('#layer-rows tbody tr').length"
        before = self.browser.run(rows)
        self.browser.run("document.querySelector('#layers input').focus()")
        for key in "wte":
            self.browser.key(key)
        self.assertEqual((before, self.browser.run("document.querySelector('#layers input').value")), (3, "wte"))
        shown = "document.querySelector('#layer-rows').innerText"
        self.assertIn("transformer.wte", self.browser.run(shown))
        self.assertNotIn("transformer.h.", self.browser.run(shown))

    def test_folded_layers_are_found_by_the_number_of_a_repeat(self):
        self.show("dp")
        found = "starMatches('transformer.h.*', {})"
        for word, is_found in (("h.7.mlp", True), ("transformer.h.11", True), ("h.", True), ("wte", False), ("x.7", False)):
            self.assertEqual(self.browser.run(found.format(json.dumps(word))), is_found, word)
        self.assertEqual(self.browser.run("expand('h.{0..2}.{{a}}{3..9..3}', 100)"),
                         [f"h.{i}.{{a}}{j}" for i in range(3) for j in (3, 6, 9)])

    def test_keys_reach_tabs_axes_and_the_schedule(self):
        self.show("both")
        self.browser.run("document.querySelector('[role=tab]').focus()")
        self.browser.key("ArrowRight", 39)
        self.assertEqual(self.browser.run("document.querySelector('[aria-selected=true]').textContent"),
                         str(self.folder / "pipeline.json"))
        self.assertIn("stage 3", self.browser.run("document.querySelector('#schedule').textContent"))
        self.browser.run("document.querySelector('#mesh tbody tr:last-child').focus()")
        self.assertEqual(self.browser.run("document.querySelectorAll('#mesh tr.on').length"), 1)
        self.assertEqual(self.browser.run("document.querySelector('#mesh tbody tr:last-child').className.trim()"), "on")
        ticks = "[...document.querySelectorAll('#schedule .plot text.dim')].map((t) => t.textContent).join()"
        self.browser.run("document.querySelector('.plot').focus()")
        before = self.browser.run(ticks)
        self.browser.key("+", 187)
        self.assertNotEqual(self.browser.run(ticks), before)
        self.browser.key("0", 48)
        self.assertEqual(self.browser.run(ticks), before)
        self.assertEqual(self.browser.messages(), [])

    def test_the_search_is_a_picture_with_keys_and_a_table(self):
        for name in ("dp", "experts"):
            self.show(name)
            view = json.loads(tbc("report", self.folder / f"{name}.json", "--json").stdout)["plans"][0]
            points = view["search"]["points"]
            self.assertEqual(self.browser.run("document.querySelectorAll('#search .point').length"), len(points))
            self.assertGreater(sum(point["front"] for point in points), 1)
            self.assertEqual(self.browser.run("document.querySelectorAll('#search .front').length"), 1)
            self.assertEqual(self.browser.run("document.querySelectorAll('#search .bound').length"), 1)
            # The keys walk from this plan to the next slower one, and to the ends.
            focused = "document.activeElement.getAttribute('aria-label')"
            self.browser.run("document.querySelector('#search .point[tabindex=\"0\"]').focus()")
            self.assertTrue(self.browser.run(focused).startswith("this plan: "))
            order = sorted(range(len(points)), key=lambda i: points[i]["seconds"])
            after = points[min(order.index(next(i for i in order if points[i]["rank"] == 0)) + 1, len(points) - 1)]
            self.browser.key("ArrowRight", 39)
            self.assertIn(after["mesh"] + ", ", self.browser.run(focused))
            self.assertIn(after["note"], self.browser.run("document.querySelector('#tip').textContent"))
            self.browser.key("End", 35)
            self.assertIn(points[-1]["note"], self.browser.run(focused))
            self.assertEqual(self.browser.run("document.querySelectorAll('#search .point[tabindex=\"0\"]').length"), 1)
            text = self.browser.run("""new Promise((done) => { window.download = (name, text) => done(text);
                document.querySelector('#candidates .csv').click(); })""")
            self.assertEqual(len(text.splitlines()), len(points) + 1)
            self.assertTrue(text.startswith("#,mesh,ZeRO,micro-batch,schedule,recompute,step [s],bound [s],memory [bytes],fits,front,why it lost"), text)
            self.assertEqual(self.browser.messages(), [])

    def test_the_picture_of_the_search_is_as_wide_as_the_window(self):
        for width in WIDTHS:
            self.show("experts", width)
            drawn = self.browser.run("document.querySelector('#search figure svg').viewBox.baseVal.width")
            self.assertTrue(0.8 * min(width, 1140) <= drawn <= width, (drawn, width))

    def test_slices_are_those_of_the_plan_on_every_rank(self):
        """The texts beside the pictures are those of tbc explain --rank."""
        for name, ranks in (("split", (0, 7, 13)), ("experts", (5,)), ("dp", (15,))):
            self.show(name)
            for rank in ranks:
                rows = json.loads(tbc("explain", self.folder / f"{name}.json", "--rank", str(rank), "--json").stdout)["holds"]
                expected = {kind: sorted((row["slice"].split(" partial")[0], row["type"].split()[0].replace("x", " x "), row["count"]) for row in rows if row["kind"] == of)
                            for kind, of in (("stored", "parameter"), ("state", "optimizer state"))}  # fmt: skip
                self.browser.run(f"(() => {{ const input = document.querySelector('#slices input'); input.value = {rank}; input.dispatchEvent(new Event('input')); }})()")
                self.assertIn(f"Rank {rank}", self.browser.run("document.querySelector('#slices').textContent"))
                text = self.browser.run("""new Promise((done) => { window.download = (name, text) => done(text); document.querySelector('#slices .csv').click(); })""")
                head, *lines = csv.reader(text.splitlines())
                self.assertEqual(head, ["parameters", "here", "shape", "stored", "used", "optimizer state"])
                for kind, column in (("stored", 3), ("state", 5)):
                    self.assertEqual(sorted((line[column], line[2], int(line[1])) for line in lines), expected[kind], (name, rank))
                self.assertEqual(self.browser.run("document.querySelectorAll('#slices svg.slice').length"), 3 * len(lines))
            self.assertEqual(self.browser.messages(), [])
        # A flat chunk is a band of its size: half of the local part over fsdp=2.
        self.show("split")
        area = self.browser.run("""(() => { const of = (fill) => [...document.querySelectorAll('#slices svg.slice')[0].querySelectorAll(`rect[fill="var(--${fill})"]`)]
            .reduce((all, r) => all + r.getAttribute('width') * r.getAttribute('height'), 0); return [of('blue'), of('pale')]; })()""")
        self.assertAlmostEqual(area[0] / area[1], 0.5, delta=0.05)

    def test_a_profile_is_beside_the_prediction(self):
        plan = json.loads((self.folder / "pipeline.json").read_text())
        event = {"ph": "X", "pid": 0, "tid": 1, "name": "node"}
        events = [{**event, "ts": 5, "dur": 200.0, "cat": "kernel", "args": {"op": "einsum", "block": "forward"}},
                  {**event, "ts": 300, "dur": 5e5, "cat": "communication", "args": {"op": "recv", "block": "forward"}}]  # fmt: skip
        profile = self.folder / "profile.json"
        profile.write_text(json.dumps({"traceEvents": events}))
        page = self.folder / "measured.html"
        flags = ["--against", profile]
        run = tbc("report", self.folder / "pipeline.json", *flags, "-o", page)
        self.assertEqual(run.returncode, 0, run.stderr)
        groups = {g["group"]: g for g in json.loads(tbc("report", self.folder / "pipeline.json", *flags, "--json").stdout)["plans"][0]["measured"]["groups"]}
        self.assertAlmostEqual(groups["kernels of forward"]["measured"], 2e-4)
        self.assertAlmostEqual(groups["step"]["measured"], 0.500295)
        self.assertAlmostEqual(groups["step"]["predicted"] / plan["step_seconds"], 1, delta=1e-4)
        for width in WIDTHS:
            self.show("measured", width)
            shown = self.browser.run("document.querySelector('#measured').textContent")
            self.assertIn("outside of the interval", shown)
            self.assertIn(f"{groups['step']['measured'] / groups['step']['predicted']:.2f} times as long", shown)
            self.assertEqual(self.browser.run("document.querySelectorAll('#measured .measure').length"), 2 * len(groups))
            self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), width)
            self.assertEqual(self.browser.messages(), [])
        self.show("dp")
        self.assertEqual(self.browser.run("document.querySelectorAll('#measured').length"), 0)
        profile.write_text("{}")
        self.assertEqual(tbc("report", self.folder / "pipeline.json", *flags, "-o", page).returncode, 2)

    def test_a_plan_without_a_sample_shows_its_runners_up(self):
        plan = json.loads((self.folder / "dp.json").read_text())
        del plan["search"]
        (self.folder / "earlier.json").write_text(json.dumps(plan))
        self.report("earlier")
        self.show("earlier")
        self.assertEqual(self.browser.run("document.querySelectorAll('#search .point').length"), 1 + len(plan["alternatives"]))
        self.assertEqual(self.browser.run("document.querySelectorAll('#candidates').length"), 0)
        self.assertEqual(self.browser.messages(), [])

    def test_everything_that_is_clickable_has_a_name(self):
        self.show("both")
        self.assertEqual(self.browser.run("""[...document.querySelectorAll('button, a, select, input, [tabindex="0"], [role=img]')]
            .filter((node) => !(node.getAttribute('aria-label') || node.textContent.trim())).length"""), 0)

    def test_text_can_be_read(self):
        """WCAG 2.2, 1.4.3: a contrast of at least 4.5 between text and page."""
        contrast = """(() => {
            const light = (name) => { const h = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
              const part = (i) => { const c = parseInt(h.slice(i, i + 2), 16) / 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
              return 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5); };
            const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
            return ['--ink', '--faint', '--link', '--good', '--warn', '--bad'].flatMap((t) => ['--page', '--panel'].map((p) => ratio(t, p)));
        })()"""
        for dark in (False, True):
            self.show("dp", dark=dark)
            self.assertGreaterEqual(min(self.browser.run(contrast)), 4.5)

    def test_a_table_downloads_as_csv(self):
        self.show("dp")
        text = self.browser.run("""new Promise((done) => { window.download = (name, text) => done(text);
            document.querySelector('#layer-rows .csv').click(); })""")
        lines = text.splitlines()
        self.assertTrue(lines[0].startswith("layers,count,ops,"), lines[0])
        self.assertEqual(len(lines), 4)
        self.assertEqual(self.browser.run("csvCell('=cmd')"), "'=cmd")
        self.assertEqual(self.browser.run("""csvCell('a "b", c')"""), '"a ""b"", c"')

    def test_hostile_names_stay_text(self):
        text = (self.folder / "dp.json").read_text()
        for word in ("transformer.wte", "h100-sxm", "cluster h100-sxm"):
            text = text.replace(json.dumps(word), json.dumps(HOSTILE))
        text = text.replace("gradients reduced together", HOSTILE.replace('"', '\\"'))
        (self.folder / "hostile.json").write_text(text)
        self.report("hostile")
        self.show("hostile")
        self.assertIsNone(self.browser.run("window.broken"))
        self.assertEqual(self.browser.run("document.querySelectorAll('img').length"), 0)
        self.assertIn(HOSTILE, self.browser.run("document.body.textContent"))
        self.assertEqual(self.browser.messages(), [])

    def test_numbers_look_as_in_the_text_of_tbc(self):
        """The formats of the page are those of planner/support/Format.cpp."""
        self.show("dp")
        view = json.loads(tbc("report", self.folder / "dp.json", "--json").stdout)["plans"][0]
        first = view["text"].splitlines()[0]
        memory = view["memory"]
        shown = self.browser.run(f"`fits: ${{bytes({memory['peak']})}} (${{bytes({memory['low']})}} to ${{bytes({memory['high']})}})"
                                 f" of ${{bytes({memory['limit']})}} per device`")
        self.assertEqual(shown, first)
        step = self.browser.run(f"seconds({view['time']['step']})")
        self.assertTrue(view["text"].splitlines()[1].startswith(f"step {step} ("), step)


if __name__ == "__main__":
    if not find_browser():
        print("no Chromium is installed: the page of tbc report was not opened (apt-get install chromium)")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
