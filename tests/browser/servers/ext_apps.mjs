// A server with a view on the TypeScript packages, over stdio. The view uses the official `App`, made into one script by
// esbuild.
import { registerAppResource, registerAppTool, RESOURCE_MIME_TYPE } from '@modelcontextprotocol/ext-apps/server';
import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { build } from 'esbuild';
import { z } from 'zod';

const URI = 'ui://clock/clock.html';
const VIEW = `
import { App } from '@modelcontextprotocol/ext-apps';
const app = new App({ name: 'clock', version: '1' }, {});
app.ontoolresult = (result) => {
  document.getElementById('out').textContent = result.content[0].text;
};
document.getElementById('tick').onclick = async () => {
  const result = await app.callServerTool({ name: 'tick', arguments: {} });
  document.getElementById('out').textContent = result.content[0].text;
};
await app.connect();
`;

const made = await build({
  stdin: { contents: VIEW, resolveDir: process.cwd() },
  bundle: true,
  format: 'esm',
  minify: true,
  write: false,
  absWorkingDir: import.meta.dirname,
  nodePaths: [`${import.meta.dirname}/node_modules`],
});
const script = made.outputFiles[0].text.replaceAll('</script', '<\\/script');
const PAGE = `<!doctype html><html lang="en"><title>Clock</title><p id="out">...</p><button id="tick">Tick</button>
<script type="module">${script}</script></html>`;

await serveStdio(() => {
  const server = new McpServer({ name: 'clock', version: '1.0.0' });
  const shown = (text) => ({ content: [{ type: 'text', text }] });
  registerAppTool(
    server,
    'clock',
    {
      title: 'Clock',
      description: 'Show the time',
      inputSchema: z.object({ zone: z.string().default('UTC') }),
      _meta: { ui: { resourceUri: URI } },
    },
    async ({ zone }) => shown(`noon in ${zone}`),
  );
  registerAppTool(
    server,
    'tick',
    { description: 'Tick', inputSchema: z.object({}), _meta: { ui: { resourceUri: URI, visibility: ['app'] } } },
    async () => shown('a minute past noon'),
  );
  registerAppResource(server, 'Clock', URI, {}, async () => ({
    contents: [{ uri: URI, mimeType: RESOURCE_MIME_TYPE, text: PAGE }],
  }));
  return server;
});
