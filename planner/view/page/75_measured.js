// A measured step beside the predicted one.

function measuredSection(plan) {
  const { groups, profile, ranks } = plan.measured, most = Math.max(...groups.flatMap((g) => [g.predicted, g.measured]));
  const ratio = (g) => (g.predicted > 0 && g.measured > 0 ? g.measured / g.predicted : null);
  const bar = (value, hue, word, group) => {
    const text = `${group}, ${word}: ${seconds(value)}`;
    return el("div", { class: "measure" }, tip(el("i", { role: "img", "aria-label": text, style: `width:${(100 * value / most).toFixed(2)}%;background:${color(hue)}` }), text),
      el("span", { class: "small" }, seconds(value)));
  };
  const step = groups.find((g) => g.group === "step");
  return section("measured", "Measured beside predicted",
    el("p", {}, `One step of ${profile}, the mean of ${plural(ranks, "rank")}. ` + (step && ratio(step) ?
      `The step took ${ratio(step).toFixed(2)} times as long as predicted` + (step.measured >= plan.time.low && step.measured <= plan.time.high ? ", inside the interval." : ", outside of the interval.") : "")),
    el("figure", {}, el("dl", { class: "measures" }, groups.map((g) => [el("dt", {}, g.group), el("dd", {}, bar(g.predicted, "grey", "predicted", g.group), bar(g.measured, "blue", "measured", g.group))])),
      legend([["grey", "predicted"], ["blue", "measured"]])),
    table("residuals", "Seconds of one step, the largest difference first", [
      { head: "group", get: (g) => g.group }, { head: "predicted", unit: "s", n: true, get: (g) => g.predicted, show: (g) => seconds(g.predicted) },
      { head: "measured", unit: "s", n: true, get: (g) => g.measured, show: (g) => seconds(g.measured) },
      { head: "difference", unit: "s", n: true, get: (g) => g.measured - g.predicted, show: (g) => seconds(g.measured - g.predicted) },
      { head: "measured / predicted", n: true, get: (g) => ratio(g) || 0, show: (g) => (ratio(g) ? ratio(g).toFixed(2) : "–") }], groups));
}
