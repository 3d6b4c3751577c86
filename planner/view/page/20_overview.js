// The first screen: verdict, three numbers, the peak, and the simpler plan.

/// The hue of each line of memory, in the order of the stack.
const LINE_HUES = {
  "parameters": "blue", "master weights": "indigo", "gradients": "green", "optimizer state": "yellow",
  "model state": "olive", "inputs": "cyan", "saved residuals": "red", "transients": "purple",
  "gathered parameters": "teal", "collective buffers": "sand", "kernel workspace": "brown",
  "device context": "grey", "allocator margin": "pale",
};
const lineHue = (name) => LINE_HUES[name] || "grey";
const LINE_MEANING = {
  "parameters": "weights in the precision of the job", "master weights": "weights in f32 for the optimizer",
  "gradients": "accumulated gradients", "optimizer state": "moments of the optimizer",
  "model state": "running statistics", "inputs": "tokens or samples in flight",
  "saved residuals": "activations kept for backward", "transients": "values within one block",
  "gathered parameters": "parameters gathered from their shards", "collective buffers": "operands of collectives",
  "kernel workspace": "values between the launches of a kernel",
  "device context": "driver, libraries, communicators", "allocator margin": "loss of the allocator",
};
const VERDICTS = { "fits": ["Fits", ""], "tight": ["Tight", "tight"], "does not fit": ["Does not fit", "bad"] };

function headerOf(plan) {
  const tokens = plan.sequence > 0 ? ` × ${whole(plan.sequence)} tokens` : "";
  const used = plan.devices - plan.idle_devices;
  return el("header", {},
    el("h1", {}, plan.model, el("span", { class: "faint" }, ` on ${whole(used)} × ${plan.cluster_name}`)),
    el("p", { class: "job" }, `batch ${whole(plan.batch)} samples${tokens}, ${plan.precision}, ${plan.optimizer}` +
      (plan.idle_devices ? `, ${whole(plan.idle_devices)} devices idle` : "")),
    el("ul", { class: "chips", "aria-label": "Decisions of the plan" }, plan.decisions.map((text) => el("li", {}, text))));
}

function verdictOf(plan) {
  const [word, style] = VERDICTS[plan.memory.verdict];
  return [
    el("div", { class: "verdict " + style, role: "status" },
      el("p", {}, el("strong", {}, word), plan.verdict),
      plan.binding_constraint && el("p", { class: "faint small" }, "Bound by " + plan.binding_constraint + ".")),
    [plan.search_note, ...plan.warnings].filter(Boolean).map((text) => el("p", { class: "notice" }, text))];
}

/// An interval on a scale from 0: a band from low to high, a tick at value, and marks at other values.
function intervalBar(low, value, high, top, marks, hue, text) {
  const x = (v) => (100 * Math.max(0, Math.min(1, v / top))).toFixed(2) + "%";
  const width = (a, b) => Math.max(0.3, 100 * (Math.min(b, top) - a) / top).toFixed(2) + "%";
  return svg("svg", { height: 24, role: "img", "aria-label": text, style: "height:24px;margin:.25rem 0 .1rem" },
    svg("title", {}, text),
    svg("rect", { x: 0, y: 8, width: "100%", height: 8, rx: 4, fill: color("track") }),
    svg("rect", { x: 0, y: 8, width: x(value), height: 8, rx: 4, fill: color(hue), opacity: 0.45 }),
    svg("rect", { x: x(low), y: 5, width: width(low, high), height: 14, rx: 3, fill: color(hue) }),
    svg("line", { x1: x(value), x2: x(value), y1: 3, y2: 21, stroke: color("ink"), "stroke-width": 2 }),
    marks.map(([at, kind]) => svg("line", { class: kind, x1: x(at), x2: x(at), y1: 0, y2: 24 })));
}

function bigNumber(text) {
  const space = text.indexOf(" ");
  return el("div", { class: "big num" }, text.slice(0, space), el("span", { class: "unit" }, " " + text.slice(space + 1)));
}

function cardsOf(plan) {
  const m = plan.memory, t = plan.time;
  const perStep = t.tokens_per_second > 0 ? [t.tokens_per_second * t.step, "tokens/s"] : [t.samples_per_second * t.step, "samples/s"];
  const rate = (s) => perStep[0] / s;
  const memoryText = `${bytes(m.low)} to ${bytes(m.high)} of ${bytes(m.limit)} per device`;
  const timeText = `${seconds(t.low)} to ${seconds(t.high)}`;
  const rateText = `${count(rate(t.high))} to ${count(rate(t.low))} ${perStep[1]}`;
  const bound = t.bound > 0 && `no plan is faster than ${seconds(t.bound)} here (gap ${percent(t.step / t.bound - 1)})`;
  return el("div", { class: "cards" },
    el("div", { class: "card" }, el("h2", {}, "Memory per device"), bigNumber(bytes(m.peak)),
      intervalBar(m.low, m.peak, m.high, Math.max(m.limit, m.high) * 1.04, [[m.limit, "limit"]], "blue", "Memory: " + memoryText),
      el("p", { class: "num" }, memoryText),
      el("p", { class: "faint" }, m.high <= m.limit ? `${bytes(m.limit - m.high)} free at the upper end` : `up to ${bytes(m.high - m.limit)} over the limit`)),
    el("div", { class: "card" }, el("h2", {}, "Time of a step"), bigNumber(seconds(t.step)),
      intervalBar(t.low, t.step, t.high, t.high * 1.08, t.bound > 0 ? [[t.bound, "bound"]] : [], "yellow", "Step: " + timeText),
      el("p", { class: "num" }, timeText),
      el("p", { class: "faint" }, bound || "no bound was proven")),
    el("div", { class: "card" }, el("h2", {}, "Throughput"), bigNumber((count(rate(t.step)) + " " + perStep[1]).replace(/^(\S+) /, "$1 ")),
      intervalBar(rate(t.high), rate(t.step), rate(t.low), rate(t.low) * 1.08, [], "green", "Throughput: " + rateText),
      el("p", { class: "num" }, rateText),
      el("p", { class: "faint" }, `MFU ${(100 * t.mfu).toFixed(1)} % (${(100 * t.mfu * t.step / t.high).toFixed(1)} to ${(100 * t.mfu * t.step / t.low).toFixed(1)} %)`)));
}

