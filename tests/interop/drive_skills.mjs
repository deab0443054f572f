// Read every skill of a server with the skills client of the TypeScript SDK, and report entries and bytes.
//
// `node drive_skills.mjs URL MODE`: MODE is "auto" for 2026-07-28 and "legacy" for the handshake. The report is one JSON
// object: `skills` by URI, each with its frontmatter and its files as base64, and `refused` with the reasons.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { SkillsClient } from '@modelcontextprotocol/client/ext/skills';

const [url, mode] = process.argv.slice(2);
const client = new Client({ name: 'skills', version: '1.0.0' }, { versionNegotiation: { mode } });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const reader = new SkillsClient(client, { skipInvalid: true });
const { skills, invalid } = await reader.list();
const report = { skills: {}, refused: Object.fromEntries(invalid.map((each) => [each.uri ?? each.index, each.reason])) };

async function read(skill) {
  const manifest = await reader.read(skill);
  const files = { [skill.uri]: manifest };
  for (const { uri } of skill.resources) files[uri] ??= await reader.read(skill, uri);
  const encoded = Object.entries(files).map(([uri, file]) => [uri, Buffer.from(file.bytes).toString('base64')]);
  return { frontmatter: manifest.frontmatter, entry: skill.frontmatter, files: Object.fromEntries(encoded) };
}

for (const skill of skills) {
  try {
    report.skills[skill.uri] = await read(skill);
    report.got ??= {};
    report.got[skill.uri] = (await reader.get(skill.uri)).skill.uri;
  } catch (error) {
    report.refused[skill.uri] = `${error.reason ?? error.name}: ${error.message}`;
  }
}
if (reader.directoryRead && skills.length) {
  const { resources } = await reader.readDirectory(skills[0].uri.replace(/\/SKILL\.md$/, ''));
  report.directory = resources.map((each) => each.uri);
}
report.revision = client.getNegotiatedProtocolVersion?.() ?? null;
await client.close();
process.stdout.write(JSON.stringify(report));
