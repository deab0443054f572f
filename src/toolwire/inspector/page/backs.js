// The servers behind a gateway: their state, what they offer, and how the requests to them went.

import { clock, duration, h, icon, plural, refresh, replace } from "./dom.js";
import { state } from "./store.js";
import { virtualList } from "./virtual.js";

const TRANSPORTS = { http: "HTTP", stdio: "stdio", memory: "in this process" };

/** Makes the panel of the drawer with the servers. */
export function backsPanel() {
  let chosen = null;
  const list = virtualList({
    label: "Servers behind the gateway",
    empty: "The gateway has no server behind it.",
    rowHeight: 34,
    keyOf: (back) => back.name,
    draw: row,
    onchoose: (back) => {
      // A second click shows the configuration again.
      chosen = chosen === back.name ? null : back.name;
      describe();
    },
  });
  const side = h("div", { class: "side" });

  function row(back, element) {
    element.classList.add("call-row", "fleet-row", "back-row");
    element.append(
      h("span", { class: `state ${back.state}` }, back.state),
      h("span", { class: "method" }, back.name),
      h("span", { class: "note-text" }, back.error ?? offers(back)),
      h("span", { class: "figure" }, era(back)),
      h("span", { class: "figure" }, plural(back.requests, "request")),
      h("span", { class: "figure took" }, duration(back.took)),
    );
  }

  function describe() {
    const back = state.backs?.find((each) => each.name === chosen);
    if (!back) return describeFile();
    const facts = [
      ["Revision", back.revision ?? "not reached yet"],
      ["Era", back.revision ? era(back) : "unknown"],
      ["Transport", TRANSPORTS[back.transport] ?? back.transport],
      ["Offers", offers(back)],
      ["Last change", back.lastChange === null ? "none yet" : clock(back.lastChange)],
      ["Requests", `${back.requests}, ${back.failures} failed, ${back.inFlight} in flight`],
      ["Time to answer", duration(back.took) || "none yet"],
    ];
    facts.push(...back.further);
    if (back.hidden.length) facts.push(["Hidden names", back.hidden.join(", ").slice(0, 2000)]);
    refresh(
      side,
      h("div", { class: "side-head" }, h("strong", {}, back.name), h("span", { class: `state ${back.state}` }, back.state)),
      back.error ? h("p", { class: "problem" }, icon("alert"), back.error) : null,
      h(
        "dl",
        { class: "facts-list" },
        facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
      ),
    );
  }

  function describeFile() {
    const file = state.configuration;
    if (!file) return replace(side);
    const facts = [
      ["File", file.file ?? "none: a program made it"],
      ["In force since", clock(file.loaded)],
      ["Changes since the start", String(file.reloads)],
      ["Needs a restart", file.restart.join(", ") || "nothing"],
    ];
    if (file.leaving.length) facts.push(["Leaving when their calls end", file.leaving.join(", ")]);
    refresh(
      side,
      h(
        "div",
        { class: "side-head" },
        h("strong", {}, "Configuration"),
        h("span", { class: `state ${file.error ? "away" : "ready"}` }, file.error ? "wrong" : "in force"),
      ),
      file.error ? h("p", { class: "problem" }, icon("alert"), file.error) : null,
      h(
        "dl",
        { class: "facts-list" },
        facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
      ),
    );
  }

  function show() {
    list.show(state.backs ?? []);
    describe();
  }

  return { element: h("div", { class: "split" }, list.element, side), show };
}

function era({ revision }) {
  if (!revision) return "";
  return revision >= "2026-07-28" ? "modern" : "legacy";
}

function offers({ tools, prompts, resources }) {
  return [plural(tools, "tool"), plural(prompts, "prompt"), plural(resources, "resource")].join(", ");
}
