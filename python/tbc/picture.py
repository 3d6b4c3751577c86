"""A plan as a small HTML picture, for notebooks: the mesh, and the memory of the fullest device."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tbc.plan_file import Plan

_WIDTH, _CELL, _MOST_CELLS = 420, 18, 64
_COLORS = ("#4878a8", "#68a062", "#c98b3a", "#a8577e", "#6b6bb0", "#7a7a7a")


def bytes_text(count: float) -> str:
    """Example: 1.5 * 2**30 is "1.5 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"


def seconds_text(seconds: float) -> str:
    """Example: 0.0132 is "13.2 ms"."""
    if seconds >= 1:
        return f"{seconds:.4g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def mesh_text(mesh: dict[str, int]) -> str:
    """Example: {"dp": 2, "tp": 4} is "dp=2, tp=4"."""
    return ", ".join(f"{axis}={size}" for axis, size in mesh.items()) or "one device"


def _cells(plan: Plan, y: int) -> str:
    """A square for each rank, colored by its coordinate on the fastest axis."""
    fastest = list(plan.mesh.values())[-1] if plan.mesh else 1
    count = min(plan.ranks, _MOST_CELLS)
    per_row = _WIDTH // _CELL
    squares = []
    for rank in range(count):
        x, row = rank % per_row * _CELL, rank // per_row
        color = _COLORS[rank % fastest % len(_COLORS)]
        squares.append(
            f'<rect x="{x}" y="{y + row * _CELL}" width="{_CELL - 3}" height="{_CELL - 3}" rx="2" fill="{color}">'
            f"<title>rank {rank}</title></rect>"
        )
    return "".join(squares)


def _memory(plan: Plan, y: int) -> str:
    """A bar of the limit, filled up to the estimate, with its interval."""
    memory = plan.memory
    whole = max(memory.limit_bytes, memory.bytes.high, 1)
    x = {end: _WIDTH * getattr(memory.bytes, end) / whole for end in ("low", "value", "high")}
    limit = _WIDTH * memory.limit_bytes / whole
    return (
        f'<rect x="0" y="{y}" width="{limit:.1f}" height="14" fill="none" stroke="#888"/>'
        f'<rect x="0" y="{y}" width="{x["value"]:.1f}" height="14" fill="{_COLORS[0]}"/>'
        f'<line x1="{x["low"]:.1f}" x2="{x["high"]:.1f}" y1="{y + 7}" y2="{y + 7}" stroke="#c00" stroke-width="2"/>'
    )


def html(plan: Plan) -> str:
    """Returns a table of the plan's numbers above an SVG."""
    memory, time = plan.memory, plan.time
    rows = {
        "mesh": mesh_text(plan.mesh),
        "schedule": f"{plan.schedule}, micro-batch {plan.micro_batch} x {plan.accumulation}",
        "memory": f"{bytes_text(memory.bytes.value)} ({bytes_text(memory.bytes.low)} to "
        f"{bytes_text(memory.bytes.high)}) of {bytes_text(memory.limit_bytes)}: {memory.verdict}",
        "step": f"{seconds_text(time.value)} ({seconds_text(time.low)} to {seconds_text(time.high)})",
    }
    lines = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in rows.items())
    height = (min(plan.ranks, _MOST_CELLS) - 1) // (_WIDTH // _CELL) * _CELL + _CELL
    more = f"<div>the first {_MOST_CELLS} of {plan.ranks} ranks</div>" if plan.ranks > _MOST_CELLS else ""
    return (
        f'<div class="tbc-plan"><table>{lines}</table>'
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height + 24}" role="img">'
        f"{_cells(plan, 0)}{_memory(plan, height + 4)}</svg>{more}</div>"
    )
