// Make the probes of playing.py with a client of the TypeScript SDK: `node play_node.mjs TARGET...`.
//
// PAIRS_PACKAGE says which one: "sdk" is release 1, "client" release 2 (PAIRS_MODE "auto" asks `server/discover` first,
// "legacy" says `initialize`). It is run in the folder where the packages are.
import { connect, makeClient, pages } from '../interop/opening_node.mjs';

const plan = JSON.parse(process.env.PAIRS_PLAN);
const patience = Number(process.env.PAIRS_PATIENCE) * 1000;
const REST = 400;
// Longer than the longest wait of a probe.
const limit = 20000 + 2 * patience;
const LEVEL_KEY = 'io.modelcontextprotocol/logLevel';
const first = process.env.PAIRS_PACKAGE === 'sdk';

// --- What came besides answers, and what the user and the model answer ---

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const came = { logs: [], changed: [], updated: [] };
let asked = [];
let arrived = () => {};
let root = 'file:///first';
let level;

// How often a change is announced is left to the server; some say it for each part.
const once = (list, what) => list.includes(what) || list.push(what);

function answerField(field) {
  if ('default' in field) return field.default;
  if (field.enum) return field.enum[0];
  if (field.oneOf) return field.oneOf[0].const;
  return { string: 'Ada', integer: 4, number: 4, boolean: true }[field.type] ?? [];
}

function elicited(params) {
  if (params.mode === 'url') {
    asked.push({ page: params.message, url: params.url });
    return { action: 'accept' };
  }
  asked.push({ form: params.message, schema: params.requestedSchema });
  if (params.message === 'Decline, please') return { action: 'decline' };
  const fields = Object.entries(params.requestedSchema.properties);
  return { action: 'accept', content: Object.fromEntries(fields.map(([name, field]) => [name, answerField(field)])) };
}

function sampled({ _meta, ...params }) {
  asked.push({ sampling: params });
  return { role: 'assistant', content: { type: 'text', text: 'It is.' }, model: 'tiny-1', stopReason: 'endTurn' };
}

const capabilities = {
  roots: { listChanged: true }, sampling: { tools: {} }, elicitation: { form: {}, url: {} },
  ...(first ? { tasks: {} } : {}),
};
const { client, schemas } = await makeClient({
  name: 'play-node', first, mode: process.env.PAIRS_MODE, capabilities,
  answers: {
    'elicitation/create': elicited,
    'sampling/createMessage': sampled,
    'roots/list': () => ({ roots: [{ uri: root, name: 'work' }] }),
  },
  heard: {
    log: (level, data) => came.logs.push([level, data]),
    updated: (uri) => once(came.updated, uri),
    changed: (method) => once(came.changed, method),
  },
  arrived: () => arrived(),
});

// --- The probes ---

const values = {};
const isModern = () => !first && client.getNegotiatedProtocolVersion() === '2026-07-28';
// Release 1 puts the code into the text.
const errorOf = (error) => [error.code ?? null, error.message.replace(`MCP error ${error.code}: `, '')];

async function value(probe, action) {
  const late = pause(limit).then(() => 'no answer within ' + limit + ' ms');
  values[probe] = await Promise.race([action(), late]).catch((error) => ({ raised: errorOf(error) }));
  if (process.env.PAIRS_SHOW) process.stderr.write(`${probe} ${JSON.stringify(values[probe])?.slice(0, 300)}\n`);
}

// The memory of release 2 would hide what the server says.
const fresh = first ? undefined : { cacheMode: 'bypass' };
const lists = {
  tools: () => pages((params) => client.listTools(params, fresh), 'tools'),
  resources: () => pages((params) => client.listResources(params, fresh), 'resources'),
  templates: () => pages((params) => client.listResourceTemplates(params, fresh), 'resourceTemplates'),
  prompts: () => pages((params) => client.listPrompts(params, fresh), 'prompts'),
};

function call(name, input, options, more = {}) {
  const meta = { ...(isModern() && level !== undefined ? { [LEVEL_KEY]: level } : {}), ...more };
  const params = { name, arguments: input, ...(Object.keys(meta).length ? { _meta: meta } : {}) };
  return first ? client.callTool(params, undefined, options) : client.callTool(params, options);
}

async function askingCall(name, input) {
  asked = [];
  const result = await call(name, input);
  if (asked.length) result.asked = asked;
  const long = result.content.find((each) => each.type === 'text' && each.text.length > 10000)?.text;
  if (long !== undefined) {
    // Two megabytes would only make the report long.
    result.content = [long.length, long.slice(0, 3), long.slice(-3)];
    delete result.structuredContent;
  }
  return result;
}

async function until(kind, count) {
  const end = Date.now() + patience;
  while (came[kind].length < count && Date.now() < end) {
    await Promise.race([new Promise((resolve) => (arrived = resolve)), pause(end - Date.now())]);
  }
  if (came[kind].length >= count) await pause(REST);
}

async function fate(asking, wanted) {
  let told;
  for (let attempt = 0; attempt < patience / 100; attempt += 1) {
    told = (await call(asking, { key: 'a' })).content[0].text;
    if (told === wanted) break;
    await pause(100);
  }
  return told;
}

