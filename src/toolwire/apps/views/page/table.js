// Tables: sorted by the buttons of the header, filtered, and in pages, so that 10,000 rows cost as much as 50.
const PAGE = 20, LONG = 300, LONGEST = 20000;

/** The rows in the data of a result: the data itself, the member that is named, or the first member that is a list. */
const rowsOf = (data, member) => {
  if (Array.isArray(data)) return data;
  if (data === null || typeof data !== "object") return null;
  const found = member ? data[member] ?? data.result?.[member] : Object.values(data).find(Array.isArray);
  return Array.isArray(found) ? found : null;
};
const asRecord = (row) => (row !== null && typeof row === "object" ? row : { value: row });

const columnsOf = (rows) => {
  const names = new Set();
  for (const row of rows.slice(0, 200)) for (const name of Object.keys(asRecord(row))) names.add(name);
  return [...names].slice(0, 100).map((name) => ({ name }));
};
const titleOf = ({ name, title }) => {
  const words = `${title ?? name}`;
  return title ? words : words.replace(/_/g, " ").replace(/^./, (first) => first.toUpperCase());
};

const DAY = /^\d{4}-\d\d-\d\d$/, MOMENT = /^\d{4}-\d\d-\d\dT\d\d:\d\d/;
const kindOf = (name, rows) => {
  const kinds = new Set();
  for (const row of rows.slice(0, 200)) {
    const value = asRecord(row)[name];
    if (value === null || value === undefined) continue;
    kinds.add(typeof value === "string" && DAY.test(value) ? "date" : typeof value === "string" && MOMENT.test(value) ? "datetime" : typeof value);
  }
  return kinds.size === 1 ? [...kinds][0] : "text";
};

/** How the values of a column are written, in the language of the host. */
const writer = (format, { currency }) => {
  const number = (options) => {
    const made = new Intl.NumberFormat(locale(), options);
    return (value) => (typeof value === "number" ? made.format(value) : plain(value));
  };
  const moment = (options) => {
    const made = new Intl.DateTimeFormat(locale(), options);
    return (value) => {
      const time = typeof value === "string" && (DAY.test(value) || MOMENT.test(value)) ? Date.parse(value) : NaN;
      return Number.isNaN(time) ? plain(value) : made.format(time);
    };
  };
  try {
    if (format === "currency") return number({ style: "currency", currency: currency || "EUR" });
    if (format === "percent") return number({ style: "percent", maximumFractionDigits: 1 });
    if (format === "number") return number({ maximumFractionDigits: 6 });
    if (format === "date") return moment({ dateStyle: "medium", timeZone: "UTC" });
    if (format === "datetime") return moment({ dateStyle: "medium", timeStyle: "short", timeZone: toolwire.context.timeZone });
  } catch {}
  return plain;
};
const plain = (value) => {
  if (value === null || value === undefined) return "";
  if (typeof value === "boolean") return value ? "Yes" : "No";
  const text = typeof value === "object" ? JSON.stringify(value) : `${value}`;
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
};

/** The start of a long text, and a button for the rest of it. */
const cut = (text) => {
  const part = h("span", {}, `${text.slice(0, LONG)}… `);
  const all = h("button", { type: "button", class: "all", onclick: () => part.parentNode.replaceChildren(text) }, "Show all");
  return [part, all];
};

