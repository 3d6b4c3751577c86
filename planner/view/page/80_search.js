// The search: candidates as time against memory, and why each lost.

/// Returns a scale of `values` to [from, to]; of logarithms if they span much.
function scaleOf(values, from, to, isBytes) {
  const low = Math.min(...values), high = Math.max(...values);
  if (high / low > 6) {
    const a = Math.log(low / 1.25), b = Math.log(high * 1.25), marks = [];
    for (let power = Math.floor(Math.log2(low / 1.25)); power <= Math.log2(high * 1.25); ++power) {
      const value = isBytes ? 2 ** power : null;
      if (value && value >= low / 1.25) marks.push(value);
    }
    if (!isBytes) for (let power = Math.floor(Math.log10(low)) - 1; power <= Math.ceil(Math.log10(high)); ++power)
      for (const x of [1, 2, 5]) if (x * 10 ** power >= low / 1.25 && x * 10 ** power <= high * 1.25) marks.push(x * 10 ** power);
    while (marks.length > 8) marks.splice(0, marks.length, ...marks.filter((_, i) => i % 2 === 0));
    return { at: (v) => from + (to - from) * (Math.log(v) - a) / (b - a), marks, isLog: true };
  }
  const pad = Math.max((high - low) * 0.15, high * 0.04), first = Math.max(0, low - pad), last = high + pad;
  return { at: (v) => from + (to - from) * (v - first) / (last - first), marks: ticks(last, Math.min(24, 6 * last / (last - first)), isBytes).filter((v) => v >= first && v <= last), isLog: false };
}

/// The points of the picture, by time: those of the search where plan.json has them, else the runners-up.
function searchPoints(plan) {
  const other = (rank) => plan.others[rank - 1] || { memory: "fits", note: "" };
  const nameOf = (c) => [c.mesh, c.zero !== "-" && c.zero, `micro-batch ${whole(c.micro_batch)}`, c.schedule !== "none" && c.schedule, `recompute ${c.recompute}`].filter(Boolean).join(", ");
  if (plan.search.points.length)
    return plan.search.points.map((c) => ({ ...c, name: nameOf(c), number: c.rank, verdict: c.fits ? "fits" : c.rank && other(c.rank).memory === "tight" ? "tight" : "does not fit" }));
  return [{ name: plan.decisions.join(", "), seconds: plan.time.step, bytes: plan.memory.peak, verdict: plan.memory.verdict, number: 0, note: "this plan" },
    ...plan.others.map((o, index) => ({ ...o, number: index + 1, verdict: o.memory }))].sort((a, b) => a.seconds - b.seconds);
}
const VERDICT_HUES = { "fits": "green", "tight": "yellow", "does not fit": "red" };

