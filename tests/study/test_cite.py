"""Which papers a spec stands on, and that the entries are sound BibTeX."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import subprocess
import sys

import pytest
import xarray as xr

import mrsa_jax as mj
from mrsa_jax import ConfigurationError, study
from mrsa_jax.graphs.registry import BUILT_IN as GRAPHS
from mrsa_jax.study import SecaggConfig, _cite
from mrsa_jax.study._cite import PAPERS
from mrsa_jax.study.settings._parts import KINDS

ATTACKS = [name.removeprefix("attack ") for name in study.KINDS if "attack" in name]
ALWAYS = ["mrsa_jax", "jax2018github"]
SCHEMES = ("uniform", "weighted", "partition", "batch_partitioning",
           "crossing_partitions", "bernoulli", "poisson", "balls_in_bins",
           "power_of_choice", "minimum_separation")  # fmt: skip


def keys(spec: object) -> list[str]:
    return re.findall(r"^@\w+\{([^,]+),", mj.cite(spec), re.MULTILINE)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("batch_partition", "did you mean 'batch_partitioning'?"),
        ("batch_partitioning:x", "must give a privacy target"),
        ("batch_partitioning:4:fair", "must be a known rule"),
        ("markov:x", "`availability` must be written markov:ROUNDS"),
        (
            "harary:4",
            "`graph` must be plain 'harary' (its number is the setting degree)",
        ),
        ("", "must be a known name"),
        (3, "must be a scheme, a configuration, a study's data set or a name; got int"),
        (None, "got NoneType"),
        (object(), "got object"),
        (DeprecationWarning, "got type"),
        (["uniform", 4], "got int"),
    ],
)
def test_what_is_unknown_is_said(spec: object, words: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(words)):
        mj.cite(spec)


def test_an_unknown_value_is_no_spec() -> None:
    @dataclasses.dataclass
    class Strange:
        size: int = 3

    with pytest.raises(
        ConfigurationError, match="must be a scheme with papers; got a Strange"
    ):
        mj.cite(Strange())


def _split_fields(body: str) -> dict[str, str]:
    return dict(re.findall(r"^  (\w+) *= \{(.*)\},$", body, re.MULTILINE))


@pytest.mark.parametrize("key", PAPERS)
def test_entries_are_sound(key: str) -> None:
    paper = PAPERS[key]
    text = paper.bibtex
    assert text.startswith(f"@{paper.kind}{{{key},\n")
    assert text.endswith("\n}")
    assert text.count("{") == text.count("}")
    assert text.isascii()
    fields = _split_fields(text)
    assert len(fields) == len(paper.fields) == text.count("\n") - 1
    assert {"author", "title", "year"} <= set(fields)
    assert 1950 <= int(fields["year"]) <= 2026
    # what a reference must have by its kind
    needed = {
        "article": "journal",
        "inproceedings": "booktitle",
        "techreport": "institution",
    }
    if paper.kind in needed:
        assert needed[paper.kind] in fields
    if "pages" in fields:
        ends = [int(page) for page in fields["pages"].split("--")]
        assert ends == sorted(ends)
    if "eprint" in fields:
        assert re.fullmatch(r"\d{4}\.\d{4,5}", fields["eprint"])
        assert fields["archiveprefix"] == "arXiv"
        posted, printed = 2000 + int(fields["eprint"][:2]), int(fields["year"])
        assert posted <= printed + 1
    if "doi" in fields:
        assert fields["doi"].startswith("10.")
    for author in fields["author"].split(" and "):
        assert ", " in author
    assert "{" not in paper.reference
    assert "\\" not in paper.reference


@pytest.mark.smoke
def test_references_read_as_people_write_them() -> None:
    assert PAPERS["bell2020secure"].reference == (
        "Bell et al.: Secure Single-Server Aggregation with (Poly)Logarithmic "
        "Overhead. "
        "Proceedings of the 2020 ACM SIGSAC Conference on Computer and Communications "
        "Security, "
        "2020."
    )
    assert PAPERS["elkordy2022heterosag"].reference.startswith(
        "Elkordy and Avestimehr: HeteroSAg:"
    )
    assert PAPERS["rfc7748"].reference.startswith(
        "Langley, Hamburg and Turner: Elliptic"
    )
    assert PAPERS["geiping2020inverting"].reference.count("?.") == 0
    assert PAPERS["choi2020communication"].link == "https://arxiv.org/abs/2012.05433"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("batch_partitioning:4", ["so2023securing"]),
        ("power_of_choice", ["cho2020client"]),
        (
            "ccesa",
            ["choi2020communication", "bonawitz2017practical", "shamir1979share"],
        ),
        ("mnist_5k", ["lecun1998gradient", "raschka2018mlxtend"]),
        ("disaggregation", ["lam2021gradient"]),
        (["mnist", "cifar10"], ["lecun1998gradient", "krizhevsky2009learning"]),
        (
            lambda: mj.graphs.erdos_renyi(8, 0.5),
            ["choi2020communication", "bonawitz2017practical", "shamir1979share"],
        ),
        (lambda: mj.quantize.stochastic(16, 1.0), ["elkordy2022heterosag"]),
        (lambda: mj.selection.batch_partitioning(12, 4, 2), ["so2023securing"]),
        (lambda: mj.attacks.least_squares_attack(), ["so2023securing"]),
        (lambda: mj.attacks.disaggregation(), ["lam2021gradient"]),
    ],
)
def test_names_and_values_have_their_papers(spec: object, expected: list[str]) -> None:
    assert keys(spec() if callable(spec) else spec) == [*expected, *ALWAYS]


def test_an_aggregator_cites_what_is_inside_it() -> None:
    aggregator = mj.secagg.ring_average(mj.quantize.stochastic(16, 1.0), 4, 10)
    assert set(keys(aggregator)) >= {
        "bonawitz2017practical",
        "elkordy2022heterosag",
        "rfc8439",
    }


def test_a_configuration_cites_what_it_uses_and_no_more() -> None:
    plain = keys(study.TrainConfig())
    assert {"so2023securing", "bonawitz2017practical", "lecun1998gradient"} <= set(
        plain
    )
    assert not {
        "choi2020communication",
        "li2020federated",
        "elkordy2022heterosag",
    } & set(plain)
    other = study.TrainConfig(
        scheme="uniform",
        data=study.DataConfig(dataset="fashion_mnist", partition="dirichlet"),
        training=study.TrainingConfig(model="vgg11_group", proximal=0.1, server="adam"),
        protocol=study.ProtocolConfig(graph="harary", degree=6),
        hetero=study.SegmentConfig(segments="mc", combine="krum"),
    )
    assert set(keys(other)) >= {
        "xiao2017fashion",
        "hsu2019measuring",
        "wu2018group",
        "li2020federated",
        "reddi2021adaptive",
        "bell2020secure",
        "elkordy2022heterosag",
        "blanchard2017machine",
        "mcmahan2017communication",
    }
    assert len(set(keys(other))) == len(keys(other))
    assert "raschka2018mlxtend" not in keys(other)


def test_commands_of_their_own_cite_theirs() -> None:
    assert set(keys(SecaggConfig(fidelity="real"))) >= {"rfc8439", "rfc7748", "rfc5869"}
    assert "lam2021gradient" in keys(study.attacks_on_sums.DisaggregationConfig())
    assert "dong2022gaussian" in keys(study.attacks_on_sums.DistinguishConfig())
    joint = keys(study.attacks_on_sums.AttributeConfig(estimators=("joint",)))
    assert {"marchand2023sratta", "pejo2023quality"} <= set(joint)
    assert "kerkouche2023client" in keys(study.attacks_on_sums.AttributeConfig())
    shadow = keys(study.attacks_on_models.MembershipConfig(methods=("shadow",)))
    assert "shokri2017membership" in shadow
    assert "yeom2018privacy" not in shadow
    assert "fredrikson2015model" in keys(study.attacks_on_models.ModelInversionConfig())
    assert "pasquini2022eluding" in keys(study.attacks_on_models.InconsistencyConfig())


def test_a_file_s_settings_and_a_data_set_cite_as_their_configuration() -> None:
    config = study.DemoConfig(schemes=("uniform",))
    manifest = {"command": "demo", "config": study.to_dict(config), "seed": 0}
    assert keys(manifest) == keys(config)
    assert keys(xr.Dataset(attrs=manifest)) == keys(config)


def test_a_reproduction_cites_the_papers_of_its_items() -> None:
    def targets(*names: str) -> set[str]:
        return set(keys({"command": "reproduce", "config": {"targets": list(names)}}))

    three = {"so2023securing", "choi2020communication", "elkordy2022heterosag"}
    assert targets("ccesa.table1") & three == {
        "so2023securing",
        "choi2020communication",
    }
    assert targets("multiround", "heterosag.fig3a") & three == three - {
        "choi2020communication"
    }
    assert targets() >= three  # none named are all


def test_a_sweep_cites_what_changes_and_what_stays() -> None:
    base = study.to_dict(study.TrainConfig())
    sweep = {
        "command": "sweep",
        "swept": "train",
        "config": {
            "base": base,
            "axes": [
                {
                    "name": "graph",
                    "fields": ["protocol.graph"],
                    "values": [["erdos_renyi"]],
                },
                {
                    "name": "proximal",
                    "fields": ["training.proximal"],
                    "values": [[0.0], [0.1]],
                },
            ],
        },
    }
    found = keys(sweep)
    assert {"choi2020communication", "li2020federated", "lecun1998gradient"} <= set(
        found
    )


@pytest.mark.smoke
def test_every_name_of_a_setting_that_has_a_paper_exists() -> None:
    """A renamed scheme, graph or model must not lose its papers silently."""
    import typing

    from mrsa_jax.data import SOURCES

    def literal(config: type, field: str) -> set[str]:
        return set(typing.get_args(typing.get_type_hints(config)[field]))

    own = _cite._settings()
    assert set(own["segments"]) == literal(study.SegmentConfig, "segments") - {"none"}
    assert set(own["combine"]) == literal(study.SegmentConfig, "combine") - {"mean"}
    assert set(own["model"]) == set(KINDS["model"].rows) - {"logistic"}
    assert set(own["trainer"]) == {"scaffold"}
    assert set(own["server"]) == literal(study.TrainingConfig, "server")
    assert set(own["partition"]) == literal(study.DataConfig, "partition") - {"iid"}
    assert set(own["dataset"]) == set(SOURCES) - {"idx"}
    cited = {
        key
        for name in (*SCHEMES, *GRAPHS, *ATTACKS)
        for key in keys(name)
        if key not in ALWAYS
    }
    cited |= {key for _, names in _cite._NAMES.values() for key in names}
    for rows in own.values():
        cited |= {key for _, names in rows.values() for key in names}
    code = "".join(
        path.read_text() for path in pathlib.Path(mj.__path__[0]).rglob("*.py")
    )
    for line in re.findall('^    cites = ".*: (.*)"', code, re.MULTILINE):
        cited |= set(line.split())
    assert cited | {"li2020federated", "jax2018github"} == set(PAPERS)


def test_citing_needs_no_jax() -> None:
    code = (
        "import sys, mrsa_jax as mj\nmj.cite('ccesa')\n"
        "sys.exit(bool({'jax', 'numpy', 'xarray'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert done.returncode == 0
