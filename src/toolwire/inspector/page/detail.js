// The selected item: its description, a form to call it, and the result.

import { post } from "./api.js";
import { callView } from "./callview.js";
import { connectionForm } from "./connecting.js";
import { bytes, h, icon, iconButton, plural, refresh, replace, toast } from "./dom.js";
import { schemaForm, submitOnEnter, textForm } from "./form.js";
import { looksLikeMarkdown, markdown } from "./markdown.js";
import { changed, on, select, state } from "./store.js";
import { tree } from "./values.js";
import { expand, variables } from "./template.js";
import { savedBeside } from "./saved.js";
import { skill } from "./skills.js";

const MAX_FORMS = 30;

// The forms that somebody opened, with their results, by kind and key; the one used last is the last.
const forms = new Map();

export function detail(element) {
  let showing = "";
  let drawn = "";

  async function show() {
    const item = state.selected;
    if (!item) {
      showing = "";
      drawn = "";
      return welcomeAgain();
    }
    const key = `${item.kind} ${item.key} ${item.call ?? ""} ${item.opening ?? ""}`;
    const isNew = key !== showing;
    showing = key;
    const [found, sent] = await Promise.all([definitionOf(item), isNew ? paramsOf(item) : null]);
    const text = JSON.stringify(found);
    // The form keeps its input when the definition is the same.
    if (showing !== key || (!isNew && text === drawn)) return;
    drawn = text;
    if (found.error) return replace(element, back(), h("p", { class: "problem pad" }, found.error));
    draw(item, found, text, isNew, sent);
  }

  function draw(item, found, text, isNew, sent) {
    const form = formOf(item, found.definition, text);
    if (sent) form.fill?.(sent);
    if (item.call) form.outcome.dataset.call = item.call;
    form.outcome.dataset.view = found.view ? "yes" : "";
    const head = heading(item, found);
    const saved = form.values ? savedBeside(item, form.values) : null;
    replace(
      element,
      h("article", { class: "detail" }, back(), head, form.view, saved, form.outcome, definition(found)),
    );
    const { call } = form.outcome.dataset;
    if (state.calls.has(call)) watch(call, form.outcome);
    if (isNew) {
      element.scrollTop = 0;
      if (matchMedia("(max-width: 760px)").matches) element.focus();
    }
  }

  // Also when no field has the focus, or when the form has none.
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.defaultPrevented) return;
    if (document.querySelector("dialog[open]")) return;
    const form = element.querySelector("form.run");
    if (!form) return;
    event.preventDefault();
    form.requestSubmit();
  });

  on("selected", show);
  on("catalogue", show);
  for (const part of ["connection", "catalogue", "lost", "signIn"]) on(part, welcomeAgain);
  show();

  function welcomeAgain() {
    if (state.selected) return;
    const { server, state: status, problem, refused } = state.connection;
    const counts = Object.values(state.catalogue).map((listing) => listing.items.length);
    const gone = [state.lost?.status, state.lost === null];
    const text = JSON.stringify([server, status, problem, refused, gone, counts, state.signIn.at(-1)?.advice]);
    // Only when its text changes: somebody may be typing a token into it.
    if (text === drawn) return;
    drawn = text;
    replace(element, welcome());
  }
}

/** Finds the form of an item and its result as they were left; values survive a change of the definition, too. */
function formOf(item, definition, text) {
  const key = `${item.kind} ${item.key}`;
  const known = forms.get(key);
  forms.delete(key);
  // A resource has no fields, and is read when it is selected.
  if (known && known.text === text && item.kind !== "resources") {
    forms.set(key, known);
    return known;
  }
  const outcome = known?.outcome ?? h("div", { class: "outcome" });
  const make = { tools: tool, resources: resource, templates: template, prompts: prompt, skills: skill, extensions: extension }[item.kind];
  const form = { ...make(definition, outcome, item), outcome, text };
  if (known?.values) form.fill?.(still(known.values(), definition));
  forms.set(key, form);
  if (forms.size > MAX_FORMS) forms.delete(forms.keys().next().value);
  return form;
}

