// Editors for JSON Schemas: objects, lists and unions are made of single fields. Optional inner parts are made when
// somebody adds them, so that a schema which contains itself ends.

import { h, icon, replace } from "./dom.js";
import {
  booleanField,
  fixedField,
  jsonField,
  manyField,
  numberField,
  removeButton,
  selectField,
  textField,
  unusable,
} from "./fields.js";
import { alternatives, kindOf, limits, nameOf, options, resolve } from "./schema.js";

export const MAX_PROPERTIES = 150;
const MAX_DEPTH = 8;

let count = 0;
export const nextId = () => `field-${(count += 1)}`;

/** Makes the editor of a schema; `place` has the whole schema, the depth of this one, and whether it is required. */
export function editor(given, place) {
  const schema = resolve(given, place.root);
  const kind = kindOf(schema, place.root);
  if (kind === "const") return fixedField(schema.const);
  if (kind === "choice") return selectField(options(schema), place);
  if (kind === "string") return textField(schema, place);
  if (kind === "integer" || kind === "number") return numberField(schema, { ...place, whole: kind === "integer" });
  if (kind === "boolean") return booleanField(schema, place);
  if (kind === "null") return fixedField(null);
  if (place.depth >= MAX_DEPTH || kind === "any") return jsonField(place);
  if (kind === "union") return unionEditor(schema, place);
  if (kind === "array") return listEditor(schema, place);
  return objectEditor(schema, place);
}

function isContainer(schema, root) {
  const kind = kindOf(schema, root);
  return kind === "object" || kind === "union" || (kind === "array" && !options(resolve(schema.items ?? {}, root)));
}

/** Makes a label, the description of the value, and its editor. */
function labelled(name, given, place) {
  const schema = resolve(given, place.root);
  const id = nextId();
  const hintId = `${id}-hint`;
  const facts = limits(schema);
  const description = typeof schema.description === "string" ? schema.description.slice(0, 2000) : "";
  const hint =
    description || facts.length
      ? h(
          "p",
          { class: "hint", id: hintId },
          description ? h("span", {}, description) : null,
          facts.length ? h("span", { class: "facts" }, facts.join(" · ")) : null,
        )
      : null;
  const inner = { ...place, id, describedBy: hint ? hintId : undefined };
  const title =
    typeof schema.title === "string" && schema.title && schema.title !== name ? schema.title.slice(0, 120) : null;
  const heading = [
    h("span", { class: "name" }, name),
    title ? h("span", { class: "title" }, title) : null,
    h("span", { class: "type" }, nameOf({ ...schema, title: undefined }, place.root)),
    place.required ? h("span", { class: "required" }, "required") : null,
  ];
  const container = isContainer(schema, place.root);
  const lazy = container && !place.required && schema.default === undefined;
  const field = lazy ? optionalEditor(schema, inner, name) : editor(schema, inner);
  if (schema.default !== undefined) field.set(schema.default);
  const element = container
    ? h(
        "div",
        { class: "group", role: "group", "aria-labelledby": `${id}-name` },
        h("div", { class: "group-name", id: `${id}-name` }, heading),
        hint,
        field.element,
      )
    : h("div", { class: "field" }, h("label", { for: id }, heading), field.element, hint);
  return { ...field, element };
}

/** Makes the editor of an optional value, which is left out until somebody adds it. */
function optionalEditor(schema, place, name) {
  const box = h("div", { class: "optional" });
  let inner = null;
  const addButton = h(
    "button",
    {
      type: "button",
      class: "quiet",
      onclick: () => {
        open();
        inner.focus();
      },
    },
    icon("plus"),
    `Add ${name.slice(0, 60)}`,
  );
  function open() {
    inner = editor(schema, { ...place, required: true, depth: place.depth + 1 });
    replace(
      box,
      inner.element,
      h("button", { type: "button", class: "quiet", onclick: close }, icon("close"), `Leave ${name.slice(0, 60)} out`),
    );
  }
  function close() {
    inner = null;
    replace(box, addButton);
  }
  close();
  return {
    element: box,
    get: () => inner?.get(),
    set(value) {
      if (value === undefined) return close();
      open();
      inner.set(value);
    },
    focus: () => (inner ? inner.focus() : addButton.focus()),
  };
}

function objectEditor(schema, place) {
  const properties = typeof schema.properties === "object" && schema.properties !== null ? schema.properties : {};
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const names = Object.keys(properties);
  // What has to be filled in comes first; otherwise the order is the schema's.
  names.sort((one, other) => required.has(other) - required.has(one));
  const shown = names.slice(0, MAX_PROPERTIES);
  const fields = new Map();
  for (const name of shown) {
    fields.set(
      name,
      labelled(name, properties[name], {
        root: place.root,
        depth: place.depth + 1,
        required: required.has(name),
        suggest: place.suggest,
      }),
    );
  }
  const open = schema.additionalProperties !== false && schema.additionalProperties !== undefined;
  const more = open || !names.length ? membersEditor(schema, place) : null;
  const hidden = names.length - shown.length;
  let extra = {};
  const element = h(
    "div",
    { class: "members" },
    [...fields.values()].map((field) => field.element),
    more && (names.length || open) ? more.element : null,
    hidden > 0 ? h("p", { class: "hint" }, `${hidden} more members fit only into the JSON view.`) : null,
  );
  return {
    element,
    get() {
      const value = { ...extra };
      for (const [name, field] of fields) {
        const member = field.get();
        if (member !== undefined) value[name] = member;
      }
      return { ...value, ...(more?.get() ?? {}) };
    },
    /** Gives the members that can be sent, without those that cannot. */
    peek() {
      const value = {};
      for (const [name, field] of fields) {
        try {
          const member = field.get();
          if (member !== undefined) value[name] = member;
        } catch {
          // It is not filled in yet.
        }
      }
      return value;
    },
    set(value) {
      const given = typeof value === "object" && value !== null ? { ...value } : {};
      for (const [name, field] of fields) {
        field.set(given[name]);
        delete given[name];
      }
      if (more) more.set(given);
      else extra = given;
    },
    focus: () => (fields.size ? [...fields.values()][0].focus() : more?.focus()),
  };
}

