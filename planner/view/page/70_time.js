// Where the time goes, and the search.

const PART_HUES = ["blue", "cyan", "red", "green", "grey", "yellow", "purple"];

function timeSection(plan) {
  const t = plan.time, parts = t.parts.map((part, index) => ({ ...part, hue: PART_HUES[index] })).filter((part) => part.seconds > 0);
  let at = 0;
  const bar = svg("svg", { height: 40, style: "height:40px", role: "img", "aria-label": parts.map((p) => `${p.name} ${seconds(p.seconds)}`).join(", ") },
    parts.map((part) => {
      const rect = svg("rect", { x: `${(100 * at / t.step).toFixed(3)}%`, y: 4, height: 32, width: `${(100 * part.seconds / t.step).toFixed(3)}%`, fill: color(part.hue), stroke: color("page"), "stroke-width": 0.6 });
      at += part.seconds;
      return tip(rect, `${part.name}: ${seconds(part.seconds)} (${percent(part.seconds / t.step)})\n${part.meaning}`);
    }));
  const sums = plan.collectives.sums, most = Math.max(...sums.map((s) => s.seconds), 1e-30);
  const stageColumn = plan.memory.stages.length > 1 ? [{ head: "stage", n: true, get: (s) => s.stage }] : [];
  return section("time", "Where the time goes",
    el("p", {}, `Of the slowest ${plan.memory.stages.length > 1 ? `stage, stage ${t.slowest_stage}` : "device"}. ` +
      (plan.binding_constraint ? `Bound by ${plan.binding_constraint}. ` : "") + (t.hidden > 0 ? `Communication of ${seconds(t.hidden)} hides behind kernels and is no part of the sum.` : "")),
    el("figure", {}, bar, legend(parts.map((p) => [p.hue, `${p.name} ${seconds(p.seconds)} (${percent(p.seconds / t.step)})`]))),
    el("details", {}, el("summary", {}, "As a table"), table("time", "Seconds of a step", [
      { head: "part", get: (p) => p.name }, { head: "meaning", get: (p) => p.meaning, wide: true },
      { head: "seconds", unit: "s", n: true, get: (p) => p.seconds, show: (p) => seconds(p.seconds) },
      { head: "share", unit: "share of 1", n: true, get: (p) => p.seconds / t.step, show: (p) => percent(p.seconds / t.step) }], t.parts)),
    el("h3", {}, "Collectives"),
    sums.length ? table("collectives", "Per step and device, exposed or hidden; on the stage that spends most in them", [
      { head: "kind", get: (s) => s.kind }, { head: "axes", get: (s) => s.axes }, ...stageColumn,
      { head: "count", n: true, get: (s) => s.count, show: (s) => whole(s.count) },
      { head: "bytes", unit: "bytes", n: true, get: (s) => s.bytes, show: (s) => bytes(s.bytes) },
      { head: "seconds", unit: "s", n: true, get: (s) => s.seconds, show: (s) => shareCell(s.seconds / most, seconds(s.seconds)) },
      { head: "payload rate", unit: "bytes/s", n: true, get: (s) => s.bytes / s.seconds, show: (s) => count(s.bytes / s.seconds) + "B/s" },
    ], sums) : el("p", {}, "There are none."),
    plan.layout.causes.length ? el("details", {}, el("summary", {}, `By cause (${plural(plan.layout.causes.length, "line")})`), table("causes", "The op or parameter behind each collective; repeats are one line", [
      { head: "cause", get: (c) => c.cause, wide: true }, { head: "purpose", get: (c) => c.purpose }, { head: "kind", get: (c) => c.kind }, { head: "axes", get: (c) => c.axes },
      { head: "stages", get: (c) => c.stages.join(" ") }, { head: "count", n: true, get: (c) => c.count, show: (c) => whole(c.count) },
      { head: "bytes, each", unit: "bytes", n: true, get: (c) => c.bytes, show: (c) => bytes(c.bytes) },
      { head: "seconds, all", unit: "s", n: true, get: (c) => c.seconds, show: (c) => (c.seconds > 0 ? seconds(c.seconds) : "–") }], plan.layout.causes)) : null,
    plan.collectives.lines.length ? el("details", {}, el("summary", {}, `By size (${plural(plan.collectives.lines.length, "line")})`), table("collective_sizes", "Every size by itself", [
      { head: "kind", get: (s) => s.kind }, { head: "axes", get: (s) => s.axes }, { head: "stage", n: true, get: (s) => s.stage },
      { head: "count", n: true, get: (s) => s.count, show: (s) => whole(s.count) },
      { head: "bytes, each", unit: "bytes", n: true, get: (s) => s.bytes, show: (s) => bytes(s.bytes) },
      { head: "seconds, each", unit: "s", n: true, get: (s) => s.seconds, show: (s) => seconds(s.seconds) },
      { head: "seconds, all", unit: "s", n: true, get: (s) => s.seconds * s.count, show: (s) => seconds(s.seconds * s.count) }], plan.collectives.lines)) : null);
}

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

