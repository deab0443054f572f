// A chart that the server drew, and its numbers as a table for people who cannot see it or want exact values.
const DRAWN = new Set(["svg", "g", "rect", "path", "line", "text", "circle", "title"]);
const KEPT = new Set(["viewBox", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "rx", "width", "height", "d", "class", "text-anchor", "data-value"]);

/** The drawing, made anew of the elements and attributes that a chart has. Everything else is left out. */
const redrawn = (node) => {
  if (!DRAWN.has(node.localName)) return null;
  const made = document.createElementNS("http://www.w3.org/2000/svg", node.localName);
  for (const { name, value } of node.attributes) if (KEPT.has(name)) made.setAttribute(name, value);
  for (const child of node.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) made.append(child.data);
    else if (child.nodeType === Node.ELEMENT_NODE) made.append(redrawn(child) || "");
  }
  return made;
};
const drawing = (text, size, label) => {
  if (typeof text !== "string") return null;
  const root = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  const svg = redrawn(root);
  if (!svg || svg.localName !== "svg") return null;
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  const number = new Intl.NumberFormat(locale(), { notation: "compact", maximumFractionDigits: 2 });
  for (const tick of svg.querySelectorAll("[data-value]")) tick.textContent = number.format(Number(tick.dataset.value));
  return h("div", { class: `chart ${size}` }, svg);
};

start((result, data) => {
  const chart = data?.series ? data : null;
  if (!chart) return texts(result) ? place(plainText(result)) : empty(config.empty);
  const names = Object.keys(chart.series), labels = chart.labels || [];
  if (!labels.length || !names.length) return empty(config.empty);
  if (chart.title && heading) heading.textContent = chart.title;
  const title = chart.title || config.title || "Chart", unit = chart.unit ? `, in ${chart.unit}` : "";
  const drawn = result._meta?.["io.toolwire/chart"] || {};
  const label = `${title}: ${plural(labels.length, "value")} of ${names.join(", ").slice(0, 500)}${unit}. The numbers are in the table below.`;
  const rows = labels.map((each, at) => Object.fromEntries([["label", each], ...names.map((name, series) => [`s${series}`, chart.series[name]?.[at] ?? null])]));
  const columns = [{ name: "label", title: chart.axis || "Label", format: "text" }, ...names.map((name, series) => ({ name: `s${series}`, title: name || "Value", format: "number" }))];
  const pictures = [drawing(drawn.wide, "wide", label), drawing(drawn.narrow, "narrow", label)].filter(Boolean);
  const keys = names.length > 1 ? names.map((name, at) => h("li", { class: `key s${at % 8}`, dir: "auto" }, name)) : [];
  const legend = keys.length || chart.unit ? h("ul", { class: "legend" }, keys, chart.unit && h("li", { dir: "auto" }, `in ${chart.unit}`)) : null;
  // A host that carries no _meta carries no drawing either, so the numbers are open then.
  place(legend, pictures, h("details", { open: !pictures.length }, h("summary", {}, "Numbers as a table"), makeTable(rows, columns, `Numbers of ${title}`)));
});
