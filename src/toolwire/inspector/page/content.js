// The contents of results, drawn by their type: text, Markdown, pictures, sound, tables, trees, links, pages.

import { part } from "./api.js";
import { bytes, choices, copy, h, icon, iconButton, replace, save } from "./dom.js";
import { link, safeAddress } from "./links.js";
import { looksLikeMarkdown, markdown } from "./markdown.js";
import { rowsOf, table, tree } from "./values.js";

// A picture of these types runs no script, whatever is in it.
const PICTURES = /^image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml)$/;
const SOUNDS = /^audio\/[\w.+-]{1,40}$/;
const MAX_PARSED = 2_000_000;

/** Draws a block; `place` has its call, its pointer in the result, the list of cuts, and a function that reads links. */
export function contentBlock(block, place) {
  if (typeof block !== "object" || block === null) return tree(block);
  switch (block.type) {
    case "text":
      return text(String(block.text ?? ""), "text/plain", at(place, "text"));
    case "image":
      return picture(block.mimeType, block.data, at(place, "data"));
    case "audio":
      return sound(block.mimeType, block.data, at(place, "data"));
    case "resource":
      return typeof block.resource === "object" && block.resource !== null
        ? resourceContents(block.resource, at(place, "resource"))
        : tree(block);
    case "resource_link":
      return resourceLink(block, place);
    default:
      return titled(`A block of type ${String(block.type).slice(0, 80)}`, tree(block, 1));
  }
}

function at(place, name) {
  return { ...place, pointer: `${place.pointer}/${name}` };
}

function titled(title, ...children) {
  return h("figure", { class: "block" }, h("figcaption", {}, title), children);
}

/** Draws the contents of a resource by their type. */
export function resourceContents(contents, place) {
  const type = typeof contents.mimeType === "string" ? contents.mimeType.split(";")[0].trim().toLowerCase() : "";
  const title = [
    h("code", {}, String(contents.uri ?? "").slice(0, 500)),
    type ? h("span", { class: "badge" }, type.slice(0, 80)) : null,
  ];
  if (typeof contents.blob === "string") {
    const inner = at(place, "blob");
    if (PICTURES.test(type)) return titled(title, picture(type, contents.blob, inner));
    if (SOUNDS.test(type)) return titled(title, sound(type, contents.blob, inner));
    return titled(title, binary(type, contents.blob, inner));
  }
  if (typeof contents.text === "string") return titled(title, text(contents.text, type, at(place, "text")));
  return titled(title, tree(contents, 1));
}

// --- Text ---

function text(whole, type, place) {
  const cut = place.cut.find((each) => each.pointer === place.pointer);
  const views = [];
  const parsed = cut ? undefined : json(whole);
  if (parsed !== undefined) {
    const rows = rowsOf(parsed);
    if (rows) views.push(["table", "Table", () => table(rows)]);
    views.push(["tree", "Tree", () => tree(parsed, 2)]);
  }
  if (type === "text/markdown" || (type !== "text/html" && parsed === undefined && looksLikeMarkdown(whole)))
    views.push(["markdown", "Markdown", () => markdown(whole)]);
  views.push(["text", "Text", () => h("pre", { class: "text" }, whole)]);
  if (type === "text/html") views.push(["page", "Page", () => page(whole)]);
  return viewer(views, whole, place, cut);
}

function json(whole) {
  const start = whole.trimStart()[0];
  if ((start !== "{" && start !== "[") || whole.length > MAX_PARSED) return undefined;
  try {
    return JSON.parse(whole);
  } catch {
    return undefined;
  }
}

/** Makes a view with a choice between several ways to show the same value. */
function viewer(views, whole, place, cut) {
  const body = h("div", { class: "view" });
  const show = (name) => replace(body, views.find(([each]) => each === name)[2]());
  show(views[0][0]);
  const tools = h(
    "div",
    { class: views.length > 1 ? "tools" : "tools lonely" },
    views.length > 1
      ? choices(
          "How to show it",
          views.map(([name, label]) => [name, label]),
          views[0][0],
          show,
        )
      : null,
    h("span", { class: "spring" }),
    iconButton("copy", "Copy the text", () => copy(whole, "Text")),
  );
  return h("div", { class: "viewer" }, tools, body, cut ? cutNote(cut, place) : null);
}

/** Says that a part was cut, and offers to save all of it. */
export function cutNote(cut, place) {
  const what =
    cut.kind === "text"
      ? `the first part of ${bytes(cut.size)}`
      : `a part of ${cut.size.toLocaleString("en")} ${cut.kind}`;
  const button = h(
    "button",
    { type: "button", class: "quiet", onclick: () => fetchWhole(button, cut, place) },
    icon("download"),
    "Save all of it",
  );
  return h("p", { class: "cut" }, `This is ${what}. `, button);
}

async function fetchWhole(button, cut, place) {
  button.disabled = true;
  const blob = await part({ call: place.call, pointer: cut.pointer });
  save(`result${cut.pointer.replaceAll("/", "-")}.txt`, blob, "text/plain");
  button.disabled = false;
}

/** Shows a web page of the server in a frame without scripts, forms, links to elsewhere or an origin of its own. */
function page(whole) {
  const url = URL.createObjectURL(new Blob([whole], { type: "text/html" }));
  const frame = h("iframe", {
    sandbox: "",
    src: url,
    title: "A page from the server, without its scripts",
    referrerpolicy: "no-referrer",
    class: "page",
  });
  frame.addEventListener("load", () => URL.revokeObjectURL(url), { once: true });
  return h("div", {}, h("p", { class: "hint" }, "Scripts, styles and everything from elsewhere are left out."), frame);
}

// --- Pictures, sounds, bytes ---