/** Makes the editor of members whose names the schema leaves open. */
function membersEditor(schema, place) {
  const rows = h("div", { class: "rows" });
  let entries = [];
  const inner = typeof schema.additionalProperties === "object" ? schema.additionalProperties : {};
  function add(name = "", value = undefined) {
    const key = h("input", {
      type: "text",
      "aria-label": "Name of the member",
      placeholder: "name",
      ".value": name,
      spellcheck: "false",
    });
    const field = editor(inner, { root: place.root, depth: place.depth + 1, required: true, id: nextId() });
    if (value !== undefined) field.set(value);
    const entry = { key, field };
    const row = h(
      "div",
      { class: "row" },
      key,
      field.element,
      removeButton("Remove the member", () => {
        entries = entries.filter((each) => each !== entry);
        row.remove();
      }),
    );
    entries.push(entry);
    rows.append(row);
    return key;
  }
  const button = h(
    "button",
    { type: "button", class: "quiet", onclick: () => add().focus() },
    icon("plus"),
    "Add a member",
  );
  return {
    element: h("div", { class: "open-members" }, rows, button),
    get: () =>
      Object.fromEntries(
        entries.map(({ key, field }) => {
          if (key.value === "") throw unusable(key, "A member needs a name");
          return [key.value, field.get()];
        }),
      ),
    set(value) {
      entries = [];
      rows.replaceChildren();
      for (const [name, each] of Object.entries(value ?? {}).slice(0, MAX_PROPERTIES)) add(name, each);
    },
    focus: () => button.focus(),
  };
}

function listEditor(schema, place) {
  const items =
    schema.items === undefined || typeof schema.items === "boolean" ? {} : resolve(schema.items, place.root);
  if (options(items)) return manyField({ items }, place);
  const prefix = Array.isArray(schema.prefixItems) ? schema.prefixItems : [];
  const rows = h("div", { class: "rows" });
  let entries = [];
  function add(value = undefined) {
    const position = entries.length;
    const field = editor(prefix[position] ?? schema.items ?? {}, {
      root: place.root,
      depth: place.depth + 1,
      required: true,
      id: nextId(),
    });
    if (value !== undefined) field.set(value);
    const entry = { field };
    const row = h(
      "div",
      { class: "row" },
      h("div", { class: "grow" }, field.element),
      removeButton("Remove the item", () => {
        entries = entries.filter((each) => each !== entry);
        row.remove();
        button.focus();
      }),
    );
    entries.push(entry);
    rows.append(row);
    return field;
  }
  const button = h(
    "button",
    { type: "button", class: "quiet", onclick: () => add().focus() },
    icon("plus"),
    "Add an item",
  );
  const least = Math.min(Number.isInteger(schema.minItems) ? schema.minItems : 0, 10);
  if (place.required) for (let made = 0; made < Math.max(least, prefix.length); made += 1) add();
  return {
    element: h("div", { class: "list" }, rows, button),
    get() {
      const values = entries.map(({ field }) => field.get()).map((value) => (value === undefined ? null : value));
      return values.length || place.required ? values : undefined;
    },
    set(value) {
      entries = [];
      rows.replaceChildren();
      for (const each of (Array.isArray(value) ? value : []).slice(0, 500)) add(each);
    },
    focus: () => (entries.length ? entries[0].field.focus() : button.focus()),
  };
}

function unionEditor(schema, place) {
  const parts = alternatives(schema, place.root);
  const box = h("div", { class: "alternative" });
  const select = h("select", {
    id: place.id,
    "aria-describedby": place.describedBy,
    "aria-label": "Which kind of value",
  });
  parts.forEach((part, index) =>
    select.append(h("option", { value: String(index) }, `${index + 1}. ${nameOf(part, place.root)}`)),
  );
  let inner = null;
  function choose(index) {
    select.value = String(index);
    inner = editor(parts[index], { root: place.root, depth: place.depth + 1, required: place.required, id: nextId() });
    replace(box, inner.element);
  }
  select.addEventListener("change", () => choose(Number(select.value)));
  choose(0);
  return {
    element: h("div", { class: "union" }, select, box),
    get: () => inner.get(),
    set(value) {
      if (value === undefined) return choose(0);
      choose(
        Math.max(
          0,
          parts.findIndex((part) => fits(value, part, place.root)),
        ),
      );
      inner.set(value);
    },
    focus: () => select.focus(),
  };
}

/** Tells whether a value is of the kind of a schema, well enough to choose an alternative of a union. */
function fits(value, schema, root) {
  const kind = kindOf(schema, root);
  if (kind === "const") return JSON.stringify(schema.const) === JSON.stringify(value);
  if (kind === "choice")
    return options(schema).some((choice) => JSON.stringify(choice.value) === JSON.stringify(value));
  if (value === null) return kind === "null";
  if (Array.isArray(value)) return kind === "array";
  if (typeof value === "object")
    return kind === "object" && (schema.required ?? []).every((name) => Object.hasOwn(value, name));
  return kind === typeof value || (kind === "integer" && Number.isInteger(value));
}
