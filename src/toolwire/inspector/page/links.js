// Links to addresses that a server sends.

import { h } from "./dom.js";

const SAFE = new Set(["http:", "https:", "mailto:"]);

/** Gives the address if a click may open it, else null; `javascript:`, `data:` and the like are refused. */
export function safeAddress(text) {
  if (typeof text !== "string" || text.length > 4000) return null;
  try {
    const url = new URL(text);
    return SAFE.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/** Makes a link that opens a new tab without a referrer; plain text when the address is not safe. */
export function link(address, ...children) {
  const safe = safeAddress(address);
  if (!safe) return h("span", { class: "dead-link", title: `Not opened: ${String(address).slice(0, 300)}` }, children);
  return h("a", { href: safe, target: "_blank", rel: "noopener noreferrer nofollow", title: safe }, children);
}