function dataAddress(type, data) {
  return `data:${type};base64,${String(data).replace(/[^A-Za-z0-9+/=]/g, "")}`;
}

function isCut(place) {
  return place.cut.find((each) => each.pointer === place.pointer);
}

function picture(type, data, place) {
  const cut = isCut(place);
  if (cut || !PICTURES.test(String(type))) return binary(String(type), data, place);
  const image = h("img", { src: dataAddress(type, data), alt: "A picture from the server", loading: "lazy" });
  const facts = h("figcaption", {}, `${type} · ${bytes(Math.floor((String(data).length * 3) / 4))}`);
  image.addEventListener("load", () => {
    facts.textContent += ` · ${image.naturalWidth} × ${image.naturalHeight}`;
  });
  image.addEventListener("error", () =>
    image.replaceWith(h("p", { class: "problem" }, "The browser cannot read this picture.")),
  );
  return h("figure", { class: "block picture" }, image, facts);
}

function sound(type, data, place) {
  const cut = isCut(place);
  if (cut || !SOUNDS.test(String(type))) return binary(String(type), data, place);
  return h(
    "figure",
    { class: "block" },
    h("audio", { controls: true, src: dataAddress(type, data) }),
    h("figcaption", {}, `${type} · ${bytes(Math.floor((String(data).length * 3) / 4))}`),
  );
}

function binary(type, data, place) {
  const cut = isCut(place);
  if (cut) return h("div", { class: "block" }, cutNote(cut, place));
  const size = bytes(Math.floor((String(data).length * 3) / 4));
  const button = h(
    "button",
    { type: "button", class: "quiet", onclick: () => saveBytes(data) },
    icon("download"),
    "Save",
  );
  return h("p", { class: "block" }, `${size} of ${type.slice(0, 80) || "an unknown type"} `, button);
}

function saveBytes(data) {
  const raw = atob(String(data).replace(/[^A-Za-z0-9+/=]/g, ""));
  save(
    "resource.bin",
    Uint8Array.from(raw, (char) => char.charCodeAt(0)),
    "application/octet-stream",
  );
}

// --- Links ---

function resourceLink(block, place) {
  const uri = String(block.uri ?? "");
  return h(
    "div",
    { class: "card" },
    icon("link"),
    h(
      "div",
      { class: "grow" },
      h("strong", {}, String(block.title ?? block.name ?? uri).slice(0, 300)),
      h("div", { class: "sub" }, safeAddress(uri) ? link(uri, uri.slice(0, 500)) : h("code", {}, uri.slice(0, 500))),
      block.description ? h("p", {}, String(block.description).slice(0, 1000)) : null,
    ),
    place.read ? h("button", { type: "button", class: "quiet", onclick: () => place.read(uri) }, "Read") : null,
  );
}

// --- Whole results ---

/** Draws the result of a tool, a resource, a prompt, or a method of an extension, whose members nobody knows. */
export function drawResult(method, result, place) {
  const inner = { pointer: "", ...place };
  if (method === "resources/read") return each(result.contents, "/contents", inner, resourceContents);
  if (method === "prompts/get") return promptMessages(result, inner);
  if (method === "tools/call") return toolResult(result, inner);
  return tree(Object.fromEntries(Object.entries(result).filter(([name]) => !["_meta", "resultType"].includes(name))), 3);
}

function each(items, pointer, place, draw) {
  if (!Array.isArray(items)) return tree(items ?? null);
  if (!items.length) return h("p", { class: "hint" }, "Empty.");
  return items.map((item, index) => draw(item, { ...place, pointer: `${pointer}/${index}` }));
}

function toolResult(result, place) {
  const structured = result.structuredContent;
  const parts = [];
  if (structured !== undefined) {
    const rows = rowsOf(structured);
    const views = [
      ...(rows ? [["table", "Table", () => table(rows)]] : []),
      ["tree", "Tree", () => tree(structured, 2)],
      ["text", "JSON", () => h("pre", { class: "text" }, JSON.stringify(structured, null, 2))],
    ];
    const cut = place.cut.find((each) => each.pointer.startsWith("/structuredContent"));
    parts.push(section("Structured content", viewer(views, JSON.stringify(structured, null, 2), place, cut)));
  }
  const blocks = each(result.content, "/content", place, contentBlock);
  // The text of a structured result says the same again, for clients that know no better.
  if (structured !== undefined && repeats(result.content, structured))
    parts.push(h("details", { class: "again" }, h("summary", {}, "The same as text"), blocks));
  else parts.push(structured === undefined ? blocks : section("Content", blocks));
  return parts;
}

function repeats(content, structured) {
  return (
    Array.isArray(content) &&
    content.length === 1 &&
    content[0]?.type === "text" &&
    JSON.stringify(json(String(content[0].text)) ?? content[0].text) === JSON.stringify(structured)
  );
}

function section(title, ...children) {
  return h("section", { class: "part" }, h("h4", {}, title), children);
}

function promptMessages(result, place) {
  const messages = Array.isArray(result.messages) ? result.messages : [];
  return [
    result.description ? h("p", { class: "hint" }, String(result.description).slice(0, 2000)) : null,
    messages.map((message, index) =>
      h(
        "div",
        { class: `message ${message?.role === "assistant" ? "assistant" : "user"}` },
        h("span", { class: "role" }, String(message?.role ?? "").slice(0, 40)),
        messageContent(message, { ...place, pointer: `/messages/${index}/content` }),
      ),
    ),
  ];
}

/** Draws the block, or the blocks, of one message of a conversation. */
export function messageContent(message, place) {
  const content = message?.content;
  return Array.isArray(content)
    ? content.map((block, index) => contentBlock(block, { ...place, pointer: `${place.pointer}/${index}` }))
    : contentBlock(content, place);
}
