"""How the conformance driver signs in: the settings of `OAuth` for each `auth/*` scenario, and a windowless browser."""

from __future__ import annotations

from typing import Any, Final

from toolwire.auth import ClientCredentials, EnterpriseManaged, OAuth, PrivateKey, WorkloadIdentity
from toolwire.http1.pool import HttpPool

# Where going on would be wrong.
REFUSED: Final = frozenset(
    f"auth/{name}"
    for name in (
        "scope-retry-limit",
        "resource-mismatch",
        "iss-supported-missing",
        "iss-wrong-issuer",
        "iss-unexpected",
        "iss-normalized",
        "metadata-issuer-mismatch",
    )
)
CLIENT_DOCUMENT: Final = "https://conformance-test.local/client-metadata.json"


def oauth_for(scenario: str, context: dict[str, Any]) -> OAuth:
    """What the client of a scenario knows before it starts."""
    if scenario == "auth/client-credentials-basic":
        return OAuth(grant=ClientCredentials(context["client_id"], context["client_secret"]))
    if scenario == "auth/client-credentials-jwt":
        key = PrivateKey(context["private_key_pem"], algorithm=context["signing_algorithm"])
        return OAuth(grant=ClientCredentials(context["client_id"], key=key))
    if scenario == "auth/wif-jwt-bearer":
        return OAuth(grant=WorkloadIdentity(context["client_id"], context["valid_jwt"]))
    if scenario == "auth/enterprise-managed-authorization":
        return OAuth(
            grant=EnterpriseManaged(
                context["client_id"],
                context["client_secret"],
                id_token=context["idp_id_token"],
                provider=context["idp_issuer"],
                provider_token_endpoint=context["idp_token_endpoint"],
                provider_client_id=context["idp_client_id"],
            )
        )
    if scenario == "auth/pre-registration":
        return OAuth(
            login=_visit,
            client_id=context["client_id"],
            client_secret=context["client_secret"],
            issuer=context["issuer"],
        )
    return OAuth(
        login=_visit,
        client_metadata_url=CLIENT_DOCUMENT,
        dpop=scenario.startswith("auth/dpop"),
        default_endpoints=scenario == "auth/2025-03-26-oauth-endpoint-fallback",
    )


async def _visit(url: str) -> str:
    """Sign in as the suite expects it: ask for the page, and read where it sends a browser."""
    async with HttpPool() as pool, await pool.request("GET", url, redirects=0) as response:
        return response.header("location") or ""
