// The page: one plan, or several beside each other.

const SECTIONS = [["mesh", "Mesh", meshSection], ["layers", "Layers", layersSection], ["memory", "Memory", memorySection],
  ["schedule", "Schedule", scheduleSection], ["time", "Time", timeSection],
  ["measured", "Measured", measuredSection, (plan) => plan.measured], ["search", "Search", searchSection],
  ["sensitivity", "Sensitivity", sensitivitySection, (plan) => plan.sensitivity], ["basis", "Basis", basisSection]];
const layouts = [];
/// Calls `draw` when the page is laid out, and again when its width changes.
function onLayout(draw) { layouts.push(draw); }
const layOut = () => layouts.forEach((draw) => draw());

function factTables(groups, name) {
  return el("div", { class: groups.length > 2 ? "facts" : "" }, groups.map((group) => el("div", {}, el("h3", {}, group.title),
    el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": group.title }, el("table", {}, el("tbody", {}, group.facts.map((fact) =>
      el("tr", {}, el("th", { scope: "row" }, fact.name), el("td", {}, fact.value), el("td", { class: "note small" }, fact.note)))))))),
    el("div", {}, el("button", { type: "button", class: "csv", onclick: () => download(name + ".csv", csvText([
      { head: "group", get: (f) => f.group }, { head: "name", get: (f) => f.name }, { head: "value", get: (f) => f.value }, { head: "note", get: (f) => f.note }],
    groups.flatMap((group) => group.facts.map((fact) => ({ ...fact, group: group.title }))))) }, "CSV")));
}

function basisSection(plan) {
  return section("basis", "Basis of the numbers",
    plan.assumptions.length ? [el("h3", {}, "Assumptions"), el("ul", {}, plan.assumptions.map((text) => el("li", {}, text)))] : null,
    factTables(plan.job, "job"),
    el("details", {}, el("summary", {}, `Every number of the cluster ${plan.cluster_name}`), factTables(plan.cluster, "cluster")),
    el("details", {}, el("summary", {}, "The plan as text"), el("pre", { tabindex: 0 }, plan.text)));
}

/// The numbers of all plans, the first as the base of the differences.
function comparison(plans) {
  const base = plans[0];
  const ratio = (value, of) => (of > 0 && value !== of ? ` (${signed(value / of)})` : "");
  const rows = [
    ["verdict", (p) => p.memory.verdict], ["decisions", (p) => p.decisions.join(", ")],
    ["step", (p) => seconds(p.time.step) + ratio(p.time.step, base.time.step), (p) => p.time.step, "s"],
    ["interval of the step", (p) => `${seconds(p.time.low)} to ${seconds(p.time.high)}`],
    ["memory", (p) => bytes(p.memory.peak) + ratio(p.memory.peak, base.memory.peak), (p) => p.memory.peak, "bytes"],
    ["interval of the memory", (p) => `${bytes(p.memory.low)} to ${bytes(p.memory.high)} of ${bytes(p.memory.limit)}`],
    ["samples/s", (p) => count(p.time.samples_per_second) + ratio(p.time.samples_per_second, base.time.samples_per_second), (p) => p.time.samples_per_second],
    ["MFU", (p) => (100 * p.time.mfu).toFixed(1) + " %", (p) => p.time.mfu, "share of 1"],
    ["devices", (p) => `${whole(p.devices - p.idle_devices)} × ${p.cluster_name}`], ["batch", (p) => whole(p.batch), (p) => p.batch, "samples"],
    ...base.time.parts.map((part, i) => [part.name, (p) => seconds(p.time.parts[i].seconds), (p) => p.time.parts[i].seconds, "s"]).filter(([, , get]) => plans.some((p) => get(p) > 0)),
    ["hidden communication", (p) => seconds(p.time.hidden), (p) => p.time.hidden, "s"],
  ];
  return section("compare", "Plans side by side", el("p", {}, "Differences are to the first plan. Every plan has its own cost model and job: compare plans of one job."),
    table("comparison", plural(plans.length, "plan"), [{ head: "quantity", get: (r) => r[0] + (r[3] ? ` [${r[3]}]` : ""), show: (r) => r[0] },
      ...plans.map((plan) => ({ head: plan.file, wide: true, get: (r) => (r[2] ? r[2](plan) : r[1](plan)), show: (r) => r[1](plan) }))], rows));
}

function pageOf(plan) {
  const sections = SECTIONS.filter(([, , , isThere]) => !isThere || isThere(plan));
  return [headerOf(plan), verdictOf(plan), cardsOf(plan), el("div", { class: "pair" }, peakOf(plan), simplerOf(plan)),
    el("nav", { class: "toc", "aria-label": "Sections" }, sections.map(([id, name]) => el("a", { href: "#" + id }, name))),
    sections.map(([, , make]) => make(plan)),
    el("footer", {}, `${plan.file}. Predictions are of the cost model of tbc for ${plan.cluster_name}; GiB is 2^30 bytes, GB/s is 10^9 bytes per second. This page needs no network.`)];
}

function start() {
  const plans = JSON.parse(document.getElementById("data").textContent).plans;
  const main = document.getElementById("content"), holder = el("div", {});
  const show = (index) => {
    layouts.length = 0;
    hideHint();
    holder.replaceChildren(...pageOf(plans[index]).flat(Infinity).filter(Boolean));
    layOut();
    mark();
  };
  const mark = () => {
    const links = [...holder.querySelectorAll("nav.toc a")];
    const current = links.filter((link) => document.getElementById(link.hash.slice(1)).getBoundingClientRect().top < 140).pop();
    links.forEach((link) => (link === current ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current")));
  };
  main.replaceChildren();
  document.body.append(hint);
  const choice = el("div", { style: "margin-top:1.2rem" });
  main.append(...(plans.length > 1 ? [comparison(plans), choice] : []), holder);
  if (plans.length > 1) choice.append(tabs("Plan", plans.map((plan) => plan.file), show));
  else show(0);
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; layOut(); } });
  addEventListener("beforeprint", () => { document.querySelectorAll("details").forEach((d) => { d.open = true; }); layOut(); });
  addEventListener("scroll", mark, { passive: true });
  addEventListener("keydown", (event) => { if (event.key === "Escape") hideHint(); });
}
start();
