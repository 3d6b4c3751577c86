// Pictures of the slices of parameters on any rank. The rules are those of docs/plan.md, "A slice".

/// Returns [size, coordinate] of the part of an axis that a name stands for. Example: "tp:(2)4" is the
/// middle of the axis, read as 2 x 4 x rest.
function axisPart(name, axes, rank) {
  const [word, part] = name.split(":"), axis = axes.find((a) => a.axis === word);
  if (!axis) return [1, 0];
  const coordinate = Math.floor(rank / axis.stride) % axis.size, inside = /^\((\d+)\)(\d+)$/.exec(part || "");
  if (!inside) return [axis.size, coordinate];
  const size = +inside[2], rest = axis.size / (+inside[1] * size);
  return [size, Math.floor(coordinate / rest) % size];
}

/// Returns the half-open range of `count` equal things on a rank, the first axis the slowest.
function partOf(count, names, axes, rank) {
  let first = 0;
  for (const name of names) {
    const [size, coordinate] = axisPart(name, axes, rank);
    count /= size;
    first += coordinate * count;
  }
  return [first, first + count];
}

/// Returns the ranges of a dim of `size` elements on a rank; neighbours are joined.
function rangesOf(dim, size, axes, rank) {
  if (!dim || !dim.segments) return [partOf(size, dim ? dim.axes : [], axes, rank)];
  const all = [];
  const append = (list, a, b) => {
    if (list.length && list[list.length - 1][1] === a) list[list.length - 1][1] = b;
    else if (a < b) list.push([a, b]);
  };
  let begin = 0;
  for (const segment of dim.segments) {
    let inside = [[0, 1]], length = 1;
    for (const factor of segment) {
      const [first, last] = partOf(factor.size, factor.axes, axes, rank), next = [];
      for (const [a, b] of inside)
        if (last - first === factor.size) append(next, a * factor.size, b * factor.size);
        else for (let i = a; i < b && next.length < 4096; ++i) append(next, i * factor.size + first, i * factor.size + last);
      inside = next;
      length *= factor.size;
    }
    for (const [a, b] of inside) append(all, begin + a, begin + b);
    begin += length;
  }
  return all;
}

/// Returns the slice of a tensor on a rank: ranges by dim, and of the flattened part [begin, end, all].
function sliceOf(placement, sizes, axes, rank) {
  const dims = sizes.map((size, d) => rangesOf(placement.dims[d], size, axes, rank));
  const local = dims.reduce((product, ranges) => product * sum(ranges, ([a, b]) => b - a), 1);
  const all = local + placement.padding;
  return { dims, flat: placement.flat.length ? [...partOf(all, placement.flat, axes, rank), all] : null };
}

/// Returns a slice as Python writes it. Example: "[:, 0:768] flat 0:1024".
function sliceText(slice, sizes) {
  const dim = (ranges, d) => {
    if (ranges.length === 1 && ranges[0][0] === 0 && ranges[0][1] === sizes[d]) return ":";
    return ranges.slice(0, 4).map(([a, b]) => `${a}:${b}`).join("+") + (ranges.length > 4 ? `+… (${ranges.length} ranges)` : "");
  };
  return `[${slice.dims.map(dim).join(", ")}]` + (slice.flat ? ` flat ${slice.flat[0]}:${slice.flat[1]}` : "");
}

