"""usage: draw.py [--check]

Draws the pictures of the documentation: one SVG per function of PICTURES, beside this file. With --check it writes
nothing and fails where a file differs from its drawing.

Text and lines follow the colour scheme of the reader (light or dark); colours are those of Paul Tol's "bright" set,
which people with colour blindness can tell apart.
"""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
STYLE = """<style>
text { font: 13px 'DejaVu Sans', Verdana, sans-serif; fill: #1f2328 }
.small { font-size: 11px } .strong { font-weight: bold } .middle { text-anchor: middle } .end { text-anchor: end }
.on { fill: #ffffff } .dark { fill: #1f2328 } .faint { fill: #656d76 }
.line { stroke: #656d76; stroke-width: 1.4; fill: none } .dash { stroke-dasharray: 5 4 }
.box { fill: #eef1f4; stroke: #656d76; stroke-width: 1.2 } .head { fill: #656d76 }
.blue { fill: #4477aa } .red { fill: #ee6677 } .green { fill: #228833 } .yellow { fill: #ccbb44 }
.cyan { fill: #66ccee } .grey { fill: #bbbbbb }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .faint { fill: #9198a1 } .box { fill: #21262d; stroke: #9198a1 }
  .line { stroke: #9198a1 } .head { fill: #9198a1 } .on { fill: #ffffff } .dark { fill: #1f2328 }
}
</style>
<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path class="head" d="M0 0 L8 4 L0 8 z"/></marker></defs>"""


class Picture:
    """Collects shapes. Coordinates are pixels, x to the right and y down."""

    def __init__(self, width, height, title):
        self.head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        self.head += f'height="{height}" role="img">\n<title>{title}</title>\n{STYLE}\n'
        self.shapes = []

    def rect(self, x, y, width, height, kind, radius=0):
        self.shapes.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}"/>'
        )

    def text(self, x, y, text, kind=""):
        self.shapes.append(f'<text class="{kind}" x="{x:g}" y="{y:g}">{text}</text>')

    def line(self, points, kind="line", arrow=True):
        path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
        end = ' marker-end="url(#arrow)"' if arrow else ""
        self.shapes.append(f'<path class="{kind}" d="{path}"{end}/>')

    def area(self, points, kind):
        self.shapes.append(f'<path class="{kind}" d="M' + " L".join(f"{x:g} {y:g}" for x, y in points) + ' z"/>')

    def box(self, x, y, width, height, title, note=""):
        self.rect(x, y, width, height, "box", 5)
        self.text(x + width / 2, y + height / 2 + (-2 if note else 5), title, "middle strong")
        if note:
            self.text(x + width / 2, y + height / 2 + 15, note, "middle small faint")

    def legend(self, x, y, entries, step):
        for index, (kind, text) in enumerate(entries):
            self.rect(x + index * step, y, 14, 14, kind)
            self.text(x + index * step + 20, y + 12, text, "small")

    def svg(self):
        return self.head + "\n".join(self.shapes) + "\n</svg>\n"


# -- The path of a model -------------------------------------------------------------------------------


def data_flow():
    p = Picture(860, 300, "From model.onnx to ranks: frontend, passes, planner, partitioner, code generation, runtime")
    top = [("model.onnx", "graph, no weights"), ("tbc IR", "one MLIR dialect"), ("step functions", "train, update")]
    for index, (title, note) in enumerate(top):
        p.box(20 + index * 230, 40, 150, 50, title, note)
    p.box(710, 40, 130, 50, "plan.json", "mesh, stages, ...")
    for x, name in ((170, "frontend/"), (400, "passes/"), (630, "planner/")):
        p.line([(x, 65), (x + 79, 65)])
        p.text(x + 38, 56, name, "middle small")
    p.box(480, 115, 150, 36, "cluster.toml")
    p.line([(630, 133), (660, 133), (660, 70)])
    p.box(710, 200, 130, 50, "per-stage IR", "with collectives")
    p.line([(775, 90), (775, 198)])
    p.text(768, 150, "passes/partition", "end small")
    p.box(480, 200, 150, 50, "Program", "blocks + schedule")
    p.line([(709, 225), (632, 225)])
    p.text(670, 216, "codegen/", "middle small")
    p.box(250, 200, 150, 50, "N ranks", "NCCL, Gloo")
    p.line([(479, 225), (402, 225)])
    p.text(440, 216, "runtime/", "middle small")
    p.box(20, 200, 150, 50, "serial step", "reference kernels")
    p.line([(555, 90), (555, 102), (95, 102), (95, 198)], "line dash")
    p.line([(171, 225), (248, 225)], "line dash", arrow=False)
    p.text(210, 216, "tbc verify", "middle small")
    p.text(210, 244, "equal?", "middle small faint")
    p.text(20, 24, "One direction: each arrow is one room of the source tree.", "small faint")
    p.text(20, 285, "tbc plan reads the first row; tbc compile goes on to the Program; tbc run starts the ranks.", "small faint")
    return p


