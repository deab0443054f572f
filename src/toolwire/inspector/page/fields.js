// Fields for single values. Every editor is `{element, get(), set(value), focus()}`; `get` gives undefined for a value
// that is left out, and throws `Unusable` for what cannot be sent.

import { h, icon } from "./dom.js";
import { options } from "./schema.js";

export class Unusable extends Error {
  constructor(message, element) {
    super(message);
    this.element = element;
  }
}

/** Marks a field as wrong, until it is changed. */
export function unusable(element, message) {
  element.setAttribute("aria-invalid", "true");
  element.addEventListener("input", () => element.removeAttribute("aria-invalid"), { once: true });
  return new Unusable(message, element);
}

let problemCount = 0;

/** Shows beside a field what is wrong until it changes, and focuses it; false when the field is not in the page. */
export function explain({ element, message }) {
  if (!element.isConnected) return false;
  document.getElementById(element.getAttribute("aria-errormessage"))?.remove();
  problemCount += 1;
  const id = `problem-${problemCount}`;
  const note = h("p", { class: "problem beside", role: "alert", id }, message);
  const around = element.parentElement;
  (around.matches(".row, .suggesting") ? around : element).after(note);
  element.setAttribute("aria-errormessage", id);
  element.addEventListener(
    "input",
    () => {
      note.remove();
      element.removeAttribute("aria-errormessage");
    },
    { once: true },
  );
  element.focus();
  element.scrollIntoView({ block: "nearest" });
  return true;
}

const INPUT_TYPES = { date: "date", time: "time", email: "email", uri: "url", url: "url", password: "password" };

export function textField(schema, { id, required, describedBy }) {
  const type = INPUT_TYPES[schema.format] ?? "text";
  const example = Array.isArray(schema.examples) ? schema.examples[0] : undefined;
  const common = {
    id,
    "aria-describedby": describedBy,
    "aria-required": required ? "true" : undefined,
    placeholder: example === undefined ? undefined : String(example).slice(0, 200),
    spellcheck: "false",
    autocomplete: "off",
  };
  const input = type === "text" ? h("textarea", { ...common, rows: 1 }) : h("input", { ...common, type });
  return {
    element: input,
    get() {
      // An empty field is left out. If the value is required, it is the empty text.
      if (input.value === "" && !required) return undefined;
      return input.value;
    },
    set(value) {
      input.value = typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value);
    },
    focus: () => input.focus(),
  };
}

export function numberField(schema, { id, required, describedBy, whole }) {
  const input = h("input", {
    id,
    type: "text",
    inputmode: whole ? "numeric" : "decimal",
    autocomplete: "off",
    "aria-describedby": describedBy,
    "aria-required": required ? "true" : undefined,
  });
  return {
    element: input,
    get() {
      const text = input.value.trim();
      if (text === "") {
        if (required) throw unusable(input, "A number is missing");
        return undefined;
      }
      const number = Number(text);
      if (!Number.isFinite(number)) throw unusable(input, `${text} is not a number`);
      if (whole && !Number.isInteger(number)) throw unusable(input, `${text} is not a whole number`);
      if (whole && !Number.isSafeInteger(number))
        throw unusable(input, `${text} is too large for a browser to send exactly`);
      return number;
    },
    set(value) {
      input.value = value === undefined || value === null ? "" : String(value);
    },
    focus: () => input.focus(),
  };
}

/** Makes a field for true, false and, where the value is optional, neither. */
export function booleanField(schema, { id, required, describedBy }) {
  if (required || typeof schema.default === "boolean") {
    const input = h("input", {
      id,
      type: "checkbox",
      class: "switch",
      role: "switch",
      "aria-describedby": describedBy,
    });
    return {
      element: input,
      get: () => input.checked,
      set: (value) => {
        input.checked = value === true;
      },
      focus: () => input.focus(),
    };
  }
  return selectField(
    [
      { value: true, label: "true" },
      { value: false, label: "false" },
    ],
    { id, required, describedBy },
  );
}

export function selectField(choices, { id, required, describedBy }) {
  const select = h("select", { id, "aria-describedby": describedBy });
  if (!required) select.append(h("option", { value: "" }, "—"));
  choices.forEach((choice, index) => select.append(h("option", { value: String(index) }, choice.label.slice(0, 200))));
  return {
    element: select,
    get: () => (select.value === "" ? undefined : choices[Number(select.value)].value),
    set(value) {
      const text = JSON.stringify(value);
      const index = choices.findIndex((choice) => JSON.stringify(choice.value) === text);
      select.value = index < 0 ? (required ? "0" : "") : String(index);
    },
    focus: () => select.focus(),
  };
}

