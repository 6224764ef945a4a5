"""A user's own selection schemes: rows of the registry like the package's. Imports no JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mrsa_jax._core.errors import require
from mrsa_jax._core.plugins import made, own_row
from mrsa_jax.selection._registry import BUILT_IN, ROWS, Row

if TYPE_CHECKING:
    from mrsa_jax._core.selector import Selector


def register(
    name: str,
    factory: Callable[..., Selector],
    *,
    label: str | Callable[..., str] | None = None,
    papers: str | Sequence[str] = (),
) -> None:
    """Add a selection scheme of your own, which flags, files, sweeps and `cite` then know.

    It is written as the package's schemes are: `name`, or `name:3:0.5` where the factory takes
    parameters behind N and K. A sweep's axes `privacy_target` and `fairness` fill parameters of
    these names. On the command line, `--plugin FILE.py` runs the file that registers it.
    Registering a name again replaces it, so that a notebook's cell can run twice.

    Args:
        name: Lower-case letters, digits and underscores; none of the package's own.
        factory: `(num_clients, cohort_size, *parameters) -> selector`, a `Selector` that is a
            pytree. Parameters are an int or a float where they are written as one, else text;
            a `ConfigurationError` that it raises is shown as the settings' own. If its class does
            not say `depends_on_data = False`, a training with noise is refused.
        label: What tables and figures show, followed by the parameters in parentheses; or what
            makes all of it from the parameters; `name` when None.
        papers: BibTeX entries for `cite`, or keys of papers that it knows.

    Raises:
        ConfigurationError: If the name is taken or ill-formed, or the factory cannot take N and K.

    Examples:
        >>> import mrsa_jax as mj
        >>> register("pairs", lambda n, k: mj.selection.batch_partitioning(n, k, 2), label="Pairs")
        >>> study = mj.study.SimulateConfig(rounds=9, trials=2, schemes=("pairs",))
        >>> mj.study.run(study).mrsa.table()[["scheme", "strong_privacy"]].values.tolist()
        [['Pairs', 2]]
    """
    given = ("the number of clients", "the cohort size")
    own = own_row(name, factory, label, papers, argument="scheme", nouns="schemes", given=given,
                  taken=BUILT_IN)  # fmt: skip

    def build(num_clients: int, cohort_size: int, *parameters: Any) -> Any:
        from mrsa_jax._core.selector import check_selector

        found = made(factory, "a selector", num_clients, cohort_size, *parameters)
        selector = check_selector(found)
        rule = f"must make a selector over {num_clients} clients"
        require(selector.num_clients == num_clients, "factory", rule, selector.num_clients)
        return selector

    ROWS[name] = Row(
        build,
        check=lambda n, k, scheme: build(n, k, *scheme.parameters),
        varies=lambda n, k, *parameters: not hasattr(build(n, k, *parameters), "cohort_size"),
        depends_on_data=lambda n, k, *parameters: getattr(
            build(n, k, *parameters), "depends_on_data", None
        ),
        **own,
    )
