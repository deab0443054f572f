// Dialogs for questions of the server: elicitation (a form, a page to open), sampling, and signing in, and for the wishes
// of views. One at a time. While a dialog is open, no input reaches a view, so that a pause of the input is seen here.

import { post } from "./api.js";
import { armAfterPause } from "./arming.js";
import { messageContent } from "./content.js";
import { bytes, h, plainText, replace, save, toast } from "./dom.js";
import { schemaForm, submitOnEnter } from "./form.js";
import { safeAddress } from "./links.js";
import { on, state } from "./store.js";
import { tree } from "./values.js";

// Questions of the page itself, which the inspector does not know of.
const own = new Map();
let asked = 0;
let redraw = () => {};

/** Asks the person whether a view may do something; `kind` is a member of `wishes`. Resolves with whether it may. */
export function askConsent(kind, params) {
  return new Promise((resolve) => {
    asked += 1;
    const id = `own-${asked}`;
    own.set(id, { id, kind, params, resolve });
    redraw();
  });
}

export function inputRequests() {
  const dialog = h("dialog", { class: "question", "aria-labelledby": "question-title", tabindex: -1 });
  let shown = null;
  let isArmed = false;
  let disarm = () => {};
  document.body.append(dialog);
  // Closing the dialog answers with `cancel`.
  dialog.addEventListener("cancel", (event) => {
    event.preventDefault();
    if (shown) answer(shown, { action: "cancel" });
  });
  dialog.addEventListener("click", (event) => event.target.closest?.("button.primary") && check(event), true);
  dialog.addEventListener("submit", check, true);

  async function answer(question, content) {
    if (own.delete(question.id)) {
      redraw();
      return question.resolve(content.action === "accept");
    }
    try {
      const { taken } = await post("answer", { question: question.id, answer: content });
      if (!taken) toast("The server no longer waits for an answer");
    } catch (error) {
      toast(error.message, "error");
      throw error;
    }
  }

  /** Marks the buttons that accept as armed or not. */
  function mark(armed) {
    isArmed = armed;
    for (const each of dialog.querySelectorAll("button.primary")) each.setAttribute("aria-disabled", String(!armed));
  }

  /** Drops a press of a button that is not armed. The dialog opens when a server or a view likes. */
  function check(event) {
    if (isArmed) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (!dialog.querySelector(".toast")) toast("Pause for a moment, then press again");
  }

  redraw = () => {
    const next = own.values().next().value ?? state.questions.values().next().value ?? null;
    if (next?.id === shown?.id) return;
    shown = next;
    disarm();
    if (!next) return dialog.close();
    const draw = { form, url, sampling, "sign-in": signIn, ...wishes }[next.kind];
    replace(
      dialog,
      draw(next, (content) => answer(next, content)),
    );
    if (!dialog.open) dialog.showModal();
    mark(false);
    disarm = armAfterPause(mark);
    (dialog.querySelector("input, textarea, select") ?? dialog).focus();
  };
  on("questions", redraw);
}

function frame(title, message, body, actions) {
  const waiting = state.questions.size > 1 ? h("span", { class: "badge" }, `${state.questions.size} waiting`) : null;
  return [
    h("header", {}, h("h2", { id: "question-title" }, title, waiting)),
    h(
      "div",
      { class: "question-body" },
      message ? h("p", { class: "plain asked" }, String(message).slice(0, 10_000)) : null,
      body,
    ),
    h("footer", { class: "actions" }, actions),
  ];
}

function button(label, onclick, kind = "quiet") {
  return h("button", { type: "button", class: kind, onclick }, label);
}

function form(question, answer) {
  const { message, requestedSchema } = question.params;
  const fields = schemaForm(requestedSchema, "Answer");
  async function accept(event) {
    event?.preventDefault();
    let content;
    try {
      content = fields.get();
    } catch {
      return;
    }
    await answer({ action: "accept", content }).catch((error) => fields.show(error));
  }
  return frame(
    "The server asks",
    message,
    h(
      "form",
      { onsubmit: accept, onkeydown: submitOnEnter, novalidate: true },
      fields.element,
      h("input", { type: "submit", hidden: true }),
    ),
    [
      button("Dismiss", () => answer({ action: "cancel" })),
      h("span", { class: "spring" }),
      button("Decline", () => answer({ action: "decline" })),
      button("Answer", accept, "primary"),
    ],
  );
}

function url(question, answer) {
  const { message, url: address } = question.params;
  const safe = safeAddress(address);
  const host = safe ? new URL(safe).host : null;
  return frame(
    "The server wants you to open a page",
    message,
    [
      h("p", { class: "address" }, String(address).slice(0, 4000)),
      host
        ? h("p", { class: "hint" }, "It is at ", h("strong", {}, host), ". Open it only if you trust that place.")
        : h("p", { class: "problem" }, "This is not a web address, so it is not opened from here."),
    ],
    [
      button("Dismiss", () => answer({ action: "cancel" })),
      h("span", { class: "spring" }),
      button("Decline", () => answer({ action: "decline" })),
      safe
        ? button(
            "Open and agree",
            () => {
              window.open(safe, "_blank", "noopener,noreferrer");
              answer({ action: "accept" });
            },
            "primary",
          )
        : null,
    ],
  );
}

