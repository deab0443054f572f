// Drive a server with a TypeScript client and report what it understood, as drive_mcp1.py does.
//
// `node drive_node.mjs SCENARIO TARGET...` is run in the folder where the packages are. The target is a command for stdio,
// or an address: one that ends in `/sse` for HTTP+SSE, any other for streamable HTTP. DRIVE_PACKAGE says which package:
// "sdk" is release 1, "client" release 2 (DRIVE_MODE "auto" asks `server/discover` first, "legacy" says `initialize`).

import { connect, makeClient, pages } from "./opening_node.mjs";

const [scenario, ...target] = process.argv.slice(2);
const first = process.env.DRIVE_PACKAGE === "sdk";

let report = { progress: [], logs: [], changed: [], updated: [] };
let arrived = () => {};

async function until(kind, count = 1) {
  while (report[kind].length < count) await new Promise((resolve) => (arrived = resolve));
}

function elicited(params) {
  if (params.mode === "url") {
    (report.asked_urls ??= []).push([params.message, params.url]);
    return { action: "accept" };
  }
  (report.asked_user ??= []).push(params.message);
  const properties = params.requestedSchema.properties;
  if (Object.keys(properties).join() === "ok") return { action: "accept", content: { ok: true } };
  const single = Object.keys(properties).join() === "value";
  const content = single
    ? { value: properties.value.type === "string" ? "Ada" : true }
    : { size: "large", count: 2, gift: true };
  return { action: "accept", content };
}

function sampled(params) {
  if (params.tools) report.asked_tools = [params.tools.map((tool) => tool.name), params.toolChoice.mode];
  const content = params.messages[0].content;
  report.asked_model = (Array.isArray(content) ? content[0] : content).text;
  return { role: "assistant", content: { type: "text", text: "It is." }, model: "tiny-1", stopReason: "endTurn" };
}

const folders = JSON.parse(process.env.DRIVE_FOLDERS ?? '[{"uri": "file:///work"}]');
let root = folders[0].uri;
const { client, schemas } = await makeClient({
  name: "drive-node", first, mode: process.env.DRIVE_MODE ?? "auto",
  capabilities: { roots: { listChanged: true }, sampling: { tools: {} }, elicitation: { form: {}, url: {} } },
  answers: {
    "elicitation/create": elicited,
    "sampling/createMessage": sampled,
    "roots/list": () => ({ roots: [{ uri: root, name: "work" }] }),
  },
  heard: {
    log: (level, data) => report.logs.push([level, data]),
    updated: (uri) => report.updated.push(uri),
    changed: (method) => report.changed.push(method),
  },
  arrived: () => arrived(),
});

const tell = (params, options) => (first ? client.callTool(params, undefined, options) : client.callTool(params, options));

async function call(name, input = {}, options = undefined, meta = undefined) {
  return told(await tell({ name, arguments: input, ...(meta ? { _meta: meta } : {}) }, options));
}

function told(result) {
  const text = result.content.filter((block) => block.type === "text").map((block) => block.text);
  return {
    types: result.content.map((block) => block.type),
    text: text.join("\n"),
    structured: result.structuredContent ?? null,
    error: result.isError === true,
  };
}

const attempt = async (action) => action().catch((error) => ({ raised: error.message }));
const isModern = () => report.revision === "2026-07-28";

const scenarios = {
  async tools() {
    const listed = await pages((params) => client.listTools(params), "tools");
    report.tools = Object.fromEntries(listed.map((tool) => [tool.name, tool]));
    const calls = (report.calls = {});
    calls.echo = await call("echo", { text: "héllo" });
    calls.forecast = await call("forecast", { city: "Oslo" });
    for (const name of ["cities", "picture", "sound", "link", "attachment", "refuse", "crash"]) {
      calls[name] = await call(name);
    }
    calls["bad nonsense"] = await attempt(() => call("nonsense"));
    calls["bad echo"] = await attempt(() => call("echo", { txt: "x" }));
  },

  async reading() {
    report.resources = (await pages((params) => client.listResources(params), "resources")).map((each) => each.uri);
    const templates = await pages((params) => client.listResourceTemplates(params), "resourceTemplates");
    report.templates = templates.map((each) => each.uriTemplate);
    report.read = {};
    for (const uri of ["note://today", "note://tomorrow", "picture://pixel", "nothing://here"]) {
      report.read[uri] = await attempt(async () => {
        const { contents } = await client.readResource({ uri });
        return contents[0].text ?? contents[0].blob;
      });
    }
    report.prompts = (await pages((params) => client.listPrompts(params), "prompts")).map((each) => each.name);
    const review = await client.getPrompt({ name: "review", arguments: { subject: "this", tone: "harsh" } });
    report.review = review.messages.map((message) => [message.role, message.content.text]);
    const illustrated = await client.getPrompt({ name: "illustrated" });
    report.illustrated = illustrated.messages.map((message) => message.content.type);
    const complete = async (ref, name, value) => (await client.complete({ ref, argument: { name, value } })).completion;
    report.completion = (await complete({ type: "ref/prompt", name: "review" }, "tone", "k")).values;
    report.days = (await complete({ type: "ref/resource", uri: "note://{day}" }, "day", "to")).values;
  },

  async reports() {
    const wanted = (level) => (isModern() ? { "io.modelcontextprotocol/logLevel": level } : undefined);
    if (!isModern()) await client.ping();
    const onprogress = (each) => {
      report.progress.push([each.progress, each.total, each.message]);
      arrived();
    };
    // Both releases lose a report that arrives in one piece with the result, so the one that counts comes alone.
    report.counted = await call("count", { to: 3 });
    const paced = call("pace", {}, { onprogress });
    await until("progress");
    await call("go");
    report.paced = await paced;
    await call("chatter", {}, undefined, wanted("info"));
    if (!isModern()) await client.setLoggingLevel("error");
    await call("chatter", {}, undefined, wanted("error"));
    const before = report.logs.splice(0);
    const stop = new AbortController();
    const waiting = call("wait", {}, { signal: stop.signal }, wanted("error")).catch(() => {});
    await until("logs");
    stop.abort("Enough");
    await waiting;
    report.logs.unshift(...before);
    report.after = await call("echo", { text: "still here" });
  },

  async asking() {
    for (const name of ["order", "wizard", "opinion", "folders"]) report[name] = await call(name);
  },

  async changes() {
    let subscription;
    if (isModern()) {
      subscription = await client.listen({
        toolsListChanged: true,
        promptsListChanged: true,
        resourcesListChanged: true,
        resourceSubscriptions: ["note://today"],
      });
    } else {
      await client.subscribeResource({ uri: "note://today" });
    }
    await call("touch", { uri: "note://today" });
    await until("updated");
    if (!isModern()) await client.unsubscribeResource({ uri: "note://today" });
    await call("touch", { uri: isModern() ? "note://tomorrow" : "note://today" });
    await call("grow");
    await until("changed", 3);
    await subscription?.close();
    report.sprout = await call("sprout");
  },
};

