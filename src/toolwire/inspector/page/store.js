// The state of the page, and the listeners for changes of its parts.

export const state = {
  connection: { state: "connecting", revisions: [], roots: [], subscriptions: [] },
  catalogue: {},
  calls: new Map(),
  questions: new Map(),
  notes: [],
  // The lines that a started server wrote to standard error; null for a server that was not started here.
  output: null,
  messages: [],
  reload: null,
  signIn: [],
  saved: [],
  fleet: { tasks: [], tools: [], queued: 0, running: 0, letters: 0, replicas: 0, isCut: false },
  // The servers behind a gateway; null where the server is none, or runs in another process.
  backs: null,
  // The state of the file of the gateway; null for one without a file.
  configuration: null,
  // The hosts of views that the inspector can play.
  profiles: [],
  // The views that this page shows: each with its state, what was noticed about it, and its messages.
  views: new Map(),
  lost: null,
  selected: null,
};

const MAX_MESSAGES = 10_000;
const MAX_NOTES = 500;
const MAX_OUTPUT = 1_000;
const MAX_FINDINGS = 200;
const MAX_VIEW_MESSAGES = 2_000;

const listeners = new Map();

export function on(part, listener) {
  if (!listeners.has(part)) listeners.set(part, new Set());
  listeners.get(part).add(listener);
  return () => listeners.get(part).delete(listener);
}

// Many events may arrive at once. A listener is called once for all of them.
const waiting = new Map();
let scheduled = false;

export function changed(part, detail) {
  if (!waiting.has(part)) waiting.set(part, []);
  waiting.get(part).push(detail);
  if (scheduled) return;
  scheduled = true;
  queueMicrotask(() => {
    scheduled = false;
    const parts = [...waiting];
    waiting.clear();
    for (const [name, details] of parts) for (const listener of [...(listeners.get(name) ?? [])]) listener(details);
  });
}

export function apply(event) {
  const act = ACTIONS[event.type];
  if (act) act(event);
}

const ACTIONS = {
  snapshot(event) {
    state.connection = event.connection;
    state.catalogue = event.catalogue;
    state.calls = new Map(event.calls.map((call) => [call.id, call]));
    state.questions = new Map(event.questions.map((question) => [question.id, question]));
    state.notes = event.notes;
    state.output = event.output;
    state.messages = event.messages;
    state.reload = event.reload;
    state.signIn = event.signIn;
    state.backs = event.backs;
    state.configuration = event.configuration;
    state.profiles = event.profiles;
    state.lost = null;
    // Some of the messages for the views may be among the events that were missed.
    for (const id of state.views.keys()) changed("view-outbox", id);
    for (const part of [
      "connection",
      "catalogue",
      "calls",
      "questions",
      "notes",
      "output",
      "messages",
      "reload",
      "signIn",
      "backs",
      "lost",
    ])
      changed(part);
  },
  connection(event) {
    state.connection = event.connection;
    changed("connection");
  },
  catalogue(event) {
    state.catalogue = event.catalogue;
    changed("catalogue");
  },
  call(event) {
    state.calls.set(event.call.id, event.call);
    changed("calls", event.call.id);
  },
  forgotten(event) {
    state.calls.delete(event.id);
    changed("calls", event.id);
  },
  question(event) {
    state.questions.set(event.question.id, event.question);
    changed("questions");
  },
  answered(event) {
    state.questions.delete(event.id);
    changed("questions");
  },
  completed(event) {
    changed("completed", event.id);
  },
  note(event) {
    state.notes.push(event.note);
    if (state.notes.length > MAX_NOTES) state.notes.splice(0, state.notes.length - MAX_NOTES);
    changed("notes", event.note);
  },
  output(event) {
    const last = state.output?.at(-1)?.number ?? 0;
    state.output = [...(state.output ?? []), ...event.lines.filter((line) => line.number > last)].slice(-MAX_OUTPUT);
    changed("output");
  },
  reload(event) {
    state.reload = event.reload;
    changed("reload", event.reload);
  },
  message(event) {
    state.messages.push(event.message);
    if (state.messages.length > MAX_MESSAGES) state.messages.splice(0, state.messages.length - MAX_MESSAGES);
    changed("messages");
  },
  "sign-in"(event) {
    state.signIn = event.steps;
    changed("signIn");
  },
  "sign-in-step"(event) {
    // A step comes again when it ends.
    state.signIn = [...state.signIn.filter((step) => step.number !== event.step.number), event.step].sort(
      (one, other) => one.number - other.number,
    );
    changed("signIn");
  },
  backs(event) {
    state.backs = event.backs;
    state.configuration = event.configuration;
    changed("backs");
  },
  "view-opened"({ view, findings }) {
    state.views.set(view.id, { view, findings: [...findings], messages: [], model: { context: null, messages: [] } });
    changed("views", view.id);
  },
  view({ view }) {
    const kept = state.views.get(view.id);
    if (!kept) return;
    kept.view = view;
    changed("views", view.id);
  },
  "view-model"(event) {
    const kept = state.views.get(event.view);
    if (!kept) return;
    kept.model = event.model;
    changed("views", event.view);
  },
  "view-finding"(event) {
    keep(event.view, "findings", event.finding, MAX_FINDINGS);
  },
  "view-message"(event) {
    keep(event.view, "messages", event.message, MAX_VIEW_MESSAGES);
  },
  "view-outbox"(event) {
    changed("view-outbox", event.view);
  },
  saved(event) {
    state.saved = event.requests;
    changed("saved");
  },
  lost() {
    changed("missed");
  },
};

function keep(id, part, item, most) {
  const kept = state.views.get(id);
  if (!kept) return;
  kept[part].push(item);
  if (kept[part].length > most) kept[part].splice(0, kept[part].length - most);
  changed("views", id);
}

/** Selects an item: `{kind, key}`, with the id of a `call` or the `params` to fill into its form. */
export function select(item) {
  state.selected = item;
  changed("selected");
}
