// Memory per stage, and over a step.

/// Lines whose bytes follow the micro-batches in flight.
const KEPT_LINES = ["saved residuals", "inputs"];

function stagesChart(plan) {
  const m = plan.memory, stages = m.stages;
  const [scale, note] = memoryScale(Math.max(...stages.map((s) => s.high)), Math.max(...stages.map((s) => s.limit)));
  const rows = stages.map((stage, index) => el("div", { style: "display:grid;grid-template-columns:4.6rem minmax(0,1fr) 5.2rem;gap:.5rem;align-items:center" },
    el("span", { class: "small " + (index === m.fullest_stage ? "" : "faint") }, stages.length > 1 ? `stage ${index}` : "device"),
    stackBar(stage.lines, scale, stage.limit, stage.low, stage.high, stages.length > 16 ? 18 : 28),
    el("span", { class: "small num", style: "text-align:right" }, bytes(sum(stage.lines, (l) => l.bytes)))));
  const used = new Set(stages.flatMap((s) => s.lines.filter((l) => l.bytes > 0).map((l) => l.name)));
  return el("figure", {}, rows, legend([...used].map((name) => [lineHue(name), name])),
    el("figcaption", {}, "Dashed: the limit of a device. Shaded: the interval of the estimate, from the context of libraries and the loss of an allocator. The program's own memory is exact. " + note));
}

function hostChart(plan) {
  const stages = plan.memory.stages;
  if (!stages.some((s) => s.host.length)) return null;
  const limit = plan.memory.host_limit, scale = 1.03 * Math.max(limit, ...stages.map((s) => sum(s.host, (l) => l.bytes)));
  return [el("h3", {}, "Host memory, share of one device"), el("figure", {}, stages.map((stage, index) =>
    el("div", { style: "display:grid;grid-template-columns:4.6rem minmax(0,1fr) 5.2rem;gap:.5rem;align-items:center" },
      el("span", { class: "small faint" }, stages.length > 1 ? `stage ${index}` : "device"),
      stackBar(stage.host, scale, limit, 0, 0, 24), el("span", { class: "small num", style: "text-align:right" }, bytes(sum(stage.host, (l) => l.bytes))))))];
}