// Release 2 takes any Standard Schema; this one takes every value.
const anything = { "~standard": { version: 1, vendor: "drive-node", validate: (value) => ({ value }) } };

scenarios.extension = async () => {
  report.extensions = client.getServerCapabilities()?.extensions;
  report.heard = [];
  const hear = (params) => {
    report.heard.push(params.votes);
    arrived();
  };
  const changed = "notifications/polls/changed";
  let subscription;
  if (first) {
    client.fallbackNotificationHandler = async ({ method, params }) => method === changed && hear(params);
  } else {
    client.setNotificationHandler(changed, { params: anything }, async (params) => hear(params));
    if (isModern()) subscription = await client.listen({ polls: ["lunch"] });
  }
  const send = (method, params) => client.request({ method, params }, first ? schemas.ResultSchema : anything);
  report.votes = [];
  for (const choice of ["soup", "stew"]) {
    report.votes.push((await send("polls/vote", { poll: "lunch", choice })).votes);
  }
  await until("heard", 2);
  await client.notification({ method: "notifications/polls/seen", params: { poll: "logo" } });
  report.seen = await call("team_seen");
  report.wrong = (await attempt(() => send("polls/vote", { poll: "supper", choice: "soup" }))).raised;
  await subscription?.close();
};

// What a gateway has to translate.
scenarios.crossing = async () => {
  const outcome = async (action) => action().catch((error) => ({ raised: error.message, code: error.code ?? null }));
  const { tools, ...page } = await client.listTools();
  report.page = page;
  report.odd = await tell({ name: "raw_odd", arguments: {} });
  for (const [name, input] of [["visit"], ["think"], ["place", { region: "eu" }], ["session"]]) {
    report[name] = await outcome(() => call(name, input));
  }
  for (const code of ["32020", "32021", "32022", "32042"]) {
    report[`error_${code}`] = await outcome(() => call(`raw_error_${code}`));
  }
  report.pong = await outcome(async () => (await client.ping()) && "answered");
  report.missing = await outcome(() => client.readResource({ uri: "nothing://here" }));
};

// The tools of serve_behind.mjs that ask.
scenarios.questions = async () => {
  for (const name of ["confirm", "visit", "think", "roots"]) {
    report[name] = await attempt(() => call(name));
  }
};

// Read files of two folders: with the first as the root of the client, then with the second.
scenarios.files = async () => {
  await pages((params) => client.listTools(params), "tools");
  report.reads = [];
  for (const folder of folders) {
    root = folder.uri;
    if (report.reads.length && !isModern()) await client.sendRootsListChanged();
    const read = [];
    for (const each of folders) read.push((await call("read_text_file", { path: each.file })).text);
    report.reads.push(read);
  }
};

// List the tools, and make the calls that the environment variable DRIVE_CALLS has.
scenarios.given = async () => {
  const listed = await pages((params) => client.listTools(params), "tools");
  report.tools = Object.fromEntries(listed.map((tool) => [tool.name, tool]));
  report.calls = [];
  for (const [name, input] of JSON.parse(process.env.DRIVE_CALLS)) {
    const result = await tell({ name, arguments: input });
    const data = result.content.filter((block) => block.type === "image").map((block) => block.data);
    report.calls.push({ ...told(result), data });
  }
};

const { transport, revision } = await connect(client, first, target);
report.revision = revision;
report.server = client.getServerVersion()?.name;
report.instructions = client.getInstructions();
// Several scenarios over one connection: `tools,reading`.
const played = {};
const opened = JSON.stringify(report);
for (const name of scenario.split(",")) {
  report = played[name] = JSON.parse(opened);
  await scenarios[name]();
}
if (!isModern()) await transport.terminateSession?.();
await client.close();
process.stdout.write(JSON.stringify(scenario in scenarios ? report : played));
