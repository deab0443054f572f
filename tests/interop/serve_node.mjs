// A small server on the TypeScript packages of 2026-07-28, over stdio or HTTP, both eras.
import { createServer } from 'node:http';
import { McpServer, createMcpHandler, fromJsonSchema } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { toNodeHandler } from '@modelcontextprotocol/node';

function make() {
  const server = new McpServer({ name: 'foreign', version: '1.0.0' });
  const numbers = { type: 'object', properties: { a: { type: 'integer' }, b: { type: 'integer' } }, required: ['a', 'b'] };
  server.registerTool('add', { description: 'Add', inputSchema: fromJsonSchema(numbers) }, async ({ a, b }) => ({
    content: [{ type: 'text', text: String(a + b) }],
  }));
  server.registerResource('memo', 'memo://a', {}, async (uri) => ({ contents: [{ uri: uri.href, text: 'text' }] }));
  return server;
}

const [transport, port] = process.argv.slice(2);
if (transport === 'http') {
  const handle = toNodeHandler(createMcpHandler(make));
  createServer((request, response) => handle(request, response)).listen(Number(port), '127.0.0.1');
} else {
  await serveStdio(make);
}
