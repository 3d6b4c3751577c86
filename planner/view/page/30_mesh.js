// The mesh on nodes, links and pipeline stages.

const GROUP_HUES = ["blue", "red", "green", "yellow", "purple", "teal", "indigo", "sand", "cyan", "olive"];
const AXIS_MEANING = {
  pp: "pipeline stages: layers", dp: "data parallelism: the batch", fsdp: "the batch, and the states (FSDP, ZeRO)",
  ep: "experts", cp: "context parallelism: the sequence", tp: "tensor parallelism: heads, hidden units, vocabulary",
};

/// Returns the number of the group of `rank` among all groups along `names`, and its place in it.
function groupOf(mesh, names, rank) {
  let group = 0, place = 0, stride = mesh.ranks;
  for (const axis of mesh.axes) {
    stride /= axis.size;
    const coordinate = Math.floor(rank / stride) % axis.size;
    if (names.includes(axis.name)) place = place * axis.size + coordinate;
    else group = group * axis.size + coordinate;
  }
  return { group, place };
}

function nodesOf(plan) {
  const mesh = plan.mesh, cells = [];
  const stageOf = (rank) => Math.floor(rank / mesh.ranks_per_stage);
  const boxes = [];
  let last = -1;
  for (const node of mesh.drawn) {
    if (node.index > last + 1)
      boxes.push(el("span", { class: "more" }, `… ${whole(node.index - last - 1)} more nodes …`));
    last = node.index;
    const own = [];
    for (let i = 0; i < node.devices; ++i) {
      const rank = node.first_rank + i, idle = rank >= mesh.ranks;
      const cell = el("i", { class: idle && "idle" });
      if (!idle) cells.push({ cell, rank });
      const at = mesh.axes.map((axis) => `${axis.name} ${groupOf(mesh, [axis.name], rank).place}`).join(", ");
      tip(cell, idle ? "idle" : `rank ${rank}${at ? "\n" + at : ""}`);
      own.push(cell);
    }
    const first = stageOf(node.first_rank), end = stageOf(Math.min(node.first_rank + node.devices, mesh.ranks) - 1);
    const stages = mesh.ranks === mesh.ranks_per_stage ? "" : first === end ? ` · stage ${first}` : ` · stages ${first}–${end}`;
    const kinds = new Set(mesh.drawn.map((n) => n.device)).size > 1 ? ` · ${node.device}` : "";
    boxes.push(el("div", { class: "node" }, `node ${node.index}${stages}${kinds}`,
      el("div", { class: "cells", style: `grid-template-columns:repeat(${Math.min(8, Math.max(4, Math.ceil(node.devices / 2)))},17px)` }, own)));
  }
  const paint = (names) => {
    for (const { cell, rank } of cells) {
      const { group, place } = groupOf(mesh, names, rank);
      cell.style.background = color(GROUP_HUES[group % GROUP_HUES.length]);
      cell.textContent = place < 100 ? place : "";
      cell.classList.toggle("far", group >= GROUP_HUES.length);
    }
  };
  const network = mesh.nodes > 1 ? `Between nodes ${mesh.inter_node} per device, inside ${mesh.intra_node}` : `Inside the node ${mesh.intra_node} per device`;
  return { box: el("div", { class: "fabric", role: "group", "aria-label": `${plural(mesh.ranks, "rank")} on ${plural(mesh.nodes, "node")}` },
    el("div", { class: "wire" }, network), el("div", { class: "nodes" }, boxes)), paint };
}

function pipeOf(plan) {
  const stages = plan.memory.stages.length;
  if (stages < 2) return null;
  const sends = plan.collectives.sums.find((item) => item.kind === "send");
  const shown = [];
  for (let stage = 0; stage < stages; ++stage) {
    const own = plan.chunks.map((chunk, index) => ({ ...chunk, index })).filter((chunk) => chunk.stage === stage);
    const begin = own.map((chunk) => (own.length > 1 ? `${chunk.index}: ` : "") + chunk.begin).join("\n");
    if (stage > 0) shown.push(el("span", { class: "arrow", "aria-hidden": "true" }, "⇄"));
    shown.push(tip(el("div", { class: "stage", style: `border-top-color:${color(GROUP_HUES[stage % GROUP_HUES.length])}`, tabindex: 0 },
      el("b", {}, `stage ${stage}`), own.length > 1 ? `${own.length} chunks` : `from ${own[0] ? own[0].begin : "?"}`,
      el("div", { class: "faint num" }, `${seconds(sum(own, (chunk) => chunk.seconds))}, ${bytes(sum(plan.memory.stages[stage].lines, (l) => l.bytes))}`)),
      `stage ${stage} begins at\n${begin}`));
  }
  return [el("h3", {}, "Pipeline stages"), el("div", { class: "pipe" }, shown),
    el("p", { class: "faint small" }, "Seconds of forward and backward of one micro-batch, and memory of a device." +
      (sends ? ` Between stages travel ${bytes(sends.bytes)} per step, in ${plural(sends.count, "send")} that take ${seconds(sends.seconds)} (stage ${sends.stage}).` : ""))];
}

function meshSection(plan) {
  const mesh = plan.mesh;
  const picture = nodesOf(plan);
  const most = Math.max(...mesh.links.map((link) => link.seconds), 1e-30);
  const lines = [];
  const light = (link, line) => {
    lines.forEach((other) => other.classList.toggle("on", other === line));
    picture.paint(link ? link.axes : []);
    picture.box.classList.toggle("inter", link && link.nodes > 1);
    picture.box.classList.toggle("intra", link && link.nodes === 1);
    status.textContent = link
      ? `Groups along ${link.axes.join("+")}: ${plural(mesh.ranks / link.size, "group")} of ${whole(link.size)} ranks. Ranks of one colour are one group; the digit is the place in it.`
      : "";
  };
  const status = el("p", { class: "faint small", "aria-live": "polite" });
  const least = (link) => (link.nodes * link.per_node < link.size ? "at least " : "") + link.per_node;
  const where = (link) => (link.nodes === 1 ? "inside a node" : `across ${whole(link.nodes)} nodes, ${least(link)} of a group on each`);
  const links = table("mesh", "What travels over each axis, per step and device", [
    { head: "axis", get: (l) => l.axes.join("+") },
    { head: "size", n: true, get: (l) => l.size },
    { head: "splits", get: (l) => l.axes.map((a) => AXIS_MEANING[a] || "").join("; "), wide: true },
    { head: "link", get: where, wide: true },
    { head: "bytes", unit: "bytes", n: true, get: (l) => l.bytes, show: (l) => bytes(l.bytes) },
    { head: "collectives", n: true, get: (l) => l.count, show: (l) => whole(l.count) },
    { head: "seconds", unit: "s", n: true, get: (l) => l.seconds, show: (l) => shareCell(l.seconds / most, seconds(l.seconds), l.nodes > 1 ? "red" : "blue") },
  ], mesh.links, { onRow: (link, line) => {
    lines.push(line);
    line.tabIndex = 0;
    line.setAttribute("aria-label", `axis ${link.axes.join("+")}: light its groups`);
    for (const event of ["mouseenter", "focus", "click"]) line.addEventListener(event, () => light(link, line));
  } });
  light(mesh.links[0], lines[0]);
  return section("mesh", "Mesh",
    el("p", {}, mesh.links.length ? "Hover an axis, or move to it with the Tab key, to light its groups." : "One device: nothing travels."),
    mesh.links.length ? links : null, status, picture.box,
    mesh.links.length ? legend([["blue", "seconds on links inside a node"], ["red", "seconds on links between nodes"]]) : null,
    pipeOf(plan));
}
