// The schedule: stages × time.

const KINDS = { F: ["forward", "blue"], B: ["backward", "green"], W: ["weight gradient", "yellow"] };

/// Returns the events of every stage: { kind, batch, chunk, start, end } in seconds.
function eventsOf(view) {
  const unit = view.makespan_seconds / 1e5;
  return view.stages.map((stage) => {
    const { kinds, batches, starts, chunks } = stage.events;
    return batches.map((batch, i) => {
      const chunk = chunks ? chunks[i] : stage.chunks[0];
      const start = starts[i] * unit;
      return { kind: kinds[i], batch, chunk, start, end: start + view.chunk_seconds[chunk]["FBW".indexOf(kinds[i])] };
    });
  });
}

function scheduleGrid(plan) {
  const view = plan.schedule_view, events = eventsOf(view), stages = events.length;
  const complete = view.micro_batches === plan.accumulation;
  const end = view.makespan_seconds + (complete ? view.end_seconds : 0);
  const rowHeight = stages <= 8 ? 30 : stages <= 20 ? 20 : 12, left = 58, axis = 26;
  const height = stages * rowHeight + axis;
  const update = plan.time.parts.find((part) => part.name === "update").seconds;
  let from = 0, to = end;
  // Where each action of a chunk stands, for the sends.
  const at = new Map();
  events.forEach((list, stage) => list.forEach((e) => at.set(e.kind + e.chunk + "." + e.batch, { ...e, stage })));
  const total = sum(events, (list) => list.length);
  const plot = svg("svg", { class: "plot", height, tabindex: 0, role: "img", style: `height:${height}px`,
    "aria-label": `Schedule ${plan.schedule}: ${plural(stages, "stage")}, ${plural(view.micro_batches, "micro-batch")}, ${seconds(view.makespan_seconds)}. Keys: plus and minus zoom, arrows move, 0 shows all.` });
  const sendLines = (x, y) => {
    const lines = [];
    for (const [, e] of at) {
      const next = e.kind === "F" ? at.get("F" + (e.chunk + 1) + "." + e.batch) : e.kind === "B" ? at.get("B" + (e.chunk - 1) + "." + e.batch) : null;
      if (!next || next.stage === e.stage || e.end < from || next.start > to) continue;
      lines.push(svg("line", { x1: x(e.end), y1: y(e.stage) + rowHeight / 2, x2: x(next.start), y2: y(next.stage) + rowHeight / 2, stroke: color("ink"), "stroke-width": 1, opacity: 0.55 }));
    }
    return lines;
  };
  const draw = () => {
    const width = Math.max(320, plot.clientWidth || 1000), x = (t) => left + (width - left) * (t - from) / (to - from), y = (stage) => stage * rowHeight;
    plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const shapes = [];
    let seen = 0;
    const texts = [];
    events.forEach((list, stage) => {
      shapes.push(svg("rect", { x: left, y: y(stage) + 1, width: width - left, height: rowHeight - 2, fill: color("track") }));
      const paths = {};
      for (const e of list) {
        if (e.end < from || e.start > to) continue;
        ++seen;
        const x1 = Math.max(left, x(e.start)), x2 = Math.min(width, x(e.end)), w = Math.max(0.4, x2 - x1 - (x2 - x1 > 4 ? 1 : 0));
        const key = e.kind + view.stages[stage].chunks.indexOf(e.chunk);
        paths[key] = (paths[key] || "") + `M${x1.toFixed(2)} ${y(stage) + 2}h${w.toFixed(2)}v${rowHeight - 4}h${(-w).toFixed(2)}z`;
        if (w > 16 && rowHeight >= 20) texts.push(svg("text", { x: (x1 + x2) / 2, y: y(stage) + rowHeight / 2 + 4, "text-anchor": "middle", style: `fill:${e.kind === "W" ? "#1f2328" : "#fff"};font-size:11px` }, e.batch));
      }
      const many = view.stages[stage].chunks.length;
      for (const [key, d] of Object.entries(paths))
        shapes.push(svg("path", { d, fill: color(KINDS[key[0]][1]), opacity: (1 - 0.55 * (+key.slice(1)) / Math.max(1, many - 0)).toFixed(2) }));
      if (rowHeight >= 20 || stage % 4 === 0)
        shapes.push(svg("text", { class: "dim", x: left - 6, y: y(stage) + rowHeight / 2 + 4, "text-anchor": "end" }, stages > 1 ? `stage ${stage}` : "device"));
    });
    if (complete && view.end_seconds > 0 && view.makespan_seconds < to)
      shapes.push(tip(svg("rect", { x: Math.max(left, x(view.makespan_seconds)), y: 1, width: Math.max(1, Math.min(width, x(end)) - Math.max(left, x(view.makespan_seconds))), height: stages * rowHeight - 2, fill: color("purple"), opacity: 0.75 }), `rest of the step: ${seconds(view.end_seconds)}\nthe update takes ${seconds(update)}`));
    const axisTicks = ticks(to - from, 6).map((t) => t + from);
    plot.replaceChildren(svg("title", {}, plot.getAttribute("aria-label")), ...shapes, ...texts, ...(stages > 1 && seen < 260 ? sendLines(x, y) : []),
      ...axisTicks.map((t) => [svg("line", { class: "grid", x1: x(t), x2: x(t), y1: stages * rowHeight, y2: stages * rowHeight + 5 }),
        svg("text", { class: "dim", x: x(t), y: height - 6, "text-anchor": x(t) > width - 30 ? "end" : t === from ? "start" : "middle" }, seconds(t))]).flat());
    plot.querySelector("title").remove(); // the hint has the event
  };
  const zoom = (factor, center = (from + to) / 2) => {
    const span = Math.min(end, Math.max(end / 4000, (to - from) * factor)), share = (center - from) / (to - from);
    from = Math.max(0, Math.min(end - span, center - share * span));
    to = from + span;
    draw();
  };
  const move = (by) => { const span = to - from; from = Math.max(0, Math.min(end - span, from + by * span)); to = from + span; draw(); };
  const all = () => { from = 0; to = end; draw(); };
  const timeAt = (event) => {
    const box = plot.getBoundingClientRect(), width = Math.max(320, box.width);
    return from + (to - from) * ((event.clientX - box.left) * width / box.width - left) / (width - left);
  };
  plot.addEventListener("keydown", (event) => {
    const act = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": all, ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2) }[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  plot.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event));
  }, { passive: false });
  plot.addEventListener("dblclick", (event) => zoom(0.5, timeAt(event)));
  let drag = null;
  plot.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, from }; });
  addEventListener("pointerup", () => { drag = null; });
  plot.addEventListener("pointermove", (event) => {
    if (drag) {
      const span = to - from;
      from = Math.max(0, Math.min(end - span, drag.from - (event.clientX - drag.x) * span / Math.max(1, plot.clientWidth - left)));
      to = from + span;
      draw();
      return;
    }
    const box = plot.getBoundingClientRect(), stage = Math.floor((event.clientY - box.top) / rowHeight), t = timeAt(event);
    const e = events[stage] && events[stage].find((item) => item.start <= t && t < item.end);
    if (e) showHint(`stage ${stage}: ${KINDS[e.kind][0]} of micro-batch ${e.batch}` + (view.stages[stage].chunks.length > 1 ? `, chunk ${e.chunk}` : "") +
      `\n${seconds(e.start)} to ${seconds(e.end)} (${seconds(e.end - e.start)})`, event.clientX, event.clientY);
    else if (stage < stages && t >= 0 && t < view.makespan_seconds) showHint(`stage ${stage}: idle`, event.clientX, event.clientY);
    else hideHint();
  });
  plot.addEventListener("pointerleave", hideHint);
  onLayout(draw);
  const tools = el("div", { class: "tools" },
    el("button", { type: "button", onclick: () => zoom(0.5), "aria-label": "Zoom in" }, "+"), el("button", { type: "button", onclick: () => zoom(2), "aria-label": "Zoom out" }, "−"),
    el("button", { type: "button", onclick: all }, "All"),
    el("button", { type: "button", onclick: () => { from = 0; to = Math.min(end, (to = end, end * Math.min(1, 160 / total))); draw(); } }, "Begin"),
    el("span", { class: "faint" }, "Drag to move; Ctrl and the wheel, or + and −, to zoom."));
  return [tools, plot];
}

