// A host built on `AppBridge` of @modelcontextprotocol/ext-apps. It shows the view of one tool, and keeps in `window.host`
// what happened. Every message of the view is judged by the schemas of that library.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import {
  CallToolRequestSchema,
  JSONRPCMessageSchema,
  ListResourcesRequestSchema,
  ListResourceTemplatesRequestSchema,
  ListToolsRequestSchema,
  LoggingMessageNotificationSchema,
  PingRequestSchema,
  ReadResourceRequestSchema,
} from "@modelcontextprotocol/core";
import {
  AppBridge,
  buildAllowAttribute,
  getToolUiResourceUri,
  McpUiDownloadFileRequestSchema,
  McpUiInitializedNotificationSchema,
  McpUiInitializeRequestSchema,
  McpUiMessageRequestSchema,
  McpUiOpenLinkRequestSchema,
  McpUiRequestDisplayModeRequestSchema,
  McpUiRequestTeardownNotificationSchema,
  McpUiResourceMetaSchema,
  McpUiSizeChangedNotificationSchema,
  McpUiToolMetaSchema,
  McpUiUpdateModelContextRequestSchema,
  PostMessageTransport,
  RESOURCE_MIME_TYPE,
} from "@modelcontextprotocol/ext-apps/app-bridge";

const SCHEMAS = {
  "ui/initialize": McpUiInitializeRequestSchema,
  "ui/notifications/initialized": McpUiInitializedNotificationSchema,
  "ui/notifications/size-changed": McpUiSizeChangedNotificationSchema,
  "ui/notifications/request-teardown": McpUiRequestTeardownNotificationSchema,
  "ui/open-link": McpUiOpenLinkRequestSchema,
  "ui/download-file": McpUiDownloadFileRequestSchema,
  "ui/message": McpUiMessageRequestSchema,
  "ui/request-display-mode": McpUiRequestDisplayModeRequestSchema,
  "ui/update-model-context": McpUiUpdateModelContextRequestSchema,
  "tools/call": CallToolRequestSchema,
  "tools/list": ListToolsRequestSchema,
  "resources/read": ReadResourceRequestSchema,
  "resources/list": ListResourcesRequestSchema,
  "resources/templates/list": ListResourceTemplatesRequestSchema,
  "notifications/message": LoggingMessageNotificationSchema,
  ping: PingRequestSchema,
};

const asked = new URLSearchParams(location.search);
const host = (window.host = { messages: [], faults: [], sizes: [], asked: [], logs: [], steps: [] });

const judge = (what, schema, value) => {
  const { success, error } = schema.safeParse(value);
  if (!success) host.faults.push(`${what}: ${error.message}`);
};
const judgeMessage = (message) => {
  if (message?.method?.startsWith("ui/notifications/sandbox-")) return; // Of the page in between, not of the view.
  judge("JSON-RPC", JSONRPCMessageSchema, message);
  if (!message?.method) return host.messages.push("answer");
  host.messages.push(message.method);
  const schema = SCHEMAS[message.method];
  if (schema) judge(message.method, schema, { method: message.method, params: message.params });
  else host.faults.push(`views have no ${message.method}`);
};

async function show() {
  const extensions = { "io.modelcontextprotocol/ui": { mimeTypes: [RESOURCE_MIME_TYPE] } };
  const mode = asked.get("mode");
  const client = new Client(
    { name: "app-bridge-host", version: "1" },
    { capabilities: { extensions }, versionNegotiation: { mode } },
  );
  await client.connect(new StreamableHTTPClientTransport(new URL(asked.get("server"))));
  host.revision = client.getNegotiatedProtocolVersion();
  const { tools } = await client.listTools();
  const tool = tools.find(({ name }) => name === asked.get("tool"));
  const uri = getToolUiResourceUri(tool);
  judge("_meta.ui of the tool", McpUiToolMetaSchema, tool._meta.ui);
  const { contents: [page] } = await client.readResource({ uri });
  const meta = page._meta?.ui ?? {};
  judge("_meta.ui of the view", McpUiResourceMetaSchema, meta);
  if (page.mimeType !== RESOURCE_MIME_TYPE) throw new Error(`the page is ${page.mimeType}`);

  const frame = document.body.appendChild(document.createElement("iframe"));
  frame.allow = buildAllowAttribute(meta.permissions);
  addEventListener("message", ({ source, data }) => source === frame.contentWindow && judgeMessage(data));

  const args = JSON.parse(asked.get("arguments"));
  // A host may leave out the tool.
  const toolInfo = asked.get("toolInfo") === "no" ? {} : { toolInfo: { tool } };
  const bridge = new AppBridge(
    client,
    { name: "app-bridge-host", version: "1" },
    { openLinks: {}, downloadFile: {}, serverTools: {}, serverResources: {}, logging: {}, updateModelContext: { text: {} }, message: { text: {} } },
    { hostContext: { theme: "dark", displayMode: "inline", availableDisplayModes: ["inline", "fullscreen"], locale: "en", platform: "web", containerDimensions: { maxHeight: 600, width: 400 }, styles: { variables: { "--color-text-primary": "rgb(1, 2, 3)" } }, ...toolInfo } },
  );
  host.bridge = bridge;
  bridge.onsandboxready = () => {
    host.steps.push("sandbox");
    bridge.sendSandboxResourceReady({ html: page.text, csp: meta.csp, permissions: meta.permissions });
  };
  bridge.oninitialized = async () => {
    host.steps.push("initialized");
    host.app = bridge.getAppVersion();
    await bridge.sendToolInputPartial({ arguments: {} });
    await bridge.sendToolInput({ arguments: args });
    await bridge.sendToolResult(await client.callTool({ name: tool.name, arguments: args }));
    host.steps.push("result");
  };
  bridge.onsizechange = (size) => {
    host.sizes.push(size);
    frame.style.height = `${size.height}px`;
  };
  const note = (name, answer) => async (params) => (host.asked.push([name, params]), answer);
  bridge.onopenlink = note("open-link", {});
  bridge.ondownloadfile = note("download-file", {});
  bridge.onmessage = note("message", {});
  bridge.onupdatemodelcontext = note("update-model-context", {});
  bridge.onrequestdisplaymode = note("request-display-mode", { mode: "fullscreen" });
  bridge.onloggingmessage = (params) => host.logs.push(params);
  bridge.onrequestteardown = async () => {
    host.steps.push("asked to end");
    await bridge.teardownResource({});
    host.steps.push("ended");
  };
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  frame.src = `${asked.get("sandbox")}?csp=${encodeURIComponent(JSON.stringify(meta.csp ?? {}))}`;
}

show().catch((error) => host.faults.push(`${error.stack}`));
