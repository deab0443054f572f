// The tasks of the fleet that the server belongs to: those in the queue, those that are over, and the dead letters.

import { post } from "./api.js";
import { choices, duration, h, icon, iconButton, plural, refresh, replace, toast } from "./dom.js";
import { changed, state } from "./store.js";
import { tree } from "./values.js";
import { virtualList } from "./virtual.js";

const LOOK_MS = 5000;
const LISTS = [
  ["queue", "In the queue"],
  ["over", "Over"],
  ["dead", "Dead letters"],
];
const EMPTY = "No task is here.";
const LIVE = ["waiting", "running", "input_required", "working"];

/** Makes the panel of the drawer with the tasks. */
export function fleetPanel() {
  let which = "queue";
  let asked = 0;
  // The task beside the list: its id, the state that is shown, and whether the values of its arguments are.
  let shown = { id: null, state: null, withValues: false };
  const list = virtualList({
    label: "Tasks",
    empty: EMPTY,
    rowHeight: 34,
    keyOf: (task) => task.id,
    draw: row,
    onchoose: (task) => open(task.id, false),
  });
  const lists = choices("Which tasks", LISTS, which, (value) => {
    which = value;
    look();
  });
  const numbers = h("ul", { class: "fleet-numbers", "aria-label": "Tasks by tool" });
  const problem = h("p", { class: "problem", hidden: true });
  const side = h("div", { class: "side" });

  function row(task, element) {
    element.classList.add("call-row", "fleet-row");
    element.append(
      h("span", { class: `state ${task.state}` }, task.state),
      h("span", { class: "method" }, task.tool),
      h("span", { class: "note-text" }, task.holder ? `by ${task.holder}` : task.message ?? ""),
      h("span", { class: "figure" }, `owner ${task.owner.slice(0, 12)}`),
      h("span", { class: "figure" }, `attempt ${task.attempt}`),
      h("span", { class: "figure" }, duration(task.age)),
    );
  }

  async function look() {
    asked += 1;
    const number = asked;
    try {
      const found = await post("tasks", { which });
      if (number !== asked) return; // Another list was chosen meanwhile.
      state.fleet = found;
      problem.hidden = true;
      changed("fleet");
      follow(found.tasks);
    } catch (error) {
      if (number === asked) {
        replace(problem, icon("alert"), error.message);
        problem.hidden = false;
      }
    }
  }

  /** Describes the task that is shown again when it is in another state now. */
  function follow(tasks) {
    const now = tasks.find((task) => task.id === shown.id);
    const isOther = now ? now.state !== shown.state : LIVE.includes(shown.state) && which === "queue";
    if (shown.id && isOther) open(shown.id, shown.withValues);
  }

  async function open(id, withValues) {
    const wanted = { id, state: null, withValues };
    shown = wanted;
    try {
      const task = await post("task", { id, arguments: withValues });
      if (shown === wanted) describe(task, withValues);
    } catch (error) {
      if (shown === wanted) replace(side, h("p", { class: "problem" }, icon("alert"), error.message));
    }
  }

  function describe(task, withValues) {
    shown.state = task.state;
    const { why, ...details } = task;
    replace(
      side,
      h(
        "div",
        { class: "side-head" },
        h("strong", {}, task.id),
        h("span", { class: `state ${task.state}` }, task.state),
        h("span", { class: "spring" }),
        task.arguments && !withValues ? button("key", "Show arguments", () => open(task.id, true)) : null,
        LIVE.includes(task.state) ? button("stop", "Cancel the task", () => act("cancelTask", task.id)) : null,
        task.isDeadLetter ? button("refresh", "Send again", () => act("sendAgain", task.id)) : null,
      ),
      why ? h("p", { class: "advice" }, why) : null,
      tree(details, 2),
    );
  }

  function button(symbol, label, onclick) {
    return h("button", { type: "button", class: "quiet", onclick }, icon(symbol), label);
  }

  async function act(operation, id) {
    try {
      const answer = await post(operation, { id });
      const isNew = answer.id !== id;
      toast(isNew ? `Sent again as ${answer.id}` : "The task is cancelled");
      await open(answer.id, false);
    } catch (error) {
      toast(error.message, "error");
    }
    look();
  }

  function show() {
    const { tasks, tools, isCut, replicas, letters } = state.fleet;
    list.show(tasks);
    refresh(
      numbers,
      tools.map(({ tool, queued, running }) =>
        h("li", {}, h("span", { class: "method" }, tool), ` ${queued} queued, ${running} running`),
      ),
      h("li", {}, `${plural(letters, "dead letter")}, ${plural(replicas, "replica")}`),
      isCut ? h("li", {}, `only the first ${plural(tasks.length, "task")} are shown`) : null,
    );
  }

  const element = h(
    "div",
    { class: "wire" },
    h(
      "div",
      { class: "wire-tools" },
      lists,
      numbers,
      h("span", { class: "spring" }),
      iconButton("refresh", "Look at the tasks again", look),
    ),
    problem,
    h("div", { class: "split" }, list.element, side),
  );
  // A look reads the whole queue, so nobody looks while the panel is out of sight, and less often where it takes long.
  async function lookAgain() {
    const began = performance.now();
    if (element.isConnected && !document.hidden) await look();
    setTimeout(lookAgain, Math.max(LOOK_MS, 20 * (performance.now() - began)));
  }
  setTimeout(lookAgain, LOOK_MS);
  return { element, show, opened: look };
}
