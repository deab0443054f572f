// The steps of signing in at the server, each with its request, its answer, the problem and the advice.

import { clock, h, icon, replace } from "./dom.js";
import { state } from "./store.js";
import { tree } from "./values.js";
import { virtualList } from "./virtual.js";

const STATES = { done: "done", failed: "failed", waiting: "waiting", absent: "not there" };

/** Makes the panel of the drawer with the steps. */
export function signInPanel() {
  let shown = null;
  const list = virtualList({
    label: "Steps of the sign-in",
    empty: "Nobody had to sign in.",
    rowHeight: 34,
    keyOf: (step) => step.number,
    draw: row,
    onchoose: open,
    follow: true,
  });
  const side = h("div", { class: "side" });

  function row(step, element) {
    element.classList.add("call-row", "step");
    const status = step.answer?.status;
    element.append(
      h("time", {}, clock(step.at)),
      h("span", { class: `state ${step.state}` }, STATES[step.state] ?? step.state),
      h("span", {}, step.name),
      h("span", { class: "note-text" }, (step.problem ?? step.request?.url ?? "").slice(0, 300)),
      h("span", { class: "figure" }, status === undefined ? "" : `HTTP ${status}`),
    );
  }

  function open(step) {
    shown = step;
    replace(
      side,
      h(
        "div",
        { class: "side-head" },
        h("strong", {}, step.name),
        h("span", { class: `state ${step.state}` }, STATES[step.state] ?? step.state),
      ),
      step.problem ? h("p", { class: "problem" }, icon("alert"), step.problem) : null,
      step.advice ? h("p", { class: "advice" }, step.advice) : null,
      step.request ? part("Request", step.request) : null,
      step.answer ? part("Answer", step.answer) : null,
    );
  }

  function show() {
    list.show(state.signIn);
    // The step that is open may have ended.
    const now = state.signIn.find((step) => step.number === shown?.number);
    if (now && now !== shown) open(now);
    else if (!now && shown) {
      shown = null;
      replace(side);
    }
  }
  return { element: h("div", { class: "split" }, list.element, side), show };
}

function part(title, value) {
  return h("section", { "aria-label": title }, h("h3", {}, title), tree(value, 3));
}
