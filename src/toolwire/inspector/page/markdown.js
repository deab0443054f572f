// Markdown as elements. HTML in it stays text, images are named and not fetched, links go through `link`.
// Every search looks ahead a bounded distance, so that no text takes more than linear time.

import { h } from "./dom.js";
import { link } from "./links.js";

const AHEAD = 1500;
const MAX_DEPTH = 6;

/** Whether a text looks as if it was written as Markdown. */
export function looksLikeMarkdown(text) {
  const start = text.slice(0, 4000);
  return (
    /^#{1,6} \S/m.test(start) ||
    /^```/m.test(start) ||
    /^\s{0,3}[-*] \S/m.test(start) ||
    /\*\*[^*\n]{1,200}\*\*/.test(start) ||
    /\[[^\]\n]{1,200}\]\([^)\s]{1,400}\)/.test(start) ||
    /^\|.{1,300}\|\s*$/m.test(start)
  );
}

let highest = 3;

/** Makes elements of a text. `level` is that of its highest headings. */
export function markdown(text, level = 3) {
  highest = level;
  return h("div", { class: "markdown" }, blocks(text.split("\n"), 0));
}

function blocks(lines, depth) {
  const made = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    if (!line.trim()) {
      at += 1;
      continue;
    }
    const [element, next] = block(lines, at, depth);
    made.push(element);
    at = next;
  }
  return made;
}

function block(lines, at, depth) {
  const line = lines[at];
  const fence = /^\s{0,3}(```+|~~~+)\s*([\w+#.-]{0,40})/.exec(line);
  if (fence) return codeBlock(lines, at, fence[1]);
  const heading = /^\s{0,3}(#{1,6})\s+(.*)$/.exec(line);
  if (heading)
    return [h(`h${Math.min(6, heading[1].length - 1 + highest)}`, {}, inline(heading[2].replace(/\s#+\s*$/, ""))), at + 1];
  if (/^\s{0,3}([-*_])(\s*\1){2,}\s*$/.test(line.slice(0, 200))) return [h("hr", {}), at + 1];
  if (depth < MAX_DEPTH && /^\s{0,3}>/.test(line)) return quote(lines, at, depth);
  if (depth < MAX_DEPTH && bullet(line)) return list(lines, at, depth);
  if (
    line.includes("|") &&
    /^\s*\|?[\s:|-]+\|[\s:|-]*$/.test((lines[at + 1] ?? "").slice(0, 1000)) &&
    (lines[at + 1] ?? "").includes("-")
  )
    return table(lines, at);
  return paragraph(lines, at, depth);
}

function codeBlock(lines, at, fence) {
  let end = at + 1;
  while (end < lines.length && !lines[end].trimStart().startsWith(fence)) end += 1;
  return [h("pre", {}, h("code", {}, lines.slice(at + 1, end).join("\n"))), end + 1];
}

function quote(lines, at, depth) {
  let end = at;
  while (end < lines.length && /^\s{0,3}>/.test(lines[end])) end += 1;
  return [
    h(
      "blockquote",
      {},
      blocks(
        lines.slice(at, end).map((each) => each.replace(/^\s{0,3}> ?/, "")),
        depth + 1,
      ),
    ),
    end,
  ];
}

function bullet(line) {
  return /^(\s{0,12})([-*+]|\d{1,9}[.)])\s+(.*)$/.exec(line);
}

function list(lines, at, depth) {
  const first = bullet(lines[at]);
  const indent = first[1].length;
  const ordered = /\d/.test(first[2]);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const found = bullet(lines[end]);
    if (!found || found[1].length !== indent || /\d/.test(found[2]) !== ordered) break;
    const inner = [found[3]];
    end += 1;
    while (
      end < lines.length &&
      (/^\s+\S/.test(lines[end])
        ? lines[end].search(/\S/) > indent
        : lines[end].trim() === "" && /^\s+\S/.test(lines[end + 1] ?? "") && lines[end + 1].search(/\S/) > indent)
    ) {
      inner.push(lines[end].slice(Math.min(indent + 2, lines[end].search(/\S|$/))));
      end += 1;
    }
    const content = blocks(inner, depth + 1);
    items.push(h("li", {}, content.length === 1 && content[0].tagName === "P" ? [...content[0].childNodes] : content));
  }
  return [h(ordered ? "ol" : "ul", {}, items), end];
}

function cells(line) {
  return line
    .trim()
    .replace(/^\||\|$/g, "")
    .split("|")
    .slice(0, 100)
    .map((cell) => cell.trim());
}

function table(lines, at) {
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|") && lines[end].trim()) end += 1;
  const head = h(
    "tr",
    {},
    cells(lines[at]).map((cell) => h("th", {}, inline(cell))),
  );
  const body = lines.slice(at + 2, end).map((line) =>
    h(
      "tr",
      {},
      cells(line).map((cell) => h("td", {}, inline(cell))),
    ),
  );
  return [h("div", { class: "table-box" }, h("table", {}, h("thead", {}, head), h("tbody", {}, body))), end];
}

function paragraph(lines, at, depth) {
  let end = at + 1;
  while (
    end < lines.length &&
    lines[end].trim() &&
    !/^\s{0,3}(#{1,6}\s|```|~~~|>)/.test(lines[end]) &&
    !(depth < MAX_DEPTH && bullet(lines[end]))
  )
    end += 1;
  return [h("p", {}, inline(lines.slice(at, end).join("\n"))), end];
}

// --- Inside a line ---

function until(text, mark, from) {
  const found = text.slice(from, from + AHEAD).indexOf(mark);
  return found < 0 ? -1 : from + found;
}

function inline(text, depth = 0) {
  const made = [];
  let plain = 0;
  let at = 0;
  const flush = (end) => end > plain && made.push(text.slice(plain, end));
  while (at < text.length) {
    const found = depth < MAX_DEPTH ? span(text, at, depth) : null;
    if (found) {
      flush(at);
      made.push(found[0]);
      at = plain = found[1];
    } else {
      at += 1;
    }
  }
  flush(text.length);
  return made;
}

function span(text, at, depth) {
  const char = text[at];
  if (char === "\\" && /[\\`*_[\]()#|!>~-]/.test(text[at + 1] ?? "")) return [text[at + 1], at + 2];
  if (char === "`") return code(text, at);
  if (char === "*" || char === "_" || char === "~") return emphasis(text, at, depth);
  if (char === "[" || (char === "!" && text[at + 1] === "[")) return named(text, at, depth);
  if (char === "h" && /^https?:\/\/[^\s<>"')\]]{1,1000}/.test(text.slice(at, at + 1100))) {
    const address = /^https?:\/\/[^\s<>"')\]]{1,1000}/.exec(text.slice(at, at + 1100))[0].replace(/[.,;:!?]+$/, "");
    return [link(address, address), at + address.length];
  }
  return null;
}

function code(text, at) {
  const mark = /^`+/.exec(text.slice(at, at + 10))[0];
  const end = until(text, mark, at + mark.length);
  return end < 0 ? null : [h("code", {}, text.slice(at + mark.length, end)), end + mark.length];
}

function emphasis(text, at, depth) {
  const mark = text[at + 1] === text[at] ? text[at].repeat(2) : text[at];
  if (mark === "~") return null;
  // `snake_case_names` are not emphasis.
  if (text[at] === "_" && /\w/.test(text[at - 1] ?? "")) return null;
  if (/\s/.test(text[at + mark.length] ?? " ")) return null;
  const end = until(text, mark, at + mark.length + 1);
  if (end < 0 || (text[at] === "_" && /\w/.test(text[end + mark.length] ?? ""))) return null;
  const tag = mark === "~~" ? "s" : mark.length === 2 ? "strong" : "em";
  return [h(tag, {}, inline(text.slice(at + mark.length, end), depth + 1)), end + mark.length];
}

/** Where the parenthesis that is open at `from` is closed, those inside of it counted. */
function closing(text, from) {
  let open = 1;
  for (let at = from; at < Math.min(text.length, from + AHEAD); at += 1) {
    if (text[at] === "(") open += 1;
    else if (text[at] === ")" && (open -= 1) === 0) return at;
  }
  return -1;
}

function named(text, at, depth) {
  const image = text[at] === "!";
  const open = at + (image ? 2 : 1);
  const close = until(text, "](", open);
  if (close < 0 || text.slice(open, close).includes("\n\n")) return null;
  const end = closing(text, close + 2);
  if (end < 0) return null;
  const label = text.slice(open, close);
  const address = text
    .slice(close + 2, end)
    .trim()
    .split(/\s/, 1)[0];
  // A picture that were fetched would tell its host who is looking.
  if (image) return [h("span", { class: "picture" }, link(address, `image: ${label || address}`)), end + 1];
  return [link(address, inline(label, depth + 1)), end + 1];
}