function scheduleSection(plan) {
  const view = plan.schedule_view, stages = view.stages.length;
  const isSplit = view.chunk_seconds.some((t) => t[2] > 0);
  const entries = [["blue", "forward (F)"], ["green", isSplit ? "backward, of activations (B)" : "backward (B)"]];
  if (isSplit) entries.push(["yellow", "backward, of weights (W)"]);
  entries.push(["track", "idle (bubble)"]);
  const complete = view.micro_batches === plan.accumulation;
  if (complete && view.end_seconds > 0) entries.push(["purple", "rest of the step: update, reductions, gathers after it"]);
  const drawn = complete ? `${plural(plan.accumulation, "micro-batch")}` : `the first ${whole(view.micro_batches)} of ${whole(plan.accumulation)} micro-batches`;
  const simulated = view.whole_seconds, step = plan.time.step;
  const note = `${seconds(simulated)} of the predicted step of ${seconds(step)} are the schedule.`;
  return section("schedule", "Schedule",
    el("p", {}, `${plan.schedule === "none" ? "No pipeline" : plan.schedule}, ${drawn}` + (view.send_seconds > 0 ? `; a send between stages takes ${seconds(view.send_seconds)}` : "") + "."),
    scheduleGrid(plan), legend(entries),
    el("p", { class: "faint small" }, `The order is that of the generator that compiles the plan. Times are those of the prediction, exposed communication included. ${note}`),
    el("details", {}, el("summary", {}, "As a table"), table("stages", "Stages of one step", [
      { head: "stage", n: true, get: (s) => s.index },
      { head: "chunks", get: (s) => s.chunks.join(" ") },
      { head: "a micro-batch", unit: "s", n: true, get: (s) => s.busy, show: (s) => seconds(s.busy) },
      { head: "idle", unit: "s", n: true, get: (s) => s.bubble_seconds, show: (s) => seconds(s.bubble_seconds) },
      { head: "idle share", unit: "share of 1", n: true, get: (s) => s.bubble_seconds / simulated, show: (s) => percent(s.bubble_seconds / simulated) },
    ], view.stages.map((s, index) => ({ ...s, index, busy: sum(s.chunks, (c) => sum(view.chunk_seconds[c])) })))));
}
