// The thing that is selected: what it says about itself, a form to use it, and what came of it.

import { post } from "./api.js";
import { callView } from "./callview.js";
import { bytes, h, icon, iconButton, replace, toast } from "./dom.js";
import { schemaForm, submitOnEnter, textForm } from "./form.js";
import { looksLikeMarkdown, markdown } from "./markdown.js";
import { on, select, state } from "./store.js";
import { tree } from "./values.js";
import { expand, variables } from "./template.js";

export function detail(element) {
  let showing = "";
  let drawn = "";

  async function show() {
    const item = state.selected;
    if (!item) {
      showing = "";
      return replace(element, welcome());
    }
    const key = `${item.kind} ${item.key} ${item.call ?? ""}`;
    const isNew = key !== showing;
    showing = key;
    const found = await definitionOf(item);
    const text = JSON.stringify(found);
    // What was typed into a form is kept when the definition is still the same.
    if (showing !== key || (!isNew && text === drawn)) return;
    drawn = text;
    if (found.error) return replace(element, back(), h("p", { class: "problem pad" }, found.error));
    draw(item, found, isNew);
  }

  function draw(item, found, isNew) {
    const outcome = (isNew ? null : element.querySelector(".outcome")) ?? h("div", { class: "outcome" });
    const view = { tools: tool, resources: resource, templates: template, prompts: prompt }[item.kind](
      found.definition,
      outcome,
      item,
    );
    if (item.call) watch(item.call, outcome);
    replace(element, h("article", { class: "detail" }, back(), heading(item, found), view, outcome, definition(found)));
    if (isNew) {
      element.scrollTop = 0;
      if (matchMedia("(max-width: 760px)").matches) element.focus();
    }
  }

  on("selected", show);
  on("catalogue", show);
  on("connection", () => {
    if (!state.selected) replace(element, welcome());
  });
  show();
}

async function definitionOf(item) {
  try {
    return await post("definition", { kind: item.kind, key: item.key });
  } catch (error) {
    // A resource that is only known by a link can be read without being listed.
    if (item.kind === "resources") return { definition: { uri: item.key, name: item.key }, cut: [], size: 0 };
    return { error: error.message };
  }
}

function back() {
  return iconButton("back", "Back to the list", () => select(null), { class: "icon-button back" });
}

function welcome() {
  const { server, instructions, state: status, problem } = state.connection;
  if (status === "failed")
    return h(
      "div",
      { class: "welcome" },
      h("h2", {}, "No connection"),
      h("p", { class: "problem" }, icon("alert"), problem),
      h(
        "button",
        { type: "button", class: "primary", onclick: () => post("connect", { revision: state.connection.wanted }) },
        "Try again",
      ),
    );
  return h(
    "div",
    { class: "welcome" },
    h("h2", {}, server ? String(server.title ?? server.name).slice(0, 200) : "Connecting…"),
    server?.description ? h("p", {}, String(server.description).slice(0, 1000)) : null,
    instructions
      ? h("section", { class: "instructions" }, h("h3", {}, "Instructions for models"), markdown(instructions))
      : null,
    h(
      "p",
      { class: "hint" },
      "Choose something from the list. Press ",
      h("kbd", {}, "/"),
      " to search, ",
      h("kbd", {}, "Ctrl"),
      " ",
      h("kbd", {}, "Enter"),
      " to run.",
    ),
  );
}

function heading(item, { definition, size }) {
  const annotations =
    typeof definition.annotations === "object" && definition.annotations !== null ? definition.annotations : {};
  const hints = [
    ["readOnlyHint", "read-only"],
    ["destructiveHint", "destructive"],
    ["idempotentHint", "idempotent"],
    ["openWorldHint", "open world"],
  ].filter(([name]) => annotations[name] === true);
  const title = definition.title ?? annotations.title;
  const description = typeof definition.description === "string" ? definition.description : "";
  const facts = [definition.mimeType, typeof definition.size === "number" ? bytes(definition.size) : null].filter(
    Boolean,
  );
  return h(
    "header",
    { class: "detail-head" },
    h("h2", {}, String(title ?? definition.name ?? item.key).slice(0, 300)),
    h(
      "div",
      { class: "line" },
      title || item.key !== definition.name ? h("code", { class: "identifier" }, item.key.slice(0, 1000)) : null,
      hints.map(([name, label]) => h("span", { class: name === "destructiveHint" ? "badge danger" : "badge" }, label)),
      facts.map((fact) => h("span", { class: "badge" }, String(fact).slice(0, 100))),
      size
        ? h(
            "span",
            { class: "weight", title: "Size of the definition, and about how many tokens a model reads for it" },
            `${bytes(size)}, ~${Math.ceil(size / 4)} tokens`,
          )
        : null,
    ),
    description
      ? h(
          "div",
          { class: "description" },
          looksLikeMarkdown(description)
            ? markdown(description.slice(0, 20_000))
            : h("p", { class: "plain" }, description.slice(0, 20_000)),
        )
      : null,
  );
}

