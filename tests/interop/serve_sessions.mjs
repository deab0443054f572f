// A server on the TypeScript package of 2025-11-25, over stdio or HTTP, that adds a tool to the session that asks for it.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';

const text = (words) => ({ content: [{ type: 'text', text: words }] });

function make() {
  const server = new McpServer({ name: 'sessions', version: '1.0.0' });
  server.registerTool('grow', { description: 'grow' }, async () => {
    server.registerTool('extra', { description: 'extra' }, async () => text('extra'));
    server.registerResource('extra', 'note://extra', {}, async (uri) => ({ contents: [{ uri: uri.href, text: 'extra' }] }));
    return text('grown');
  });
  server.registerResource('memo', 'note://memo', {}, async (uri) => ({ contents: [{ uri: uri.href, text: 'memo' }] }));
  return server;
}

const [transport, port] = process.argv.slice(2);
if (transport === 'stdio') {
  await make().connect(new StdioServerTransport());
} else {
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
}
