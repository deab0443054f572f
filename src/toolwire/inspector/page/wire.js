// The panel of all JSON-RPC messages, with their times, a filter, the HTTP exchange, and commands to send one again.

import { part, post } from "./api.js";
import { bytes, choices, clock, copy, duration, h, icon, iconButton, replace, save, toast } from "./dom.js";
import { changed, state } from "./store.js";
import { tree } from "./values.js";
import { virtualList } from "./virtual.js";

const SORTS = [
  ["all", "All"],
  ["request", "Requests"],
  ["notification", "Notifications"],
  ["error", "Errors"],
];

const KINDS = {
  all: ["request", "notification", "result", "error", "http", "unreadable"],
  request: ["request", "result", "error", "http"],
  notification: ["notification"],
  error: ["error", "http", "unreadable"],
};

export function wire() {
  let sort = "all";
  let newest = 0;
  const filter = h("input", {
    type: "search",
    placeholder: "Filter",
    "aria-label": "Filter the messages by text",
    oninput: show,
    spellcheck: "false",
  });
  const list = virtualList({
    label: "Messages",
    empty: "No messages, or none that the filter lets through.",
    rowHeight: 30,
    keyOf: (message) => message.number,
    draw: row,
    onchoose: open,
    follow: true,
  });
  const side = h("div", { class: "side" });
  const sorts = choices("Which messages", SORTS, sort, (next) => {
    sort = next;
    show();
  });
  const clear = iconButton("close", "Forget all messages", async () => {
    await post("forget");
    state.messages = [];
    replace(side);
    changed("messages");
  });
  const element = h(
    "div",
    { class: "wire" },
    h(
      "div",
      { class: "wire-tools" },
      h("div", { class: "search" }, icon("search"), filter),
      sorts,
      h("span", { class: "spring" }),
      clear,
    ),
    h("div", { class: "split" }, list.element, side),
  );

  function row(message, element) {
    element.classList.add("wire-row", `is-${message.kind}`);
    element.classList.toggle("is-fine", isFine(message));
    element.classList.toggle("is-hop", message.back !== null);
    element.append(
      h("time", {}, clock(message.at)),
      h(
        "span",
        { class: "arrow", title: `${message.direction === "→" ? "to" : "from"} ${message.back ?? "the server"}` },
        message.direction,
      ),
      h("span", { class: "kind" }, message.kind === "http" ? `HTTP ${message.id}` : message.kind),
      h(
        "span",
        { class: "method" },
        message.back === null ? null : [h("span", { class: "badge" }, message.back), " "],
        message.method ?? "?",
        message.subject ? h("span", { class: "subject" }, ` ${message.subject}`) : null,
      ),
      h(
        "span",
        { class: "figure" },
        message.id === null || message.kind === "http" ? "" : `#${String(message.id).slice(0, 20)}`,
      ),
      h("span", { class: "figure took" }, duration(message.took)),
      h("span", { class: "figure" }, bytes(message.size)),
    );
  }

  function matches(message) {
    if (!KINDS[sort].includes(message.kind) || (sort === "error" && isFine(message))) return false;
    const text = filter.value.toLowerCase();
    return !text || `${message.back ?? ""} ${message.method ?? ""} ${message.subject ?? ""} ${message.preview}`.toLowerCase().includes(text);
  }

  function show() {
    list.show(state.messages.filter(matches));
  }

  async function open({ number }) {
    newest = number;
    let message;
    try {
      message = await post("message", { number });
    } catch (error) {
      return replace(side, h("p", { class: "problem pad" }, error.message));
    }
    if (newest !== number) return;
    replace(side, head(message), exchange(message), body(message));
    side.scrollTop = 0;
  }

  function head(message) {
    const pair = message.answers ?? state.messages.find((each) => each.answers === message.number)?.number;
    const jump = pair
      ? h(
          "button",
          {
            type: "button",
            class: "quiet",
            onclick: () => {
              list.mark(pair);
              open({ number: pair });
            },
          },
          message.answers ? "Its request" : "Its answer",
        )
      : null;
    return h(
      "div",
      { class: "side-head" },
      h("strong", {}, message.kind === "http" ? `HTTP ${message.id}` : (message.method ?? message.kind)),
      message.subject ? h("code", {}, message.subject) : null,
      message.back === null ? null : h("span", { class: "badge" }, `${message.direction === "→" ? "to" : "from"} ${message.back}`),
      message.took === null ? null : h("span", { class: "figure" }, duration(message.took)),
      h("span", { class: "figure" }, bytes(message.size)),
      h("span", { class: "spring" }),
      jump,
      h("button", { type: "button", class: "quiet", onclick: () => copyMessage(message) }, icon("copy"), "JSON"),
      message.direction === "→" && message.back === null
        ? h(
            "button",
            { type: "button", class: "quiet", onclick: () => copyCommand(message) },
            icon("copy"),
            state.connection.url ? "curl" : "Command",
          )
        : null,
    );
  }

  return { element, show };
}

/** Tells whether an entry is an answer of HTTP that is no refusal, such as a stream that opens. */
function isFine(message) {
  return message.kind === "http" && message.id < 400;
}

/** Draws the exchange of HTTP that carried a message: its status, and the headers of both sides without secrets. */
function exchange({ kind, http }) {
  // An entry of HTTP is the exchange itself.
  if (!http || kind === "http") return null;
  return h(
    "details",
    { class: "exchange" },
    h(
      "summary",
      {},
      h("span", { class: "badge" }, `HTTP ${http.status}`),
      " ",
      h("code", {}, http.request.slice(0, 1000)),
    ),
    headerTable("Sent", http.sent),
    headerTable("Received", http.headers),
  );
}

function headerTable(title, headers) {
  const lines = Object.entries(headers).slice(0, 200);
  return h(
    "section",
    { "aria-label": `${title} headers` },
    h("h3", {}, title),
    h(
      "dl",
      {},
      lines.map(([name, value]) => [
        h("dt", {}, name.slice(0, 200)),
        h("dd", {}, h("code", {}, String(value).slice(0, 4000))),
      ]),
    ),
  );
}

function body(message) {
  if (message.cut) {
    const button = h(
      "button",
      {
        type: "button",
        class: "quiet",
        onclick: async () =>
          save(`message-${message.number}.json`, await part({ message: message.number }), "application/json"),
      },
      icon("download"),
      "Save all of it",
    );
    return [
      h("p", { class: "cut" }, `This is the first part of ${bytes(message.size)}. `, button),
      h("pre", { class: "text" }, message.text.slice(0, 100_000)),
    ];
  }
  try {
    return tree(JSON.parse(message.text), 3);
  } catch {
    return h("pre", { class: "text" }, message.text.slice(0, 100_000));
  }
}

function copyMessage(message) {
  if (message.cut) return toast("It is too large to copy; save it instead", "error");
  copy(message.text, "Message");
}

async function copyCommand(message) {
  try {
    copy((await post("command", { number: message.number })).text, "Command");
  } catch (error) {
    toast(error.message, "error");
  }
}