/// Draws time against memory, `width` wide. Arrow keys walk along the points, the fastest first.
function scatter(plan, points, width) {
  const t = plan.time, m = plan.memory, isNarrow = width < 600, height = isNarrow ? 360 : 420;
  const left = 80, bottom = 44, top = 16, right = 14;
  const me = points.find((p) => p.number === 0), fitting = points.filter((p) => p.verdict !== "does not fit" || p === me);
  // Points far away would press the others together: they stand at the edge.
  const near = (list, most) => Math.min(most, 1.1 * Math.max(...list));
  const lastX = Math.max(near(points.map((p) => p.bytes), 1.6 * Math.max(me.bytes, m.limit)), 1.1 * me.bytes);
  const lastY = Math.max(near(fitting.map((p) => p.seconds), 5 * me.seconds), 1.15 * me.seconds);
  const isFar = (p) => p.bytes > lastX || p.seconds > lastY;
  const limitShown = m.limit <= lastX;
  const inside = points.filter((p) => !isFar(p));
  const xs = scaleOf([lastX, ...(limitShown ? [m.limit] : []), ...inside.map((p) => p.bytes)], left, width - right, true);
  const ys = scaleOf([lastY, ...(t.bound > 0 ? [t.bound] : []), ...inside.map((p) => p.seconds)], height - bottom, top, false);
  const at = (p) => [p.bytes > lastX ? width - right - 4 : xs.at(p.bytes), p.seconds > lastY ? top + 4 : ys.at(p.seconds)];
  // Runners-up with equal numbers stand at one place: each label takes the nearest free one.
  const taken = [at(me)];
  const free = (x, y) => x > left + 8 && x < width - right - 8 && y > top + 8 && y < height - bottom - 8 && taken.every(([a, b]) => Math.hypot(a - x, b - y) > 17);
  const beside = (x, y) => {
    for (const radius of [17, 33, 49, 65])
      for (const angle of [0.5, 2.6, 0, 3.14, -0.5, 3.7, 1.57, -1.57]) {
        const place = [x + radius * Math.cos(angle), y + radius * Math.sin(angle)];
        if (free(...place)) { taken.push(place); return place; }
      }
    return [x, y];
  };
  const shape = (p) => {
    const [x, y] = at(p), hue = color(VERDICT_HUES[p.verdict]);
    if (p.number === 0) return svg("path", { d: `M${x} ${y - 11}L${x + 11} ${y}L${x} ${y + 11}L${x - 11} ${y}z`, fill: color("blue"), stroke: color("ink"), "stroke-width": 1.5 });
    const dot = svg("circle", { cx: x, cy: y, r: 4, fill: p.verdict === "does not fit" ? color("page") : hue, stroke: p.verdict === "does not fit" ? hue : color("page"), "stroke-width": p.verdict === "does not fit" ? 1.6 : 0.8 });
    if (!p.number) return dot;
    const [nx, ny] = beside(x, y);
    return [svg("line", { x1: x, y1: y, x2: nx, y2: ny, stroke: color("faint") }), dot, svg("circle", { cx: nx, cy: ny, r: 8, fill: hue }),
      svg("text", { x: nx, y: ny + 4, "text-anchor": "middle", style: `font-size:11px;fill:${p.verdict === "tight" ? "#1f2328" : "#fff"}` }, p.number)];
  };
  const textOf = (p) => (p.number === 0 ? "this plan: " : p.number ? `${p.number}: ` : "") + `${p.name}\n${seconds(p.seconds)}, ${bytes(p.bytes)}` + (p.bound > 0 ? `, bound ${seconds(p.bound)}` : "") + (p.number === 0 ? "" : `\n${p.note}`);
  const nodes = points.map((p, index) => tip(svg("g", { class: "point", tabindex: p.number === 0 ? 0 : -1, role: "img", "aria-label": textOf(p),
    onkeydown: (event) => {
      const to = { ArrowRight: index + 1, ArrowDown: index + 1, ArrowLeft: index - 1, ArrowUp: index - 1, Home: 0, End: points.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      const next = nodes[Math.max(0, Math.min(points.length - 1, to))];
      nodes.forEach((node) => node.setAttribute("tabindex", node === next ? 0 : -1));
      next.focus();
    } }, shape(p)), textOf(p)));
  const front = points.filter((p) => p.front && !isFar(p));
  const beyond = points.filter((p) => p.bytes > lastX);
  const steps = front.map((p, i) => { const [x, y] = at(p); return i ? `H${x.toFixed(1)}V${y.toFixed(1)}` : `M${x.toFixed(1)} ${y.toFixed(1)}`; }).join("");
  const [cx, cy] = at(me), flip = cx > width - 120, halo = "paint-order:stroke;stroke:var(--page);stroke-width:4px";
  // The plan, then its runners-up, above all others.
  const drawn = nodes.map((node, i) => [node, points[i].number === 0 ? 2 : points[i].number ? 1 : 0]).sort((a, b) => a[1] - b[1]).map(([node]) => node);
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Candidates by memory and time; arrow keys walk along them" },
    xs.marks.filter((_, i) => !isNarrow || xs.marks.length < 4 || i % 2 === 0).map((v) => [svg("line", { class: "grid", x1: xs.at(v), x2: xs.at(v), y1: top, y2: height - bottom }), svg("text", { class: "dim", x: xs.at(v), y: height - bottom + 17, "text-anchor": xs.at(v) > width - right - 24 ? "end" : "middle" }, bytes(v))]),
    ys.marks.map((v) => [svg("line", { class: "grid", x1: left, x2: width - right, y1: ys.at(v), y2: ys.at(v) }), svg("text", { class: "dim", x: left - 8, y: ys.at(v) + 4, "text-anchor": "end" }, seconds(v))]),
    svg("text", { class: "dim", x: (left + width) / 2, y: height - 6, "text-anchor": "middle" }, "memory per device" + (plan.search.points.length ? ", upper end" : "") + (xs.isLog ? ", logarithmic" : "")),
    svg("text", { class: "dim", x: -(height - bottom) / 2, y: 13, transform: "rotate(-90)", "text-anchor": "middle" }, "time of a step" + (ys.isLog ? ", logarithmic" : "")),
    limitShown && [svg("rect", { x: xs.at(m.limit), width: width - right - xs.at(m.limit), y: top, height: height - top - bottom, fill: color("bad"), opacity: 0.06 }),
      svg("line", { class: "limit", x1: xs.at(m.limit), x2: xs.at(m.limit), y1: top, y2: height - bottom }),
      svg("text", { x: xs.at(m.limit) - 6, y: top + 12, "text-anchor": "end", style: halo }, `limit ${bytes(m.limit)}`)],
    beyond.length > 0 && svg("text", { class: "dim", x: width - right, y: top + (isNarrow && limitShown ? 28 : 12), "text-anchor": "end", style: halo }, `${whole(beyond.length)} beyond, to ${bytes(Math.max(...beyond.map((p) => p.bytes)))}`),
    t.bound > 0 ? [svg("line", { class: "bound", x1: left, x2: width - right, y1: ys.at(t.bound), y2: ys.at(t.bound) }), svg("text", { x: left + 6, y: ys.at(t.bound) + 15, style: halo }, `proven bound ${seconds(t.bound)}`)] : null,
    front.length > 1 && svg("path", { class: "front", d: steps }),
    drawn,
    svg("text", { x: cx + (flip ? -15 : 15), y: cy - 10, "text-anchor": flip ? "end" : "start", "font-weight": 600, style: halo }, "this plan"));
}

