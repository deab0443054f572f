// Serve APIs from their descriptions with Prism, which refuses every request that a description does not allow.
// `node serve_prism.mjs FILE...` prints one line of JSON with the address of each file, and then a line for each
// complaint about a request.
import { createRequire } from 'node:module';

const require = createRequire(`${process.cwd()}/package.json`);
const { createServer } = require('@stoplight/prism-http-server');
const { getHttpOperationsFromSpec } = require('@stoplight/prism-http');

const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
const quiet = () => {};
// It also complains where a description has no answer to give. That is no matter of the request.
const complain = (data, text) => /^Request (?!did not|terminated)|Invalid security/.test(text ?? data) && say(text ?? data);
const logger = { info: quiet, success: quiet, debug: quiet, trace: quiet, warn: complain, error: complain };
logger.child = () => logger;

const config = {
  mock: { dynamic: false },
  isProxy: false,
  checkSecurity: true,
  validateRequest: true,
  validateResponse: false,
  errors: true,
};
process.on('uncaughtException', (error) => say(`Prism failed: ${error.stack}`));
const addresses = {};
for (const file of process.argv.slice(2)) {
  const operations = await getHttpOperationsFromSpec(file);
  const server = createServer(operations, { cors: false, config, components: { logger } });
  addresses[file] = await server.listen(0, '127.0.0.1');
}
say(addresses);
