// Layers with repeats folded, and decisions by the name of an op or a parameter.

/// Returns the names that a pattern of IdList.h stands for, at most `most`. "{a..b}" and "{a..b..s}"
/// count; a doubled brace is a brace.
function expand(pattern, most) {
  let names = [""];
  const parts = pattern.match(/\{\{|\}\}|\{\d+\.\.\d+(?:\.\.\d+)?\}|[^{}]+|[{}]/g) || [];
  for (const part of parts) {
    const range = /^\{(\d+)\.\.(\d+)(?:\.\.(\d+))?\}$/.exec(part);
    const ends = [];
    if (!range) ends.push(part === "{{" ? "{" : part === "}}" ? "}" : part);
    else for (let i = +range[1]; i <= +range[2] && ends.length < most; i += +(range[3] || 1)) ends.push(String(i));
    const next = [];
    for (const name of names) for (const end of ends) if (next.length < most) next.push(name + end);
    names = next;
  }
  return names;
}

function layersSection(plan) {
  const total = sum(plan.layers, (row) => row.seconds * row.count) || 1;
  const rows = table("layers", "Layers; repeats of one structure are one row", [
    { head: "layers", get: (r) => r.name || r.first_op, wide: true, show: (r) => [r.name, el("div", { class: "mono faint" }, r.first_op)] },
    { head: "count", n: true, get: (r) => r.count, show: (r) => "× " + whole(r.count) },
    { head: "ops", n: true, get: (r) => r.ops },
    { head: "parameters, each", n: true, get: (r) => r.parameters, show: (r) => count(r.parameters) },
    { head: "fwd + bwd, each", unit: "s", n: true, get: (r) => r.seconds, show: (r) => seconds(r.seconds) },
    { head: "of all time", unit: "share of 1", n: true, get: (r) => r.seconds * r.count / total, show: (r) => shareCell(r.seconds * r.count / total, percent(r.seconds * r.count / total)) },
    { head: "kept, each", unit: "bytes", n: true, get: (r) => r.residual_bytes, show: (r) => bytes(r.residual_bytes) },
    { head: "split", get: (r) => r.split },
  ], plan.layers);
  rows.id = "layer-rows";
  const found = el("div", { "aria-live": "polite" });
  const most = 20000;
  let index = null; // [name, decision], made at the first search
  const search = el("input", { type: "search", placeholder: "name, for example layers.3.mlp", "aria-label": "Search layers, ops and parameters by name" });
  const run = () => {
    const word = search.value.trim().toLowerCase();
    rows.filter((r) => !word || [r.name, r.first_op, r.split].some((text) => text.toLowerCase().includes(word)) ||
      (r.name.includes("*") && starMatches(r.name, word)));
    if (!word) { found.replaceChildren(); return; }
    const about = [...plan.layout.parameters.map((p) => [p.names, `parameter ${p.shape} ${p.dtype}: stored ${p.stored}, used ${p.used}`]), ...plan.named.map((n) => [n.names, n.decision])];
    index = index || about.flatMap(([names, text]) => names.flatMap((p) => expand(p, most).map((name) => [name, text])));
    const hits = index.filter(([name]) => name.toLowerCase().includes(word));
    const shown = hits.slice(0, 50);
    found.replaceChildren(el("p", { class: "small" }, `${plural(hits.length, "parameter and op").replace(/parameter and ops?/, "parameters and ops")} found` +
      (hits.length > shown.length ? `, the first ${shown.length}` : "")),
      shown.length ? table("decisions", "Parameters, and ops with decisions of their own", [
        { head: "name", get: (h) => h[0], show: (h) => el("span", { class: "mono" }, h[0]), wide: true }, { head: "placement or decision", get: (h) => h[1], wide: true }], shown) : "");
  };
  search.addEventListener("input", run);
  const named = plan.named.length ? el("details", {}, el("summary", {}, `Decisions for single ops and parameters (${plural(sum(plan.named, (n) => n.count), "name")})`),
    table("named", "Names are patterns: {0..11} stands for 0 to 11", [
      { head: "decision", get: (n) => n.decision, wide: true }, { head: "names", n: true, get: (n) => n.count, show: (n) => whole(n.count) },
      { head: "patterns", get: (n) => n.names.join(" "), show: (n) => el("span", { class: "mono" }, n.names.slice(0, 40).join("  ") + (n.names.length > 40 ? ` … ${n.names.length - 40} more` : "")), wide: true },
    ], plan.named)) : null;
  return section("layers", "Layers",
    el("p", {}, "Seconds and bytes are of one micro-batch on one device, for one repeat. Kept bytes are residuals for backward."),
    el("div", { class: "tools" }, search), found, rows, parametersOf(plan), slicesOf(plan), named);
}

/// Placements of parameters, and of the activations between layers.
function parametersOf(plan) {
  const layout = plan.layout, names = (p) => p.names.slice(0, 12).join("  ") + (p.names.length > 12 ? ` … ${p.names.length - 12} more` : "");
  if (layout.stale) return el("p", { class: "notice" }, layout.stale);
  return [
    layout.parameters.length ? el("details", {}, el("summary", {}, `Placements of ${plural(sum(layout.parameters, (p) => p.count), "parameter")}`),
      el("p", { class: "faint small" }, "In brackets the mesh axes of each dim, - for a whole one; partial: a sum over the axis is open; flat: the local part is cut into equal chunks over the axis. {0..11} stands for 0 to 11."),
      table("parameters", "Parameters of equal shapes and placements", [
        { head: "parameters", get: (p) => p.names.join(" "), show: (p) => el("span", { class: "mono" }, names(p)), wide: true },
        { head: "count", n: true, get: (p) => p.count }, { head: "shape", get: (p) => p.shape }, { head: "type", get: (p) => p.dtype },
        { head: "stored", get: (p) => p.stored }, { head: "used", get: (p) => p.used }, { head: "gathered for", get: (p) => p.lifetime },
        { head: "gradient", get: (p) => p.gradient }, { head: "optimizer state", get: (p) => p.state }], layout.parameters)) : null,
    layout.boundaries.length ? el("details", {}, el("summary", {}, "Activations between layers"),
      table("boundaries", "Tensors of a micro-batch that enter and leave blocks, and their placement", [
        { head: "block", get: (b) => b.block, wide: true }, { head: "repeats", get: (b) => (b.first === b.last ? `${b.first}` : `${b.first} to ${b.last}`) },
        { head: "enter", get: (b) => b.inputs, show: (b) => lines(b.inputs), wide: true }, { head: "leave", get: (b) => b.outputs, show: (b) => lines(b.outputs), wide: true }], layout.boundaries)) : null];
}
const lines = (text) => text.split("\n").map((line) => el("div", { class: "mono" }, line));

/// Whether `word` occurs in a name of `pattern`, where a star stands for a number, or in a module below
/// a pattern that ends with a star. Example: "layers.3.mlp" for "model.layers.*".
function starMatches(pattern, word) {
  const parts = pattern.toLowerCase().split("."), pieces = word.split("."), last = pieces.length - 1;
  const fits = (piece, i, part) => {
    if (part === undefined) return parts[parts.length - 1] === "*";
    if (part === "*") return /^\d*$/.test(piece);
    return i === 0 ? part.endsWith(piece) : i === last ? part.startsWith(piece) : part === piece;
  };
  return parts.some((_, start) => pieces.every((piece, i) => fits(piece, i, parts[start + i])));
}