/** Makes a row of boxes to tick, for several values of a list. */
export function manyField(schema, { id, required, describedBy }) {
  const choices = options(schema.items);
  const boxes = choices.map(() => h("input", { type: "checkbox" }));
  const element = h(
    "div",
    { class: "ticks", role: "group", id, "aria-describedby": describedBy },
    choices.map((choice, index) => h("label", {}, boxes[index], choice.label.slice(0, 200))),
  );
  return {
    element,
    get() {
      const chosen = choices.filter((choice, index) => boxes[index].checked).map((choice) => choice.value);
      return chosen.length || required ? chosen : undefined;
    },
    set(value) {
      const texts = (Array.isArray(value) ? value : []).map((each) => JSON.stringify(each));
      choices.forEach((choice, index) => {
        boxes[index].checked = texts.includes(JSON.stringify(choice.value));
      });
    },
    focus: () => boxes[0]?.focus(),
  };
}

/** Makes a field for any JSON. */
export function jsonField({ id, required, describedBy, rows = 3 }) {
  const area = h("textarea", {
    id,
    class: "code",
    rows,
    spellcheck: "false",
    autocomplete: "off",
    placeholder: "JSON",
    "aria-describedby": describedBy,
  });
  return {
    element: area,
    get() {
      const text = area.value.trim();
      if (text === "") {
        if (required) throw unusable(area, "A value is missing");
        return undefined;
      }
      try {
        return JSON.parse(text);
      } catch (error) {
        throw unusable(area, `That is not JSON: ${error.message}`);
      }
    },
    set(value) {
      area.value = value === undefined ? "" : JSON.stringify(value, null, 2);
    },
    focus: () => area.focus(),
  };
}

export function fixedField(value) {
  return { element: h("code", { class: "fixed" }, JSON.stringify(value)), get: () => value, set() {}, focus() {} };
}

let listCount = 0;

/** Makes a text field that suggests values while somebody types; `suggest(text, signal)` promises them. */
export function suggestingField(suggest, { id, required, describedBy }) {
  listCount += 1;
  const listId = `suggestions-${listCount}`;
  const input = h("input", {
    id,
    type: "text",
    role: "combobox",
    autocomplete: "off",
    spellcheck: "false",
    "aria-expanded": "false",
    "aria-controls": listId,
    "aria-autocomplete": "list",
    "aria-describedby": describedBy,
    "aria-required": required ? "true" : undefined,
  });
  const list = h("ul", {
    id: listId,
    role: "listbox",
    class: "suggestions",
    hidden: true,
    "aria-label": "Suggestions",
  });
  let active = -1;
  let timer = 0;
  let asking = null;

  function close() {
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }
  function mark(index) {
    active = index;
    [...list.children].forEach((each, at) => each.setAttribute("aria-selected", String(at === index)));
    if (index >= 0) {
      input.setAttribute("aria-activedescendant", list.children[index].id);
      list.children[index].scrollIntoView({ block: "nearest" });
    }
  }
  function take(value) {
    input.value = value;
    input.dispatchEvent(new Event("input", { bubbles: true }));
    clearTimeout(timer);
    close();
  }
  async function refresh() {
    asking?.abort();
    asking = new AbortController();
    let values;
    try {
      values = await suggest(input.value, asking.signal);
    } catch {
      return;
    }
    if (document.activeElement !== input || !values.length) return close();
    list.replaceChildren(
      ...values.map((value, index) =>
        h(
          "li",
          {
            id: `${listId}-${index}`,
            role: "option",
            "aria-selected": "false",
            onpointerdown: (event) => {
              event.preventDefault();
              take(value);
            },
          },
          value,
        ),
      ),
    );
    list.hidden = false;
    active = -1;
    input.setAttribute("aria-expanded", "true");
  }
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(refresh, 150);
  });
  input.addEventListener("focus", refresh);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (list.hidden || (event.key === "Enter" && (event.ctrlKey || event.metaKey))) {
      if (event.key === "ArrowDown") refresh();
      return;
    }
    const count = list.children.length;
    if (event.key === "ArrowDown") mark((active + 1) % count);
    else if (event.key === "ArrowUp") mark((active - 1 + count) % count);
    else if (event.key === "Enter" && active >= 0) take(list.children[active].textContent);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  return {
    element: h("div", { class: "suggesting" }, input, list),
    get: () => (input.value === "" && !required ? undefined : input.value),
    set(value) {
      input.value = value === undefined || value === null ? "" : String(value);
    },
    focus: () => input.focus(),
  };
}

export function removeButton(label, onclick) {
  return h(
    "button",
    { type: "button", class: "icon-button small", "aria-label": label, title: label, onclick },
    icon("close"),
  );
}