/// The picture of the search, redrawn when the width of the page changes.
function searchPicture(plan, points) {
  const holder = el("div", {});
  onLayout(() => {
    const width = Math.round(holder.getBoundingClientRect().width);
    if (width > 0) holder.replaceChildren(scatter(plan, points, Math.max(300, width)));
  });
  return el("figure", { class: "search" }, holder, legend([["blue", "this plan"], ["green", "fits"], ...(points.some((p) => p.verdict === "tight") ? [["yellow", "tight"]] : []), ...(points.some((p) => p.verdict === "does not fit") ? [["red", "does not fit"]] : [])]),
    el("figcaption", {}, (plan.search.points.length ? "Line: the least time for the memory (Pareto front). " : "") + "Numbers: the runners-up below. Points at the edge are beyond the picture; the table has all."));
}

function searchSection(plan) {
  const t = plan.time, points = searchPoints(plan), s = plan.search;
  const rows = [{ number: 0, name: plan.decisions.join(", "), seconds: t.step, bytes: plan.memory.peak, memory: plan.memory.verdict, note: "this plan" },
    ...plan.others.map((other, index) => ({ ...other, number: index + 1 }))];
  const bound = t.bound > 0 ? `No plan that ${plan.memory.verdict === "fits" ? "fits" : "may fit"} is faster than ${seconds(t.bound)} in this cost model: the gap is ${percent(t.step / t.bound - 1)}.` : "No bound was proven.";
  const counts = s.points.length ? `${plural(s.listed, "candidate")}: bounds excluded ${whole(s.listed - s.scored)}, ${whole(s.scored)} were scored` + (s.scored > s.points.length ? `, ${whole(s.points.length)} of them are kept here. ` : ". ") : "";
  return section("search", "The search", el("p", {}, counts + bound + (plan.search_note ? " " + plan.search_note : "")),
    points.length > 1 ? searchPicture(plan, points) : null,
    table("alternatives", "This plan and the runners-up; memory is the middle of the estimate", [
      { head: "#", n: true, get: (o) => o.number, show: (o) => (o.number ? String(o.number) : "◆") },
      { head: "plan", get: (o) => o.name, wide: true },
      { head: "step", unit: "s", n: true, get: (o) => o.seconds, show: (o) => seconds(o.seconds) },
      { head: "memory", unit: "bytes", n: true, get: (o) => o.bytes, show: (o) => bytes(o.bytes) },
      { head: "verdict", get: (o) => o.memory },
      { head: "why it lost", get: (o) => o.note, wide: true },
    ], rows, { rowClass: (o) => (o.number ? "" : "me") }),
    s.points.length ? el("details", { id: "candidates" }, el("summary", {}, `All ${whole(s.points.length)} candidates as a table`),
      table("candidates", "By time; memory is the upper end of the estimate. Times of candidates without a number are scores", [
        { head: "#", n: true, get: (p) => (p.rank === null ? "" : p.rank), show: (p) => (p.rank === null ? "" : p.rank ? String(p.rank) : "◆") },
        { head: "mesh", get: (p) => p.mesh }, { head: "ZeRO", get: (p) => p.zero }, { head: "micro-batch", n: true, get: (p) => p.micro_batch },
        { head: "schedule", get: (p) => p.schedule }, { head: "recompute", get: (p) => p.recompute },
        { head: "step", unit: "s", n: true, get: (p) => p.seconds, show: (p) => seconds(p.seconds) },
        { head: "bound", unit: "s", n: true, get: (p) => p.bound, show: (p) => (p.bound > 0 ? seconds(p.bound) : "–") },
        { head: "memory", unit: "bytes", n: true, get: (p) => p.bytes, show: (p) => bytes(p.bytes) },
        { head: "fits", get: (p) => (p.fits ? "yes" : "no") }, { head: "front", get: (p) => (p.front ? "yes" : "") },
        { head: "why it lost", get: (p) => p.note, wide: true }], points, { rowClass: (p) => (p.rank === 0 ? "me" : "") })) : null,
    el("h3", {}, "Why each decision"),
    table("reasons", "Decisions, with their origin", [
      { head: "decision", get: (r) => r.decision }, { head: "value", get: (r) => r.value },
      { head: "origin", get: (r) => r.origin, show: (r) => el("span", { class: "badge " + r.origin, title: ORIGINS[r.origin] }, r.origin) },
      { head: "reason", get: (r) => r.text, wide: true }], plan.reasons));
}
const ORIGINS = { pinned: "given by the user", solved: "the best of those compared", forced: "others are faster but do not fit", propagated: "follows from another decision" };
