// Where the time goes.

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
