// Views of JSON: a tree whose parts open, and a table for rows of the same shape.

import { h, plainText, replace } from "./dom.js";

const PAGE = 100;
const LONG = 300;
const MAX_ROWS = 500;
const MAX_COLUMNS = 30;

const isObject = (value) => typeof value === "object" && value !== null;

/** Makes a tree. Parts below `open` levels, and long ones, are made when somebody opens them. */
export function tree(value, open = 2) {
  return h("div", { class: "tree" }, node(null, value, open));
}

function node(name, value, open) {
  const label = name === null ? null : [h("span", { class: "key" }, plainText(String(name).slice(0, 300))), ": "];
  if (!isObject(value)) return h("div", { class: "leaf" }, label, scalar(value));
  const entries = Array.isArray(value) ? value.map((each, index) => [index, each]) : Object.entries(value);
  const brackets = Array.isArray(value) ? "[]" : "{}";
  if (!entries.length) return h("div", { class: "leaf" }, label, brackets);
  const inside = h("div", { class: "inside" });
  const count = h("span", { class: "count" }, `${brackets[0]}${entries.length.toLocaleString("en")}${brackets[1]}`);
  const details = h("details", { ontoggle: fill }, h("summary", {}, label, count), inside);
  function fill() {
    if (details.open && !inside.firstChild) more(inside, entries, 0, open - 1);
  }
  if (open > 0) {
    details.open = true;
    fill();
  }
  return details;
}

function more(inside, entries, from, open) {
  const next = entries.slice(from, from + PAGE);
  for (const [name, value] of next) inside.append(node(name, value, entries.length > 20 ? 0 : open));
  const left = entries.length - from - next.length;
  if (left > 0) {
    const button = h(
      "button",
      {
        type: "button",
        class: "quiet",
        onclick: () => {
          button.remove();
          more(inside, entries, from + PAGE, open);
        },
      },
      `${left.toLocaleString("en")} more`,
    );
    inside.append(button);
  }
}

const written = (text) => plainText(JSON.stringify(text));

function scalar(value) {
  if (typeof value !== "string")
    return h("span", { class: `value ${value === null ? "null" : typeof value}` }, String(value));
  if (value.length <= LONG) return h("span", { class: "value string" }, written(value));
  const text = h("span", { class: "value string" }, written(value.slice(0, LONG)), "…");
  const button = h(
    "button",
    {
      type: "button",
      class: "quiet",
      onclick: () => {
        replace(text, written(value));
        button.remove();
      },
    },
    `all ${value.length.toLocaleString("en")} characters`,
  );
  return h("span", {}, text, " ", button);
}

/** Gives the rows and columns of a value that is a table, else null. */
export function rowsOf(value) {
  const rows = Array.isArray(value)
    ? value
    : isObject(value) && Object.keys(value).length === 1
      ? Object.values(value)[0]
      : null;
  if (!Array.isArray(rows) || rows.length < 1 || !rows.every((row) => isObject(row) && !Array.isArray(row)))
    return null;
  const columns = [...new Set(rows.slice(0, MAX_ROWS).flatMap((row) => Object.keys(row)))];
  const flat = rows.slice(0, 50).every((row) => Object.values(row).filter(isObject).length <= 1);
  return columns.length && columns.length <= MAX_COLUMNS && flat ? { rows, columns } : null;
}

export function table({ rows, columns }) {
  const body = rows.slice(0, MAX_ROWS).map((row) =>
    h(
      "tr",
      {},
      columns.map((column) => cell(row[column])),
    ),
  );
  return h(
    "div",
    { class: "table-box" },
    h(
      "table",
      {},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          columns.map((column) => h("th", { scope: "col" }, column.slice(0, 200))),
        ),
      ),
      h("tbody", {}, body),
    ),
    rows.length > MAX_ROWS
      ? h("p", { class: "hint" }, `The first ${MAX_ROWS} of ${rows.length.toLocaleString("en")} rows.`)
      : null,
  );
}

function cell(value) {
  if (value === undefined) return h("td", { class: "absent" });
  if (isObject(value)) return h("td", {}, tree(value, 0));
  const text = typeof value === "string" ? value : String(value);
  return h(
    "td",
    {
      class: typeof value === "number" ? "number" : undefined,
      title: text.length > 200 ? text.slice(0, 2000) : undefined,
    },
    text.slice(0, 200),
  );
}