# -- Shardings -----------------------------------------------------------------------------------------


def fused_qkv():
    p = Picture(860, 330, "A fused QKV weight is divided by heads inside of q, k and v")
    parts = (("q", "blue"), ("k", "green"), ("v", "yellow"))
    p.text(20, 28, "One weight [768, 2304]: its columns are three segments (q, k, v) of 12 heads x 64 elements each")
    for index, (name, kind) in enumerate(parts):
        for head in range(12):
            p.rect(20 + index * 276 + head * 23, 42, 21, 50, kind)
        p.rect(20 + index * 276 + 88, 54, 98, 26, kind)
        p.text(20 + index * 276 + 137, 72, f"{name}: 12 heads", "middle strong " + ("dark" if name == "v" else "on"))
    p.text(20, 128, "tbc: the factor heads lies on tp=2; each rank has the same heads of q, k and v", "strong")
    for rank in range(2):
        left = 20 + rank * 425
        p.text(left, 152, f"rank {rank}", "small")
        for index, (name, kind) in enumerate(parts):
            for head in range(6):
                p.rect(left + 48 + index * 115 + head * 19, 138, 17, 34, kind)
            text = f"{name} {rank * 6}-{rank * 6 + 5}"
            p.rect(left + 48 + index * 115 + 30, 144, 52, 22, kind)
            p.text(left + 48 + index * 115 + 56, 160, text, "middle small " + ("dark" if name == "v" else "on"))
    p.text(20, 222, "Not that: the dim 2304 cut in two equal runs of columns", "strong")
    for rank, runs in enumerate(((("q", 12), ("k", 6)), (("k", 6), ("v", 12)))):
        left = 20 + rank * 425
        p.text(left, 246, f"rank {rank}", "small")
        x = left + 48
        for name, heads in runs:
            for _ in range(heads):
                p.rect(x, 232, 17, 34, dict(parts)[name])
                x += 19
        p.text(left + 48, 286, "all of q, half of k" if rank == 0 else "half of k, all of v", "small faint")
    p.text(20, 318, "No head is whole there, so attention would have to gather. Dims are sums of products of factors.", "small faint")
    return p


def zero_storage():
    p = Picture(860, 285, "Where a device of four holds parameters, gradients and optimizer state")
    rows = (("DDP", 1, 1, 1), ("ZeRO-1", 1, 1, 4), ("ZeRO-2", 1, 4, 4), ("ZeRO-3", 4, 4, 4))
    labels = (("parameters, bf16", "blue", 2), ("gradients, f32", "green", 4), ("Adam + master, f32", "yellow", 12))
    p.text(20, 26, "Bytes per parameter on one of four data-parallel devices (mixed precision with Adam)")
    for row, (name, *parts) in enumerate(rows):
        y, x = 50 + row * 46, 100
        p.text(20, y + 22, name, "strong")
        for (label, kind, size), share in zip(labels, parts):
            p.rect(x, y, size / share * 34, 32, kind)
            x += size / share * 34 + 2
        total = sum(size / share for (_, _, size), share in zip(labels, parts))
        p.text(x + 8, y + 21, f"{total:g} bytes", "small")
    p.legend(100, 246, [(kind, label) for label, kind, _ in labels], 170)
    return p


# -- Schedules -----------------------------------------------------------------------------------------

STAGES, MICRO_BATCHES = 4, 6