/** Asks to sign in. The browser that comes back brings the answer; the dialog can only cancel. */
function signIn(question, answer) {
  const { url: address } = question.params;
  const safe = safeAddress(address);
  return frame(
    "The server wants you to sign in",
    null,
    [
      h(
        "p",
        {},
        "You sign in at ",
        h("strong", {}, safe ? new URL(safe).host : "an address that cannot be opened"),
        ", in a tab of its own, and come back here.",
      ),
      h("p", { class: "address" }, String(address).slice(0, 4000)),
    ],
    [
      h("span", { class: "spring" }),
      button("Cancel", () => answer({ action: "cancel" })),
      safe ? button("Sign in", () => window.open(safe, "_blank", "noopener,noreferrer"), "primary") : null,
    ],
  );
}

function sampling(question, answer) {
  const { messages, systemPrompt, ...rest } = question.params;
  const text = h("textarea", { id: "sampling-text", rows: 5, "aria-label": "What the model answers" });
  const model = h("input", {
    id: "sampling-model",
    type: "text",
    ".value": "a person",
    "aria-label": "Name of the model",
  });
  const place = { pointer: "", cut: [], call: null };
  return frame(
    "The server asks for a model's answer",
    null,
    [
      systemPrompt
        ? h(
            "details",
            {},
            h("summary", {}, "System prompt"),
            h("pre", { class: "text" }, String(systemPrompt).slice(0, 20_000)),
          )
        : null,
      h(
        "div",
        { class: "conversation" },
        (Array.isArray(messages) ? messages : [])
          .slice(0, 100)
          .map((message) =>
            h(
              "div",
              { class: `message ${message?.role === "assistant" ? "assistant" : "user"}` },
              h("span", { class: "role" }, String(message?.role ?? "").slice(0, 40)),
              messageContent(message, place),
            ),
          ),
      ),
      h("details", {}, h("summary", {}, "Everything that was asked"), tree(rest, 2)),
      h("div", { class: "field" }, h("label", { for: "sampling-text" }, "Answer as the model"), text),
      h("div", { class: "field" }, h("label", { for: "sampling-model" }, "Model"), model),
    ],
    [
      h("span", { class: "spring" }),
      button("Refuse", () => answer({ action: "decline" })),
      button("Answer", () => answer({ action: "accept", text: text.value, model: model.value }), "primary"),
    ],
  );
}

// --- Wishes of views ---

/** Asks for consent. `yes` is the word on the button; `act` is done when somebody presses it. */
function wish(title, question, body, yes, answer, act = () => {}) {
  return frame(
    title,
    null,
    [h("p", { class: "hint" }, "The view ", h("code", {}, plainText(question.params.view)), " asks for this."), body],
    [
      h("span", { class: "spring" }),
      button("Do not allow", () => answer({ action: "decline" })),
      button(
        yes,
        () => {
          act();
          answer({ action: "accept" });
        },
        "primary",
      ),
    ],
  );
}

const wishes = {
  "ui/open-link"(question, answer) {
    const { url: address } = question.params;
    const safe = safeAddress(address);
    return wish(
      "A view wants to open a page",
      question,
      [
        h("p", { class: "address" }, String(address).slice(0, 8192)),
        h("p", { class: "hint" }, "It is at ", h("strong", {}, safe ? new URL(safe).host : "no address"), "."),
      ],
      "Open",
      answer,
      () => safe && window.open(safe, "_blank", "noopener,noreferrer"),
    );
  },
  "ui/download-file"(question, answer) {
    const { files } = question.params;
    return wish(
      files.length === 1 ? "A view wants to save a file" : "A view wants to save files",
      question,
      h(
        "ul",
        { class: "pad" },
        files.map((file) => h("li", {}, h("code", {}, plainText(fileName(file))), ` ${file.url ? "is opened in a new tab" : bytes((file.text ?? file.blob).length)}`)),
      ),
      "Save",
      answer,
      () => files.forEach(saveFile),
    );
  },
  "ui/message"(question, answer) {
    return wish(
      "A view wants to write in your name",
      question,
      h("div", { class: "message user" }, h("span", { class: "role" }, "user"), messageContent(plainTexts(question.params), { pointer: "", cut: [], call: null })),
      "Send",
      answer,
    );
  },
  "tools/call"(question, answer) {
    const { name, arguments: given } = question.params;
    return wish(
      "A view wants to call a destructive tool",
      question,
      [h("p", { class: "address" }, plainText(name)), tree(given, 2)],
      "Call",
      answer,
    );
  },
  permissions(question, answer) {
    return wish(
      "A view asks for permissions",
      question,
      [
        h("p", { class: "address" }, question.params.permissions.join(", ")),
        h("p", { class: "hint" }, "The view is shown anew with them. It may then have an origin, and a page that it writes into a frame can send data to any address."),
      ],
      "Allow",
      answer,
    );
  },
  unguarded(question, answer) {
    return wish(
      "Show views in this browser?",
      question,
      h("p", {}, "This browser does not keep views from sending data to any address. Your answer holds for all views until the page is loaded again."),
      "Show",
      answer,
    );
  },
};

/** Replaces invisible characters in every text of a value. */
function plainTexts(value) {
  if (typeof value === "string") return plainText(value);
  if (Array.isArray(value)) return value.map(plainTexts);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, plainTexts(each)]));
}

function fileName({ name, url }) {
  return url ?? (name.replace(/[^\w.-]+/g, "_").replace(/^\.+/, "") || "file");
}

function saveFile(file) {
  if (file.url) {
    const safe = safeAddress(file.url);
    if (safe) window.open(safe, "_blank", "noopener,noreferrer");
    return;
  }
  let data = file.text;
  try {
    data ??= Uint8Array.from(atob(file.blob), (char) => char.charCodeAt(0));
  } catch {
    return toast("The file is no base64", "error");
  }
  save(fileName(file), data, "application/octet-stream");
}
