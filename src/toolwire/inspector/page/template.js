// URI templates (RFC 6570) for forms: the variables of a template, and the address for their values.

const EXPRESSION = /\{([+#./;?&]?)([^{}]{1,500})\}/g;

/** Lists the names of the variables, each once. */
export function variables(template) {
  const names = [...String(template).slice(0, 10_000).matchAll(EXPRESSION)].flatMap(([, , inside]) =>
    inside.split(",").map(plain),
  );
  return [...new Set(names.filter(Boolean))];
}

function plain(variable) {
  return variable.trim().replace(/(\*|:\d+)$/, "");
}

const FIRST = { "": "", "+": "", "#": "#", ".": ".", "/": "/", ";": ";", "?": "?", "&": "&" };
const BETWEEN = { "": ",", "+": ",", "#": ",", ".": ".", "/": "/", ";": ";", "?": "&", "&": "&" };

export function expand(template, values) {
  return String(template).replace(EXPRESSION, (whole, operator, inside) => {
    const parts = inside
      .split(",")
      .map((variable) => part(variable, operator, values))
      .filter((each) => each !== null);
    return parts.length ? FIRST[operator] + parts.join(BETWEEN[operator]) : "";
  });
}

function part(variable, operator, values) {
  const name = plain(variable);
  let value = values[name];
  if (value === undefined || value === "") return null;
  const length = /:(\d+)$/.exec(variable.trim());
  if (length) value = [...value].slice(0, Number(length[1])).join("");
  const text = operator === "+" || operator === "#" ? encodeURI(value).replaceAll("%25", "%") : strict(value);
  return operator === ";" || operator === "?" || operator === "&" ? `${name}=${text}` : text;
}

function strict(value) {
  return encodeURIComponent(value).replace(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
}