def actions(stage, splits):
    """Returns [(kind, micro-batch)] of a stage: 1F1B, or ZB-H1 where the backward is split (runtime/schedule)."""
    warm_up = min(STAGES - stage - 1, MICRO_BATCHES)
    listed = [("F", i) for i in range(warm_up)]
    backwards = weights = 0
    for forward in range(warm_up, MICRO_BATCHES + warm_up):
        if forward < MICRO_BATCHES:
            listed.append(("F", forward))
        listed.append(("B", backwards))
        backwards += 1
        if splits and backwards > stage:
            listed.append(("W", weights))
            weights += 1
    return listed + ([("W", i) for i in range(weights, MICRO_BATCHES)] if splits else [])


def simulate(splits):
    """Returns [[(kind, micro-batch, begin, end)]] by stage: F takes 1, B 2, or where it is split B 1 and W 1."""
    lengths = {"F": 1, "B": 1 if splits else 2, "W": 1}
    todo = [actions(stage, splits) for stage in range(STAGES)]
    done, free = {}, [0] * STAGES
    events = [[] for _ in range(STAGES)]
    while any(todo):
        for stage in range(STAGES):
            while todo[stage]:
                kind, index = todo[stage][0]
                needs = {"F": ("F", stage - 1), "B": ("B", stage + 1), "W": ("B", stage)}[kind]
                if kind == "B" and stage == STAGES - 1:
                    needs = ("F", stage)
                ready = 0 if needs[1] < 0 else done.get((*needs, index))
                if ready is None:
                    break
                begin = max(free[stage], ready)
                free[stage] = done[(kind, stage, index)] = begin + lengths[kind]
                events[stage].append((kind, index, begin, free[stage]))
                todo[stage].pop(0)
    return events


KINDS = {"F": ("blue", "on"), "B": ("green", "on"), "W": ("yellow", "dark")}


def schedule(splits, title, note):
    p = Picture(860, 250, title)
    p.text(20, 24, title, "strong")
    unit, left = 28, 78
    events = simulate(splits)
    end = max(event[3] for row in events for event in row)
    for stage, row in enumerate(events):
        y = 42 + stage * 36
        p.text(20, y + 20, f"stage {stage}")
        for kind, index, begin, finish in row:
            p.rect(left + begin * unit + 1, y, (finish - begin) * unit - 2, 30, KINDS[kind][0], 2)
            p.text(left + (begin + finish) / 2 * unit, y + 20, index, "middle small " + KINDS[kind][1])
    p.line([(left + end * unit, 36), (left + end * unit, 192)], "line dash", arrow=False)
    idle = end - 3 * MICRO_BATCHES
    p.text(left, 206, f"{end} units of time, of {3 * MICRO_BATCHES} that a stage works: {idle} idle", "small")
    entries = [("blue", "forward"), ("green", "dgrad" if splits else "backward")] + [("yellow", "wgrad")] * splits
    p.legend(left, 224, entries, 110)
    p.text(left + 340, 236, note, "small faint")
    return p


def schedule_1f1b():
    return schedule(False, "1F1B: 4 stages, 6 micro-batches", "a number is a micro-batch; stage 0 holds up to 4 of them")


def schedule_zero_bubble():
    return schedule(True, "Zero-bubble (ZB-H1): backward split into dgrad and wgrad", "every stage holds up to 4 micro-batches")


# -- Memory --------------------------------------------------------------------------------------------


def memory_of_a_step():
    p = Picture(860, 330, "Memory of the first and the last stage over a step of 1F1B")
    states, saved, transient = 4.0, 1.0, 0.8
    unit, scale = 13.2, 22
    for column, stage in enumerate((0, STAGES - 1)):
        left, bottom = 62 + column * 410, 262
        row, top = simulate(False)[stage], 27
        p.text(left, 26, f"stage {stage}: up to {STAGES - stage} micro-batches in flight", "strong")
        p.rect(left, bottom - states * scale, top * unit, states * scale, "blue")
        held, points, peaks = 0, [(left, bottom - states * scale)], []
        for kind, _, begin, end in row:
            if kind == "F":
                points += [(left + begin * unit, bottom - (states + held * saved) * scale)]
                held += 1
                points += [(left + begin * unit, bottom - (states + held * saved) * scale)]
            peaks.append((begin, end, states + held * saved))
            if kind == "B":
                points += [(left + end * unit, bottom - (states + held * saved) * scale)]
                held -= 1
                points += [(left + end * unit, bottom - (states + held * saved) * scale)]
        points += [(left + top * unit, bottom - states * scale)]
        p.area(points, "green")
        for begin, end, height in peaks:
            p.rect(left + begin * unit, bottom - (height + transient) * scale, (end - begin) * unit, transient * scale, "yellow")
        p.line([(left, 40), (left, bottom), (left + top * unit + 6, bottom)], arrow=False)
        for gib in range(0, 10, 2):
            p.text(left - 8, bottom - gib * scale + 4, gib, "end small")
        p.line([(left, bottom - 9 * scale), (left + top * unit, bottom - 9 * scale)], "line dash", arrow=False)
        p.text(left + top * unit, bottom - 9 * scale - 5, "memory limit", "end small faint")
        p.text(left + top * unit, bottom + 18, "time of one step", "end small faint")
    p.text(22, 40, "GiB", "small")
    entries = [("blue", "states"), ("green", "saved activations"), ("yellow", "transients")]
    p.legend(62, 296, entries, 140)
    p.text(500, 308, "example: 4 GiB of states, 1 GiB saved per micro-batch", "small faint")
    return p


