// The server of serve_python.py, written with a release of the TypeScript SDK.
//
// `node serve_node.mjs sdk|server stdio` or `node serve_node.mjs sdk|server http PORT`, in the folder where the packages are:
// "sdk" is release 1, "server" release 2. What a release cannot do, it does not offer.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { z } from 'zod';

const [release, transport, port] = process.argv.slice(2);
const first = release === 'sdk';
const sdk = (path) => import(`@modelcontextprotocol/sdk/${path}.js`);
const { McpServer, ResourceTemplate } = first ? await sdk('server/mcp') : await import('@modelcontextprotocol/server');
const { completable } = first ? await sdk('server/completable') : await import('@modelcontextprotocol/server');
const types = first ? await sdk('types') : {};
const { InMemoryTaskMessageQueue, InMemoryTaskStore } = first ? await sdk('experimental/tasks/index') : {};
const two = first ? {} : await import('@modelcontextprotocol/server');

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const question = { role: 'user', content: { type: 'text', text: 'How is it?' } };
const weather = { name: 'weather', description: 'Look outside', inputSchema: { type: 'object' } };
const person = {
  type: 'object',
  properties: { name: { type: 'string', title: 'Name' }, age: { type: 'integer', title: 'Age' } },
  required: ['name', 'age'],
};
const text = (words) => ({ content: [{ type: 'text', text: String(words) }] });
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const starting = (values) => (value) => values.filter((each) => each.startsWith(value));

const fates = new Map();
// Release 2 makes a server for each HTTP request, so that what was added is kept here.
let grown = false;
let notifier;

