// The worth of other hardware and jobs, as a tornado.

const WORTH_HUES = { gain: "green", loss: "red", tie: "grey", impossible: "pale" };
const effect = (row) => (row.worth === "impossible" ? "no plan" : Math.abs(row.ratio - 1) < 5e-4 ? "0 %" : `${row.ratio >= 1 ? "+" : "−"}${(100 * Math.abs(row.ratio - 1)).toFixed(1)} %`);

/// One line per subject, the largest effect first: losses to the left of the base, gains to the right.
function tornado(answer, unit, width) {
  const subjects = [...new Set(answer.rows.map((row) => row.subject))];
  const isNarrow = width < 600, left = isNarrow ? 8 : 190, right = 8, top = 8, line = isNarrow ? 46 : 34, bottom = 40;
  const height = top + line * subjects.length + bottom, rowsOf = (subject) => answer.rows.filter((row) => row.subject === subject);
  const ratios = answer.rows.filter((row) => row.worth !== "impossible").map((row) => row.ratio - 1);
  const low = Math.min(0, ...ratios), high = Math.max(0, ...ratios), span = Math.max(high - low, 1e-9), label = 104;
  const x = (v) => left + label + (width - left - right - 2 * label) * (v - low) / span;
  const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1, 2, 5].find((s) => span / s <= (isNarrow ? 4 : 9)) || 10;
  const marks = [];
  for (let v = Math.ceil(low / step) * step; v <= high + 1e-9; v += step) marks.push(v);
  const textOf = (row) => `${row.subject} ${row.change}: ${row.worth === "impossible" ? row.reason : `${effect(row)}, ${seconds(row.plan.step_seconds)} a step` + (row.worth === "tie" ? ", a tie" : "") + (row.plan_changes ? `\nanother plan: ${row.plan.decisions}` : "\nthe same plan")}`;
  const bar = (row, y, size, dy) => {
    const v = row.worth === "impossible" ? 0 : row.ratio - 1, a = Math.min(x(0), x(v)), length = Math.abs(x(v) - x(0)), isLeft = v < 0;
    return tip(svg("g", { tabindex: 0, role: "img", "aria-label": textOf(row) },
      svg("rect", { x: isLeft ? a : x(0), y: y + dy, width: Math.max(2, length), height: size, rx: 2, fill: color(WORTH_HUES[row.worth]) }),
      svg("text", { x: isLeft ? a - 6 : x(0) + Math.max(2, length) + 6, y: y + dy + size / 2 + 4, "text-anchor": isLeft ? "end" : "start" }, `${row.change}: ${effect(row)}` + (row.plan_changes ? " *" : ""))), textOf(row));
  };
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Effect of each change on " + unit },
    marks.map((v) => [svg("line", { class: "grid", x1: x(v), x2: x(v), y1: top, y2: height - bottom }), svg("text", { class: "dim", x: x(v), y: height - bottom + 16, "text-anchor": "middle" }, (v > 1e-9 ? "+" : v < -1e-9 ? "−" : "") + Math.round(100 * Math.abs(v)) + " %")]),
    subjects.map((subject, index) => {
      const y = top + index * line, rows = rowsOf(subject), sides = [rows.filter((r) => r.worth !== "impossible" && r.ratio < 1), rows.filter((r) => r.worth === "impossible" || r.ratio >= 1)];
      const titleY = isNarrow ? y + 14 : y + line / 2 + 4, begin = isNarrow ? y + 19 : y + 5, room = isNarrow ? line - 22 : line - 10;
      return [svg("text", { x: isNarrow ? left : left - 8, y: titleY, "text-anchor": isNarrow ? "start" : "end", "font-weight": 600 }, subject),
        // Two changes to one side share the line.
        sides.map((list) => list.map((row, i) => bar(row, begin, room / list.length - (list.length > 1 ? 1 : 0), i * room / list.length)))];
    }),
    svg("line", { class: "axis", x1: x(0), x2: x(0), y1: top, y2: height - bottom }),
    svg("text", { class: "dim", x: (left + width) / 2, y: height - 4, "text-anchor": "middle" }, unit + ", relative to the same job"));
}

function sensitivitySection(plan) {
  const answer = plan.sensitivity, hasTokens = answer.base.sequence > 0, unit = hasTokens ? "tokens per second" : "samples per second";
  const rate = (p) => (hasTokens ? p.tokens_per_second : p.samples_per_second), holder = el("div", {});
  onLayout(() => {
    const width = Math.round(holder.getBoundingClientRect().width);
    if (width > 0) holder.replaceChildren(tornado(answer, unit, Math.max(300, width)));
  });
  const best = answer.rows.filter((row) => row.worth === "gain").sort((a, b) => b.ratio - a.ratio)[0];
  const isOther = answer.base.decisions !== answer.plan.decisions;
  const value = (get, otherwise = "") => (row) => (row.worth === "impossible" ? otherwise : get(row));
  return section("sensitivity", "The worth of a change",
    el("p", {}, `Every bar is a plan made anew after one change. ` + (best ? `The largest gain is ${best.subject} ${best.change}: ${effect(best)}. ` : "No change gains more than a tie. ") +
      (isOther ? `Planned again without a change, the plan is ${answer.base.decisions}: it is the base.` : "")),
    el("figure", {}, holder, legend([["green", "gain"], ["red", "loss"], ["grey", "a tie: within 2 %"]]), el("figcaption", {}, "*: the best plan changes.")),
    table("sensitivity", "Plans after one change each", [
      { head: "change", wide: true, get: (r) => `${r.subject} ${r.change}` },
      { head: "step", unit: "s", n: true, get: value((r) => r.plan.step_seconds), show: value((r) => seconds(r.plan.step_seconds), "–") },
      { head: unit, n: true, get: value((r) => rate(r.plan)), show: value((r) => count(rate(r.plan)), "–") },
      { head: "effect", unit: "ratio", n: true, get: value((r) => r.ratio), show: effect },
      { head: "worth", get: (r) => r.worth },
      { head: "plan", wide: true, get: (r) => (r.worth === "impossible" ? r.reason : r.plan_changes ? r.plan.decisions : "the same") }], answer.rows));
}
