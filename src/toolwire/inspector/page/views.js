// The view of a tool beside its result: its frame, the switches of the host, and what the host noticed.

import { PAGE, post, postLast } from "./api.js";
import { coverPage } from "./arming.js";
import { bytes, choices, clock, h, icon, iconButton, plural, refresh, replace, tabList, toast } from "./dom.js";
import { contentBlock } from "./content.js";
import { askConsent } from "./input_requests.js";
import { apply, on, state } from "./store.js";
import { tree } from "./values.js";
import { connectFrame } from "./view_bridge.js";
import { virtualList } from "./virtual.js";

const WIDTHS = [
  ["", "Full width"],
  ["768", "768 px"],
  ["420", "420 px"],
  ["320", "320 px"],
];
const LOCALES = ["en-US", "en-GB", "de-DE", "fr-FR", "es-ES", "pt-BR", "ja-JP", "zh-CN", "ar-EG", "he-IL"];
const ZONES = ["UTC", "America/New_York", "America/Los_Angeles", "Europe/Berlin", "Asia/Kolkata", "Asia/Tokyo"];
const MAX_HEIGHT = 720;
const PIP = { width: 360, height: 260 };
const WORDS = {
  loading: "loading",
  initializing: "initializing",
  ready: "ready",
  closing: "closing",
  closed: "closed",
  stopped: "stopped",
};

// What somebody chose for one view holds for the next one, too.
const chosen = { profile: "toolwire", width: "", settings: null };
// Whether the person wants to see views in a browser that does not keep them from sending data to any address.
let isUnguardedAllowed = false;

function firstSettings() {
  const dark = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const { locale, timeZone } = Intl.DateTimeFormat().resolvedOptions();
  return {
    theme: dark === "dark" ? "dark" : "light",
    locale: /^[\w-]{1,64}$/.test(locale) ? locale : "en-US",
    timeZone: /^[\w+/-]{1,64}$/.test(timeZone ?? "") ? timeZone : "UTC",
    platform: "web",
    touch: false,
  };
}

