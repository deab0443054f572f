// The lists of what the server offers, with a search over all of them.

import { h, icon, replace } from "./dom.js";
import { on, select, state } from "./store.js";
import { virtualList } from "./virtual.js";

const KINDS = [
  ["tools", "Tools", "tool"],
  ["resources", "Resources", "resource"],
  ["templates", "Templates", "template"],
  ["prompts", "Prompts", "prompt"],
];

// Of a name that is too long for its line the end stays, too: many names begin alike.
const TAIL = 14;

function isParted(name) {
  return name.length > TAIL * 2;
}

function ends(name) {
  if (!isParted(name)) return name;
  return [h("span", { class: "head" }, name.slice(0, -TAIL)), h("span", { class: "tail" }, name.slice(-TAIL))];
}

export function browse(element) {
  let kind = "tools";
  let chosen = false;
  const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Kinds" });
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
    keyOf: (item) => item.key,
    onchoose: (item) => select({ kind, key: item.key }),
  });
  replace(
    element,
    tabs,
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

  function matching(items) {
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
      : icon(KINDS.find(([name]) => name === kind)[2]);
    const hints = item.hints.includes("destructiveHint") ? h("span", { class: "badge danger" }, "destructive") : null;
    const name = item.title ?? item.name ?? item.key;
    const second =
      kind === "resources" || kind === "templates" ? item.key : (item.description ?? (item.title ? item.key : ""));
    if (isParted(name)) {
      // It would be read out with a gap in the middle of a word.
      element.setAttribute("aria-label", [name, hints && "destructive", second].filter(Boolean).join(" ").slice(0, 400));
    }
    element.append(
      symbol,
      h(
        "span",
        { class: "item" },
        h("span", { class: "item-name", title: name.slice(0, 400) }, ends(name.slice(0, 160)), hints),
        kind === "resources" || kind === "templates"
          ? h("span", { class: "item-text item-name", title: second.slice(0, 400) }, ends(second.slice(0, 160)))
          : h("span", { class: "item-text" }, second.slice(0, 160)),
      ),
    );
  }

  function show() {
    // What an earlier connection listed may not be there any more.
    const listed = state.connection.state === "connecting" ? {} : state.catalogue;
    const counts = Object.fromEntries(KINDS.map(([name]) => [name, matching(listed[name]?.items ?? [])]));
    replace(
      tabs,
      KINDS.map(([name, label]) =>
        h(
          "button",
          {
            type: "button",
            role: "tab",
            id: `tab-${name}`,
            "aria-selected": String(name === kind),
            tabindex: name === kind ? 0 : -1,
            onclick: () => choose(name),
          },
          label,
          h("span", { class: "count" }, counts[name].length.toLocaleString("en")),
        ),
      ),
    );
    const listing = state.catalogue[kind];
    replace(empty, message(listing, counts[kind]));
    empty.hidden = !empty.firstChild;
    list.show(counts[kind]);
  }

  function message(listing, items) {
    const { state: status } = state.connection;
    if (state.lost || status === "failed" || status === "closed") return h("p", {}, "There is no connection.");
    if (!listing || status === "connecting") return h("p", {}, "Asking the server…");
    if (listing.error) return h("p", { class: "problem" }, listing.error.slice(0, 1000));
    if (!listing.offered) return h("p", {}, "The server does not offer these.");
    if (items.length) return null;
    const kinds = KINDS.find(([name]) => name === kind)[1].toLowerCase();
    if (!search.value) return h("p", {}, `The server has no ${kinds}.`);
    const elsewhere = KINDS.filter(([name]) => matching(state.catalogue[name]?.items ?? []).length);
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
    document.getElementById(`tab-${name}`).focus();
    if (state.selected?.kind === kind) list.mark(state.selected.key);
  }

  tabs.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = KINDS.findIndex(([name]) => name === kind);
    choose(KINDS[(at + step + KINDS.length) % KINDS.length][0]);
  });

  on("catalogue", () => {
    // A server may have prompts and no tools; look at what there is, unless somebody has chosen.
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
    if (state.selected) list.mark(state.selected.key);
  });
  show();
}
