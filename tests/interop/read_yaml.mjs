// Read YAML texts with the package `yaml`, and report the JSON of each, or null for a text that it refuses.
//
// `node read_yaml.mjs FILE`: FILE has a JSON list of texts. The report is a JSON list of {"value": ...} or null.

import { readFileSync } from 'node:fs';
import { parseDocument } from 'yaml';

const texts = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const report = texts.map((text) => {
  const document = parseDocument(text, { version: '1.2', schema: 'core', logLevel: 'silent' });
  return document.errors.length ? null : { value: document.toJS({ maxAliasCount: 100 }) };
});
process.stdout.write(JSON.stringify(report));
