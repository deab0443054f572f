// A form made from a JSON Schema. The answers go to a tool of the server, which judges them.
const DEEPEST = 5;
let numbered = 0;

/** A schema with its local reference, its null and its single `allOf` taken away. */
const plainSchema = (schema, root, steps = 0) => {
  if (steps > 20 || schema === null || typeof schema !== "object") return {};
  if (typeof schema.$ref === "string") {
    const found = schema.$ref.replace(/^#\/?/, "").split("/").filter(Boolean).reduce((node, part) => node?.[decodeURIComponent(part).replace(/~1/g, "/").replace(/~0/g, "~")], root);
    const { $ref, ...rest } = schema;
    return { ...plainSchema(found, root, steps + 1), ...rest };
  }
  const choices = schema.anyOf || schema.oneOf;
  if (Array.isArray(choices)) {
    const real = choices.filter((each) => each?.type !== "null");
    const { anyOf, oneOf, ...rest } = schema;
    if (real.length === 1) return { ...plainSchema(real[0], root, steps + 1), ...rest };
    if (real.every((each) => each && "const" in each)) return { ...rest, enum: real.map((each) => each.const), names: real.map((each) => each.title ?? each.const) };
  }
  if (schema.allOf?.length === 1) {
    const { allOf, ...rest } = schema;
    return { ...plainSchema(allOf[0], root, steps + 1), ...rest };
  }
  if (Array.isArray(schema.type)) return { ...schema, type: schema.type.find((each) => each !== "null") };
  return schema;
};
const named = (name, schema) => schema.title || name.replace(/_/g, " ").replace(/^./, (first) => first.toUpperCase());
const TYPES = { date: "date", "date-time": "datetime-local", time: "time", email: "email", uri: "url", "uri-reference": "url", password: "password" };

/** A field: its element, and `read`, which returns the value, or undefined for none. */
const field = (name, given, required, value, root, depth) => {
  const schema = plainSchema(given, root);
  const start = value === undefined ? schema.default : value;
  if (schema.type === "object" && schema.properties && depth < DEEPEST) return group(name, schema, required, start, root, depth);
  const items = schema.type === "array" ? plainSchema(schema.items || {}, root) : {};
  if (schema.type === "array" && items.enum) return several(name, schema, items, required, start);
  return single(name, schema, items, required, start);
};

const dressed = (name, schema, required, control, isChoice) => {
  const id = `f${++numbered}`, hint = schema.description ? h("p", { class: "hint", id: `${id}h`, dir: "auto" }, schema.description) : null;
  const wrong = h("p", { class: "wrong", id: `${id}w` });
  control.id = id;
  control.setAttribute("aria-describedby", `${hint ? `${id}h ` : ""}${id}w`);
  const label = h("label", { for: id, dir: "auto" }, named(name, schema), !required && !isChoice && h("span", { class: "optional" }, " (optional)"));
  control.wrong = wrong;
  return isChoice
    ? h("div", { class: "field" }, h("div", { class: "choice" }, control, label), hint, wrong)
    : h("div", { class: "field" }, label, control, hint, wrong);
};

const single = (name, schema, items, required, start) => {
  if (schema.enum) {
    const names = schema.names || schema.enumNames || schema.enum;
    const options = schema.enum.map((each, at) => h("option", { value: at, selected: JSON.stringify(each) === JSON.stringify(start) }, `${names[at] ?? each}`));
    const control = h("select", { required }, !required || start === undefined ? h("option", { value: "" }, required ? "Choose…" : "None") : null, options);
    return { element: dressed(name, schema, required, control), read: () => (control.value === "" ? undefined : schema.enum[Number(control.value)]) };
  }
  if (schema.type === "boolean") {
    const control = h("input", { type: "checkbox" });
    control.checked = start === true;
    return { element: dressed(name, schema, true, control, true), read: () => control.checked };
  }
  if (schema.type === "integer" || schema.type === "number") {
    const above = schema.minimum ?? schema.exclusiveMinimum, below = schema.maximum ?? schema.exclusiveMaximum;
    const step = schema.multipleOf ?? (schema.type === "integer" ? 1 : "any");
    const control = h("input", { type: "number", required, min: above, max: below, step, inputmode: schema.type === "integer" ? "numeric" : "decimal" });
    control.value = start ?? "";
    return { element: dressed(name, schema, required, control), read: () => (control.value === "" ? undefined : Number(control.value)) };
  }
  if (schema.type === "string") {
    const isLong = schema.maxLength > 200 || /^(multiline|textarea|markdown)$/.test(schema.format || "");
    const bounds = { required, minlength: schema.minLength, maxlength: schema.maxLength };
    const control = isLong ? h("textarea", { ...bounds, dir: "auto" }) : h("input", { ...bounds, type: TYPES[schema.format] || "text", pattern: usable(schema.pattern), dir: "auto" });
    control.value = start ?? "";
    // A moment without a zone is that of the user.
    const moment = (text) => (schema.format === "date-time" && text ? new Date(text).toISOString() : text);
    return { element: dressed(name, schema, required, control), read: () => (control.value === "" && !required ? undefined : moment(control.value)) };
  }
  const isList = schema.type === "array" && /^(string|number|integer)$/.test(items.type || "");
  const control = h("textarea", { required, dir: "auto", spellcheck: "false" });
  const isEmpty = start === undefined || start === null || Object.keys(start).length === 0;
  control.value = isEmpty ? "" : isList ? start.join("\n") : JSON.stringify(start, null, 2);
  const lines = () => control.value.split("\n").map((line) => line.trim()).filter(Boolean);
  const told = { ...schema, description: [schema.description, isList ? "One on each line." : "Written as JSON."].filter(Boolean).join(" ") };
  control.judge = () => {
    try {
      if (isList && items.type !== "string" && lines().some((line) => Number.isNaN(Number(line)))) return "Write one number on each line.";
      if (!isList && control.value.trim()) JSON.parse(control.value);
      return "";
    } catch {
      return "This is no JSON.";
    }
  };
  const read = () => {
    if (isList) return lines().length || required ? lines().map((line) => (items.type === "string" ? line : Number(line))) : undefined;
    return control.value.trim() ? JSON.parse(control.value) : undefined;
  };
  return { element: dressed(name, told, required, control), read };
};
/** A pattern that the attribute can have. It holds for the whole text there, and for a part of it in JSON Schema. */
const usable = (pattern) => {
  if (typeof pattern !== "string") return null;
  const whole = `${pattern.startsWith("^") ? "" : "[^]*"}(?:${pattern.replace(/^\^|\$$/g, "")})${pattern.endsWith("$") ? "" : "[^]*"}`;
  try {
    new RegExp(whole, "v");
    return whole;
  } catch {
    return null;
  }
};

const several = (name, schema, items, required, start) => {
  const names = items.names || items.enum, chosen = new Set((start || []).map((each) => JSON.stringify(each)));
  const boxes = items.enum.map((each, at) => {
    const box = h("input", { type: "checkbox", id: `f${++numbered}` });
    box.checked = chosen.has(JSON.stringify(each));
    return [box, h("div", { class: "choice" }, box, h("label", { for: box.id }, `${names[at]}`))];
  });
  const wrong = h("p", { class: "wrong", id: `f${++numbered}` });
  const read = () => items.enum.filter((_, at) => boxes[at][0].checked);
  const least = schema.minItems || 0, most = schema.maxItems ?? Infinity;
  if (boxes.length) {
    boxes[0][0].wrong = wrong;
    boxes[0][0].judge = () => (read().length < least ? `Choose at least ${least}.` : read().length > most ? `Choose at most ${most}.` : "");
  }
  const hint = schema.description && h("p", { class: "hint" }, schema.description);
  return { element: h("fieldset", { "aria-describedby": wrong.id }, h("legend", {}, named(name, schema)), boxes.map((each) => each[1]), hint, wrong), read: () => (read().length || required ? read() : undefined) };
};

/** The fields of an object. One that may be left out has a box in its legend, which turns its fields on. */
const group = (name, schema, required, start, root, depth) => {
  const fields = fieldsOf(schema, start, root, depth + 1);
  const box = h("input", { type: "checkbox", id: `f${++numbered}` });
  const legend = required ? h("legend", {}, named(name, schema)) : h("legend", { class: "choice" }, box, h("label", { for: box.id }, named(name, schema)));
  const element = h("fieldset", {}, legend, schema.description && h("p", { class: "hint" }, schema.description), fields.map((each) => each.element));
  const turn = () => { element.disabled = !required && !box.checked; };
  box.checked = required || (start !== undefined && start !== null);
  box.addEventListener("change", turn);
  turn();
  return { element, read: () => (element.disabled ? undefined : valueOf(fields)) };
};
const fieldsOf = (schema, values, root, depth) =>
  Object.entries(schema.properties || {}).slice(0, 200).map(([name, each]) => ({ name, ...field(name, each, (schema.required || []).includes(name), values?.[name], root, depth) }));
const valueOf = (fields) => Object.fromEntries(fields.map(({ name, read }) => [name, read()]).filter(([, value]) => value !== undefined));

const check = (form) => {
  let first = null;
  for (const control of form.elements) {
    if (!control.wrong) continue;
    control.setCustomValidity(control.judge?.() || "");
    const problem = control.validationMessage;
    control.wrong.textContent = problem;
    if (problem) control.setAttribute("aria-invalid", "true");
    else control.removeAttribute("aria-invalid");
    first ||= problem ? control : null;
  }
  first?.focus();
  return first === null;
};

start((result, data) => {
  if (!config.submit) return place(failed("This form has no tool that takes its answers."));
  const fields = fieldsOf(plainSchema(config.schema, config.schema), data?.values, config.schema, 0);
  const problem = h("div", {});
  const send = h("button", { class: "main", type: "button", onclick: () => submit() }, config.button);
  const inner = h("div", {}, fields.map((each) => each.element));
  const actions = h("div", { class: "actions" }, send);
  const form = h("form", { novalidate: true, "aria-label": config.title || "Form" }, problem, inner, actions);
  // Hosts need not allow forms to be submitted, and the browser tells no script about it then.
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing || event.target.localName !== "input") return;
    event.preventDefault();
    submit();
  });
  const submit = async () => {
    if (send.disabled || !check(form)) return;
    problem.replaceChildren();
    send.disabled = true;
    say("Sending…");
    try {
      const values = valueOf(fields);
      const answer = await call(config.submit, config.under ? { [config.under]: values } : values);
      const told = texts(answer) || "Done.";
      for (const control of form.elements) control.disabled = true;
      actions.replaceChildren();
      problem.append(notice(told, "good"));
      form.prepend(problem);
      say(told);
      tellModel(`The user sent the form "${config.title || config.submit}": ${told}`);
    } catch (error) {
      send.disabled = false;
      say("");
      problem.append(failed(error.message));
      send.focus();
    }
  };
  place(form);
});