function definition({ definition, cut }) {
  return h(
    "details",
    { class: "again" },
    h("summary", {}, "Definition"),
    tree(definition, 1),
    cut.length ? h("p", { class: "hint" }, "It is too large to show in full; the wire log has all of it.") : null,
  );
}

/** A form that sends a request when it is submitted, and shows what comes of it. */
function runner(label, fields, outcome, request) {
  async function submit(event) {
    event.preventDefault();
    let body;
    try {
      body = request();
    } catch {
      return; // The form says what is wrong with it.
    }
    await send(body.method, body.params, outcome);
  }
  const actions = h(
    "div",
    { class: "actions" },
    h("button", { type: "submit", class: "primary" }, icon("play"), label),
    h("kbd", { class: "shortcut" }, "Ctrl Enter"),
  );
  return h(
    "form",
    { class: "run", novalidate: true, onsubmit: submit, onkeydown: submitOnEnter },
    fields?.element ?? null,
    actions,
  );
}

function watch(id, outcome) {
  callView(outcome, id, { read: (uri) => select({ kind: "resources", key: uri }) });
}

async function send(method, params, outcome) {
  try {
    const { call } = await post("call", { method, params });
    watch(call.id, outcome);
    outcome.scrollIntoView({ block: "nearest", behavior: "smooth" });
  } catch (error) {
    toast(error.message, "error");
  }
}

function tool(definition, outcome) {
  const fields = schemaForm(definition.inputSchema, "Arguments");
  const wish = taskWish(definition);
  const form = runner("Run", fields, outcome, () => ({
    method: "tools/call",
    params: { name: definition.name, arguments: fields.get(), task: wish?.isOn() ?? false },
  }));
  if (wish) form.insertBefore(wish.element, form.lastChild);
  return form;
}

/** On 2025-11-25 the client says whether a call becomes a task, where the tool leaves it open. */
function taskWish(definition) {
  const support = definition.execution?.taskSupport;
  if (support === "required") return { element: h("p", { class: "hint" }, "Runs as a task."), isOn: () => true };
  if (support !== "optional" || !state.connection.capabilities?.tasks) return null;
  const box = h("input", { type: "checkbox", id: "as-task" });
  return { element: h("label", { class: "tick" }, box, "Run as a task"), isOn: () => box.checked };
}

function prompt(definition, outcome) {
  const names = (Array.isArray(definition.arguments) ? definition.arguments : []).filter(
    (each) => typeof each?.name === "string",
  );
  const fields = textForm(names, "Arguments", suggestions({ prompt: definition.name }));
  return runner("Get", fields, outcome, () => ({
    method: "prompts/get",
    params: { name: definition.name, arguments: fields.get() },
  }));
}

function template(definition, outcome) {
  const names = variables(definition.uriTemplate).map((name) => ({ name }));
  const fields = textForm(names, "Variables", suggestions({ template: definition.uriTemplate }));
  const preview = h("code", { class: "preview" });
  const update = () => {
    preview.textContent = expand(definition.uriTemplate, fields.get());
  };
  const form = runner("Read", fields, outcome, () => ({
    method: "resources/read",
    params: { uri: expand(definition.uriTemplate, fields.get()) },
  }));
  form.addEventListener("input", update);
  update();
  form.insertBefore(h("p", { class: "hint" }, "Reads ", preview), form.lastChild);
  return form;
}

function resource(definition, outcome, item) {
  const form = runner("Read", null, outcome, () => ({ method: "resources/read", params: { uri: item.key } }));
  const can = state.connection.capabilities?.resources?.subscribe;
  if (can) form.querySelector(".actions").append(h("span", { class: "spring" }), watchButton(item.key, outcome));
  if (!item.call) send("resources/read", { uri: item.key }, outcome);
  return form;
}

function watchButton(uri, outcome) {
  const button = h("button", { type: "button", class: "quiet toggle", onclick: toggle });
  const isOn = () => state.connection.subscriptions.includes(uri);
  function draw() {
    button.setAttribute("aria-pressed", String(isOn()));
    replace(button, icon("bell"), isOn() ? "Watching" : "Watch");
  }
  async function toggle() {
    button.disabled = true;
    try {
      await post("subscribe", { uri, on: !isOn() });
    } catch (error) {
      toast(error.message, "error");
    }
    button.disabled = false;
  }
  const offs = [
    on("connection", () => (button.isConnected ? draw() : stop())),
    on("notes", (notes) => {
      if (!button.isConnected) return stop();
      if (notes.some((note) => note?.kind === "updated" && note.uri === uri)) send("resources/read", { uri }, outcome);
    }),
  ];
  function stop() {
    for (const off of offs) off();
  }
  draw();
  return button;
}

/** How a form asks the server for suggestions; null for a server that has none. */
function suggestions(reference) {
  if (!state.connection.capabilities?.completions) return null;
  return async (argument, value, context, signal) =>
    (await post("complete", { ...reference, argument, value, context }, signal)).values;
}