/// Memory of one stage from the begin of the step to its last backward.
function overTime(plan, index) {
  const stage = plan.memory.stages[index], view = plan.schedule_view, curve = view.stages[index];
  const width = 1000, left = 64, right = 12, top = 16, height = 250, bottom = 34;
  const simulated = curve.kept[curve.kept.length - 2] || 1;
  const scale = memoryScale(stage.high, stage.limit)[0];
  const x = (t) => left + (width - left - right) * t / simulated, y = (b) => top + (height - top - bottom) * (1 - b / scale);
  const fixed = stage.lines.filter((l) => l.bytes > 0 && !KEPT_LINES.includes(l.name));
  const kept = sum(stage.lines.filter((l) => KEPT_LINES.includes(l.name)), (l) => l.bytes);
  const shapes = [];
  let base = 0;
  for (const line of fixed) {
    shapes.push(tip(svg("rect", { x: left, width: width - left - right, y: y(base + line.bytes), height: Math.max(0.5, y(base) - y(base + line.bytes)), fill: color(lineHue(line.name)) }),
      `${line.name}: ${bytes(line.bytes)}, the whole step`));
    base += line.bytes;
  }
  let path = `M${x(0)} ${y(base)}`;
  for (let i = 0; i < curve.kept.length; i += 2) path += ` L${x(curve.kept[i]).toFixed(1)} ${y(base + kept * curve.kept[i + 1]).toFixed(1)}`;
  path += ` L${x(simulated)} ${y(base)} z`;
  if (kept > 0) shapes.push(tip(svg("path", { d: path, fill: color("red") }), `residuals and inputs of the micro-batches in flight: up to ${bytes(kept)}`));
  const peak = base + kept, px = x(curve.peak_seconds), isRight = px > width * 0.7;
  const text = `peak ${bytes(peak)} at ${seconds(curve.peak_seconds)}`;
  const label = `Memory of stage ${index} over a step: ${bytes(base)} all the time, and up to ${bytes(kept)} of residuals; ${text}; limit ${bytes(stage.limit)}`;
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    ticks(scale, 4, true).map((b) => [svg("line", { class: "grid", x1: left, x2: width - right, y1: y(b), y2: y(b) }), svg("text", { class: "dim", x: left - 8, y: y(b) + 4, "text-anchor": "end" }, bytes(b))]),
    shapes,
    svg("rect", { class: "band", x: left, width: width - left - right, y: y(stage.high), height: Math.max(0, y(stage.low) - y(stage.high)) }, svg("title", {}, `interval of the peak: ${bytes(stage.low)} to ${bytes(stage.high)}`)),
    stage.limit <= scale && svg("line", { class: "limit", x1: left, x2: width - right, y1: y(stage.limit), y2: y(stage.limit) }),
    svg("circle", { class: "mark", cx: px, cy: y(peak), r: 6 }),
    svg("text", { x: px + (isRight ? -10 : 10), y: y(peak) + (y(peak) < 34 ? 22 : -9), "text-anchor": isRight ? "end" : "start", "font-weight": 600, style: "paint-order:stroke;stroke:var(--page);stroke-width:4px" }, text),
    ticks(simulated, 6).map((t) => svg("text", { class: "dim", x: x(t), y: height - 12, "text-anchor": t === 0 ? "start" : "middle" }, t === 0 ? "0" : seconds(t))),
    svg("line", { class: "axis", x1: left, x2: width - right, y1: y(0), y2: y(0) }));
}

function memorySection(plan) {
  const m = plan.memory, stages = m.stages, view = plan.schedule_view;
  const names = [...new Set(stages.flatMap((s) => s.lines.map((l) => l.name)))];
  const holder = el("figure", {});
  const choose = (index) => holder.replaceChildren(el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Memory over a step" }, el("div", { style: "min-width:620px" }, overTime(plan, index))),
    el("figcaption", {}, "Residuals grow in each forward and shrink in each backward" + (view.chunk_seconds.some((t) => t[2] > 0) ? " of the weights" : "") +
      (stages.length > 1 || plan.layers.length < 2 ? ", here in straight lines" : ", here by the rows of the layer table") +
      ". All other lines are drawn flat at their peak: one arena holds them." +
      (view.stages[index].sliced ? " Many micro-batches: each slice shows its largest value." : "")));
  const select = el("select", { "aria-label": "Stage of the picture", onchange: (event) => choose(+event.target.value) },
    stages.map((_, index) => el("option", { value: index, selected: index === m.fullest_stage }, `stage ${index}` + (index === m.fullest_stage ? ", the fullest" : ""))));
  choose(m.fullest_stage);
  return section("memory", "Memory", el("p", {}, plan.verdict), stagesChart(plan), hostChart(plan),
    el("details", {}, el("summary", {}, "As a table"),
      table("memory", "Bytes of a device, by stage", [
        { head: "line", get: (name) => name, show: (name) => [el("i", { class: "key", style: `background:${color(lineHue(name))}` }), name] },
        { head: "meaning", get: (name) => LINE_MEANING[name] || "", wide: true },
        ...stages.map((stage, index) => ({ head: stages.length > 1 ? `stage ${index}` : "device", unit: "bytes", n: true,
          get: (name) => (stage.lines.find((l) => l.name === name) || { bytes: 0 }).bytes, show: (name) => bytes((stage.lines.find((l) => l.name === name) || { bytes: 0 }).bytes) })),
      ], names)),
    el("h3", {}, "Over one step"), stages.length > 1 ? el("div", { class: "tools" }, el("label", {}, "Stage ", select)) : null, holder);
}
