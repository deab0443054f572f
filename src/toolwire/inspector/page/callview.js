// One call while it runs and when it is over: progress, cancelling, the result, how long it took and how large it was.

import { post } from "./api.js";
import { cutNote, drawResult } from "./content.js";
import { bytes, duration, h, icon, replace, toast } from "./dom.js";
import { on, state } from "./store.js";
import { tree } from "./values.js";

/** Draws the call with this id into an element, now and whenever something happens to it. */
export function callView(element, id, { read, again }) {
  let drawn = null;
  let shown = null;
  let ticking = 0;
  const head = h("div", { class: "call-head", role: "status", "aria-live": "polite" });
  const body = h("div", { class: "call-body" });
  replace(element, head, body);

  function update() {
    const call = state.calls.get(id);
    if (!call) return;
    const said = JSON.stringify([call.state, call.failed, call.size, call.took, call.task?.id, call.task?.status]);
    if (said !== shown) {
      // Only when it changes: a button that is made anew with every report of progress cannot be pressed.
      shown = said;
      clearInterval(ticking);
      replace(head, summary(call, again));
      if (call.state === "running") {
        ticking = setInterval(() => {
          if (!head.isConnected) return clearInterval(ticking);
          head.querySelector(".elapsed").textContent = duration(sofar(call));
        }, 200);
      }
    }
    if (call.state === "running") {
      replace(body, progress(call));
    } else if (drawn !== call.state) {
      drawn = call.state;
      show(call);
    }
  }

  async function show(call) {
    if (call.state === "cancelled") return replace(body, h("p", { class: "hint" }, "Cancelled. The server was told."));
    if (call.state === "failed") return replace(body, failure(call.error));
    try {
      const { result, cut } = await post("result", { call: id });
      const place = { call: id, cut, read };
      const deeper = cut.filter(
        (each) =>
          !/^\/(content|contents|messages)\/\d+\//.test(each.pointer) && !each.pointer.startsWith("/structuredContent"),
      );
      replace(
        body,
        h(
          "div",
          { class: result.isError === true ? "result failed" : "result" },
          call.problems.length
            ? h(
                "div",
                { class: "warning", role: "alert" },
                h("strong", {}, "The result does not fit the tool's output schema."),
                h(
                  "ul",
                  {},
                  call.problems.slice(0, 20).map((each) => h("li", {}, each.slice(0, 500))),
                ),
              )
            : null,
          drawResult(call.method, result, place),
          deeper.slice(0, 5).map((each) => cutNote(each, place)),
          h("details", { class: "again" }, h("summary", {}, "Everything the server answered"), tree(result, 1)),
        ),
      );
    } catch (error) {
      replace(body, h("p", { class: "problem" }, error.message));
    }
  }

  const off = on("calls", (ids) => {
    // Another call is shown there now, or nobody looks.
    if (!element.isConnected || !head.isConnected) return off();
    if (ids.includes(id) || ids.includes(undefined)) update();
  });
  update();
}

function sofar(call) {
  return Math.max(0, Date.now() / 1000 - call.started);
}

function summary(call, again) {
  const word = call.failed
    ? "Tool failed"
    : { running: "Running", done: "Done", failed: "Failed", cancelled: "Cancelled" }[call.state];
  const cancel = () => post("cancel", { call: call.id }).catch((error) => toast(error.message, "error"));
  return [
    h("span", { class: `state ${call.failed ? "failed" : call.state}` }, word),
    h("span", { class: "elapsed" }, duration(call.state === "running" ? sofar(call) : call.took)),
    call.size === null ? null : h("span", { class: "size" }, bytes(call.size)),
    call.task ? taskState(call.task) : null,
    h("span", { class: "spring" }),
    call.state === "running"
      ? h("button", { type: "button", class: "danger", onclick: cancel }, icon("stop"), "Cancel")
      : h(
          "button",
          { type: "button", class: "quiet", onclick: again, title: "Send the same once more" },
          icon("refresh"),
          "Run again",
        ),
  ];
}

/** A call that goes on as a task: what it is doing, in the words of the protocol. */
function taskState(task) {
  const words = {
    working: "working",
    input_required: "waits for an answer",
    completed: "completed",
    failed: "failed",
    cancelled: "cancelled",
  };
  return h(
    "span",
    { class: "badge", title: `Task ${String(task.id).slice(0, 200)}` },
    `task: ${words[task.status] ?? String(task.status).slice(0, 40)}`,
  );
}

function progress(call) {
  const report = call.progress;
  if (!report && call.task?.message)
    return h(
      "div",
      { class: "progress" },
      h("progress", { "aria-label": "Running" }),
      h("p", { class: "hint" }, String(call.task.message).slice(0, 500)),
    );
  if (!report) return h("div", { class: "progress" }, h("progress", { "aria-label": "Running" }));
  const total = typeof report.total === "number" && report.total > 0 ? report.total : null;
  const bar = total
    ? h("progress", { max: total, value: Math.min(report.progress, total), "aria-label": "Progress" })
    : h("progress", { "aria-label": "Progress" });
  const figure = total ? `${Math.round((100 * report.progress) / total)} %` : String(report.progress);
  return h(
    "div",
    { class: "progress" },
    bar,
    h(
      "div",
      { class: "progress-text" },
      h("span", {}, String(report.message ?? "").slice(0, 500)),
      h("span", { class: "spring" }),
      h("span", {}, figure),
    ),
  );
}

function failure(error) {
  return h(
    "div",
    { class: "result failed" },
    h("p", { class: "problem" }, icon("alert"), error.message.slice(0, 5000)),
    error.code === undefined
      ? error.kind
        ? h("p", { class: "hint" }, error.kind)
        : null
      : h("p", { class: "hint" }, `JSON-RPC error ${error.code}`),
    error.data === null || error.data === undefined ? null : tree(error.data, 1),
  );
}
