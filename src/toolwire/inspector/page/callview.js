// The view of one call: its progress, a button to cancel it, its result, the time it took and the size of its answer.

import { post } from "./api.js";
import { cutNote, drawResult } from "./content.js";
import { bytes, duration, h, icon, refresh, replace, toast } from "./dom.js";
import { on, state } from "./store.js";
import { tree } from "./values.js";
import { viewPanel } from "./views.js";

// The panel of the view that stands in an element now.
const panels = new WeakMap();

/** Draws the call with this id into an element, now and whenever it changes.
 *
 * The buttons and the bar are made once. A button that is replaced with every report of progress cannot be pressed, and
 * screen readers read it anew. */
export function callView(element, id, { read, again, hasView }) {
  let drawn = null;
  let ticking = 0;
  const facts = h("span", { class: "facts", role: "status" });
  // Outside of the part that screen readers announce: it changes five times a second.
  const elapsed = h("span", { class: "elapsed" });
  const cancel = h("button", { type: "button", class: "danger", onclick: stop }, icon("stop"), "Cancel");
  const repeat = h(
    "button",
    { type: "button", class: "quiet", onclick: again, title: "Send the same once more" },
    icon("refresh"),
    "Run again",
  );
  const head = h(
    "div",
    { class: "call-head", tabindex: -1 },
    facts,
    elapsed,
    h("span", { class: "spring" }),
    cancel,
    repeat,
  );
  const running = progress();
  const body = h("div", { class: "call-body" }, running.element);
  panels.get(element)?.close();
  const panel = hasView ? viewPanel(id) : null;
  if (panel) panels.set(element, panel);
  else panels.delete(element);
  replace(element, head, panel?.element, body);

  function stop() {
    post("cancel", { call: id }).catch((error) => toast(error.message, "error"));
  }

  function update() {
    const call = state.calls.get(id);
    if (!call) return;
    const isRunning = call.state === "running";
    elapsed.textContent = duration(isRunning ? sofar(call) : call.took);
    refresh(facts, summary(call));
    // Somebody who wanted to cancel must not run it again by mistake.
    if (!isRunning && document.activeElement === cancel) head.focus();
    cancel.hidden = !isRunning;
    repeat.hidden = isRunning;
    clearInterval(ticking);
    if (isRunning) {
      ticking = setInterval(() => {
        if (!head.isConnected) return clearInterval(ticking);
        elapsed.textContent = duration(sofar(call));
      }, 200);
      running.show(call);
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
    // The element shows another call now, or is not in the page.
    if (!element.isConnected || !head.isConnected) return off();
    if (ids.includes(id) || ids.includes(undefined)) update();
  });
  update();
}

function sofar(call) {
  return Math.max(0, Date.now() / 1000 - call.started);
}

function summary(call) {
  const word = call.failed
    ? "Tool failed"
    : { running: "Running", done: "Done", failed: "Failed", cancelled: "Cancelled" }[call.state];
  return [
    h("span", { class: `state ${call.failed ? "failed" : call.state}` }, word),
    call.size === null ? null : h("span", { class: "size" }, bytes(call.size)),
    call.rounds > 1 ? roundState(call.rounds) : null,
    call.task ? taskState(call.task) : null,
  ];
}

/** Makes the badge of a call that was sent again with the answer to a question of the server. */
function roundState(round) {
  const why =
    "On 2026-07-28 an answer comes with the same request once more. A tool of Toolwire then runs again from the top: " +
    "ctx.step keeps a side effect before the question from happening twice.";
  return h("span", { class: "badge", title: why }, `ran again, round ${round}`);
}

/** Makes the badge of a call that goes on as a task, with the state of the task. */
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

/** Makes the progress bar of a call that runs, with the message of the server. */
function progress() {
  const bar = h("progress", { "aria-label": "Progress" });
  const said = h("span", {});
  const figure = h("span", {});
  return {
    element: h(
      "div",
      { class: "progress" },
      bar,
      h("div", { class: "progress-text" }, said, h("span", { class: "spring" }), figure),
    ),
    show({ progress: report, task }) {
      said.textContent = String((report ? report.message : task?.message) ?? "").slice(0, 500);
      if (!report) return;
      const total = typeof report.total === "number" && report.total > 0 ? report.total : null;
      if (total) {
        bar.max = total;
        bar.value = Math.min(report.progress, total);
      } else {
        bar.removeAttribute("value");
      }
      figure.textContent = total ? `${Math.round((100 * report.progress) / total)} %` : String(report.progress);
    },
  };
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