/** Drops the arguments that a tool does not have any more. */
function still(params, { inputSchema }) {
  if (!inputSchema) return params;
  const known = Object.entries(params.arguments).filter(([name]) => Object.hasOwn(inputSchema.properties ?? {}, name));
  return { ...params, arguments: Object.fromEntries(known) };
}

/** Finds the parameters for the form: those of a saved request, or those of a call. */
async function paramsOf({ call, params }) {
  if (!call) return params ?? null;
  try {
    return (await post("arguments", { call })).params;
  } catch {
    return null; // The inspector no longer has the call. The form stays as it is.
  }
}

async function definitionOf(item) {
  try {
    return await post("definition", { kind: item.kind, key: item.key });
  } catch (error) {
    // A resource that only a link names can be read although no list has it.
    if (item.kind === "resources") return { definition: { uri: item.key, name: item.key }, cut: [], size: 0 };
    return { error: error.message };
  }
}

function back() {
  return iconButton("back", "Back to the list", () => select(null), { class: "icon-button back" });
}

function welcome() {
  const { server, instructions, state: status, problem, refused, credentials } = state.connection;
  if (state.lost?.status === 401)
    return message("This page has no token", "Open the address that the inspector printed: it carries the token.");
  if (state.lost && !server) return message("The inspector has ended", null);
  if (status === "failed")
    return h(
      "div",
      { class: "welcome" },
      h("h2", {}, refused ? "The server wants credentials" : "No connection"),
      h("p", { class: "problem" }, icon("alert"), problem),
      signInAdvice(),
      connectionForm(refused && credentials ? "Connect" : "Try again"),
    );
  if (!server) return message("Connecting…", null);
  return h(
    "div",
    { class: "welcome" },
    h("h2", {}, String(server.title ?? server.name).slice(0, 200)),
    server.description ? h("p", {}, String(server.description).slice(0, 1000)) : null,
    instructions
      ? h("section", { class: "instructions" }, h("h3", {}, "Instructions for models"), markdown(instructions))
      : null,
    offers(),
  );
}

/** Says what to do after a sign-in that failed, and opens its steps. */
function signInAdvice() {
  const last = state.signIn.at(-1);
  if (!last) return null;
  return [
    last.advice ? h("p", {}, last.advice) : null,
    h(
      "button",
      { type: "button", onclick: () => changed("drawer", "signIn") },
      icon("key"),
      "See the steps of the sign-in",
    ),
  ];
}

function message(title, text) {
  return h("div", { class: "welcome" }, h("h2", {}, title), text ? h("p", { class: "hint" }, text) : null);
}