/** A table of rows, with what sorts, filters and turns its pages. */
const makeTable = (rows, given, label) => {
  const columns = (given?.length ? given : columnsOf(rows)).map((column) => {
    const format = column.format || kindOf(column.name, rows);
    return { ...column, format, write: writer(format, column), isNumber: /^(number|currency|percent)$/.test(format) };
  });
  const collator = new Intl.Collator(locale(), { numeric: true, sensitivity: "base" });
  const written = new Map();
  const textOf = (row) => {
    if (!written.has(row)) written.set(row, columns.map(({ name, write }) => write(asRecord(row)[name])).join("\n").toLowerCase());
    return written.get(row);
  };
  const blank = (value) => value === null || value === undefined || value === "";
  const compare = (one, other) =>
    typeof one === "number" && typeof other === "number" ? one - other : collator.compare(plain(one), plain(other));
  let sorted = null, up = true, wanted = "", page = 0, kept = rows;

  const choose = () => {
    kept = wanted ? rows.filter((row) => textOf(row).includes(wanted)) : rows;
    if (!sorted) return;
    const { name } = sorted, sign = up ? 1 : -1;
    // Rows without a value come last, whichever way the others go.
    kept = [...kept].sort((a, b) => {
      const [one, other] = [asRecord(a)[name], asRecord(b)[name]];
      return blank(one) || blank(other) ? blank(one) - blank(other) : sign * compare(one, other);
    });
  };

  const head = h("tr", {}, columns.map((column) => {
    const mark = h("span", { class: "mark", "aria-hidden": "true" });
    const words = [h("span", { dir: "auto" }, titleOf(column)), mark];
    const button = h("button", { type: "button", onclick: () => sortBy(column) }, column.isNumber ? words.reverse() : words);
    Object.assign(column, { mark, cell: h("th", { scope: "col", class: column.isNumber && "number" }, button) });
    return column.cell;
  }));
  const body = h("tbody");
  const box = h("div", { class: "box", tabindex: 0, role: "region", "aria-label": label }, h("table", { class: "data" }, h("caption", { class: "sr" }, label), h("thead", {}, head), body));
  const count = h("span", { class: "quiet" }), where = h("span");
  const turn = (step) => (event) => {
    if (event.currentTarget.getAttribute("aria-disabled") === "true") return;
    page += step;
    draw();
    say(where.textContent);
  };
  const back = h("button", { type: "button", onclick: turn(-1) }, "Previous");
  const next = h("button", { type: "button", onclick: turn(1) }, "Next");
  const pages = h("nav", { class: "pages", "aria-label": `Pages of ${label}` }, where, h("div", {}, back, next));
  let timer;
  const filter = h("input", {
    type: "search", placeholder: "Filter", "aria-label": `Filter ${label}`, autocomplete: "off", spellcheck: "false",
    oninput: () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        [wanted, page] = [filter.value.trim().toLowerCase(), 0];
        choose();
        draw();
        say(wanted ? `${kept.length.toLocaleString(locale())} of ${plural(rows.length, "row")}` : plural(rows.length, "row"));
      }, 120);
    },
  });

  const sortBy = (column) => {
    up = sorted === column ? !up : true;
    [sorted, page] = [column, 0];
    for (const each of columns) {
      if (each === column) each.cell.setAttribute("aria-sort", up ? "ascending" : "descending");
      else each.cell.removeAttribute("aria-sort");
      each.mark.textContent = each === column ? (up ? " ↑ " : " ↓ ") : "";
    }
    choose();
    draw();
    say(`Sorted by ${titleOf(column)}, ${up ? "ascending" : "descending"}`);
  };
  const cell = (column, value, isFirst) => {
    const text = column.write(value);
    const inner = column.format === "link" ? link(text, text) : text.length > LONG ? cut(text) : text;
    // Short texts stay on one line, and a word without an end is broken.
    const shape = column.isNumber ? "number" : text.length < 25 ? "short" : /\S{25}/.test(text) ? "endless" : null;
    return h(isFirst ? "th" : "td", { class: shape, scope: isFirst && "row", dir: "auto" }, inner);
  };
  const draw = () => {
    const last = Math.max(0, Math.ceil(kept.length / PAGE) - 1);
    page = Math.min(Math.max(page, 0), last);
    const first = page * PAGE, shown = kept.slice(first, first + PAGE);
    body.replaceChildren(...shown.map((row) => h("tr", {}, columns.map((column, at) => cell(column, asRecord(row)[column.name], at === 0)))));
    if (!shown.length) body.append(h("tr", {}, h("td", { colspan: columns.length, class: "quiet" }, "No row has this text.")));
    count.textContent = kept.length === rows.length ? plural(rows.length, "row") : `${kept.length.toLocaleString(locale())} of ${plural(rows.length, "row")}`;
    where.textContent = `${(first + 1).toLocaleString(locale())}–${(first + shown.length).toLocaleString(locale())} of ${kept.length.toLocaleString(locale())}`;
    pages.hidden = last === 0;
    // A button that is disabled would lose the focus, and the keyboard its place.
    back.setAttribute("aria-disabled", page === 0);
    next.setAttribute("aria-disabled", page === last);
  };
  draw();
  return [rows.length > 10 ? h("div", { class: "tools" }, filter, count) : null, box, pages];
};
