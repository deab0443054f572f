// Saved requests: beside the form that they belong to, and all of them in the drawer.

import { post } from "./api.js";
import { clock, h, icon, iconButton, refresh, replace, toast } from "./dom.js";
import { nextId } from "./editors.js";
import { apply, on, select, state } from "./store.js";
import { tree } from "./values.js";
import { virtualList } from "./virtual.js";

async function change(operation, asked) {
  try {
    const { requests } = await post(operation, asked);
    apply({ type: "saved", requests });
    return true;
  } catch (error) {
    toast(error.message, "error");
    return false;
  }
}

function remove({ name, kind, key }) {
  return change("unsave", { name, kind, key });
}

// Tells one opening of a saved request from the next.
let openings = 0;

/** Opens the form that a request belongs to, and fills it in. */
function open({ kind, key, params }) {
  openings += 1;
  select({ kind, key, params, opening: openings });
}

/** Makes the list of the requests that were saved for an item, and a field to save what stands in its form. */
export function savedBeside({ kind, key }, values) {
  const id = nextId();
  const name = h("input", { id, type: "text", maxlength: 100, autocomplete: "off", spellcheck: "false" });
  const list = h("ul", { class: "saved-list", "aria-label": "Saved requests for this" });
  const count = h("span", { class: "count" });
  async function save() {
    if (!name.value.trim()) return name.focus();
    if (await change("save", { name: name.value, kind, key, params: values() })) {
      toast(`Saved as ${name.value.trim().slice(0, 100)}`);
      name.value = "";
    }
  }
  name.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    save();
  });
  function draw() {
    const own = state.saved.filter((each) => each.kind === kind && each.key === key);
    count.textContent = own.length || "";
    refresh(list, own.map(line));
    list.hidden = !own.length;
  }
  function line(request) {
    return h(
      "li",
      {},
      h("button", { type: "button", class: "quiet", title: "Fill it in", onclick: () => open(request) }, request.name),
      iconButton("close", `Remove the saved request ${request.name}`, () => remove(request), {
        class: "icon-button small",
      }),
    );
  }
  const element = h(
    "details",
    { class: "saved" },
    h("summary", {}, "Saved requests ", count),
    list,
    h(
      "div",
      { class: "field" },
      h("label", { for: id }, h("span", { class: "name" }, "Save this request as")),
      h("div", { class: "row" }, name, h("button", { type: "button", onclick: save }, icon("bookmark"), "Save")),
    ),
  );
  const off = on("saved", () => (element.isConnected ? draw() : off()));
  draw();
  return element;
}

/** Makes the panel of the drawer with all saved requests. */
export function savedPanel() {
  const list = virtualList({
    label: "Saved requests",
    empty: "Requests that you save beside a form appear here. They are kept for this server.",
    rowHeight: 34,
    keyOf: ({ kind, key, name }) => JSON.stringify([kind, key, name]),
    draw: row,
    onchoose: show,
  });
  const side = h("div", { class: "side" });
  function row(request, element) {
    element.classList.add("call-row");
    element.append(
      icon("bookmark"),
      h("span", {}, request.name),
      h("span", { class: "method" }, request.kind),
      h("span", { class: "note-text" }, request.key.slice(0, 200)),
    );
  }
  function show(request) {
    replace(
      side,
      h(
        "div",
        { class: "side-head" },
        h("strong", {}, request.name),
        h("span", { class: "figure" }, clock(request.saved)),
        h("span", { class: "spring" }),
        h("button", { type: "button", class: "quiet", onclick: () => open(request) }, icon("play"), "Open"),
        h(
          "button",
          {
            type: "button",
            class: "quiet",
            onclick: async () => {
              if (await remove(request)) replace(side);
            },
          },
          icon("close"),
          "Remove",
        ),
      ),
      tree(request.params, 3),
    );
  }
  return { element: h("div", { class: "split" }, list.element, side), show: () => list.show(state.saved) };
}
