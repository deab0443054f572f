// Functions that make elements. Text stays text: nothing in this page parses markup.

const SVG = "http://www.w3.org/2000/svg";

/** Makes an element with attributes, listeners (`onclick`), properties (`.value`) and children. */
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith(".")) element[name.slice(1)] = value;
    else if (name === "class") element.className = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Replaces the children unless they look the same. An element that stays can be pressed while others are drawn. */
export function refresh(element, ...children) {
  const next = h("div", {}, children);
  const before = element.childNodes;
  const isSame =
    before.length === next.childNodes.length &&
    [...next.childNodes].every((child, index) => child.isEqualNode(before[index]));
  if (!isSame) element.replaceChildren(...next.childNodes);
  return !isSame;
}

const PATHS = {
  tool: "M14.5 5.5a4 4 0 0 0-5.2 5.2L4 16l4 4 5.3-5.3a4 4 0 0 0 5.2-5.2L16 12l-3-1-1-3z",
  resource: "M7 3h7l5 5v13H7zM14 3v5h5",
  template: "M7 3h7l5 5v13H7zM10 13h6M10 17h4",
  prompt: "M4 5h16v11H9l-5 4z",
  skill: "M4 6c3-1.5 6-1.5 8 0 2-1.5 5-1.5 8 0v13c-3-1.5-6-1.5-8 0-2-1.5-5-1.5-8 0zM12 6v13",
  extension: "M9 4h6v4h5v6h-4v6H8v-6H4V8h5z",
  search: "M10.5 4a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13M15.5 15.5 20 20",
  back: "M15 5l-7 7 7 7",
  close: "M6 6l12 12M18 6 6 18",
  plus: "M12 5v14M5 12h14",
  up: "M6 15l6-6 6 6",
  down: "M6 9l6 6 6-6",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  refresh: "M20 11a8 8 0 1 0-2.3 6.3M20 5v6h-6",
  settings: "M4 7h10M18 7h2M4 17h2M10 17h10M16 5v4M8 15v4",
  theme: "M12 4a8 8 0 1 0 8 8 6 6 0 0 1-8-8z",
  play: "M7 5l12 7-12 7z",
  stop: "M7 7h10v10H7z",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  link: "M9 15l6-6M10 6l1-1a5 5 0 0 1 7 7l-1 1M14 18l-1 1a5 5 0 0 1-7-7l1-1",
  bell: "M6 16V11a6 6 0 0 1 12 0v5l2 2H4zM10 21h4",
  terminal: "M4 5h16v14H4zM7 9l3 3-3 3M12 15h5",
  wire: "M4 8h5a4 4 0 0 1 4 4 4 4 0 0 0 4 4h3M17 13l3 3-3 3",
  bookmark: "M7 4h10v16l-5-4-5 4z",
  key: "M14 10a4 4 0 1 0-4 4l2-.5V16h2v2h3v-3l-3.5-3.5z",
  task: "M5 6h14M5 12h14M5 18h8",
  app: "M4 5h16v14H4zM4 9h16M7 7h.5",
  alert: "M12 4 2.5 20h19zM12 10v4M12 17v.5",
};

/** Makes a line drawing. Screen readers skip it: the text beside it says the same. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

/** Makes a button with a drawing and no text; `label` is its name. */
export function iconButton(name, label, onclick, attributes) {
  return h(
    "button",
    { type: "button", class: "icon-button", "aria-label": label, title: label, onclick, ...attributes },
    icon(name),
  );
}

/** Makes a row of choices of which one is on; the arrow keys move between them. */
export function choices(label, options, chosen, onchoose) {
  const group = h("div", { class: "choices", role: "radiogroup", "aria-label": label });
  const buttons = options.map(([value, text]) =>
    h("button", { type: "button", role: "radio", onclick: () => choose(value) }, text),
  );
  function choose(value, quiet) {
    options.forEach(([each], index) => {
      buttons[index].setAttribute("aria-checked", String(each === value));
      buttons[index].tabIndex = each === value ? 0 : -1;
    });
    if (!quiet) onchoose(value);
  }
  group.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = (buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length;
    buttons[at].focus();
    choose(options[at][0]);
  });
  choose(chosen, true);
  append(group, buttons);
  group.choose = (value) => choose(value, true);
  return group;
}

/** Makes a row of tabs: `options` are `[name, label, icon]`. The arrow keys move between them.
 *
 * The buttons are made once and stay. A button that is replaced while somebody presses it gets no click. */
export function tabList(label, prefix, options, onchoose) {
  const counts = new Map();
  const buttons = new Map();
  for (const [name, text, symbol] of options) {
    counts.set(name, h("span", { class: "count" }));
    const attributes = { type: "button", role: "tab", id: `${prefix}-${name}`, onclick: () => onchoose(name) };
    buttons.set(name, h("button", attributes, symbol ? icon(symbol) : null, text, counts.get(name)));
  }
  const element = h("div", { class: "tabs", role: "tablist", "aria-label": label }, [...buttons.values()]);
  element.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const names = [...buttons.keys()].filter((name) => !buttons.get(name).hidden);
    const at = names.findIndex((name) => buttons.get(name) === document.activeElement);
    const next = names[(at + step + names.length) % names.length];
    buttons.get(next).focus();
    onchoose(next);
  });
  return {
    element,
    /** Shows which tab is current, whether its panel is open, and how many things each tab has.
     *
     * A tab without a number is not shown. */
    show(current, numbers, isOpen = true) {
      for (const [name, button] of buttons) {
        button.setAttribute("aria-selected", String(isOpen && name === current));
        button.tabIndex = name === current ? 0 : -1;
        button.hidden = numbers[name] === null;
        counts.get(name).textContent = (numbers[name] ?? 0).toLocaleString("en");
      }
    },
  };
}

export function toast(text, kind = "info") {
  const note = h("div", { class: `toast ${kind}`, role: "status" }, text);
  // While a dialog is open, screen readers ignore the rest of the page.
  (document.querySelector("dialog[open]") ?? document.getElementById("toasts")).append(note);
  setTimeout(() => note.remove(), kind === "error" ? 8000 : 3500);
}

export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    toast(`${what} copied`);
  } catch {
    const area = h("textarea", { class: "offscreen", ".value": text });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    toast(done ? `${what} copied` : "The browser does not allow copying", done ? "info" : "error");
  }
}

export function save(name, text, type = "text/plain") {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// --- Numbers for people ---

export function bytes(size) {
  if (size === null || size === undefined) return "";
  if (size < 1000) return `${size} B`;
  if (size < 1_000_000) return `${(size / 1000).toFixed(size < 10_000 ? 1 : 0)} kB`;
  return `${(size / 1_000_000).toFixed(1)} MB`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 0.001) return "<1 ms";
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  return seconds < 60 ? `${seconds.toFixed(1)} s` : `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

export function clock(at) {
  const date = new Date(at * 1000);
  const two = (number) => String(number).padStart(2, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

export function plural(count, one, many = `${one}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

// Characters that are not seen, look like a space, or change the order of those around them. printable.py has the same.
const INVISIBLE = /(?![ \t\n])[\p{C}\p{Z}\p{DI}\u2800\ufffc\u{13441}\u{13442}\u{16fe4}\u{1d159}]/gu;

/** Writes invisible characters by their numbers, so that a person sees what a program gets. */
export function plainText(text) {
  return String(text).replace(INVISIBLE, (char) => `\\u{${char.codePointAt(0).toString(16)}}`);
}