/// Lines of memory as one bar, with the limit and the interval.
function stackBar(lines, scale, limit, low, high, height = 34) {
  let at = 0;
  const x = (v) => (100 * v / scale).toFixed(3) + "%";
  const parts = lines.filter((line) => line.bytes > 0).map((line) => {
    const rect = svg("rect", { x: x(at), y: 4, width: x(line.bytes), height: height - 8, fill: color(lineHue(line.name)), stroke: color("page"), "stroke-width": 0.6 });
    at += line.bytes;
    return tip(rect, `${line.name}: ${bytes(line.bytes)}\n${LINE_MEANING[line.name] || ""}`);
  });
  const text = lines.filter((line) => line.bytes > 0).map((line) => `${line.name} ${bytes(line.bytes)}`).join(", ");
  return svg("svg", { height, style: `height:${height}px`, role: "img", "aria-label": `${text}; limit ${bytes(limit)}` },
    svg("rect", { x: 0, y: 4, width: x(Math.min(limit, scale)), height: height - 8, fill: color("track") }),
    parts,
    high > low && tip(svg("g", {}, svg("rect", { class: "band", x: x(low), y: 1, width: x(high - low), height: height - 2 }),
      [low, high].map((end) => svg("line", { x1: x(end), x2: x(end), y1: 1, y2: height - 1, stroke: color("ink"), "stroke-width": 1.2 }))), `interval: ${bytes(low)} to ${bytes(high)}`),
    limit <= scale && tip(svg("line", { class: "limit", x1: x(limit), x2: x(limit), y1: 0, y2: height }), `limit: ${bytes(limit)}`));
}

function peakOf(plan) {
  const m = plan.memory, stage = m.stages[m.fullest_stage];
  if (!stage) return el("div", { class: "card" }, el("h2", {}, "What the peak is made of"), el("p", {}, "The plan has no table of memory."));
  const total = sum(stage.lines, (line) => line.bytes);
  const sorted = stage.lines.filter((line) => line.bytes > 0).sort((a, b) => b.bytes - a.bytes);
  const where = m.stages.length > 1 ? ` on stage ${m.fullest_stage}, the fullest` : "";
  const head = sorted.slice(0, 2).map((line) => `${line.name} ${bytes(line.bytes)} (${percent(line.bytes / total)})`).join(", ");
  return el("div", { class: "card" }, el("h2", {}, "What the peak is made of"),
    el("p", { class: "lead" }, `Mostly ${head}${where}.`),
    stackBar(stage.lines, memoryScale(stage.high, stage.limit)[0], stage.limit, stage.low, stage.high),
    el("ul", { class: "legend rows num" }, sorted.map((line) => el("li", { title: LINE_MEANING[line.name] },
      el("i", { style: `background:${color(lineHue(line.name))}` }), el("span", {}, line.name),
      el("span", {}, bytes(line.bytes), el("span", { class: "faint" }, " " + percent(line.bytes / total)))))),
    el("p", { class: "faint" }, memoryScale(stage.high, stage.limit)[1]),
    stage.host.length > 0 && el("p", {}, "In host memory: " + stage.host.map((line) => `${line.name} ${bytes(line.bytes)}`).join(", ") + "."));
}

function simplerOf(plan) {
  const simpler = plan.others.filter((other) => other.simpler);
  const rest = plan.others.filter((other) => !other.simpler);
  const item = (other) => el("li", {}, el("b", {}, other.name), el("span", { class: "why " + style(other) }, other.note),
    el("span", { class: "faint num" }, ` · ${seconds(other.seconds)}, ${bytes(other.bytes)}`));
  const style = (other) => (other.memory === "does not fit" ? "bad" : other.memory === "tight" ? "tight" : "");
  return el("div", { class: "card" }, el("h2", {}, "Why not a simpler plan"),
    el("p", { class: "lead" }, plan.why_not_simpler),
    simpler.length > 0 && el("ul", { class: "simple" }, simpler.slice(0, 3).map(item)),
    simpler.length > 0 && rest.length > 0 && el("p", { class: "faint", style: "margin-top:.5rem" }, "Of plans that split as much or more, the nearest:"),
    el("ul", { class: "simple" }, rest.slice(0, simpler.length ? 2 : 3).map(item)),
    plan.others.length > 0 && el("p", { class: "faint" }, el("a", { href: "#search" }, `All ${plan.others.length} alternatives`)));
}