async function logged(wanted, name, input, count) {
  level = wanted;
  const set = isModern() ? 'sent with each request'
    : await client.setLoggingLevel(wanted).then(() => 'answered', (error) => ({ raised: errorOf(error) }));
  came.logs.length = 0;
  await call(name, input);
  await until('logs', count);
  return { set, messages: [...came.logs] };
}

async function listening(uri) {
  if (!isModern()) {
    await client.subscribeResource({ uri });
    return { answer: 'subscribed', close: () => client.unsubscribeResource({ uri }) };
  }
  const kinds = { toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true };
  const subscription = await client.listen({ ...kinds, resourceSubscriptions: [uri] });
  return { answer: subscription.honoredFilter ?? 'subscribed', close: () => subscription.close() };
}

const probes = {
  ping: async () => {
    await client.ping();
    return 'answered';
  },

  extension: async (name) => values.capabilities.extensions?.[name] ?? null,
  unknown_meta: (name, meta) => call(name, {}, undefined, meta),

  async progress(name, input) {
    const reports = [];
    const onprogress = ({ progress, total, message }) => reports.push([progress, total, message]);
    const result = await call(name, input, { onprogress });
    await pause(REST);
    return { reports, texts: result.content.map((each) => each.text) };
  },

  async cancellation(name, asking) {
    const stop = new AbortController();
    const calling = call(name, { key: 'a' }, { signal: stop.signal }).catch(() => {});
    const begun = await fate(asking, 'begun');
    stop.abort('Enough');
    await calling;
    return [begun, await fate(asking, 'cancelled')];
  },

  async roots_changed(name, input) {
    root = 'file:///second';
    if (!isModern()) await client.sendRootsListChanged();
    // The notification and the next call may go over two connections.
    await pause(REST);
    return call(name, input).finally(() => (root = 'file:///first'));
  },

  logging: (...given) => logged('debug', ...given),
  log_level: (...given) => logged('error', ...given),

  async changes(calls, uri, dynamic, kinds, updates) {
    came.changed.length = 0;
    came.updated.length = 0;
    let subscribed;
    let close = async () => {};
    try {
      ({ answer: subscribed, close } = await listening(uri));
    } catch (error) {
      subscribed = { raised: errorOf(error) };
    }
    for (const each of calls) await call(...each);
    await until('changed', kinds);
    if (subscribed?.raised === undefined) await until('updated', updates);
    await close();
    for (const kind of ['tools', 'resources', 'prompts']) {
      values[`${kind}_changed`] = came.changed.includes(`notifications/${kind}/list_changed`);
    }
    values.updated = came.updated.sort();
    for (const kind of ['tools', 'resources', 'prompts']) {
      await value(`${kind}_after`, async () => (await lists[kind]()).map((each) => each.name).sort());
    }
    if (dynamic !== null) await value('dynamic_tool', () => call(dynamic, {}));
    return subscribed;
  },

  async task(name, input) {
    const seen = [];
    const stream = client.experimental.tasks.callToolStream(
      { name, arguments: input }, schemas.CallToolResultSchema, { task: { ttl: 60000 } });
    for await (const message of stream) {
      if (message.type === 'taskStatus' || message.type === 'taskCreated') seen.push(message.task.status);
      if (message.type === 'error') throw message.error;
      if (message.type === 'result') return { last: seen.at(-1), texts: message.result.content.map((each) => each.text) };
    }
    return { last: seen.at(-1), texts: null };
  },

  async task_cancelled(name, input) {
    const params = { name, arguments: input, task: { ttl: 60000 } };
    const { task } = await client.request({ method: 'tools/call', params }, schemas.CreateTaskResultSchema);
    await client.experimental.tasks.cancelTask(task.taskId);
    return (await client.experimental.tasks.getTask(task.taskId)).status;
  },
};

const { transport, revision } = await connect(client, first, process.argv.slice(2));
values.revision = revision;
values.server = client.getServerVersion();
values.instructions = client.getInstructions() ?? null;
values.capabilities = client.getServerCapabilities();
const sorted = (found) => found.map((each) => [JSON.stringify([each.name, each]), each]).sort(([one], [other]) => (one < other ? -1 : 1)).map(([, each]) => each);
for (const [kind, list] of Object.entries(lists)) await value(kind, async () => sorted(await list()));
for (const [probe, given] of Object.entries(plan.calls)) await value(probe, () => askingCall(...given));
for (const [probe, uri] of Object.entries(plan.reads)) await value(probe, async () => (await client.readResource({ uri })).contents);
for (const [probe, [name, input]] of Object.entries(plan.prompts)) {
  await value(probe, () => client.getPrompt({ name, arguments: input }));
}
for (const [probe, [kind, name, argument, typed]] of Object.entries(plan.completions)) {
  const ref = kind === 'prompt' ? { type: 'ref/prompt', name } : { type: 'ref/resource', uri: name };
  await value(probe, async () => (await client.complete({ ref, argument: { name: argument, value: typed } })).completion);
}
for (const [probe, given] of Object.entries(plan.others)) await value(probe, () => probes[probe](...given));
process.stdout.write(`${JSON.stringify(values)}\n`);
if (!isModern()) await transport.terminateSession?.();
await client.close();
process.exit(0);
