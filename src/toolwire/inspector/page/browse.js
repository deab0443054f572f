// The lists of tools, resources, templates, prompts, skills and extensions, with a search over all of them.

import { h, icon, refresh, replace, tabList } from "./dom.js";
import { on, select, state } from "./store.js";
import { virtualList } from "./virtual.js";

const KINDS = [
  ["tools", "Tools", "tool"],
  ["resources", "Resources", "resource"],
  ["templates", "Templates", "template"],
  ["prompts", "Prompts", "prompt"],
  ["skills", "Skills", "skill"],
  ["extensions", "Extensions", "extension"],
];

// A name that is too long for its line is cut in the middle: many names begin alike.
const TAIL = 14;

function isParted(name) {
  return name.length > TAIL * 2;
}

function ends(name) {
  if (!isParted(name)) return name;
  return [h("span", { class: "head" }, name.slice(0, -TAIL)), h("span", { class: "tail" }, name.slice(-TAIL))];
}

const keyOf = ({ kind, key }) => `${kind} ${key}`;

export function browse(element) {
  let kind = "tools";
  let chosen = false;
  const tabs = tabList(
    "Kinds",
    "tab",
    KINDS.map(([name, label]) => [name, label]),
    choose,
  );
  const search = h("input", {
    type: "search",
    id: "search",
    placeholder: "Search",
    "aria-label": "Search by name, title or description",
    oninput: show,
    spellcheck: "false",
    autocomplete: "off",
  });
  const empty = h("div", { class: "nothing" });
  const list = virtualList({
    label: "Items",
    rowHeight: 54,
    draw: row,
    keyOf,
    onchoose: ({ kind, key }) => select({ kind, key }),
  });
  replace(
    element,
    tabs.element,
    h("div", { class: "search" }, icon("search"), search, h("kbd", { title: "Press / to search" }, "/")),
    empty,
    list.element,
  );

  search.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey) return;
    if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      list.focus();
    } else if (event.key === "Escape") {
      search.value = "";
      show();
    }
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, [contenteditable], dialog");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      search.focus();
      search.select();
    }
  });

  /** Lists the items of a kind that the search finds. An item knows its kind: the tab may change before its row does. */
  function matching(name) {
    // The lists of the earlier connection may be out of date.
    const items = state.connection.state === "connecting" ? [] : (state.catalogue[name]?.items ?? []);
    for (const item of items) item.kind = name;
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return items;
    return items.filter((item) => {
      const text = `${item.key} ${item.title ?? ""} ${item.description ?? ""}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
  }

  function row(item, element) {
    const symbol = item.icon
      ? h("img", { src: item.icon, alt: "", class: "item-icon" })
      : icon(KINDS.find(([name]) => name === item.kind)[2]);
    const hasAddress = item.kind === "resources" || item.kind === "templates";
    const warning = item.hints.includes("destructiveHint") ? "destructive" : item.refused ? "refused" : null;
    const hints = warning ? h("span", { class: "badge danger" }, warning) : null;
    const name = item.title ?? item.name ?? item.key;
    const second = hasAddress ? item.key : (item.description ?? (item.title ? item.key : ""));
    if (isParted(name)) {
      // A screen reader would read the two parts with a gap in the middle of a word.
      element.setAttribute(
        "aria-label",
        [name, warning, second].filter(Boolean).join(" ").slice(0, 400),
      );
    }
    element.append(
      symbol,
      h(
        "span",
        { class: "item" },
        h("span", { class: "item-name", title: name.slice(0, 400) }, ends(name.slice(0, 160)), hints),
        hasAddress
          ? h("span", { class: "item-text item-name", title: second.slice(0, 400) }, ends(second.slice(0, 160)))
          : h("span", { class: "item-text" }, second.slice(0, 160)),
      ),
    );
  }

  function show() {
    const found = Object.fromEntries(KINDS.map(([name]) => [name, matching(name)]));
    // Few servers have skills or other extensions. Their tabs are only there if the server has them.
    const isOffered = (name) => !["skills", "extensions"].includes(name) || state.catalogue[name]?.offered;
    tabs.show(kind, Object.fromEntries(KINDS.map(([name]) => [name, isOffered(name) ? found[name].length : null])));
    refresh(empty, message(state.catalogue[kind], found));
    empty.hidden = !empty.firstChild;
    list.show(found[kind]);
  }

  function message(listing, found) {
    const { state: status } = state.connection;
    if (state.lost || status === "failed" || status === "closed") return h("p", {}, "There is no connection.");
    if (!listing || status === "connecting") return h("p", {}, "Asking the server…");
    if (listing.error) return h("p", { class: "problem" }, listing.error.slice(0, 1000));
    if (!listing.offered) return h("p", {}, "The server does not offer these.");
    if (found[kind].length) return null;
    const kinds = KINDS.find(([name]) => name === kind)[1].toLowerCase();
    if (!search.value) return h("p", {}, `The server has no ${kinds}.`);
    const elsewhere = KINDS.filter(([name]) => found[name].length);
    return h(
      "p",
      {},
      `No ${kinds} match “${search.value.slice(0, 60)}”. `,
      elsewhere.map(([name, label]) =>
        h("button", { type: "button", class: "quiet", onclick: () => choose(name) }, `Look at ${label.toLowerCase()}`),
      ),
    );
  }

  function choose(name) {
    kind = name;
    chosen = true;
    show();
    if (state.selected?.kind === kind) list.mark(keyOf(state.selected));
  }

  on("catalogue", () => {
    // A server may have prompts and no tools. The first list that is not empty is shown, unless somebody has chosen one.
    const counts = KINDS.filter(([name]) => state.catalogue[name]?.items.length);
    if (!chosen && counts.length && !counts.some(([name]) => name === kind)) [[kind]] = counts;
    show();
  });
  on("connection", show);
  on("lost", show);
  on("selected", () => {
    if (state.selected && state.selected.kind !== kind && KINDS.some(([name]) => name === state.selected.kind)) {
      kind = state.selected.kind;
      show();
    }
    if (state.selected) list.mark(keyOf(state.selected));
  });
  show();
}