/// Draws a tensor, and the slice in it. Of more than two dims it draws two, those that are split first;
/// a flattened chunk is a band of the local part.
function slicePicture(slice, sizes, label) {
  const isSplit = (d) => slice.dims[d].length !== 1 || slice.dims[d][0][1] - slice.dims[d][0][0] !== sizes[d];
  const order = sizes.map((_, d) => d).sort((a, b) => isSplit(b) - isSplit(a) || a - b).slice(0, 2).sort((a, b) => a - b);
  const width = 88, height = sizes.length < 2 ? 14 : 48, down = sizes.length < 2 ? -1 : order[0], across = sizes.length < 2 ? (sizes.length ? 0 : -1) : order[1];
  const scaled = (d, extent) => (d < 0 ? [[0, extent]] : slice.dims[d].map(([a, b]) => [extent * a / sizes[d], extent * b / sizes[d]]));
  let rows = scaled(down, height), columns = scaled(across, width);
  const box = (list, hue) => list.flatMap(([y0, y1]) => columns.map(([x0, x1]) =>
    svg("rect", { x: x0.toFixed(2), y: y0.toFixed(2), width: Math.max(1, x1 - x0).toFixed(2), height: Math.max(1, y1 - y0).toFixed(2), fill: color(hue) })));
  const local = slice.flat ? box(rows, "pale") : [];
  if (slice.flat) {
    const [begin, end, all] = slice.flat, along = down < 0 ? columns : rows, total = sum(along, ([a, b]) => b - a);
    const from = total * begin / all, to = total * end / all, cut = [];
    let at = 0;
    for (const [a, b] of along) {
      const low = Math.max(from, at), high = Math.min(to, at + b - a);
      if (low < high) cut.push([a + low - at, a + high - at]);
      at += b - a;
    }
    if (down < 0) columns = cut;
    else rows = cut;
  }
  const text = `${label}: ${sliceText(slice, sizes)}`;
  return tip(svg("svg", { class: "slice", viewBox: `-1 -1 ${width + 2} ${height + 2}`, style: `width:${width + 2}px;height:${height + 2}px`, role: "img", "aria-label": text },
    svg("rect", { x: 0, y: 0, width, height, fill: "none", stroke: color("faint") }), local, box(rows, "blue")), text);
}

/// The slices of all parameters on a rank that the reader chooses.
function slicesOf(plan) {
  const { axes, parameters } = plan.layout, ranks = plan.mesh.ranks;
  if (!parameters.length) return null;
  const holder = el("div", { "aria-live": "polite" });
  const input = el("input", { type: "number", min: 0, max: ranks - 1, step: 1, value: 0, style: "width:7rem", "aria-label": "Rank whose slices are drawn" });
  const cell = (row, kind, rank) => {
    const placement = row.splits[kind];
    if (!placement) return "–";
    const slice = sliceOf(placement, row.sizes, axes, rank);
    return [slicePicture(slice, row.sizes, kind), el("div", { class: "mono small" }, sliceText(slice, row.sizes))];
  };
  const draw = () => {
    const rank = Math.min(ranks - 1, Math.max(0, Math.floor(+input.value || 0))), stage = Math.floor(rank / plan.mesh.ranks_per_stage);
    const rows = parameters.map((row) => ({ ...row, here: row.by_stage.filter(([s]) => s === stage).reduce((n, [, count]) => n + count, 0) })).filter((row) => row.here);
    const place = axes.filter((a) => a.size > 1).map((a) => `${a.axis} ${Math.floor(rank / a.stride) % a.size}`).join(", ");
    const text = (kind) => (row) => (row.splits[kind] ? sliceText(sliceOf(row.splits[kind], row.sizes, axes, rank), row.sizes) : "");
    const column = (head, kind) => ({ head, get: text(kind), show: (row) => cell(row, kind, rank) });
    holder.replaceChildren(table("slices", `Rank ${rank}${place ? ": " + place : ""}; of ${plural(sum(rows, (r) => r.here), "parameter")}`, [
      { head: "parameters", get: (r) => r.names.join(" "), show: (r) => el("span", { class: "mono" }, r.names.slice(0, 3).join("  ") + (r.names.length > 3 ? " …" : "")), wide: true },
      { head: "here", n: true, get: (r) => r.here }, { head: "shape", get: (r) => r.shape }, column("stored", "stored"), column("used", "used"), column("optimizer state", "state")], rows));
  };
  input.addEventListener("input", draw);
  draw();
  return el("details", { id: "slices" }, el("summary", {}, "Slices of a rank, as pictures"),
    el("div", { class: "tools" }, el("label", {}, "rank ", input), el("span", { class: "faint" }, `0 to ${whole(ranks - 1)}`)),
    el("p", { class: "faint small" }, "The frame is the whole tensor, the first dim downwards, filled is the slice of the rank. Of flat storage the filled band is the chunk, in the pale local part."), holder);
}
