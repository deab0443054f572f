// Serve a folder of skills with the skill catalogue of the TypeScript SDK, over HTTP.
//
// `node serve_skills.mjs FOLDER PORT`. Skills that the catalogue leaves out are printed as warnings.
import { createServer } from 'node:http';
import { McpServer, createMcpHandler } from '@modelcontextprotocol/server';
import { loadSkills } from '@modelcontextprotocol/server/ext/skills/node';
import { toNodeHandler } from '@modelcontextprotocol/node';

const [folder, port] = process.argv.slice(2);
const catalogue = await loadSkills(folder, { onWarning: (warning) => console.error(JSON.stringify(warning)) });

function make() {
  const server = new McpServer({ name: 'foreign', version: '1.0.0' });
  catalogue.attach(server);
  return server;
}

const handle = toNodeHandler(createMcpHandler(make));
createServer((request, response) => handle(request, response)).listen(Number(port), '127.0.0.1');