/** Makes the panel of the view of a call. It opens the view when it is in the page. */
export function viewPanel(call) {
  chosen.settings ??= firstSettings();
  let opened = null;
  let connection = null;
  let mode = "inline";
  // The mode that the inspector told last. The view may ask for another one, too.
  let toldMode = "inline";
  let granted = [];
  let number = 0;
  let sent = "";
  let isUnguarded = false;

  const frameBox = h("div", { class: "app-frame" });
  const said = h("div", { class: "app-said", role: "status" });
  const exit = h("button", { type: "button", class: "app-exit", onclick: () => setMode("inline") }, icon("close"), "Back to the page");
  const stage = h("div", { class: "app-stage" }, exit, frameBox, said);
  const title = h("code", { class: "identifier" });
  const status = h("span", { class: "badge app-state is-loading" }, WORDS.loading);
  const asks = h("div", { class: "app-asks" });
  const switches = hostSwitches({ onprofile: reopen, onchange: change, onmode: setMode, onwidth: resize });
  const panels = bridgePanels();
  const element = h(
    "section",
    { class: "app", "aria-label": "The view of the tool" },
    h(
      "div",
      { class: "app-head" },
      icon("app"),
      h("strong", {}, "View"),
      title,
      status,
      h("span", { class: "spring" }),
      iconButton("refresh", "Show the view anew", () => reopen(true)),
    ),
    switches.element,
    asks,
    stage,
    panels.element,
  );

  function dimensions() {
    if (mode === "pip") return PIP;
    if (mode === "fullscreen") return { width: Math.max(1, stage.clientWidth), height: Math.max(1, stage.clientHeight - 44) };
    return { width: Math.max(1, frameBox.clientWidth), maxHeight: MAX_HEIGHT };
  }

  function settings() {
    return { ...chosen.settings, displayMode: mode, containerDimensions: dimensions() };
  }

  async function open(fresh = false) {
    number += 1;
    const mine = number;
    frameBox.style.width = chosen.width ? `${chosen.width}px` : "";
    frameBox.style.height = "";
    const asked = { call, profile: chosen.profile, settings: settings(), granted, fresh, page: PAGE };
    sent = JSON.stringify(asked.settings);
    let answer;
    try {
      answer = await post("openView", asked);
    } catch (error) {
      answer = { problem: error.message };
    }
    if (mine !== number || !element.isConnected) return answer.view && post("closeView", { view: answer.view.id }).catch(() => {});
    if (answer.problem) return show(null, answer.problem);
    opened = answer;
    apply({ type: "view-opened", view: answer.view, findings: answer.findings });
    const { frame: place } = answer;
    const frame = h("iframe", { sandbox: place.sandbox, allow: place.allow || null, title: "The view of the tool", referrerpolicy: "no-referrer" });
    replace(frameBox, frame);
    isUnguarded = false;
    connection = connectFrame(frame, answer, closed, mayShow);
    watchUpdates(answer.view.uri);
    update();
  }

  function mayShow(isGuarded) {
    isUnguarded = !isGuarded && !isUnguardedAllowed;
    return !isUnguarded;
  }

  function closed() {
    const kept = current();
    if (kept) apply({ type: "view", view: { ...kept.view, state: "closed" } });
  }

  function current() {
    return opened ? state.views.get(opened.view.id) : null;
  }

  function update() {
    const kept = current();
    if (!kept) return;
    const { view } = kept;
    if (view.settings.displayMode !== toldMode) {
      toldMode = view.settings.displayMode;
      if (toldMode !== mode) {
        if (mode !== "inline") coverPage();
        setMode(toldMode);
      }
    }
    if (mode === "inline" && view.size?.height)
      frameBox.style.height = `${Math.min(MAX_HEIGHT, Math.max(24, Math.ceil(view.size.height)))}px`;
    else frameBox.style.height = "";
    if (view.state === "closed" || view.state === "stopped") {
      connection?.end();
      connection = null;
      // A view can end itself.
      if (mode !== "inline") coverPage();
      leave();
    }
    show(view, view.problem);
    panels.show(kept);
  }

  function show(view, problem) {
    title.textContent = view?.uri.slice(0, 300) ?? "";
    status.textContent = view ? WORDS[view.state] : "not shown";
    status.className = `badge app-state is-${view?.state ?? "stopped"}`;
    frameBox.hidden = !view || view.state === "closed" || view.state === "stopped";
    frameBox.classList.toggle("is-hidden", view?.hidden === true);
    frameBox.classList.toggle("is-plain", view?.border === false);
    switches.show(view, mode);
    refresh(said, remark(view, problem));
    refresh(asks, view ? permissions(view) : null);
  }

  function remark(view, problem) {
    if (problem) return [h("p", { class: "problem" }, icon("alert"), problem), isUnguarded ? showAnyway() : null];
    if (view?.hidden) return h("p", { class: "hint" }, "Hidden until the view is initialized, as in Claude.");
    if (view?.state === "closed") return h("p", { class: "hint" }, "The view is closed.");
    return null;
  }

  function showAnyway() {
    const onclick = async () => {
      const view = opened?.view.uri ?? "";
      if (!(await askConsent("unguarded", { view }))) return;
      isUnguardedAllowed = true;
      reopen();
    };
    return h("button", { type: "button", onclick }, "Show views in this browser anyway");
  }

  /** Says which permissions the view asks for. A dialog gives them, and the view is shown anew with them. */
  function permissions(view) {
    const open = view.permissions.filter((each) => !view.granted.includes(each));
    if (!view.permissions.length) return null;
    const onclick = open.length ? () => allow(view, open) : () => grant([]);
    return [
      icon("key"),
      open.length ? `The view asks for: ${open.join(", ")}.` : `Allowed: ${view.granted.join(", ")}.`,
      h("button", { type: "button", class: "quiet", onclick }, open.length ? "Allow, and show it anew" : "Take back"),
    ];
  }

  /** Asks in a dialog: a view that leaves fullscreen can put the button under the pointer. */
  async function allow(view, open) {
    const isAllowed = await askConsent("permissions", { view: view.uri, permissions: open });
    if (isAllowed && opened?.view.id === view.id) grant(view.permissions);
  }

  function grant(permissions) {
    granted = permissions;
    reopen();
  }

  function change() {
    const kept = current();
    if (!kept || !connection) return;
    const next = settings();
    if (JSON.stringify(next) === sent) return;
    sent = JSON.stringify(next);
    post("viewSettings", { view: kept.view.id, settings: next }).catch((error) => toast(error.message, "error"));
  }

  function resize() {
    frameBox.style.width = chosen.width ? `${chosen.width}px` : "";
    change();
  }

  function setMode(next) {
    mode = next;
    element.dataset.mode = next;
    document.body.classList.toggle("app-fullscreen", next === "fullscreen");
    if (next === "fullscreen") exit.focus();
    update();
    change();
  }

  function leave() {
    mode = toldMode = "inline";
    element.dataset.mode = "inline";
    document.body.classList.remove("app-fullscreen");
  }

  async function reopen(fresh = false) {
    const before = opened;
    opened = null;
    number += 1;
    const mine = number;
    if (before && connection) await post("closeView", { view: before.view.id }).catch(() => {});
    connection?.end();
    connection = null;
    if (before) state.views.delete(before.view.id);
    leave();
    if (mine === number && element.isConnected) open(fresh);
  }

  function close() {
    for (const off of offs) off();
    observer.disconnect();
    document.removeEventListener("keydown", onkeydown);
    window.removeEventListener("pagehide", onpagehide);
    number += 1;
    leave();
    if (opened && connection) post("closeView", { view: opened.view.id }).catch(() => {});
    connection?.end();
    connection = null;
  }

  /** Closes the view with the tab of the browser, so that its calls ask nothing in other tabs. */
  function onpagehide() {
    if (opened && connection) postLast("closeView", { view: opened.view.id });
  }

  function onkeydown(event) {
    if (event.key === "Escape" && mode === "fullscreen" && !document.querySelector("dialog[open]")) setMode("inline");
  }

  let settling = 0;
  const observer = new ResizeObserver(() => {
    clearTimeout(settling);
    settling = setTimeout(change, 100);
  });
  observer.observe(frameBox);
  document.addEventListener("keydown", onkeydown);
  window.addEventListener("pagehide", onpagehide);
  const offs = [
    on("views", (ids) => {
      if (opened && ids.includes(opened.view.id)) update();
    }),
    // The file of the server, or the page of the view, is another one now.
    on("reload", ([reload]) => element.isConnected && reload && !reload.error && reopen()),
    on("notes", (notes) => {
      const uri = current()?.view.uri;
      if (uri && element.isConnected && notes.some((note) => note?.kind === "updated" && note.uri === uri)) reopen();
    }),
    on("selected", () => setTimeout(() => element.isConnected || close())),
  ];
  element.dataset.mode = mode;
  queueMicrotask(() => element.isConnected && open());
  return { element, close };
}

