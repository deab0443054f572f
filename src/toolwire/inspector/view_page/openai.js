// `window.openai`, as ChatGPT gives it to a view, made of the messages of MCP Apps. The inspector writes GLOBALS above.
(() => {
  const NOTICE = "ui/notifications/";
  // Milliseconds that a page gets to start the handshake itself.
  const PATIENCE = 500;
  const host = window.parent;
  const waiting = new Map();
  let count = 0;
  let isSpoken = false;
  let becomeReady;
  const ready = new Promise((resolve) => {
    becomeReady = resolve;
  });

  const send = (message) => host.postMessage({ jsonrpc: "2.0", ...message }, "*");

  function request(method, params) {
    count += 1;
    const id = `openai-${count}`;
    return new Promise((resolve, reject) => {
      waiting.set(id, { resolve, reject });
      send({ id, method, params });
    });
  }

  async function ask(method, params) {
    await ready;
    return request(method, params);
  }

  function set(change) {
    Object.assign(window.openai, change);
    window.dispatchEvent(new CustomEvent("openai:set_globals", { detail: { globals: change } }));
  }

  function fromContext({ theme, locale, displayMode, containerDimensions }) {
    const change = { theme, locale, displayMode, maxHeight: containerDimensions?.maxHeight ?? containerDimensions?.height };
    return Object.fromEntries(Object.entries(change).filter(([, value]) => value !== undefined));
  }

  window.addEventListener("message", ({ source, data }) => {
    if (source !== host || data?.jsonrpc !== "2.0") return;
    const held = waiting.get(data.id);
    if (held) {
      waiting.delete(data.id);
      if (data.error) held.reject(new Error(data.error.message));
      else held.resolve(data.result);
    } else if (data.result?.hostContext) isSpoken = true; // The page itself speaks with the host.
    else if (data.method === `${NOTICE}tool-input`) {
      becomeReady();
      set({ toolInput: data.params.arguments });
    } else if (data.method === `${NOTICE}tool-result`)
      set({ toolOutput: data.params.structuredContent ?? null, toolResponseMetadata: data.params._meta ?? null });
    else if (data.method === `${NOTICE}host-context-changed`) set(fromContext(data.params));
  });

  async function speak() {
    if (isSpoken) return;
    await request("ui/initialize", {
      protocolVersion: "2026-01-26",
      appInfo: { name: document.title || "view", version: "1" },
      appCapabilities: { availableDisplayModes: ["inline", "fullscreen", "pip"] },
    });
    send({ method: `${NOTICE}initialized`, params: {} });
  }
  window.addEventListener("load", () => setTimeout(() => speak().catch(console.error), PATIENCE));

  const textOf = (result) => (result.content ?? []).map((block) => block.text ?? "").join("\n");

  window.openai = {
    ...GLOBALS,
    async callTool(name, args) {
      const result = await ask("tools/call", { name, arguments: args ?? {} });
      return { ...result, result: textOf(result) };
    },
    sendFollowUpMessage: ({ prompt }) =>
      ask("ui/message", { role: "user", content: [{ type: "text", text: String(prompt) }] }),
    openExternal: ({ href }) => ask("ui/open-link", { url: String(href) }),
    requestDisplayMode: ({ mode }) => ask("ui/request-display-mode", { mode }),
    async setWidgetState(state) {
      set({ widgetState: state });
      await ask("ui/update-model-context", { structuredContent: state ?? {} });
    },
    notifyIntrinsicHeight: (height) => ready.then(() => send({ method: `${NOTICE}size-changed`, params: { height } })),
    requestClose: () => ready.then(() => send({ method: `${NOTICE}request-teardown`, params: {} })),
  };
  document.currentScript.remove();
})();
