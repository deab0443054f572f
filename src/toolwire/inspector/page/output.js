// The lines that a started server writes to standard error: what it prints, its log, and tracebacks.

import { clock, copy, h, iconButton, replace } from "./dom.js";
import { state } from "./store.js";
import { virtualList } from "./virtual.js";

/** Makes the panel of the drawer with the output of the server. */
export function outputPanel() {
  const list = virtualList({
    label: "Output of the server",
    empty: "What the server prints and logs, and the traceback of an error, appears here.",
    rowHeight: 22,
    keyOf: (line) => line.number,
    draw: row,
    onchoose: open,
    follow: true,
  });
  const side = h("div", { class: "side" });

  function row(line, element) {
    element.classList.add("output-row");
    element.append(h("time", {}, clock(line.at)), h("span", { class: "output-text" }, line.text));
  }

  // A line belongs to its neighbours: a traceback is shown whole.
  function open(line) {
    const at = state.output.findIndex((each) => each.number === line.number);
    const text = state.output
      .slice(Math.max(0, at - 50), at + 51)
      .map((each) => each.text)
      .join("\n");
    replace(
      side,
      h(
        "div",
        { class: "side-head" },
        h("strong", {}, clock(line.at)),
        iconButton("copy", "Copy these lines", () => copy(text, "Output")),
      ),
      h("pre", { class: "text" }, text),
    );
  }

  return { element: h("div", { class: "split" }, list.element, side), show: () => list.show(state.output ?? []) };
}
