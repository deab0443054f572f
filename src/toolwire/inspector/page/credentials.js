// Fields for what lets this client in: a token and headers. The page never learns what is set; it may replace it.

import { post } from "./api.js";
import { h, replace, toast } from "./dom.js";
import { nextId } from "./editors.js";
import { state } from "./store.js";

// Stands for a value that is set and stays.
const KEPT = "••••••";

/** The fields; `change()` gives what to send, and null when nothing was changed. */
export function credentialFields() {
  const tokenId = nextId();
  const headersId = nextId();
  const set = state.connection.credentials ?? { token: false, headers: [] };
  const token = h("input", {
    id: tokenId,
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: set.token ? `${KEPT} is sent` : "Without the word Bearer",
  });
  const before = set.headers.map((name) => `${name}: ${KEPT}`).join("\n");
  const headers = h("textarea", {
    id: headersId,
    class: "code",
    rows: 2,
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "X-API-Key: …",
    ".value": before,
  });
  let forget = false;
  const remove = h(
    "button",
    {
      type: "button",
      class: "quiet",
      onclick: () => {
        forget = true;
        token.value = "";
        token.placeholder = "None";
        remove.remove();
      },
    },
    "Send no token",
  );
  const element = h(
    "div",
    { class: "credentials" },
    h(
      "div",
      { class: "field" },
      h("label", { for: tokenId }, h("span", { class: "name" }, "Token"), h("span", { class: "type" }, "or API key")),
      h("div", { class: "row" }, token, set.token ? remove : null),
    ),
    h(
      "div",
      { class: "field" },
      h(
        "label",
        { for: headersId },
        h("span", { class: "name" }, "Headers"),
        h("span", { class: "type" }, "one a line, NAME: VALUE"),
      ),
      headers,
    ),
  );
  function change() {
    const asked = {};
    if (token.value.trim()) asked.token = token.value.trim();
    else if (forget) asked.token = null;
    if (headers.value.trim() !== before.trim()) asked.headers = pairs(headers.value);
    return Object.keys(asked).length ? asked : null;
  }
  return { element, change };
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

/** A form of them, for a server that has refused. */
export function credentialForm() {
  const fields = credentialFields();
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
    h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Connect")),
  );
}

/** Connects again with what was changed; throws what the inspector does not take. */
export async function connectWith(asked) {
  const { connection } = await post("credentials", asked);
  if (connection.state === "connected") toast("Connected");
}
