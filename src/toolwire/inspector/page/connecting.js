// Fields for the connection: a token, headers, a client of OAuth, and a timeout.
// The page can replace secrets, but is never told them.

import { post } from "./api.js";
import { h, replace, toast } from "./dom.js";
import { nextId } from "./editors.js";
import { state } from "./store.js";

// Stands for a secret that is set and does not change.
const KEPT = "••••••";

/** Makes the fields that this target has; `change()` gives what to send, or null when nothing changed. */
export function connectionFields() {
  const { credentials, timeout } = state.connection;
  const parts = [
    credentials ? tokenField(credentials) : null,
    credentials ? headersField(credentials) : null,
    credentials?.client ? clientFields(credentials.client) : null,
    timeoutField(timeout),
  ].filter(Boolean);
  return {
    element: h(
      "div",
      { class: "credentials" },
      parts.map((part) => part.element),
    ),
    change() {
      const asked = Object.assign({}, ...parts.map((part) => part.change()));
      return Object.keys(asked).length ? asked : null;
    },
  };
}

function field(name, remark, input, ...beside) {
  const id = nextId();
  input.id = id;
  return h(
    "div",
    { class: "field" },
    h("label", { for: id }, h("span", { class: "name" }, name), h("span", { class: "type" }, remark)),
    beside.length ? h("div", { class: "row" }, input, beside) : input,
  );
}

function secretInput(placeholder) {
  return h("input", { type: "password", autocomplete: "off", spellcheck: "false", placeholder });
}

function textInput(value, placeholder) {
  return h("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder, ".value": value });
}

function tokenField(set) {
  const input = secretInput(set.token ? `${KEPT} is sent` : "Without the word Bearer");
  let forget = false;
  const remove = h(
    "button",
    {
      type: "button",
      class: "quiet",
      onclick: () => {
        forget = true;
        input.value = "";
        input.placeholder = "None";
        input.focus();
        remove.remove();
      },
    },
    "Send no token",
  );
  return {
    element: set.token ? field("Token", "or API key", input, remove) : field("Token", "or API key", input),
    change() {
      if (input.value.trim()) return { token: input.value.trim() };
      return forget ? { token: null } : {};
    },
  };
}

function headersField(set) {
  const before = set.headers.map((name) => `${name}: ${KEPT}`).join("\n");
  const input = h("textarea", {
    class: "code",
    rows: 2,
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "X-API-Key: …",
    ".value": before,
  });
  return {
    element: field("Headers", "one a line, NAME: VALUE", input),
    change: () => (input.value.trim() === before.trim() ? {} : { headers: pairs(input.value) }),
  };
}

/** Makes the fields for an authorization server where clients cannot register themselves. */
function clientFields(set) {
  const id = textInput(set.id ?? "", "The inspector registers itself");
  const secret = secretInput(set.secret ? `${KEPT} is sent` : "None");
  const scopes = textInput(set.scopes.join(" "), "What the server asks for");
  return {
    element: h(
      "details",
      { class: "oauth-client", open: Boolean(set.id || set.scopes.length) },
      h("summary", {}, "Signing in"),
      field("Client ID", "registered by hand", id),
      field("Client secret", "", secret),
      field("Scopes", "separated by spaces", scopes),
    ),
    change() {
      const asked = { id: id.value.trim(), scopes: scopes.value.trim() };
      if (secret.value) asked.secret = secret.value;
      const isSame = asked.id === (set.id ?? "") && asked.scopes === set.scopes.join(" ") && !secret.value;
      return isSame ? {} : { client: asked };
    },
  };
}

function timeoutField(before) {
  const input = h("input", { type: "text", inputmode: "decimal", autocomplete: "off", ".value": String(before ?? "") });
  return {
    element: field("Timeout", "seconds for each request; a call waits until it is cancelled", input),
    change() {
      const seconds = Number(input.value);
      if (!(seconds > 0)) throw new Error(`“${input.value.slice(0, 40)}” is not a number of seconds`);
      return seconds === before ? {} : { timeout: seconds };
    },
  };
}

function pairs(text) {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean)
    .map((line) => {
      const at = line.indexOf(":");
      if (at < 1) throw new Error(`“${line.slice(0, 80)}” is not NAME: VALUE`);
      const value = line.slice(at + 1).trim();
      return [line.slice(0, at).trim(), value === KEPT ? null : value];
    });
}

/** Makes a form of these fields, for a server that refused or that could not be reached. */
export function connectionForm(label) {
  const fields = connectionFields();
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  async function submit(event) {
    event.preventDefault();
    try {
      await connectWith(fields.change() ?? {});
    } catch (error) {
      problem.hidden = false;
      replace(problem, error.message);
    }
  }
  return h(
    "form",
    { class: "run", onsubmit: submit, novalidate: true },
    fields.element,
    problem,
    h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, label)),
  );
}

/** Connects again with what was changed; throws what the inspector does not take. */
export async function connectWith(asked) {
  const { connection } = await post("connect", { revision: state.connection.wanted, ...asked });
  if (connection.state === "connected") toast("Connected");
}