/** Listens to updates of the page of a view, where the server tells of them. */
function watchUpdates(uri) {
  const { capabilities, subscriptions } = state.connection;
  if (!capabilities?.resources?.subscribe || subscriptions.includes(uri)) return;
  post("subscribe", { uri, on: true }).catch(() => {});
}

// --- The switches of the host ---

function picker(label, options, value, onchange) {
  const select = h(
    "select",
    { "aria-label": label, title: label, onchange: () => onchange(select.value) },
    options.map(([each, text]) => h("option", { value: each }, text)),
  );
  select.value = value;
  return select;
}

function hostSwitches({ onprofile, onchange, onmode, onwidth }) {
  const set = (name) => (value) => {
    chosen.settings[name] = value;
    onchange();
  };
  const { settings } = chosen;
  const listed = (known, own) => [...new Set([own, ...known])].map((each) => [each, each]);
  const profile = picker(
    "Host",
    state.profiles.map((each) => [each.name, each.label]),
    chosen.profile,
    (name) => {
      chosen.profile = name;
      about.textContent = state.profiles.find((each) => each.name === name).about;
      onprofile();
    },
  );
  const about = h("p", { class: "hint app-about" }, state.profiles.find((each) => each.name === chosen.profile)?.about ?? "");
  const theme = choices(
    "Theme of the view",
    [
      ["light", "Light"],
      ["dark", "Dark"],
    ],
    settings.theme,
    set("theme"),
  );
  const width = picker("Width of the view", WIDTHS, chosen.width, (value) => {
    chosen.width = value;
    onwidth();
  });
  const mode = picker(
    "Display mode",
    [
      ["inline", "Inline"],
      ["fullscreen", "Fullscreen"],
      ["pip", "Picture in picture"],
    ],
    "inline",
    onmode,
  );
  const touch = h("input", { type: "checkbox", ".checked": settings.touch, onchange: () => set("touch")(touch.checked) });
  const more = h(
    "details",
    { class: "app-more" },
    h("summary", {}, "More"),
    h(
      "div",
      { class: "app-switches" },
      picker("Locale", listed(LOCALES, settings.locale), settings.locale, set("locale")),
      picker("Time zone", listed(ZONES, settings.timeZone), settings.timeZone, set("timeZone")),
      picker(
        "Platform",
        [
          ["web", "Web"],
          ["desktop", "Desktop"],
          ["mobile", "Mobile"],
        ],
        settings.platform,
        set("platform"),
      ),
      h("label", { class: "tick" }, touch, "Touch"),
    ),
    about,
  );
  return {
    element: h("div", { class: "app-bar" }, h("div", { class: "app-switches" }, profile, theme, width, mode), more),
    show(view, current) {
      mode.value = current;
      for (const option of mode.options) option.disabled = view ? !view.modes.includes(option.value) : false;
    },
  };
}

// --- What the host noticed, the messages of the bridge, and what a model would get ---

const KINDS = {
  policy: "blocked",
  refused: "refused",
  console: "script",
  log: "log",
  remark: "note",
  problem: "problem",
  stopped: "stopped",
};

