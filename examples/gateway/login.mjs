// A provider for sign-in (OpenID Connect) to try things out with. It believes every name and every password.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import Provider from 'oidc-provider';

const gateway = 'http://127.0.0.1:8000/mcp';
// Programs register here once. They are kept, so that they are known after a restart.
const programs = existsSync('programs.json') ? JSON.parse(readFileSync('programs.json')) : [];

// A program that has nobody to sign in proves itself with a secret.
const robot = {
  client_id: 'robot',
  client_secret: 'only-to-try-things-out',
  grant_types: ['client_credentials'],
  redirect_uris: [],
  response_types: [],
};

const provider = new Provider('http://127.0.0.1:9000', {
  clients: [robot, ...programs],
  cookies: { keys: ['only to try things out'] },
  features: {
    clientCredentials: { enabled: true },
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => gateway,
      useGrantedResource: () => true,
      getResourceServerInfo: () => ({ scope: 'tools', audience: gateway, accessTokenFormat: 'jwt' }),
    },
  },
});

provider.on('registration_create.success', (context, program) => {
  programs.push(program.metadata());
  writeFileSync('programs.json', JSON.stringify(programs));
});

const server = provider.listen(9000, '127.0.0.1', () => console.log('people sign in at http://127.0.0.1:9000'));
server.on('error', (error) => {
  console.log(`nobody can sign in: ${error.message}`);
  process.exit(1);
});
