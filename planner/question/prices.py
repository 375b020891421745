"""Prices that a user states: one for all GPUs, or one of a GPU, a contract, or both.

As text ``h100=1.9,spot=1.2,b200:reserved-1y=4``: USD per GPU-hour by GPU, contract, or both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from planner.base.enums import Contract
from planner.base.records import record
from planner.errors import SearchSpaceError

Stated = float | str
"""A price of a request: a number, or text with a part for each GPU or contract."""

_CONTRACTS = tuple(map(str, Contract))


@record(kw_only=True)
class PricePart:
    """USD of a ``gpu`` under a ``contract``; an empty name stands for each."""

    gpu: str
    contract: str
    usd: float

    def __str__(self) -> str:
        name = ":".join(filter(None, (self.gpu, self.contract)))
        number = repr(self.usd).removesuffix(".0")
        return f"{name}={number}" if name else number


def price_parts(price: Stated | None) -> Iterator[PricePart]:
    """Split the price of a request into its parts (GPU, contract, USD)."""
    if price is None:
        return
    for part in str(price).split(","):
        name, _, number = part.rpartition("=")
        gpu, _, contract = name.rpartition(":")
        if contract not in _CONTRACTS:
            gpu, contract = name, ""
        yield PricePart(gpu=gpu, contract=contract, usd=float(number))


def price_of_contract(price: Stated | None, *contracts: str) -> Stated | None:
    """The parts of a price that apply to these contracts; None: there are none."""
    if not isinstance(price, str):
        return price
    parts = [str(part) for part in price_parts(price) if part.contract in ("", *contracts)]
    return ",".join(parts) or None


def with_contract(price: Stated | None, contract: str) -> str | None:
    """A price with ``contract`` in all parts that have none."""
    parts = (replace(part, contract=part.contract or contract) for part in price_parts(price))
    return ",".join(map(str, parts)) or None


def check_price(
    price: Stated | None, contracts: Collection[str], option_name: str, owned: str
) -> Stated | None:
    """The price with a contract for each part, checked against the requested contracts.

    A part without a contract gets the only rented contract. ``option_name`` and ``owned`` are the
    names of the price and of the purchase price in messages.

    Raises SearchSpaceError if a part names an owned contract or one that is not requested, or has
    no contract where several are rented.
    """
    rented = [contract for contract in contracts if contract != Contract.OWNED]
    for part in price_parts(price):
        if part.contract == Contract.OWNED or (not part.contract and not rented):
            raise SearchSpaceError(
                f"{option_name} is the hourly price of a rented GPU: give {owned} for owned GPUs."
            )
        if part.contract and part.contract not in contracts:
            raise SearchSpaceError(
                f"{option_name} names {part.contract}, which is not among the contracts: "
                f"{', '.join(contracts)}."
            )
        if not part.contract and len(rented) > 1:
            example = f"{part.gpu}:{rented[0]}" if part.gpu else rented[0]
            raise SearchSpaceError(
                f"{option_name} {part}: name the contract that it is of, such as "
                f"{example}={part.usd:g}."
            )
    return price if len(contracts) == 1 or price is None else with_contract(price, rented[0])
