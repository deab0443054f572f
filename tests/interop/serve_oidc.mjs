// An authorization server built on `oidc-provider`: registers anybody, signs everybody in as "ada", or as the user that
// the browser names in `login_hint`, and agrees to all. The client "gateway" gets tokens of its own.
// Started as `node serve_oidc.mjs PORT RESOURCE SECONDS`: its port, the resource its tokens are for, how long they live.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(`${process.cwd()}/package.json`);
const { default: Provider } = await import(pathToFileURL(require.resolve('oidc-provider')));

const [port, resource, seconds] = process.argv.slice(2);
const scopes = ['notes:read', 'notes:write'];
// Users whose next renewal fails, so that they have to sign in again: `POST /forget/USER`.
const forgotten = new Set();

const provider = new Provider(`http://127.0.0.1:${port}`, {
  cookies: { keys: ['only a test'] },
  scopes: ['openid', 'offline_access'],
  clients: [
    {
      client_id: 'gateway',
      client_secret: 'only a test, but long enough',
      grant_types: ['client_credentials'],
      redirect_uris: [],
      response_types: [],
    },
  ],
  features: {
    clientCredentials: { enabled: true },
    revocation: { enabled: true },
    devInteractions: { enabled: false },
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => resource,
      useGrantedResource: () => true,
      getResourceServerInfo: () => ({
        scope: scopes.join(' '),
        audience: resource,
        accessTokenFormat: 'jwt',
        accessTokenTTL: Number(seconds),
      }),
    },
  },
  pkce: { required: () => true },
  rotateRefreshToken: true,
  interactions: { url: (context, interaction) => `/interaction/${interaction.uid}` },
  findAccount: (context, id, token) =>
    token?.kind === 'RefreshToken' && forgotten.delete(id)
      ? undefined
      : { accountId: id, claims: async () => ({ sub: id }) },
});

// How often tokens were refreshed, how often a spent refresh token was used again: `GET /counts`.
const counts = { refreshes: 0, refusals: 0, revocations: 0 };
const isRefresh = (context) => context.oidc?.params?.grant_type === 'refresh_token';
provider.on('grant.success', (context) => isRefresh(context) && counts.refreshes++);
provider.on('grant.error', (context) => isRefresh(context) && counts.refusals++);
provider.on('grant.revoked', () => counts.revocations++);

provider.use(async (context, next) => {
  if (context.path === '/counts') {
    context.body = counts;
    return;
  }
  if (context.path.startsWith('/forget/')) {
    forgotten.add(context.path.slice('/forget/'.length));
    context.body = 'forgotten';
    return;
  }
  if (!context.path.startsWith('/interaction/')) return next();
  const { prompt, params, session } = await provider.interactionDetails(context.req, context.res);
  if (prompt.name === 'login') {
    return provider.interactionFinished(context.req, context.res, { login: { accountId: params.login_hint ?? 'ada' } });
  }
  const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope('openid offline_access');
  grant.addResourceScope(resource, params.scope ?? '');
  const consent = { grantId: await grant.save() };
  return provider.interactionFinished(context.req, context.res, { consent });
});

// Clients register with the scopes they know of at that time; held to those, none could ever step up.
async function register(request, response) {
  const chunks = await Array.fromAsync(request);
  const { scope, ...metadata } = JSON.parse(Buffer.concat(chunks).toString());
  request.body = metadata;
  return answer(request, response);
}

const answer = provider.callback();
const server = createServer((request, response) =>
  request.method === 'POST' && request.url === '/reg' ? register(request, response) : answer(request, response),
);
server.listen(Number(port), '127.0.0.1', () => console.log('ready'));
