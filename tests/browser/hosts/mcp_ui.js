// A host built on the React component of @mcp-ui/client. It shows the view of one tool, and keeps in `window.host` what
// happened.

import { AppRenderer } from "@mcp-ui/client";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { createElement } from "react";
import { createRoot } from "react-dom/client";

const asked = new URLSearchParams(location.search);
const host = (window.host = { faults: [], sizes: [], asked: [], logs: [] });

async function show() {
  const extensions = { "io.modelcontextprotocol/ui": { mimeTypes: ["text/html;profile=mcp-app"] } };
  const client = new Client({ name: "mcp-ui-host", version: "1" }, { capabilities: { extensions } });
  await client.connect(new StreamableHTTPClientTransport(new URL(asked.get("server"))));
  const [toolName, toolInput] = [asked.get("tool"), JSON.parse(asked.get("arguments"))];
  const toolResult = await client.callTool({ name: toolName, arguments: toolInput });
  createRoot(document.body.appendChild(document.createElement("div"))).render(
    createElement(AppRenderer, {
      client,
      toolName,
      toolInput,
      toolResult,
      sandbox: { url: new URL(asked.get("sandbox")), csp: JSON.parse(asked.get("policy")) },
      hostContext: { theme: "light", displayMode: "inline", locale: "en" },
      onSizeChanged: (size) => host.sizes.push(size),
      onLoggingMessage: (params) => host.logs.push(params),
      onOpenLink: async (params) => (host.asked.push(["open-link", params]), {}),
      onMessage: async (params) => (host.asked.push(["message", params]), {}),
      onError: (error) => host.faults.push(`${error.stack ?? error}`),
    }),
  );
}

show().catch((error) => host.faults.push(`${error.stack}`));
