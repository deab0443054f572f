// Addresses that come from a server.

import { h } from "./dom.js";

const SAFE = new Set(["http:", "https:", "mailto:"]);

/** The address, if it is one that a click may open; `javascript:`, `data:` and the like are not. */
export function safeAddress(text) {
  if (typeof text !== "string" || text.length > 4000) return null;
  try {
    const url = new URL(text);
    return SAFE.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/** A link that opens elsewhere and tells nobody where it was; plain text where the address is not safe. */
export function link(address, ...children) {
  const safe = safeAddress(address);
  if (!safe) return h("span", { class: "dead-link", title: `Not opened: ${String(address).slice(0, 300)}` }, children);
  return h("a", { href: safe, target: "_blank", rel: "noopener noreferrer nofollow", title: safe }, children);
}
