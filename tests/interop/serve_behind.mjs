// A server on the TypeScript packages of 2026-07-28, over stdio or HTTP, both eras, with what a gateway has to translate.
// It asks by `inputRequired`, which the package turns into requests for clients of the older revisions.
import { createServer } from 'node:http';
import {
  McpServer, ProtocolError, UrlElicitationRequiredError, acceptedContent, createMcpHandler, fromJsonSchema, inputRequired,
} from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { toNodeHandler } from '@modelcontextprotocol/node';

const text = (words) => ({ content: [{ type: 'text', text: String(words) }] });
const empty = { type: 'object', properties: {} };
const form = { type: 'object', properties: { ok: { type: 'boolean' } }, required: ['ok'] };
const weather = { name: 'weather', inputSchema: { type: 'object' } };
const question = { role: 'user', content: { type: 'text', text: 'How is it?' } };
const QUESTIONS = {
  confirm: () => inputRequired.elicit({ message: 'sure?', requestedSchema: form }),
  visit: () => inputRequired.elicitUrl({ message: 'Sign in', url: 'https://example.com/in' }),
  think: () => inputRequired.createMessage({
    messages: [question], maxTokens: 10, tools: [weather], toolChoice: { mode: 'required' },
  }),
  roots: () => inputRequired.listRoots(),
};
const told = {
  confirm: (answer) => `${answer.action} ${answer.content?.ok === true ? 'True' : 'False'}`,
  visit: (answer) => answer.action,
  think: (answer) => (Array.isArray(answer.content) ? answer.content[0] : answer.content).text,
  roots: (answer) => answer.roots.map((root) => root.uri).join(', '),
};

function make() {
  const options = { capabilities: { logging: {}, tools: { listChanged: true } } };
  const server = new McpServer({ name: 'foreign', version: '1.0.0' }, { ...options, instructions: 'Ask away.' });
  const tool = (name, schema, run, more = {}) =>
    server.registerTool(name, { description: name, inputSchema: fromJsonSchema(schema), ...more }, run);

  for (const [name, ask] of Object.entries(QUESTIONS)) {
    tool(name, empty, async (_, ctx) => {
      const answer = ctx.mcpReq.inputResponses?.answer;
      if (answer === undefined) return inputRequired({ inputRequests: { answer: ask() }, requestState: `state of ${name}` });
      return text(told[name](answer));
    });
  }
  tool('both', empty, async (_, ctx) => {
    const answers = ctx.mcpReq.inputResponses;
    if (answers?.one === undefined) {
      return inputRequired({ inputRequests: { one: QUESTIONS.confirm(), two: QUESTIONS.roots() } });
    }
    return text(`${told.confirm(answers.one)}, ${told.roots(answers.two)}`);
  });
  const names = { type: 'array', items: { type: 'string' } };
  tool('names', empty, async () => ({ ...text('["Oslo","Paris"]'), structuredContent: ['Oslo', 'Paris'] }), {
    outputSchema: fromJsonSchema(names),
  });
  const place = { type: 'object', properties: { region: { type: 'string', 'x-mcp-header': 'Region' } }, required: ['region'] };
  tool('place', place, async ({ region }, ctx) => text(`${region} ${ctx.http?.req?.headers.get('mcp-param-region')}`));
  tool('slow', empty, async (_, ctx) => {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    for (const progress of [1, 2, 3]) {
      if (progressToken === undefined) break;
      await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: 3 } });
    }
    return text('done');
  });
  tool('talk', empty, async (_, ctx) => {
    await ctx.mcpReq.log('info', 'hello from the server');
    return text('talked');
  });
  tool('pay', empty, async () => {
    throw new UrlElicitationRequiredError(
      [{ mode: 'url', elicitationId: '7', url: 'https://example.com/pay', message: 'Pay' }], 'wrong');
  });
  tool('broken', empty, async () => {
    throw new ProtocolError(-32077, 'a code of its own', { detail: 1 });
  });
  server.registerResource('memo', 'memo://text', {}, async (uri) => ({ contents: [{ uri: uri.href, text: 'words' }] }));
  return server;
}

const [transport, port] = process.argv.slice(2);
if (transport === 'http') {
  const handle = toNodeHandler(createMcpHandler(make));
  createServer((request, response) => handle(request, response)).listen(Number(port), '127.0.0.1');
} else {
  await serveStdio(make);
}