function scatter(plan) {
  const t = plan.time, m = plan.memory, width = 900, height = 380, left = 70, bottom = 44, top = 14, right = 20;
  const others = plan.others.map((other, index) => ({ ...other, number: index + 1 }));
  // Plans far away would press the others together: they stand at the edge.
  const nearest = Math.max(m.peak, ...others.filter((o) => o.memory !== "does not fit").map((o) => o.bytes));
  const lastX = Math.max(1.6 * nearest, Math.min(m.limit, 3 * nearest) * 1.25);
  const lastY = 1.25 * Math.max(t.step, ...others.filter((o) => o.memory !== "does not fit").map((o) => o.seconds));
  const isFar = (o) => o.bytes > lastX || o.seconds > lastY;
  const limitShown = m.limit <= lastX;
  const xs = scaleOf([m.peak, ...(limitShown ? [m.limit] : []), ...others.map((o) => Math.min(o.bytes, lastX))], left, width - right, true);
  const ys = scaleOf([t.step, ...(t.bound > 0 ? [t.bound] : []), ...others.map((o) => Math.min(o.seconds, lastY))], height - bottom, top, false);
  const hues = { "fits": "green", "tight": "yellow", "does not fit": "red" };
  const cx = xs.at(m.peak), cy = ys.at(t.step);
  const flip = cx > width - 140;
  // Equal plans stand at one place: each number takes the nearest free one around its point.
  const taken = [[cx, cy]];
  const free = (x, y) => taken.every(([a, b]) => Math.hypot(a - x, b - y) > 17);
  const besidePoint = (x, y) => {
    for (const radius of [17, 33, 49])
      for (const angle of [0.5, 2.6, 0, 3.14, -0.5, 3.7, 1.57]) {
        const at = [x + radius * Math.cos(angle), y + radius * Math.sin(angle)];
        if (free(...at)) { taken.push(at); return at; }
      }
    return [x, y];
  };
  const point = (o) => {
    const ox = o.bytes > lastX ? width - right - 12 : xs.at(o.bytes), oy = o.seconds > lastY ? top + 12 : ys.at(o.seconds);
    const [nx, ny] = isFar(o) ? [ox, oy] : besidePoint(ox, oy);
    const node = svg("g", { tabindex: 0, role: "img", "aria-label": `${o.number}: ${o.name}, ${seconds(o.seconds)}, ${bytes(o.bytes)}, ${o.note}` },
      svg("line", { x1: ox, y1: oy, x2: nx, y2: ny, stroke: color("faint") }), svg("circle", { cx: ox, cy: oy, r: 4, fill: color(hues[o.memory]), stroke: color("page") }),
      svg("circle", { cx: nx, cy: ny, r: 8, fill: color(hues[o.memory]) }),
      isFar(o) && svg("text", { class: "dim", x: ox - 14, y: oy + 4, "text-anchor": "end" }, `${bytes(o.bytes)}, ${seconds(o.seconds)}: beyond the picture`),
      svg("text", { x: nx, y: ny + 4, "text-anchor": "middle", style: `font-size:11px;fill:${o.memory === "tight" ? "#1f2328" : "#fff"}` }, o.number));
    return tip(node, `${o.number}: ${o.name}\n${seconds(o.seconds)}, ${bytes(o.bytes)}\n${o.note}`);
  };
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Plans by memory and time" },
    xs.marks.map((v) => [svg("line", { class: "grid", x1: xs.at(v), x2: xs.at(v), y1: top, y2: height - bottom }), svg("text", { class: "dim", x: xs.at(v), y: height - bottom + 17, "text-anchor": "middle" }, bytes(v))]),
    ys.marks.map((v) => [svg("line", { class: "grid", x1: left, x2: width - right, y1: ys.at(v), y2: ys.at(v) }), svg("text", { class: "dim", x: left - 8, y: ys.at(v) + 4, "text-anchor": "end" }, seconds(v))]),
    svg("text", { class: "dim", x: (left + width) / 2, y: height - 6, "text-anchor": "middle" }, "memory per device" + (xs.isLog ? ", logarithmic" : "")),
    svg("text", { class: "dim", x: -(height - bottom) / 2, y: 13, transform: "rotate(-90)", "text-anchor": "middle" }, "time of a step" + (ys.isLog ? ", logarithmic" : "")),
    svg("rect", { class: "band", x: xs.at(m.low), width: Math.max(1, xs.at(m.high) - xs.at(m.low)), y: ys.at(t.step) - 14, height: 28, rx: 4 }, svg("title", {}, `interval of this plan's memory: ${bytes(m.low)} to ${bytes(m.high)}`)),
    limitShown && svg("line", { class: "limit", x1: xs.at(m.limit), x2: xs.at(m.limit), y1: top, y2: height - bottom }),
    limitShown && svg("text", { x: xs.at(m.limit) - 6, y: top + 12, "text-anchor": "end" }, `limit ${bytes(m.limit)}`),
    t.bound > 0 ? [svg("line", { class: "bound", x1: left, x2: width - right, y1: ys.at(t.bound), y2: ys.at(t.bound) }), svg("text", { x: left + 6, y: ys.at(t.bound) + 15 }, `proven bound ${seconds(t.bound)}`)] : null,
    tip(svg("g", { tabindex: 0, role: "img", "aria-label": `this plan: ${seconds(t.step)}, ${bytes(m.peak)}` },
      svg("path", { d: `M${cx} ${cy - 11}L${cx + 11} ${cy}L${cx} ${cy + 11}L${cx - 11} ${cy}z`, fill: color("blue"), stroke: color("ink"), "stroke-width": 1.5 })), `this plan: ${seconds(t.step)}, ${bytes(m.peak)}`),
    svg("text", { x: cx + (flip ? -15 : 15), y: cy - 10, "text-anchor": flip ? "end" : "start", "font-weight": 600, style: "paint-order:stroke;stroke:var(--page);stroke-width:4px" }, "this plan"),
    others.map(point));
}

