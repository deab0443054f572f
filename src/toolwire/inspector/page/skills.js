// A skill: its files with their digests, what was verified, what was refused, and why.

import { post } from "./api.js";
import { bytes, h, icon, replace, toast } from "./dom.js";
import { markdown } from "./markdown.js";
import { tree } from "./values.js";

const STATES = {
  verified: "badge good",
  refused: "badge danger",
  "not read": "badge",
  "not verifiable": "badge warn",
};

/** Makes the view of a skill. Nothing is read before somebody presses the button. */
export function skill(definition, outcome) {
  if (definition.refused) return { view: h("div", { class: "run" }, fault("The entry is refused", definition.refused)) };
  const findings = (definition.findings ?? []).map((text) => h("p", { class: "problem" }, icon("alert"), text));
  const dynamic = definition.dynamic
    ? h("p", { class: "hint" }, "The server generates this skill. It has no digests, so that nothing can be verified.")
    : null;
  async function submit(event) {
    event.preventDefault();
    await ask(outcome, "skill", { uri: definition.uri, dynamic: definition.dynamic === true }, definition);
  }
  const label = definition.dynamic ? "Load without verification" : "Load and verify";
  return {
    view: h(
      "form",
      { class: "run", novalidate: true, onsubmit: submit },
      findings,
      dynamic,
      files(definition.entry.resources),
      h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, icon("play"), label)),
    ),
  };
}

/** Lists the files that the entry names, before anything of them is read. */
function files(resources) {
  if (!Array.isArray(resources)) return null;
  const rows = resources.map(({ uri, digest, size }) => ({ path: uri, digest, size, state: "not read" }));
  return h("details", { class: "again" }, h("summary", {}, `Files in the entry: ${rows.length}`), table(rows, null));
}

async function ask(outcome, operation, asked, definition) {
  try {
    draw(outcome, await post(operation, asked), definition);
  } catch (error) {
    toast(error.message, "error");
  }
}

function draw(outcome, answer, definition) {
  const read = answer.refused
    ? null
    : (path) => ask(outcome, "skillFile", { uri: definition.uri, path }, definition);
  replace(
    outcome,
    h(
      "section",
      { class: "result skill", "aria-label": "What was verified" },
      answer.refused
        ? fault("The skill is refused", answer.refused)
        : h("p", { class: "line" }, definition.dynamic ? "Loaded. Nothing of it can be verified." : verdict()),
      answer.changed ? h("p", { class: "problem" }, "The server has shown other files since: load the skill again.") : null,
      table(answer.files, read),
      answer.file ? contents(answer.file) : null,
      answer.body === null ? null : h("details", { open: !answer.file }, h("summary", {}, "Instructions"), markdown(answer.body)),
    ),
  );
}

function verdict() {
  return "Loaded. Size and digest of SKILL.md fit the entry, and its frontmatter is the same in every field.";
}

function table(rows, read) {
  const titles = ["File", "Size", "Digest", "State"].map((text) => h("th", { scope: "col" }, text));
  const lines = rows.map((row) => line(row, read));
  return h(
    "div",
    { class: "table-box" },
    h("table", { class: "skill-files" }, h("thead", {}, h("tr", {}, titles)), h("tbody", {}, lines)),
  );
}

function line({ path, size, digest, state, message }, read) {
  const name = h("code", {}, path.slice(0, 400));
  const cell = read
    ? h("button", { type: "button", class: "quiet", onclick: () => read(path), title: "Read and verify this file" }, name)
    : name;
  return h(
    "tr",
    {},
    h("td", {}, cell),
    h("td", {}, typeof size === "number" ? bytes(size) : ""),
    h("td", {}, digest ? h("code", { title: digest }, digest.slice(0, 19), "…") : "none"),
    h("td", {}, h("span", { class: STATES[state] ?? "badge", title: message ?? "" }, state)),
  );
}

function contents({ path, refused, text, size, mimeType }) {
  if (refused) return fault(`${path} is refused`, refused);
  return h(
    "section",
    {},
    h("h3", {}, path),
    text === null
      ? h("p", { class: "hint" }, `${bytes(size)} of ${mimeType ?? "an unknown type"}, which is not a text.`)
      : h("pre", { class: "text" }, text),
  );
}

function fault(title, { reason, message, expected, found }) {
  return h(
    "div",
    { class: "problem" },
    h("p", {}, icon("alert"), `${title} (${reason}): ${message}`),
    expected === null && found === null ? null : h("div", {}, "Expected ", tree(expected, 0), "Found ", tree(found, 0)),
  );
}
