/* toolwire-view.js: a view's half of MCP Apps. A handler that comes late gets the latest value. */
(() => {
"use strict";
if (window.toolwire) return;
const NOTICE = "ui/notifications/", root = document.documentElement;
const waiting = new Map(), handlers = new Map(), latest = new Map(), memory = new Map();
const options = { name: "", version: "1", displayModes: ["inline"], autoSize: true, manual: false };
let count = 0, connection, host = {}, context = {}, timer, fonts, sent = "", last = 0, grown = 0, soon;

const send = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
const notify = (method, params = {}) => send({ method, params });
const request = (method, params) => new Promise((resolve, reject) => {
  waiting.set(++count, { resolve, reject });
  send({ id: count, method, params });
});
const ask = async (method, params) => {
  await connect();
  // Mounts and gateways prefix names.
  const tool = context.toolInfo?.tool, own = tool?._meta?.["io.toolwire/name"];
  if (params.name && own && tool.name.endsWith(own)) params.name = tool.name.slice(0, -own.length) + params.name;
  return request(method, params);
};

const on = (name, handler) => {
  handlers.set(name, [...(handlers.get(name) || []), handler]);
  if (latest.has(name)) queueMicrotask(() => handler(latest.get(name)));
};
const tell = (name, value) => {
  if (name !== "partial" && name !== "teardown") latest.set(name, value);
  return Promise.all((handlers.get(name) || []).map(async (handler) => handler(value))).catch(console.error);
};

const apply = (change) => {
  const { theme, displayMode, styles } = change;
  context = { ...context, ...change };
  if (theme) root.style.colorScheme = root.dataset.theme = theme;
  if (displayMode) root.dataset.displayMode = displayMode;
  for (const [name, value] of Object.entries(styles?.variables || {}))
    if (name.startsWith("--") && value) root.style.setProperty(name, value);
  if (styles?.css?.fonts) {
    fonts ||= document.head.appendChild(document.createElement("style"));
    fonts.textContent = styles.css.fonts;
  }
  tell("context", context);
  resized();
};

const measure = () => {
  const box = context.containerDimensions || {};
  if (box.height) return;
  root.style.height = "max-content";
  const height = Math.min(Math.ceil(root.getBoundingClientRect().height), box.maxHeight || Infinity);
  root.style.height = "";
  const size = { width: innerWidth, height }, text = JSON.stringify(size);
  if (text === sent) return;
  grown = last && height > last && innerHeight >= last && Date.now() < soon ? grown + 1 : 0;
  if (grown > 20) return console.warn("The view grows with its frame");
  [sent, last, soon] = [text, height, Date.now() + 400];
  notify(NOTICE + "size-changed", size);
};
const resized = () => {
  if (!options.autoSize || !latest.has("ready")) return;
  clearTimeout(timer);
  timer = setTimeout(measure, 20);
};

addEventListener("message", async ({ source, data }) => {
  if (source !== parent || data?.jsonrpc !== "2.0") return;
  const { id, method, params = {}, error } = data;
  if (!method) {
    const held = waiting.get(id);
    waiting.delete(id);
    if (error) held?.reject(Object.assign(Error(error.message), error));
    else held?.resolve(data.result);
  } else if (id !== undefined) {
    if (method === "ui/resource-teardown") await tell("teardown", params);
    else if (method !== "ping") return send({ id, error: { code: -32601, message: "Method not found" } });
    send({ id, result: {} });
  } else if (method === NOTICE + "host-context-changed") apply(params);
  else {
    const name = /\/tool-(?:input-)?(input|partial|result|cancelled)$/.exec(method)?.[1];
    if (name) tell(name, /^(in|pa)/.test(name) ? params.arguments || {} : params);
  }
});

const connect = () => connection ||= (async () => {
  const { name, version, displayModes } = options;
  host = await request("ui/initialize", {
    protocolVersion: "2026-01-26", appInfo: { name: name || document.title || "view", version }, appCapabilities: { availableDisplayModes: displayModes },
  });
  latest.set("ready", host);
  apply(host.hostContext || {});
  notify(NOTICE + "initialized");
  new ResizeObserver(resized).observe(document.body);
  tell("ready", host);
  return host;
})();

let storage = {
  getItem: (key) => memory.get(key) ?? null,
  setItem: (key, value) => void memory.set(key, `${value}`),
  removeItem: (key) => void memory.delete(key),
};
// An opaque origin has no localStorage.
try { localStorage.length; storage = localStorage; } catch {}
const list = (content) => [content].flat().map((each) => each.type ? each : { type: "text", text: `${each}` });

window.toolwire = {
  options, on, connect, storage,
  get host() { return host; },
  get context() { return context; },
  get input() { return latest.get("input"); },
  get result() { return latest.get("result"); },
  data: (result = latest.get("result")) => {
    if (result?.structuredContent !== undefined) return result.structuredContent;
    try { return JSON.parse(result.content.find((each) => each.text).text); } catch {}
  },
  callTool: (name, args = {}) => ask("tools/call", { name, arguments: args }),
  readResource: (uri) => ask("resources/read", { uri }),
  openLink: (url) => ask("ui/open-link", { url }),
  download: (contents) => ask("ui/download-file", { contents: [contents].flat() }),
  message: (content) => ask("ui/message", { role: "user", content: list(content) }),
  updateModelContext: (content, structuredContent) =>
    ask("ui/update-model-context", { content: list(content ?? []), structuredContent }),
  requestDisplayMode: (mode) => ask("ui/request-display-mode", { mode }),
  log: (level, data) => notify("notifications/message", { level, data }),
  close: () => notify(NOTICE + "request-teardown"),
};
const start = () => setTimeout(() => options.manual || connect().catch(console.error));
if (document.readyState === "loading") addEventListener("DOMContentLoaded", start);
else start();
})();