def memory_verdicts():
    p = Picture(860, 210, "When a plan fits, is tight, or does not fit")
    left, unit = -640, 16  # 50 GiB at x = 160
    p.text(20, 26, "The interval of a plan's memory against the limit of 77.6 GiB")
    limit = left + 77.6 * unit
    for row, (name, low, middle, high, kind) in enumerate(
        (("fits", 58, 62, 68, "green"), ("tight", 70, 75, 80, "yellow"), ("does not fit", 74, 79, 84, "red"))
    ):
        y = 50 + row * 38
        p.text(20, y + 17, name, "strong")
        p.rect(left + low * unit, y, (high - low) * unit, 24, kind, 3)
        p.line([(left + middle * unit, y - 3), (left + middle * unit, y + 27)], arrow=False)
        p.text(left + low * unit - 8, y + 17, f"{low} to {high} GiB", "end small")
    p.line([(limit, 38), (limit, 168)], "line dash", arrow=False)
    p.text(limit, 184, "limit", "middle small")
    p.text(20, 200, "The mark in a bar is the middle of its interval: the memory that is planned with --memory-risk.", "small faint")
    return p


# -- Collectives ---------------------------------------------------------------------------------------


def hierarchical_all_reduce():
    p = Picture(860, 250, "Hierarchical all-reduce over two hosts of four ranks")
    steps = ("1 reduce-scatter", "2 chain of hosts, f64", "3 broadcast back", "4 all-gather")
    for column, name in enumerate(steps):
        left = 20 + column * 212
        p.text(left, 26, name, "strong")
        for host in range(2):
            top = 44 + host * 92
            p.rect(left, top, 180, 64, "box", 4)
            p.text(left + 8, top + 16, f"host {host}", "small faint")
            for rank in range(4):
                x = left + 10 + rank * 42
                p.rect(x, top + 24, 36, 32, "grey", 2)
                for part in range(4):
                    own = part == rank
                    kind = "blue" if column == 3 else "green" if own and column == 2 else "yellow" if own else ""
                    if kind:
                        p.rect(x + 2 + part * 8, top + 26, 8, 28, kind)
        if column in (1, 2):
            for rank in range(4):
                x = left + 28 + rank * 42
                p.line([(x, 110), (x, 134)] if column == 1 else [(x, 134), (x, 110)])
    p.legend(20, 224, [("yellow", "partial sum of a host"), ("green", "sum, rounded once"), ("blue", "whole result")], 200)
    return p


PICTURES = (
    data_flow, fused_qkv, zero_storage, schedule_1f1b, schedule_zero_bubble, memory_of_a_step, memory_verdicts,
    hierarchical_all_reduce,
)


def main():
    stale = []
    for picture in PICTURES:
        file, svg = FOLDER / f"{picture.__name__}.svg", picture().svg()
        if sys.argv[1:] == ["--check"]:
            if not file.exists() or file.read_text() != svg:
                stale.append(file.name)
        else:
            file.write_text(svg)
    stale += [file.name for file in FOLDER.glob("*.svg") if file.stem not in {p.__name__ for p in PICTURES}]
    if stale:
        sys.exit(f"not as draw.py draws them: {', '.join(sorted(stale))}; run docs/pictures/draw.py")


if __name__ == "__main__":
    main()
