"use strict";
// Elements, numbers as text, tables. Text of plans only ever becomes text nodes and attributes.

const SVG = "http://www.w3.org/2000/svg";
let identifiers = 0;
const newId = (prefix) => prefix + ++identifiers;

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity))
    if (child !== null && child !== undefined && child !== false && child !== "") node.append(child);
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const color = (name) => `var(--${name})`;

// -- Numbers. Bytes and seconds look as in the text of tbc (planner/support/Format.cpp). ---------------

function digits(value, most = 3) {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? Math.min(1, most) : Math.min(2, most));
}
function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (Math.abs(value) >= 1000 && unit < 5) { value /= 1024; ++unit; }
  return (unit === 0 ? Math.round(value).toString() : digits(value)) + " " + units[unit];
}
function seconds(value) {
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size >= 1) return (size < 10 ? value.toFixed(2) : value.toFixed(1)) + " s";
  if (size >= 1e-3) return digits(value * 1e3) + " ms";
  return (value * 1e6).toFixed(1) + " µs";
}
function count(value) {
  const units = ["", " k", " M", " G", " T", " P", " E"];
  let unit = 0;
  while (Math.abs(value) >= 1000 && unit < 6) { value /= 1000; ++unit; }
  if (unit === 0 && Number.isInteger(value)) return value.toString();
  return digits(value) + units[unit];
}
const whole = (value) => value.toLocaleString("en-US");
const percent = (share) => (100 * share).toFixed(Math.abs(share) < 0.0995 ? 1 : 0) + " %";
const signed = (ratio) => (ratio >= 1 ? "+" : "−") + (100 * Math.abs(ratio - 1)).toFixed(1) + " %";
const sum = (list, get = (x) => x) => list.reduce((total, item) => total + get(item), 0);
const plural = (number, word) => `${whole(number)} ${word}${number === 1 ? "" : /(ch|s)$/.test(word) ? "es" : "s"}`;

/// Returns about `want` round values from 0 to `top`; of bytes, round in their binary unit.
function ticks(top, want, isBytes) {
  let unit = 1;
  if (isBytes) while (top / unit >= 1000) unit *= 1024;
  const raw = top / unit / want, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((x) => x * power).find((x) => x >= raw * 0.999) * unit;
  const list = [];
  for (let value = 0; value <= top * 1.0001; value += step) list.push(value);
  return list;
}

// -- Hints ------------------------------------------------------------------------------------------

const hint = el("div", { id: "tip", role: "tooltip" });
function showHint(text, x, y) {
  hint.textContent = text;
  hint.style.display = "block";
  const box = hint.getBoundingClientRect();
  hint.style.left = Math.max(4, Math.min(x + 12, innerWidth - box.width - 4)) + "px";
  hint.style.top = (y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 8) : y + 18) + "px";
}
const hideHint = () => { hint.style.display = "none"; };
/// Shows `text` beside `node` while it is hovered or has the focus, and reads it to screen readers.
function tip(node, text) {
  if (node.namespaceURI === SVG) node.append(svg("title", {}, text));
  node.addEventListener("mousemove", (event) => showHint(text, event.clientX, event.clientY));
  node.addEventListener("mouseleave", hideHint);
  node.addEventListener("focus", () => {
    const box = node.getBoundingClientRect();
    showHint(text, box.left, box.bottom - 12);
  });
  node.addEventListener("blur", hideHint);
  return node;
}

// -- Tables -----------------------------------------------------------------------------------------

const csvCell = (value) => {
  let text = String(value);
  // A spreadsheet must not take a name for a formula.
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = "'" + text;
  return /[",\n\r]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
};
function csvText(columns, rows) {
  const head = columns.map((c) => csvCell(c.head + (c.unit ? ` [${c.unit}]` : "")));
  return [head, ...rows.map((row) => columns.map((c) => csvCell(c.get(row))))].map((r) => r.join(",")).join("\r\n") + "\r\n";
}
function download(name, text) {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

/// A table that sorts by its columns and downloads as CSV. A column: head; get(row), its plain value;
/// show(row), its text or element; unit of the plain value; n: it is a number.
function table(name, caption, columns, rows, options = {}) {
  const body = el("tbody", {});
  const fillBody = (list) => body.replaceChildren(...list.map((row) => {
    const cells = columns.map((c) => el("td", { class: (c.n ? "n" : "") + (c.wide ? " wide" : "") }, c.show ? c.show(row) : String(c.get(row))));
    const line = el("tr", { class: options.rowClass && options.rowClass(row) }, cells);
    if (options.onRow) options.onRow(row, line);
    return line;
  }));
  const heads = columns.map((c) => {
    const th = el("th", { scope: "col", class: c.n && "n" }, el("button", { type: "button", title: "Sort by " + c.head }, c.head));
    th.firstChild.addEventListener("click", () => {
      const down = th.getAttribute("aria-sort") !== "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      th.setAttribute("aria-sort", down ? "descending" : "ascending");
      const order = (a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(String(b)));
      fillBody([...shown].sort((a, b) => (down ? -1 : 1) * order(c.get(a), c.get(b))));
    });
    return th;
  });
  let shown = rows;
  fillBody(rows);
  const csv = el("button", { type: "button", class: "csv", title: "Download this table as CSV" }, "CSV");
  csv.addEventListener("click", () => download(name + ".csv", csvText(columns, shown)));
  const box = el("div", {},
    el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
      el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, heads)), body)),
    el("div", { class: "after" }, csv));
  box.filter = (keep) => fillBody(shown = rows.filter(keep));
  return box;
}

/// A cell with a bar of `share` of the widest.
const shareCell = (share, text, hue = "blue") =>
  [el("span", { class: "share", style: `width:${(70 * Math.min(1, Math.max(0, share))).toFixed(1)}px;background:${color(hue)}` }), text];

/// Returns the end of a scale of memory, and a note where the limit is beyond it. A picture of little
/// memory would be empty up to a far limit.
function memoryScale(high, limit) {
  return limit < 2.5 * high ? [1.04 * Math.max(high, limit), ""] : [1.3 * high, `The limit of ${bytes(limit)} is beyond the picture.`];
}

const section = (id, title, ...children) =>
  el("section", { id, "aria-labelledby": id + "-h" }, el("h2", { id: id + "-h" }, title), ...children);
const legend = (entries) => el("ul", { class: "legend" }, entries.map(([hue, text]) =>
  el("li", {}, el("i", { style: `background:${color(hue)}` }), text)));

/// Buttons of which one is selected; arrow keys move between them.
function tabs(label, names, choose, selected = 0) {
  const list = el("div", { class: "tabs", role: "tablist", "aria-label": label });
  const select = (index, focus) => {
    buttons.forEach((button, i) => {
      button.setAttribute("aria-selected", i === index);
      button.tabIndex = i === index ? 0 : -1;
    });
    if (focus) buttons[index].focus();
    choose(index);
  };
  const buttons = names.map((name, index) => el("button", { type: "button", role: "tab",
    onclick: () => select(index),
    onkeydown: (event) => {
      const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: names.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      select((to + names.length) % names.length, true);
    } }, name));
  list.append(...buttons);
  list.select = select;
  select(selected);
  return list;
}
