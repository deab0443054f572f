"""The template-name server. `toolwire dev server.py` serves it with a page to try it on."""

from dataclasses import dataclass

from toolwire import Server, ToolError

server = Server("template-name", version="0.1.0", instructions="Converts amounts of money.")

RATES = {"EUR": 1.0, "NOK": 11.6, "USD": 1.1}


@dataclass
class Amount:
    value: float
    currency: str


def rate_of(currency: str) -> float:
    if currency not in RATES:
        raise ToolError(f"{currency!r} is not known; use one of {', '.join(RATES)}.")
    return RATES[currency]


@server.tool
async def convert_amount(value: float, currency: str, to: str = "EUR") -> Amount:
    """Convert an amount of money into another currency.

    Args:
        value: How much, such as 12.50.
        currency: The currency it is in, such as "NOK".
        to: The currency that is wanted.
    """
    return Amount(round(value / rate_of(currency) * rate_of(to), 2), to)


@server.resource("rates://{currency}")
async def rate(currency: str) -> float:
    """The price of one euro in a currency."""
    return rate_of(currency)


@server.prompt
def compare(amount: str) -> str:
    """Ask for an amount in every currency."""
    return f"Show {amount} in every currency you can convert to, as a table."


if __name__ == "__main__":
    server.run()