/** Says how much the server offers, and which keys to use. */
function offers() {
  const kinds = [
    ["tools", "tool"],
    ["resources", "resource"],
    ["templates", "template"],
    ["prompts", "prompt"],
    ["skills", "skill"],
    ["extensions", "extension"],
  ];
  const some = kinds
    .map(([kind, one]) => [state.catalogue[kind]?.items.length ?? 0, one])
    .filter(([count]) => count)
    .map(([count, one]) => plural(count, one));
  if (!some.length)
    return h("p", { class: "hint" }, "The server offers no tools, resources or prompts, or none that you may see.");
  return h(
    "p",
    { class: "hint" },
    `It offers ${some.join(", ")}: choose one on the left. `,
    h("kbd", {}, "/"),
    " searches, ",
    h("kbd", {}, "Ctrl"),
    " ",
    h("kbd", {}, "Enter"),
    " runs.",
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

/** Makes a form that sends a request when it is submitted, and shows the result. */
function runner(label, fields, outcome, request) {
  async function submit(event) {
    event.preventDefault();
    let body;
    try {
      body = request();
    } catch {
      return; // The form shows what is wrong.
    }
    await send(body.method, body.params, outcome, body.extension);
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
  outcome.dataset.call = id;
  callView(outcome, id, {
    read: (uri) => select({ kind: "resources", key: uri }),
    again: () => start("again", { call: id }, outcome),
    hasView: outcome.dataset.view === "yes",
  });
}

function send(method, params, outcome, extension = null) {
  return start("call", { method, params, extension }, outcome);
}

async function start(operation, asked, outcome) {
  try {
    const { call } = await post(operation, asked);
    watch(call.id, outcome);
    outcome.scrollIntoView({ block: "nearest", behavior: "smooth" });
  } catch (error) {
    toast(error.message, "error");
  }
}

// Each kind of item has a function that makes its form: `view` is the element, `values()` gives the parameters in it,
// and `fill(params)` fills parameters in.

function tool(definition, outcome) {
  const fields = schemaForm(definition.inputSchema, "Arguments");
  const wish = taskWish(definition);
  const view = runner("Run", fields, outcome, () => ({
    method: "tools/call",
    params: { name: definition.name, arguments: fields.get(), task: wish?.isOn() ?? false },
  }));
  if (wish) view.insertBefore(wish.element, view.lastChild);
  return {
    view,
    values: () => ({ arguments: fields.peek(), task: wish?.isOn() }),
    fill(params) {
      fields.set(params.arguments ?? {});
      wish?.set(params.task === true);
    },
  };
}

// A server does not say which methods an extension has, so somebody has to write the name.
const REQUEST = {
  type: "object",
  properties: {
    method: { type: "string", title: "Method" },
    params: { type: "object", title: "Params", additionalProperties: true },
  },
  required: ["method"],
};

function extension(definition, outcome, item) {
  const fields = schemaForm(REQUEST, "Request");
  if (item.call) fields.set({ method: state.calls.get(item.call)?.method ?? "" });
  const view = runner("Send", fields, outcome, () => {
    const { method, params } = fields.get();
    return { method, params: params ?? {}, extension: definition.name };
  });
  return { view, fill: (params) => fields.set({ ...fields.peek(), params }) };
}

/** Makes the choice of 2025-11-25, where the client says whether a call becomes a task if the tool leaves it open. */
function taskWish(definition) {
  const support = definition.execution?.taskSupport;
  if (support === "required")
    return { element: h("p", { class: "hint" }, "Runs as a task."), isOn: () => true, set() {} };
  if (support !== "optional" || !state.connection.capabilities?.tasks) return null;
  const box = h("input", { type: "checkbox", id: "as-task" });
  return {
    element: h("label", { class: "tick" }, box, "Run as a task"),
    isOn: () => box.checked,
    set: (on) => {
      box.checked = on;
    },
  };
}

function prompt(definition, outcome) {
  const names = (Array.isArray(definition.arguments) ? definition.arguments : []).filter(
    (each) => typeof each?.name === "string",
  );
  const fields = textForm(names, "Arguments", suggestions({ prompt: definition.name }));
  const view = runner("Get", fields, outcome, () => ({
    method: "prompts/get",
    params: { name: definition.name, arguments: fields.get() },
  }));
  return {
    view,
    values: () => ({ arguments: fields.get() }),
    fill: (params) => fields.set(params.arguments ?? {}),
  };
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
  return {
    view: form,
    values: () => ({ arguments: fields.get() }),
    fill(params) {
      fields.set(params.arguments ?? {});
      update();
    },
  };
}

function resource(definition, outcome, item) {
  const form = runner("Read", null, outcome, () => ({ method: "resources/read", params: { uri: item.key } }));
  const can = state.connection.capabilities?.resources?.subscribe;
  if (can) form.querySelector(".actions").append(h("span", { class: "spring" }), watchButton(item.key, outcome));
  if (!item.call) send("resources/read", { uri: item.key }, outcome);
  return { view: form };
}

function watchButton(uri, outcome) {
  const button = h("button", { type: "button", class: "quiet toggle", onclick: toggle });
  const isOn = () => state.connection.subscriptions.includes(uri);
  function draw() {
    button.setAttribute("aria-pressed", String(isOn()));
    refresh(button, icon("bell"), isOn() ? "Watching" : "Watch");
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

/** Makes the function that asks the server for suggestions; null for a server without completions. */
function suggestions(reference) {
  if (!state.connection.capabilities?.completions) return null;
  return async (argument, value, context, signal) =>
    (await post("complete", { ...reference, argument, value, context }, signal)).values;
}