function searchSection(plan) {
  const t = plan.time, rows = [{ number: 0, name: plan.decisions.join(", "), seconds: t.step, bytes: plan.memory.peak, memory: plan.memory.verdict, note: "this plan" },
    ...plan.others.map((other, index) => ({ ...other, number: index + 1 }))];
  const bound = t.bound > 0 ? `No plan that ${plan.memory.verdict === "fits" ? "fits" : "may fit"} is faster than ${seconds(t.bound)} in this cost model: the gap is ${percent(t.step / t.bound - 1)}.` : "No bound was proven.";
  return section("search", "The search", el("p", {}, bound + (plan.search_note ? " " + plan.search_note : "")),
    plan.others.length ? [el("figure", {}, el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Plans by memory and time" }, el("div", { style: "min-width:600px" }, scatter(plan))),
      legend([["blue", "this plan"], ["green", "fits"], ["yellow", "tight"], ["red", "does not fit"]]))] : null,
    table("alternatives", "This plan and the runners-up", [
      { head: "#", n: true, get: (o) => o.number, show: (o) => (o.number ? String(o.number) : "◆") },
      { head: "plan", get: (o) => o.name, wide: true },
      { head: "step", unit: "s", n: true, get: (o) => o.seconds, show: (o) => seconds(o.seconds) },
      { head: "memory", unit: "bytes", n: true, get: (o) => o.bytes, show: (o) => bytes(o.bytes) },
      { head: "verdict", get: (o) => o.memory },
      { head: "why it lost", get: (o) => o.note, wide: true },
    ], rows, { rowClass: (o) => (o.number ? "" : "me") }),
    el("h3", {}, "Why each decision"),
    table("reasons", "Decisions, with their origin", [
      { head: "decision", get: (r) => r.decision }, { head: "value", get: (r) => r.value },
      { head: "origin", get: (r) => r.origin, show: (r) => el("span", { class: "badge " + r.origin, title: ORIGINS[r.origin] }, r.origin) },
      { head: "reason", get: (r) => r.text, wide: true }], plan.reasons));
}
const ORIGINS = { pinned: "given by the user", solved: "the best of those compared", forced: "others are faster but do not fit", propagated: "follows from another decision" };
