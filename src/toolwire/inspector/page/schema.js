// Functions that read a JSON Schema for a form. Servers send the schemas, so nothing here trusts them: references are
// followed a bounded number of times, and a schema that is not understood becomes a field for JSON.

const MAX_HOPS = 20;
const MAX_OPTIONS = 500;

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** Finds the value that `#/a/b` points to; undefined when there is none, and for addresses outside of the schema. */
function pointed(root, reference) {
  if (typeof reference !== "string" || !reference.startsWith("#")) return undefined;
  if (reference === "#") return root;
  if (!reference.startsWith("#/")) return anchored(root, reference.slice(1));
  let found = root;
  for (const step of reference.slice(2).split("/")) {
    const name = decode(step).replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof found !== "object" || found === null || !Object.hasOwn(found, name)) return undefined;
    found = found[name];
  }
  return found;
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function anchored(root, name) {
  const places = [root?.$defs, root?.definitions].filter(isObject);
  for (const place of places) {
    for (const each of Object.values(place).slice(0, MAX_OPTIONS))
      if (isObject(each) && each.$anchor === name) return each;
  }
  return undefined;
}

/** Resolves the references and the `allOf` of a schema. */
export function resolve(schema, root) {
  let found = schema;
  for (let hops = 0; isObject(found) && found.$ref !== undefined; hops += 1) {
    if (hops >= MAX_HOPS) return {};
    const { $ref, ...beside } = found;
    const target = pointed(root, $ref);
    if (target === undefined)
      return { description: `The schema refers to ${String($ref).slice(0, 200)}, which it does not have.` };
    found = isObject(target) ? { ...target, ...beside } : target;
  }
  if (!isObject(found)) return found === false ? { not: {} } : {};
  return Array.isArray(found.allOf) ? merged(found, root) : found;
}

function merged(schema, root) {
  const { allOf, ...whole } = schema;
  for (const each of allOf.slice(0, 50)) {
    if (!isObject(each)) continue;
    const part = each.$ref === undefined ? each : resolveOnce(each, root);
    for (const [name, value] of Object.entries(part)) {
      if (name === "properties" && isObject(value)) whole.properties = { ...value, ...(whole.properties ?? {}) };
      else if (name === "required" && Array.isArray(value)) whole.required = [...(whole.required ?? []), ...value];
      else if (whole[name] === undefined && !["anyOf", "oneOf", "if", "then", "else"].includes(name))
        whole[name] = value;
    }
  }
  return whole;
}

function resolveOnce(schema, root) {
  const target = pointed(root, schema.$ref);
  return isObject(target) && target.$ref === undefined ? target : {};
}

/** Gives `[{value, label}]` for an enumeration in any of its spellings, else null. */
export function options(schema) {
  if (Array.isArray(schema.enum) && schema.enum.length <= MAX_OPTIONS) {
    const names = Array.isArray(schema.enumNames) ? schema.enumNames : [];
    return schema.enum.map((value, index) => ({ value, label: String(names[index] ?? labelOf(value)) }));
  }
  const alternatives = schema.oneOf ?? schema.anyOf;
  const isConst = (each) => isObject(each) && Object.hasOwn(each, "const");
  if (
    Array.isArray(alternatives) &&
    alternatives.length &&
    alternatives.length <= MAX_OPTIONS &&
    alternatives.every(isConst)
  ) {
    return alternatives.map((each) => ({ value: each.const, label: String(each.title ?? labelOf(each.const)) }));
  }
  return null;
}

function labelOf(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Gives the alternatives of a union, else null. */
export function alternatives(schema, root) {
  const listed = schema.oneOf ?? schema.anyOf;
  if (Array.isArray(listed) && listed.length > 1 && listed.every((each) => !isOnlyCondition(each))) {
    const shared = without(schema, ["oneOf", "anyOf", "title", "description", "default"]);
    return listed.slice(0, 50).map((each) => ({ ...shared, ...resolve(each, root) }));
  }
  if (Array.isArray(schema.type) && schema.type.length > 1)
    return schema.type.slice(0, 10).map((type) => ({ ...schema, type }));
  return null;
}

// `anyOf: [{required: [...]}, ...]` says which members go together; there is nothing to choose.
function isOnlyCondition(schema) {
  return (
    !isObject(schema) ||
    (schema.type === undefined &&
      schema.properties === undefined &&
      schema.$ref === undefined &&
      schema.const === undefined &&
      schema.enum === undefined &&
      schema.anyOf === undefined &&
      schema.oneOf === undefined)
  );
}

function without(object, names) {
  return Object.fromEntries(Object.entries(object).filter(([name]) => !names.includes(name)));
}

/** Names the editor for a schema. */
export function kindOf(schema, root) {
  if (Object.hasOwn(schema, "const")) return "const";
  if (options(schema)) return "choice";
  if (alternatives(schema, root)) return "union";
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (["string", "integer", "number", "boolean", "array", "object", "null"].includes(type)) return type;
  if (isObject(schema.properties)) return "object";
  if (schema.items !== undefined || schema.prefixItems !== undefined) return "array";
  return "any";
}

/** Names the type of a schema for people. */
export function nameOf(schema, root) {
  if (typeof schema.title === "string" && schema.title) return schema.title.slice(0, 80);
  const kind = kindOf(schema, root);
  if (kind === "const") return labelOf(schema.const).slice(0, 80);
  if (kind === "choice") return "choice";
  if (kind === "array")
    return options(shallow(schema.items)) ? "any of these" : `list of ${nameOf(shallow(schema.items), root)}`;
  return { any: "JSON", union: "one of several", string: "text", integer: "whole number" }[kind] ?? kind;
}

function shallow(items) {
  return isObject(items) && items.items === undefined && items.$ref === undefined ? items : {};
}

/** Lists the limits of a value, to show beside its field. */
export function limits(schema) {
  const facts = [];
  const say = (name, words) =>
    schema[name] !== undefined && facts.push(`${words} ${String(schema[name]).slice(0, 60)}`);
  say("minimum", "at least");
  say("exclusiveMinimum", "more than");
  say("maximum", "at most");
  say("exclusiveMaximum", "less than");
  say("multipleOf", "a multiple of");
  say("minLength", "min. length");
  say("maxLength", "max. length");
  say("minItems", "min. items");
  say("maxItems", "max. items");
  say("pattern", "pattern");
  if (typeof schema.format === "string") facts.push(schema.format.slice(0, 40));
  return facts;
}

/** Makes a value with the shape of a schema, for the JSON editor of an empty form. */
export function sample(schema, root, depth = 0) {
  const found = resolve(schema, root);
  if (found.default !== undefined) return found.default;
  switch (kindOf(found, root)) {
    case "const":
      return found.const;
    case "choice":
      return options(found)[0].value;
    case "union":
      return depth > 4 ? null : sample(alternatives(found, root)[0], root, depth + 1);
    case "string":
      return "";
    case "integer":
    case "number":
      return typeof found.minimum === "number" ? found.minimum : 0;
    case "boolean":
      return false;
    case "array":
      return [];
    case "object": {
      const value = {};
      const required = Array.isArray(found.required) ? found.required : [];
      if (depth > 4) return value;
      for (const name of required.slice(0, 100)) {
        if (isObject(found.properties) && Object.hasOwn(found.properties, name))
          value[name] = sample(found.properties[name], root, depth + 1);
      }
      return value;
    }
    default:
      return null;
  }
}