function make() {
  const capabilities = {
    logging: {}, tools: { listChanged: true }, prompts: { listChanged: true }, resources: { listChanged: true, subscribe: true },
    extensions: { 'com.example/brewing': { strength: 3, kinds: ['green', 'black'] } },
    ...(first ? { tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } } : {}),
  };
  const stores = first ? { taskStore: new InMemoryTaskStore(), taskMessageQueue: new InMemoryTaskMessageQueue() } : {};
  const server = new McpServer({ name: 'foreign', version: '7.8' }, { instructions: 'Ask away.', capabilities, ...stores });
  const lower = server.server;
  const tool = (name, schema, run, more = {}) =>
    server.registerTool(name, { description: name, inputSchema: z.object(schema), ...more }, run);

  // --- Results ---

  tool('echo', { text: z.string() }, async ({ text: words }) => text(words));
  tool('point', { x: z.number().int() }, async ({ x }) => {
    return { ...text(JSON.stringify({ x, y: 0 })), structuredContent: { x, y: 0 }, _meta: { 'com.example/kind': 'point' } };
  }, { outputSchema: z.object({ x: z.number(), y: z.number() }) });
  tool('media', {}, async () => ({ content: [
    { type: 'image', data: PIXEL, mimeType: 'image/png', annotations: { audience: ['user'] } },
    { type: 'audio', data: 'UklGRg==', mimeType: 'audio/wav' },
  ] }));
  tool('embedded', {}, async () => ({ content: [
    { type: 'resource', resource: { uri: 'memo://inside', mimeType: 'text/plain', text: 'inside' } },
    { type: 'resource', resource: { uri: 'memo://bytes', mimeType: 'application/octet-stream', blob: 'AAE=' } },
    { type: 'resource_link', uri: 'memo://text', name: 'text' },
  ] }));
  tool('fail', {}, async () => {
    throw new Error('no luck');
  });
  tool('large', { size: z.number().int() }, async ({ size }) => text('é'.repeat(size)));
  tool('panel', {}, async () => text('shown'), { _meta: { ui: { resourceUri: 'ui://panel' } } });

  tool('mirror', {}, async (_, extra) => {
    const came = (first ? extra._meta : extra.mcpReq._meta) ?? {};
    const own = Object.entries(came).filter(([name]) => name.startsWith('com.example/'));
    const meta = { 'com.example/kind': { name: 'mirror', deep: [1, { a: null }] } };
    return { ...text(JSON.stringify(Object.fromEntries(own))), _meta: meta };
  });

  // --- Meanwhile ---

  const notify = (extra, notification) => (first ? extra.sendNotification(notification) : extra.mcpReq.notify(notification));
  tool('slow', {}, async (_, extra) => {
    const progressToken = (first ? extra._meta : extra.mcpReq._meta)?.progressToken;
    for (const progress of [1, 2, 3]) {
      if (progressToken === undefined) break;
      const params = { progressToken, progress, total: 3, message: `step ${progress}` };
      await notify(extra, { method: 'notifications/progress', params });
      // Both releases lose a report that arrives in one piece with the result.
      await pause(50);
    }
    return text('done');
  });
  tool('wait', { key: z.string() }, async ({ key }, extra) => {
    fates.set(key, 'begun');
    const signal = first ? extra.signal : extra.mcpReq.signal;
    return new Promise((resolve) => {
      signal.addEventListener('abort', () => {
        fates.set(key, 'cancelled');
        resolve(text('never'));
      });
    });
  });
  tool('fate', { key: z.string() }, async ({ key }) => text(fates.get(key) ?? 'unknown'));
  tool('talk', {}, async (_, extra) => {
    for (const level of ['debug', 'info', 'error']) {
      if (first) await server.sendLoggingMessage({ level, data: `said with ${level}` }, extra.sessionId);
      else await extra.mcpReq.log(level, `said with ${level}`);
    }
    return text('talked');
  });

  // --- Questions ---

  const elicit = (extra, params) => (first ? lower.elicitInput(params, { relatedRequestId: extra.requestId }) : extra.mcpReq.elicitInput(params));
  const sample = (extra, params) => (first ? lower.createMessage(params, { relatedRequestId: extra.requestId }) : extra.mcpReq.requestSampling(params));
  tool('ask', { question: z.string() }, async ({ question: message }, extra) => {
    const answer = await elicit(extra, { message, requestedSchema: person });
    return text(`${answer.action} ${answer.content?.name} ${answer.content?.age}`);
  });
  tool('visit', {}, async (_, extra) => {
    const page = { mode: 'url', message: 'Sign in', url: 'https://example.com/in', elicitationId: '7' };
    return text((await elicit(extra, page)).action);
  });
  tool('think', {}, async (_, extra) => {
    const answer = await sample(extra, { messages: [question], maxTokens: 10, systemPrompt: 'Be brief.' });
    return text(answer.content.text);
  });
  tool('think_with_tools', {}, async (_, extra) => {
    const wanted = { messages: [question], maxTokens: 10, tools: [weather], toolChoice: { mode: 'required' } };
    const { content } = await sample(extra, wanted);
    return text((Array.isArray(content) ? content[0] : content).text);
  });
  tool('folders', {}, async (_, extra) => {
    const listed = await (first ? lower.listRoots(undefined, { relatedRequestId: extra.requestId })
      : extra.mcpReq.send({ method: 'roots/list' }));
    return text(listed.roots.map((root) => root.uri).join(', '));
  });
  if (!first) {
    const { inputRequired } = two;
    tool('held', {}, async (_, ctx) => {
      const answers = ctx.mcpReq.inputResponses;
      if (answers?.who === undefined) {
        const who = inputRequired.elicit({ message: 'Who?', requestedSchema: person });
        return inputRequired({ inputRequests: { who, where: inputRequired.listRoots() }, requestState: 'one' });
      }
      return text(`${answers.who.content.name} at ${answers.where.roots.map((root) => root.uri)}`);
    });
  }

  // --- Reading ---

  const resource = (name, uri, contents, mimeType) =>
    server.registerResource(name, uri, { mimeType }, async (read) => ({ contents: [{ uri: read.href, mimeType, ...contents }] }));
  resource('text', 'memo://text', { text: 'words' }, 'text/plain');
  resource('data', 'memo://bytes', { blob: 'AAE=' }, 'application/octet-stream');
  resource('page', 'ui://panel', { text: '<!doctype html><title>Panel</title>' }, 'text/html;profile=mcp-app');
  resource('skill', 'skill://brew/SKILL.md', { text: '---\nname: brew\ndescription: Brew tea\n---\nBoil water.' }, 'text/markdown');
  const days = new ResourceTemplate('memo://day/{day}', {
    list: undefined, complete: { day: starting(['monday', 'tuesday']) },
  });
  server.registerResource('day', days, {}, async (uri, { day }) => ({ contents: [{ uri: uri.href, text: `note of ${day}` }] }));
  const words = (message) => ({ messages: [{ role: 'user', content: { type: 'text', text: message } }] });
  const argsSchema = z.object({ who: completable(z.string(), starting(['Ada', 'Alan', 'Grace'])) });
  server.registerPrompt('greet', { description: 'Greet somebody.', argsSchema: first ? argsSchema.shape : argsSchema }, ({ who }) => words(`hello ${who}`));

  // --- Changes ---

  for (const method of ['resources/subscribe', 'resources/unsubscribe']) {
    const known = { 'resources/subscribe': types.SubscribeRequestSchema, 'resources/unsubscribe': types.UnsubscribeRequestSchema };
    lower.setRequestHandler(first ? known[method] : method, async () => ({}));
  }
  const more = () => {
    tool('sprout', {}, async () => text('sprouted'));
    resource('extra', 'memo://extra', { text: 'extra' }, 'text/plain');
    server.registerPrompt('farewell', {}, () => words('bye'));
  };
  tool('grow', {}, async () => {
    grown = true;
    more();
    if (notifier === undefined) {
      await lower.sendResourceUpdated({ uri: 'memo://text' });
    } else {
      notifier.toolsChanged();
      notifier.resourcesChanged();
      notifier.promptsChanged();
      notifier.resourceUpdated('memo://text');
    }
    return text('grown');
  });
  if (notifier !== undefined && grown) more();

  // --- Tasks ---

  if (first) {
    const work = async (label, { taskId }, store) => {
      if (label === 'forever') return;
      await pause(200);
      await store.storeTaskResult(taskId, 'completed', text(`job ${label}`));
    };
    server.experimental.tasks.registerToolTask('job', {
      description: 'Work for a while.', inputSchema: { label: z.string() }, execution: { taskSupport: 'optional' },
    }, {
      createTask: async ({ label }, { taskStore }) => {
        const task = await taskStore.createTask({ ttl: 60000, pollInterval: 100 });
        void work(label, task, taskStore);
        return { task };
      },
      getTask: async (_, { taskId, taskStore }) => taskStore.getTask(taskId),
      getTaskResult: async (_, { taskId, taskStore }) => taskStore.getTaskResult(taskId),
    });
  }
  return server;
}

if (first && transport === 'stdio') {
  const { StdioServerTransport } = await sdk('server/stdio');
  await make().connect(new StdioServerTransport());
} else if (first) {
  const { StreamableHTTPServerTransport } = await sdk('server/streamableHttp');
  const sessions = new Map();
  createServer(async (request, response) => {
    const known = sessions.get(request.headers['mcp-session-id']);
    if (known !== undefined) return known.handleRequest(request, response);
    const opened = new StreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      onsessioninitialized: (id) => sessions.set(id, opened),
    });
    await make().connect(opened);
    return opened.handleRequest(request, response);
  }).listen(Number(port), '127.0.0.1');
} else if (transport === 'stdio') {
  const { serveStdio } = await import('@modelcontextprotocol/server/stdio');
  await serveStdio(make);
} else {
  const { toNodeHandler } = await import('@modelcontextprotocol/node');
  const served = two.createMcpHandler(make);
  notifier = served.notify;
  const handle = toNodeHandler(served);
  createServer((request, response) => handle(request, response)).listen(Number(port), '127.0.0.1');
}