function bridgePanels() {
  let current = "findings";
  let kept = null;
  const bridge = bridgeLog(() => kept);
  const findings = h("ul", { class: "app-findings" });
  const model = h("div", { class: "app-model" });
  const policy = h("div", { class: "app-policy" });
  const bodies = { findings, bridge: bridge.element, model, policy };
  const body = h("div", { class: "app-panel", role: "tabpanel", tabindex: 0 });
  const tabs = tabList(
    "About the view",
    "app",
    [
      ["findings", "Noticed"],
      ["bridge", "Bridge"],
      ["model", "Model"],
      ["policy", "Policy"],
    ],
    choose,
  );
  choose(current);

  function choose(name) {
    current = name;
    replace(body, bodies[name]);
    draw();
  }

  function draw() {
    if (!kept) return tabs.show(current, {});
    const { view } = kept;
    tabs.show(current, {
      findings: kept.findings.length,
      bridge: kept.messages.length,
      model: kept.model.messages.length + (kept.model.context ? 1 : 0),
      policy: view.policy.split(";").length,
    });
    if (current === "findings") refresh(findings, kept.findings.length ? kept.findings.map(finding) : nothing());
    else if (current === "bridge") bridge.show();
    else if (current === "model") refresh(model, modelContext(kept.model));
    else refresh(policy, policyOf(view));
  }

  return {
    element: h("div", { class: "app-panels" }, tabs.element, body),
    show(next) {
      kept = next;
      draw();
    },
  };
}

function nothing() {
  return h("li", { class: "nothing" }, "Nothing was blocked or refused, and no script failed.");
}

function finding({ at, kind, text }) {
  return h(
    "li",
    { class: `is-${kind}` },
    h("time", {}, clock(at)),
    h("span", { class: "badge" }, KINDS[kind] ?? kind),
    h("span", { class: "app-text" }, text),
  );
}

function bridgeLog(kept) {
  const side = h("div", { class: "side" });
  let newest = 0;
  const list = virtualList({
    label: "Messages of the bridge",
    empty: "No messages yet.",
    rowHeight: 30,
    keyOf: (message) => message.number,
    draw: row,
    onchoose: open,
    follow: true,
  });

  function row(message, element) {
    element.classList.add("wire-row", `is-${message.kind}`);
    element.append(
      h("time", {}, clock(message.at)),
      h("span", { class: "arrow", title: message.direction === "→" ? "to the view" : "from the view" }, message.direction),
      h("span", { class: "kind" }, message.kind),
      h("span", { class: "method" }, message.method ?? "?", message.subject ? h("span", { class: "subject" }, ` ${message.subject}`) : null),
      h("span", { class: "figure" }, message.id === null ? "" : `#${String(message.id).slice(0, 20)}`),
      h("span", { class: "figure" }, bytes(message.size)),
    );
  }

  async function open({ number }) {
    newest = number;
    try {
      const message = await post("viewMessage", { view: kept().view.id, number });
      if (newest !== number) return;
      replace(side, h("div", { class: "side-head" }, h("strong", {}, message.method ?? message.kind)), parsed(message));
    } catch (error) {
      replace(side, h("p", { class: "problem pad" }, error.message));
    }
  }

  return {
    element: h("div", { class: "split app-bridge" }, list.element, side),
    show: () => list.show([...kept().messages]),
  };
}

function parsed({ text, cut }) {
  try {
    if (!cut) return tree(JSON.parse(text), 3);
  } catch {
    // Shown as it came.
  }
  return h("pre", { class: "text" }, text.slice(0, 100_000));
}

/** Shows what the view gives to the model: the context that goes along with the next message, and messages. */
function modelContext({ context, messages }) {
  const place = { pointer: "", cut: [], call: null };
  const tokens = context ? Math.ceil(JSON.stringify(context).length / 4) : 0;
  return [
    h("h4", {}, "Context for the model", context ? h("span", { class: "weight" }, ` about ${plural(tokens, "token")}, sent with the next message`) : null),
    context
      ? [
          (context.content ?? []).map((block) => contentBlock(block, place)),
          context.structuredContent === undefined ? null : tree(context.structuredContent, 2),
        ]
      : h("p", { class: "hint" }, "The view has given none (ui/update-model-context)."),
    h("h4", {}, "Messages in the conversation"),
    messages.length
      ? messages.map((message) =>
          h("div", { class: "message user" }, h("span", { class: "role" }, "user"), message.content.map((block) => contentBlock(block, place))),
        )
      : h("p", { class: "hint" }, "The view has sent none (ui/message)."),
  ];
}

function policyOf(view) {
  const directives = view.policy.split(";").map((each) => each.trim().split(/ (.*)/s));
  return h(
    "dl",
    {},
    directives.map(([name, sources]) => [h("dt", {}, h("code", {}, name)), h("dd", {}, h("code", {}, sources ?? ""))]),
  );
}
