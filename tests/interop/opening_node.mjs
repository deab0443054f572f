// A connection of a client of the TypeScript SDK. The packages are in the working directory.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(`${process.cwd()}/`);
export const load = async (name) => import(pathToFileURL(require.resolve(name)));
const sdk = (path) => load(`@modelcontextprotocol/sdk/${path}.js`);

// Make a client of release 1 (`first`) or 2 that answers questions by their methods, and hands notifications on.
//
// `heard` gets logs, updates and changes of lists; `arrived` is called after each.
export async function makeClient({ name, first, mode, capabilities, answers, heard, arrived }) {
  const { Client } = first ? await sdk('client/index') : await load('@modelcontextprotocol/client');
  const schemas = first ? await sdk('types') : null;
  const options = first ? { capabilities } : { capabilities, versionNegotiation: { mode } };
  const client = new Client({ name, version: '1.0.0' }, options);
  const known = {
    'elicitation/create': 'ElicitRequestSchema',
    'sampling/createMessage': 'CreateMessageRequestSchema',
    'roots/list': 'ListRootsRequestSchema',
  };
  for (const [method, answer] of Object.entries(answers)) {
    client.setRequestHandler(first ? schemas[known[method]] : method, async (request) => answer(request.params));
  }
  const notices = {
    'notifications/message': ['LoggingMessageNotificationSchema', (params) => heard.log(params.level, params.data)],
    'notifications/resources/updated': ['ResourceUpdatedNotificationSchema', (params) => heard.updated(params.uri)],
  };
  for (const [family, title] of [['tools', 'Tool'], ['resources', 'Resource'], ['prompts', 'Prompt']]) {
    const method = `notifications/${family}/list_changed`;
    notices[method] = [`${title}ListChangedNotificationSchema`, () => heard.changed(method)];
  }
  for (const [method, [schema, take]] of Object.entries(notices)) {
    client.setNotificationHandler(first ? schemas[schema] : method, async (notification) => {
      take(notification.params);
      arrived();
    });
  }
  return { client, schemas };
}

// Connect to a command, or to an address: one that ends in `/sse` has HTTP+SSE. Return the transport and the revision.
export async function connect(client, first, [target, ...args]) {
  const part = (one, two) => (first ? sdk(`client/${one}`) : load(`@modelcontextprotocol/client${two}`));
  let transport;
  if (!target.startsWith('http://')) {
    const { StdioClientTransport } = await part('stdio', '/stdio');
    transport = new StdioClientTransport({ command: target, args, stderr: 'ignore' });
  } else if (target.endsWith('/sse')) {
    const { SSEClientTransport } = await part('sse', '');
    transport = new SSEClientTransport(new URL(target));
  } else {
    const { StreamableHTTPClientTransport } = await part('streamableHttp', '');
    transport = new StreamableHTTPClientTransport(new URL(target));
  }
  let spoken;
  const connecting = transport.setProtocolVersion;
  transport.setProtocolVersion = (version) => {
    spoken = version;
    connecting?.call(transport, version);
  };
  await client.connect(transport);
  return { transport, revision: client.getNegotiatedProtocolVersion?.() ?? spoken };
}

// Read all pages of a list. Release 2 turns them itself where it is given no cursor.
export async function pages(list, member) {
  const found = [];
  let cursor;
  do {
    const page = await list(cursor === undefined ? undefined : { cursor });
    found.push(...page[member]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return found;
}
