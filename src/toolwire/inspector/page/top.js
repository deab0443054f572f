// The bar at the top: the server, the state of the connection, the revision, and the settings.

import { post } from "./api.js";
import { connectionFields, connectWith } from "./connecting.js";
import { copy, h, icon, iconButton, refresh, replace, toast } from "./dom.js";
import { on, select, state } from "./store.js";
import { tree } from "./values.js";

const THEMES = ["auto", "light", "dark"];
const LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

export function top(element) {
  const name = h("button", { type: "button", class: "server", onclick: () => select(null), title: "About the server" });
  const status = h("span", { class: "status", role: "status" });
  const revision = h("select", {
    "aria-label": "Revision of the protocol",
    class: "revision",
    onchange: () => reconnect(revision.value || null),
  });
  const settings = settingsDialog();
  replace(
    element,
    h("img", { src: "icon.svg", alt: "Toolwire", class: "logo", width: 24, height: 24 }),
    name,
    status,
    h("span", { class: "spring" }),
    revision,
    iconButton("refresh", "Connect again", () => reconnect(state.connection.wanted)),
    iconButton("settings", "Settings of this client", settings.open),
    iconButton("theme", "Light or dark", nextTheme),
  );

  function draw() {
    const { server, label, state: word, revision: spoken, revisions, wanted } = state.connection;
    refresh(
      name,
      h("strong", {}, String(server?.title ?? server?.name ?? label ?? "").slice(0, 80)),
      server?.version ? h("span", { class: "version" }, String(server.version).slice(0, 40)) : null,
    );
    const lost = state.lost !== null;
    status.className = `status ${lost ? "failed" : word}`;
    const gone = state.lost?.status === 401 ? "no token" : "inspector ended";
    status.title = lost ? gone : String(label ?? "");
    refresh(status, h("span", { class: "dot" }), h("span", { class: "word" }, lost ? gone : word));
    // Somebody may have the list open.
    refresh(
      revision,
      h("option", { value: "" }, spoken && !wanted ? `${spoken} (newest)` : "newest"),
      [...revisions].reverse().map((each) => h("option", { value: each }, each)),
    );
    revision.value = wanted ?? "";
    document.title = `${server?.title ?? server?.name ?? label ?? "Server"} · Toolwire inspector`.slice(0, 120);
  }
  on("connection", draw);
  on("lost", draw);
  draw();
}

async function reconnect(revision) {
  try {
    await post("connect", { revision });
  } catch (error) {
    toast(error.message, "error");
  }
}

/** Copies the server as JSON for the configuration of other clients. */
async function copyEntry() {
  try {
    await copy((await post("entry")).text, "Entry");
  } catch (error) {
    toast(error.message, "error");
  }
}

function nextTheme() {
  const next = THEMES[(THEMES.indexOf(localStorage.getItem("toolwire-theme") ?? "auto") + 1) % THEMES.length];
  localStorage.setItem("toolwire-theme", next);
  applyTheme();
  toast(next === "auto" ? "Light or dark as the system is" : `Always ${next}`);
}

export function applyTheme() {
  const chosen = localStorage.getItem("toolwire-theme") ?? "auto";
  if (chosen === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}

function settingsDialog() {
  const roots = h("textarea", { id: "roots", rows: 3, placeholder: "file:///home/me/project", spellcheck: "false" });
  const level = h(
    "select",
    { id: "level" },
    LEVELS.map((each) => h("option", { value: each }, each)),
  );
  const about = h("div", { class: "about" });
  const access = h("div", { class: "about" });
  let fields = null;
  const dialog = h(
    "dialog",
    { class: "settings", "aria-labelledby": "settings-title" },
    h(
      "header",
      {},
      h("h2", { id: "settings-title" }, "Connection and settings"),
      iconButton("close", "Close", () => dialog.close()),
    ),
    h(
      "div",
      { class: "question-body" },
      about,
      access,
      h("div", { class: "field" }, h("label", { for: "level" }, "Log messages from this level on"), level),
      h(
        "div",
        { class: "field" },
        h("label", { for: "roots" }, "Roots, one address a line"),
        roots,
        h("p", { class: "hint" }, "The folders that the server may work in. It is told them when it asks."),
      ),
    ),
    h(
      "footer",
      { class: "actions" },
      h("span", { class: "spring" }),
      h("button", { type: "button", class: "primary", onclick: apply }, "Apply"),
    ),
  );
  level.value = "info";
  document.body.append(dialog);

  async function apply() {
    try {
      const change = fields?.change();
      if (change) await connectWith(change);
      if (state.connection.state !== "connected") return dialog.close();
      const lines = roots.value
        .split("\n")
        .map((line) => line.trim())
        .filter(Boolean);
      await post("roots", { roots: lines });
      if (state.connection.capabilities?.logging) await post("level", { level: level.value });
      dialog.close();
    } catch (error) {
      toast(error.message, "error");
    }
  }

  return {
    open() {
      const { label, url, command, server, capabilities, revision } = state.connection;
      roots.value = state.connection.roots.join("\n");
      fields = connectionFields();
      replace(access, fields.element);
      const facts = [
        ["Target", label],
        ["Address", url],
        ["Command", command?.join(" ")],
        ["Revision", revision],
      ].filter(([, value]) => value);
      replace(
        about,
        h(
          "dl",
          {},
          facts.map(([term, value]) => [h("dt", {}, term), h("dd", {}, h("code", {}, String(value).slice(0, 1000)))]),
        ),
        url || command?.length
          ? h("button", { type: "button", onclick: copyEntry }, icon("copy"), "Copy the entry for mcpServers")
          : null,
        server ? h("details", {}, h("summary", {}, "About the server"), tree(server, 1)) : null,
        capabilities ? h("details", {}, h("summary", {}, "Capabilities"), tree(capabilities, 3)) : null,
      );
      dialog.showModal();
    },
  };
}

/** Draws the strip for what nobody should miss: a file that cannot be loaded, an inspector that ended. */
export function banner(element) {
  function draw() {
    const error = state.reload?.error;
    // Without its token the page shows only that.
    if (state.lost?.status === 401) return replace(element);
    if (state.lost)
      return replace(
        element,
        h(
          "div",
          { class: "banner" },
          icon("alert"),
          h("p", {}, "The inspector no longer answers. Start it again, and open the address that it prints."),
        ),
      );
    if (!error) return replace(element);
    const place = error.file ? `${error.file}${error.line ? `:${error.line}` : ""}` : null;
    replace(
      element,
      h(
        "div",
        { class: "banner" },
        icon("alert"),
        h(
          "div",
          { class: "grow" },
          h("p", {}, h("strong", {}, error.message)),
          place ? h("code", {}, place) : null,
          error.code ? h("pre", {}, error.code) : null,
          h("p", { class: "hint" }, "What was loaded before is still served."),
        ),
      ),
    );
  }
  on("reload", (changes) => {
    draw();
    if (changes.some((change) => change && !change.error)) toast("The file was loaded again");
  });
  on("lost", draw);
  draw();
}
