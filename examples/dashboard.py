"""Views in a chat: a table of orders, a chart of sales, and a change of prices that a person approves.

Run it with `toolwire run examples/dashboard.py`, or look at the views with `toolwire dev examples/dashboard.py`.
"""

import datetime
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from toolwire import Server, ToolError
from toolwire.apps import views

server = Server("dashboard", version="1.0.0", instructions="A small tea shop: its orders, sales and prices.")

State = Literal["open", "sent", "paid"]
TEAS = {"Assam": 9.5, "Darjeeling": 14.0, "Earl Grey": 8.0, "Genmaicha": 12.5, "Lapsang": 11.0, "Oolong": 16.0}
CUSTOMERS = ["Ada Lovelace", "Grace Hopper", "Alan Turing", "Edsger Dijkstra", "Barbara Liskov", "Niklaus Wirth"]
STATES: tuple[State, ...] = ("open", "sent", "paid")
FIRST = datetime.date(2026, 1, 5)
MONTHS = dict(enumerate(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug"], 1))


@dataclass
class Order:
    number: int
    day: datetime.date
    customer: str
    tea: str
    tins: int
    total: float
    state: State


def order(number: int) -> Order:
    """Make an order. The numbers repeat, so that everybody sees the same shop."""
    tea = list(TEAS)[number * 7 % len(TEAS)]
    tins = 1 + number * 5 % 9
    day = FIRST + datetime.timedelta(days=number)
    state = STATES[min(2, (number * 11 + number // 3) % 5)]
    return Order(1000 + number, day, CUSTOMERS[number * 5 % 6], tea, tins, round(tins * TEAS[tea], 2), state)


ORDERS = [order(number) for number in range(240)]

# --- a table ---

orders = server.app(
    views.table(
        [
            views.Column("number", "Order", format="text"),
            views.Column("customer"),
            views.Column("total", format="currency", currency="EUR"),
            views.Column("state"),
            views.Column("tea"),
            views.Column("day", format="date"),
        ],
        title="Orders",
    )
)


@server.tool(app=orders, annotations={"readOnlyHint": True})
def show_orders(state: State | None = None) -> list[Order]:
    """Show the orders of the shop as a table.

    Args:
        state: Only orders in this state.
    """
    return [each for each in ORDERS if state in (None, each.state)]


# --- a chart ---

sales = server.app(views.chart(title="Sales"))


@server.tool(app=sales, annotations={"readOnlyHint": True})
def chart_sales(kind: Literal["bar", "line"] = "bar") -> views.Chart:
    """Show the sales of each month as a chart, for the two teas that sell best.

    Args:
        kind: Bars to compare months, or a line for the course.
    """
    series: dict[str, list[float | None]] = {
        tea: [sum(each.total for each in ORDERS if each.tea == tea and each.day.month == month) for month in MONTHS]
        for tea in ("Darjeeling", "Oolong")
    }
    return views.Chart(list(MONTHS.values()), series, kind=kind, title="Sales by month", unit="EUR", axis="Month")


# --- a change that a person approves ---

PRICES = dict(TEAS)
PROPOSED: dict[str, float] = {}

change = server.app(
    views.diff(
        approve="change_prices",
        reject="keep_prices",
        comment=True,
        title="Change of prices",
        description="The new prices hold for every order that comes after your approval.",
    )
)


def price_list(prices: dict[str, float]) -> str:
    return "\n".join(f"{tea:<12}{price:>8.2f} EUR" for tea, price in prices.items())


@server.tool(app=change)
def propose_prices(percent: Annotated[float, Meta(ge=-50, le=50)], tea: str | None = None) -> views.Diff:
    """Propose other prices. A person sees the change and approves or rejects it.

    Args:
        percent: By how much prices rise, such as 5, or fall, such as -10.
        tea: The tea whose price changes; without it, all do.
    """
    if tea is not None and tea not in PRICES:
        raise ToolError(f"There is no tea {tea!r}; there are {', '.join(PRICES)}.")
    PROPOSED.clear()
    PROPOSED.update(
        {name: round(price * (1 + percent / 100), 2) for name, price in PRICES.items() if tea in (None, name)}
    )
    after = {**PRICES, **PROPOSED}
    return views.Diff.of(price_list(PRICES), price_list(after), name="prices.txt", arguments={"prices": dict(PROPOSED)})


@change.tool(annotations={"destructiveHint": True})
def change_prices(prices: dict[str, float], comment: str = "") -> str:
    """Change the prices to those that a person has seen."""
    if not prices or prices != PROPOSED:
        raise ToolError("These prices are not proposed any more: propose the change again.")
    PRICES.update(prices)
    PROPOSED.clear()
    return f"{len(prices)} prices are changed." + (f" Comment: {comment}" if comment else "")


@change.tool(annotations={"readOnlyHint": False, "destructiveHint": False})
def keep_prices(prices: dict[str, float], comment: str = "") -> str:
    """Drop the proposed prices."""
    PROPOSED.clear()
    return "The prices stay as they are." + (f" Comment: {comment}" if comment else "")


if __name__ == "__main__":
    server.run()
