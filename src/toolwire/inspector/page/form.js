// Whole forms: one for a JSON Schema, which can also be filled in as JSON, and one of plain texts.

import { choices, h, replace } from "./dom.js";
import { editor, MAX_PROPERTIES, nextId } from "./editors.js";
import { explain, jsonField, suggestingField, textField, Unusable } from "./fields.js";
import { kindOf, resolve, sample } from "./schema.js";

/** Makes the form of a schema, with a switch to JSON. `get` throws `Unusable` and focuses the field. */
export function schemaForm(schema, label) {
  const root = typeof schema === "object" && schema !== null ? schema : {};
  const empty =
    kindOf(resolve(root, root), root) === "object" &&
    !Object.keys(resolve(root, root).properties ?? {}).length &&
    root.additionalProperties !== true &&
    typeof root.additionalProperties !== "object";
  const form = editor({ type: "object", ...root }, { root, depth: 0, required: true, id: nextId() });
  const raw = jsonField({ id: nextId(), required: false, rows: 8 });
  raw.element.setAttribute("aria-label", `${label} as JSON`);
  const body = h("div", { class: "form-body" }, form.element);
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  let mode = "form";
  const switcher = choices(
    "How to fill it in",
    [
      ["form", "Form"],
      ["json", "JSON"],
    ],
    "form",
    (next) => {
      try {
        show(null);
        if (next === "json") {
          let value;
          try {
            value = form.get();
          } catch {
            value = sample(root, root);
          }
          raw.set(value);
        } else {
          form.set(raw.get() ?? {});
        }
        mode = next;
        replace(body, (mode === "json" ? raw : form).element);
      } catch (error) {
        switcher.choose(mode);
        show(error);
      }
    },
  );
  function show(error) {
    const beside = error instanceof Unusable && explain(error);
    problem.hidden = !error || beside;
    problem.textContent = error && !beside ? error.message : "";
  }
  return {
    element: h(
      "div",
      { class: "schema-form" },
      h("div", { class: "form-head" }, h("h3", {}, label), switcher),
      empty ? h("p", { class: "hint" }, "Takes no arguments.") : null,
      body,
      problem,
    ),
    get() {
      show(null);
      try {
        return (mode === "json" ? raw.get() : form.get()) ?? {};
      } catch (error) {
        show(error);
        throw error;
      }
    },
    set(value) {
      show(null);
      (mode === "json" ? raw : form).set(value);
    },
    /** Gives the values in the form that can be sent. */
    peek() {
      try {
        return (mode === "json" ? raw.get() : form.get()) ?? {};
      } catch {
        return (mode === "json" ? undefined : form.peek?.()) ?? {};
      }
    },
    show,
    focus: () => (mode === "json" ? raw : form).focus(),
  };
}

/** Sends a form on Enter in a field of one line, and on Ctrl or Command with Enter everywhere. */
export function submitOnEnter(event) {
  const oneLine = !event.shiftKey && event.target.matches("textarea:not(.code)");
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey || oneLine)) return;
  event.preventDefault();
  event.currentTarget.requestSubmit();
}

/** Makes a form of texts, such as the arguments of a prompt: `names` are `{name, description, required}`. */
export function textForm(names, label, suggest) {
  const fields = new Map();
  const rows = names.slice(0, MAX_PROPERTIES).map(({ name, description, required }) => {
    const id = nextId();
    const hint = description ? h("p", { class: "hint", id: `${id}-hint` }, String(description).slice(0, 2000)) : null;
    const place = { id, required: required === true, describedBy: hint ? `${id}-hint` : undefined };
    const field = suggest
      ? suggestingField((text, signal) => suggest(name, text, others(name), signal), place)
      : textField({}, place);
    fields.set(name, field);
    return h(
      "div",
      { class: "field" },
      h(
        "label",
        { for: id },
        h("span", { class: "name" }, name),
        required ? h("span", { class: "required" }, "required") : null,
      ),
      field.element,
      hint,
    );
  });
  function others(name) {
    return Object.fromEntries(
      [...fields]
        .filter(([each]) => each !== name)
        .map(([each, field]) => [each, field.get()])
        .filter(([, value]) => value),
    );
  }
  return {
    element: h(
      "div",
      { class: "schema-form" },
      names.length ? h("div", { class: "form-head" }, h("h3", {}, label)) : null,
      rows,
    ),
    get: () =>
      Object.fromEntries(
        [...fields].map(([name, field]) => [name, field.get()]).filter(([, value]) => value !== undefined),
      ),
    set(values) {
      for (const [name, field] of fields) field.set(values[name]);
    },
    focus: () => [...fields.values()][0]?.focus(),
  };
}
