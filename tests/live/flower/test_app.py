"""The app of examples/flower by Flower's own commands, without JAX.

Its how-to's lines as they are.
Three or four minutes: Flower starts a process for each message of a deployed node.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import shutil
import sys

import pytest
from launch import environment, free_port, link, run, started
from network import lines

ROOT = pathlib.Path(__file__).parents[3]
APP = ROOT / "examples" / "flower"
PROGRAMS = pathlib.Path(sys.executable).parent
UV = shutil.which("uv", path=str(PROGRAMS))
PAGE = ROOT / "docs" / "how_to" / "audit_a_flower_run.md"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(UV is None, reason="uv builds and installs"),
]


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the variables of an environment that holds Flower and the small distribution."""
    folder = tmp_path_factory.mktemp("flower")
    found = environment(folder / "env" / "bin", folder / "home")
    python = folder / "env" / "bin" / "python"
    run(f"{UV} venv -q -p {sys.executable} {folder / 'env'}", found, folder)
    run(
        f"{UV} pip install -q -p {python} -c {ROOT / 'constraints.txt'} "
        "'flwr[simulation]' "
        f"{ROOT / 'watch'}",
        found,
        folder,
    )
    code = "import importlib.util as util; print(util.find_spec('jax'), util.find_spec('mrsa_jax'))"
    assert run(f'python -c "{code}"', found, folder).split() == ["None", "None"]
    return found


def _page_blocks() -> list[str]:
    """Return the lines of the how-to that its own test leaves to this one."""
    mark = r"<!-- not run: tests/live/flower/test_app.py runs it -->"
    return re.findall(rf"^{mark}\n```bash\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


def _check_said(said: str) -> None:
    for word in ("deprecat", "traceback"):
        assert word not in said.lower(), said[-3000:]


def test_the_page_records_watches_gates_and_checks(variables: dict[str, str]) -> None:
    home = pathlib.Path(variables["HOME"])
    simulate, watch, gate, audit, check = _page_blocks()
    with link(variables, "simulated", "--simulation"):
        said = run(simulate, variables, ROOT)
    _check_said(said)
    log = home / "recorded.jsonl"
    assert f"The participation log of this run is {log}" in said
    found = lines(log)
    assert [line.round for line in found] == list(range(1, 17))
    assert len({name for line in found for name in line.clients}) == 12
    learnt = [line for line in found if line.status == "learnt"]
    assert all(len(line.asked or ()) == 6 for line in learnt)
    lost = sum(len(line.lost.get("train", ())) for line in learnt)
    assert 0 < lost < sum(len(line.asked or ()) for line in learnt)
    assert all(
        set(line.asked or ()) == {*line.clients, *line.lost.get("train", ())}
        for line in learnt
    )

    told = run(watch, variables, ROOT)
    assert told.count("\nround ") + told.startswith("round ") == len(learnt)
    answer = json.loads(run(gate, variables, ROOT, statuses=(0, 3)).splitlines()[0])
    refusal = "weak T would be 1, below 2"
    assert answer["allowed"] or answer["reason"] == refusal  # nearly always the second
    alone = (
        f"echo '[\"{learnt[0].clients[0]}\"]' | mrsa-watch gate {log} --fail-below 2"
    )
    assert refusal in run(alone, variables, ROOT, statuses=(3,))
    both = {
        **variables,
        "PATH": f"{variables['PATH'].replace(':', f':{PROGRAMS}:', 1)}",
    }
    run(audit, both, home)  # the audit itself is of the large package
    assert "claim" in run(check, variables, home)


def test_a_deployed_link_knows_one_person_in_two_runs(
    variables: dict[str, str],
) -> None:
    """Two nodes on loopback, started anew for the second run.

    Flower gives them other numbers.
    """
    home = pathlib.Path(variables["HOME"])
    log = home / "deployed.jsonl"
    for _ in range(2):
        with contextlib.ExitStack() as stack:
            port = stack.enter_context(link(variables, "deployed"))
            for i, person in enumerate(("anna", "bob")):
                words = [
                    "flower-supernode",
                    "--insecure",
                    "--superlink",
                    f"127.0.0.1:{port}",
                    "--port",
                    str(free_port()),
                    "--node-config",
                    f'partition-id={i} secret="{home / person}"',
                ]
                stack.enter_context(started(words, variables, home / f"{person}.log"))
            settings = f"log='{log}' rounds=1 fraction=1.0 loss=0.0"
            said = run(
                f'flwr run {APP} deployed --stream --run-config "{settings}"',
                variables,
                home,
            )
            _check_said(said)
    first, second = lines(log)
    assert first.run != second.run
    assert first.clients == second.clients
    assert len(first.clients) == 2
    nodes = re.findall(
        r"SuperNode ID: (\d+)",
        "".join((home / f"{person}.log").read_text() for person in ("anna", "bob")),
    )
    assert len(set(nodes)) == 4
    assert not {*nodes, "anna", "bob", "0", "1"} & {*first.clients}
    assert "2 clients, rank 1" in run(f"mrsa-watch watch {log} --once", variables, home)
    _check_said((home / "deployed.log").read_text())
