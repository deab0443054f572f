// The drawer below the page: messages on the wire, events, output of the server, calls, the servers behind a gateway, tasks of the fleet, saved
// requests, and the steps of the sign-in.

import { exported } from "./api.js";
import { backsPanel } from "./backs.js";
import { bytes, clock, duration, h, icon, iconButton, replace, save, tabList, toast } from "./dom.js";
import { fleetPanel } from "./fleet.js";
import { outputPanel } from "./output.js";
import { savedPanel } from "./saved.js";
import { signInPanel } from "./sign_in.js";
import { on, select, state } from "./store.js";
import { tree } from "./values.js";
import { wire } from "./wire.js";
import { virtualList } from "./virtual.js";

const TABS = [
  ["wire", "Wire", "wire"],
  ["notes", "Events", "bell"],
  ["output", "Output", "terminal"],
  ["calls", "Calls", "play"],
  ["backs", "Servers", "extension"],
  ["fleet", "Tasks", "task"],
  ["saved", "Saved", "bookmark"],
  ["signIn", "Sign-in", "key"],
];

export function drawer(element) {
  const panels = {
    wire: wire(),
    notes: notes(),
    output: outputPanel(),
    calls: calls(),
    backs: backsPanel(),
    fleet: fleetPanel(),
    saved: savedPanel(),
    signIn: signInPanel(),
  };
  let open = matchMedia("(min-width: 761px) and (min-height: 620px)").matches;
  let current = "wire";
  const tabs = tabList("Messages", "drawer", TABS, (name) => show(name, !(open && name === current)));
  const body = h("div", { class: "drawer-body", role: "tabpanel" });
  const download = iconButton("download", "Save the session as a file, without secrets", saveSession);
  const toggle = iconButton("down", "Show or hide the messages", () => show(current, !open));
  replace(
    element,
    h("div", { class: "drawer-head" }, tabs.element, h("span", { class: "spring" }), download, toggle),
    body,
  );

  function show(name, visible) {
    current = name;
    open = visible;
    document.body.classList.toggle("drawer-open", open);
    toggle.setAttribute("aria-expanded", String(open));
    replace(toggle, icon(open ? "down" : "up"));
    draw();
    replace(body, open ? panels[name].element : null);
    if (open) {
      panels[name].show();
      panels[name].opened?.();
    }
  }

  function draw() {
    const counts = {
      wire: state.messages.length,
      notes: state.notes.length,
      // Only where the inspector, or a gateway in its process, started the server.
      output: state.output === null ? null : state.output.length,
      calls: state.calls.size,
      // Only where the server is a gateway in the process of the inspector.
      backs: state.backs === null ? null : state.backs.length,
      // Only where the store of the server is known.
      fleet: state.connection.hasFleet ? state.fleet.queued + state.fleet.running : null,
      saved: state.saved.length,
      // Only where a person may have to sign in.
      signIn: state.connection.credentials?.client ? state.signIn.length : null,
    };
    tabs.show(current, counts, open);
  }

  // Another part of the page opens a panel.
  on("drawer", ([name]) => {
    show(name, true);
    document.getElementById(`drawer-${name}`).focus();
  });
  for (const part of ["messages", "notes", "output", "calls", "backs", "fleet", "saved", "signIn", "connection"]) {
    on(part, () => {
      draw();
      if (open) panels[current].show();
    });
  }
  show("wire", open);
}

async function saveSession() {
  try {
    const time = new Date().toISOString().slice(0, 19).replaceAll(":", "-");
    save(`toolwire-session-${time}.json`, await exported(), "application/json");
  } catch (error) {
    toast(error.message, "error");
  }
}

function notes() {
  const list = virtualList({
    label: "Events",
    empty: "What the server logs and announces appears here.",
    rowHeight: 34,
    keyOf: (note) => note,
    draw: row,
    onchoose: open,
    follow: true,
  });
  const side = h("div", { class: "side" });
  function row(note, element) {
    element.classList.add("note", `is-${note.kind}`, `level-${note.level ?? ""}`);
    element.append(
      h("time", {}, clock(note.at)),
      h("span", { class: "badge" }, note.kind === "log" ? String(note.level).slice(0, 20) : note.kind),
      h("span", { class: "note-text" }, textOf(note).slice(0, 400)),
    );
  }
  function open(note) {
    replace(
      side,
      h(
        "div",
        { class: "side-head" },
        h("strong", {}, clock(note.at)),
        note.file ? h("code", {}, `${note.file}:${note.line}`) : null,
      ),
      note.code ? h("pre", { class: "text" }, note.code) : null,
      note.kind === "log" ? tree(note.data, 2) : h("p", { class: "plain" }, textOf(note)),
    );
  }
  return { element: h("div", { class: "split" }, list.element, side), show: () => list.show([...state.notes]) };
}

function textOf(note) {
  if (note.kind === "changed") return `The list of ${note.family} changed.`;
  if (note.kind === "updated") return `${note.uri} has new contents.`;
  if (note.kind === "problem") return `${note.text}${note.file ? `  ${note.file}:${note.line}` : ""}`;
  const data = typeof note.data === "string" ? note.data : JSON.stringify(note.data);
  return note.logger ? `${note.logger}: ${data}` : String(data);
}

function calls() {
  const list = virtualList({
    label: "Calls",
    empty: "The tools that you run, and what you read, appear here.",
    rowHeight: 34,
    keyOf: (call) => call.id,
    draw: row,
    onchoose: open,
    follow: true,
  });
  function row(call, element) {
    element.classList.add("call-row");
    element.append(
      h("time", {}, clock(call.started)),
      h("span", { class: `state ${call.failed ? "failed" : call.state}` }, call.failed ? "failed" : call.state),
      h("span", { class: "method" }, call.method),
      h("span", { class: "note-text" }, call.subject.slice(0, 200)),
      call.via ? h("span", { class: "badge", title: "A view made this call" }, `via: ${call.via}`) : null,
      h("span", { class: "figure" }, duration(call.took)),
      h("span", { class: "figure" }, bytes(call.size)),
    );
  }
  function open(call) {
    const kinds = { "tools/call": "tools", "resources/read": "resources", "prompts/get": "prompts" };
    if (call.extension) select({ kind: "extensions", key: call.extension, call: call.id });
    else select({ kind: kinds[call.method], key: call.subject, call: call.id });
  }
  return { element: h("div", { class: "split one" }, list.element), show: () => list.show([...state.calls.values()]) };
}
