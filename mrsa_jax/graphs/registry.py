"""Assignment graphs by name, a row each.

What flags, files, titles and citations know of them.
A graph is written `name`, its number being a separate setting, one over blocks and a
user's own (`register`) `name:parameters`. Nothing here imports JAX before a graph is
built.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mrsa_jax._core.registry import (
    Parameters,
    Reader,
    built_by,
    check_pytree,
    made,
    no_parameters,
    own_row,
    read_member,
)
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_jax.graphs._lists import GraphModel

_SECAGG = ("bonawitz2017practical", "shamir1979share")


@dataclasses.dataclass(frozen=True)
class Row:
    """Row of a graph's name.

    Attributes:
        build: (num_clients, *parameters) -> the model.
        label: parameters -> what titles call it.
        setting: The setting that is its parameter, `degree` or
            `connection_probability`.
        degree: (num_clients, *parameters) -> the most neighbours of a client; None if
            only chance bounds them.
        chance: parameters -> p of the G(n, p) that it is, which CCESA's theorems are
            about; None of others.
        is_complete: Whether all are joined with all, whoever is lost.
        is_connected: parameters -> whether it is always connected while nobody is lost.
        rule: What the text must be, where it is not plain or its number is a setting.
        read: Parts behind the name -> parameters.
        fields: Names of the parameters.
        papers: Keys of papers, or BibTeX entries.
        code: () -> digests of a user's code, by module; the package's own has its
            version.
    """

    build: Callable[..., Any]
    label: Callable[..., str]
    setting: str = ""
    degree: Callable[..., int | None] = lambda n, *parameters: None
    chance: Callable[..., float | None] = lambda *parameters: None
    is_complete: bool = False
    is_connected: Callable[..., bool] = lambda *parameters: False
    rule: str = ""
    read: Reader = no_parameters
    fields: tuple[str, ...] = ()
    papers: tuple[str, ...] = _SECAGG
    code: Callable[[], dict[str, str]] = dict


@dataclasses.dataclass(frozen=True)
class Graph:
    """An assignment graph as named in settings.

    Attributes:
        row: What is known of its name.
        parameters: What follows the name, read, or its setting.
    """

    row: Row
    parameters: Parameters = ()

    @staticmethod
    def parse(text: str) -> Graph:
        """Read a graph as written in flags and files.

        Raises:
            ConfigurationError: For an unknown name (naming the nearest), or parameters
                that its factory does not take.

        Examples:
            >>> Graph.parse("complete").label
            'complete graph (SecAgg)'
        """
        name, parameters = read_member(text, ROWS, "graph", "graph")
        return Graph(ROWS[name], parameters)

    @property
    def label(self) -> str:
        """Name in titles."""
        return self.row.label(*self.parameters)

    @property
    def chance(self) -> float | None:
        """Chance of an edge, where edges are independent and alike."""
        return self.row.chance(*self.parameters)

    def build(self, num_clients: int) -> GraphModel:
        """Return the model over the clients of a round."""
        model: GraphModel = self.row.build(num_clients, *self.parameters)
        return model

    def degree(self, num_clients: int) -> int | None:
        """Return the most neighbours of a client.

        None if only chance bounds them.
        """
        return self.row.degree(num_clients, *self.parameters)


def register(
    name: str,
    factory: Callable[..., GraphModel],
    *,
    label: str | Callable[..., str] | None = None,
    papers: str | Sequence[str] = (),
    depends: Any = None,
) -> None:
    """Add your own assignment graph, which flags, files, sweeps and `cite` then know.

    It is written `name`, or `name:3:0.5` where the factory takes parameters behind n.
    On the command line, `--plugin FILE.py` runs the file that registers it. Registering
    a name again replaces it.

    Args:
        name: Lower-case letters, digits and underscores; none of the package's own.
        factory: `(num_clients, *parameters) -> model`, a `GraphModel` that is a pytree.
            An attribute `degree`, the most neighbours of a client, lowers the threshold
            that is safe from CCESA's Appendix F attack; without it, that is the
            complete graph's.
        label: What titles show, followed by the parameters in parentheses; or what
            makes all of it from the parameters; `name` when None.
        papers: BibTeX entries for `cite`, or keys of papers that it knows.
        depends: As in `selection.register`: what results depend on in addition to what
            the factory reaches.

    Raises:
        ConfigurationError: If the name is taken or ill-formed, or the factory cannot
            take n.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.graphs.register("ring", lambda n: mj.graphs.harary(n, 2), label="ring")
        >>> protocol = mj.study.ProtocolConfig(graph="ring", step_dropout_rate=0.01)
        >>> mj.study.validate(mj.study.SimulateConfig(protocol=protocol))
    """
    arguments = ("the number of clients",)
    row = own_row(
        name,
        factory,
        label,
        papers,
        nouns="graphs",
        given=arguments,
        taken=BUILT_IN,
        depends=depends,
    )

    def build(num_clients: int, *parameters: Any) -> Any:
        from mrsa_jax.graphs._lists import GraphModel

        model = made(factory, "a graph", num_clients, *parameters)
        require(
            isinstance(model, GraphModel),
            "factory",
            "must make a graph, with `num_clients` and `sample`",
            model,
        )
        check_pytree(model, "graph")
        require(
            model.num_clients == num_clients,
            "factory",
            f"must make a graph over {num_clients} clients",
            model.num_clients,
        )
        return model

    def degree(num_clients: int, *parameters: Any) -> int:
        return int(getattr(build(num_clients, *parameters), "degree", num_clients - 1))

    ROWS[name] = Row(build, degree=degree, **row)


def _over_blocks(num_clients: int, block_size: int, degree: int) -> GraphModel:
    from mrsa_jax.graphs.models import harary, over_blocks

    require(
        num_clients % block_size == 0,
        "graph",
        "must have blocks that divide the clients of a round",
        block_size,
        num_clients,
    )
    return over_blocks(harary(num_clients // block_size, degree), block_size)


def _block_size_and_degree(rest: list[str]) -> tuple[int, int]:
    block_size, degree = map(int, rest)
    if block_size < 1:
        raise ValueError
    return block_size, degree


ROWS: dict[str, Row] = {
    "complete": Row(
        built_by(__package__, "models", "complete"),
        lambda: "complete graph (SecAgg)",
        degree=lambda n: n - 1,
        chance=lambda: 1.0,
        is_complete=True,
    ),
    "erdos_renyi": Row(
        built_by(__package__, "models", "erdos_renyi"),
        lambda chance: f"Erdős–Rényi graph (CCESA), p = {chance:.4g}",
        "connection_probability",
        chance=lambda chance: float(chance),
        rule=(
            "must be plain 'erdos_renyi' "
            "(its number is the setting connection_probability)"
        ),
        papers=("choi2020communication", *_SECAGG),
    ),
    "harary": Row(
        built_by(__package__, "models", "harary"),
        lambda degree: f"{degree}-regular Harary graph (SecAgg+)",
        "degree",
        degree=lambda n, degree: int(degree),
        is_connected=lambda degree: degree >= 2,
        rule="must be plain 'harary' (its number is the setting degree)",
        papers=("bell2020secure", "harary1962maximum", *_SECAGG),
    ),
    "random_regular": Row(
        built_by(__package__, "models", "random_regular"),
        lambda degree: f"random {degree}-regular graph (SecAgg+)",
        "degree",
        degree=lambda n, degree: int(degree),
        rule="must be plain 'random_regular' (its number is the setting degree)",
        papers=("bell2020secure", *_SECAGG),
    ),
    "over_blocks": Row(
        _over_blocks,
        lambda size, degree: (
            f"Harary graph over blocks of {size}, {degree} others to each"
        ),
        degree=lambda n, size, degree: size * (degree + 1) - 1,
        is_connected=lambda size, degree: degree >= 2,
        rule=(
            "must be written over_blocks:T:K "
            "(blocks of T clients, each joined to K others)"
        ),
        read=_block_size_and_degree,
        fields=("block_size", "degree"),
        papers=("so2023securing", "bell2020secure", "harary1962maximum", *_SECAGG),
    ),
}
"""Every graph by the name that flags and files use."""
BUILT_IN = tuple(ROWS)
