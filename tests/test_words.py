"""What people read is in words that they speak, and in sentences that they can follow."""

from __future__ import annotations

import ast
import io
import json
import pathlib
import re
import tokenize
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "watch/README.md")),
        *sorted(ROOT.glob("docs/**/*.md")),
    ]
}
_CHANGES = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
PAGES["CHANGELOG.md"] = _CHANGES.split("\n## ")[1]  # of the version to come
PAGES |= {
    str(path.relative_to(ROOT)): "\n\n".join(
        "".join(cell["source"])
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "markdown"
    )
    for path in sorted(ROOT.glob("notebooks/*.ipynb"))
}

_RATE = re.compile(  # "12 a round", which nobody says
    r"\b(clients?|rounds?|sums|updates|bits?|levels?|lines?|rows?|seconds?|asked|\d+|K|six|one"
    r"|eight|twelve|label|digit|pictures?|numbers?|epochs?|training|shards?|file|words?|bytes?)"
    r" an? (sum|second|client|coordinate|trial|day|layer|step|epoch|segment|seed|cell"
    r"|round(?! a|'s))\b"
)
_NOBODY_SPEAKS_SO = re.compile(  # what stood in the pages; each has a plainer word
    r"\b(?:clients a sum|mean sum|of (?:yours|ours)|of (?:its|their|his) own|of your "
    r"own[.,;:)|]"
    r"|go(?:es)? on after|after (?:a|any) kills?|(?:go(?:es|ing)?|went|gone) on|for "
    r"ever"
    r"|(?:is|are|was|were|be) told|(?:says?|said|tells?|told) of|(?:says?|said) "
    r"(?:so|which it is)"
    r"|bears?|bearing|borne|own updates|as in (?:a|one) sum of|hidden worse"
    r"|(?:of|for|among) so many|but for|in place of|beside|is sound|blanks"
    r"|tak(?:es?|en) for granted|(?:from|since) which round on|since when|there "
    r"(?:is|are)[.,;:]"
    r"|must be left out|must come with|must not repeat|named once each|f[ae]lls? "
    r"(?:apart|out)"
    r"|(?:find|found|name)s? whom|whom (?:it|this|they|an?)|with commas|for good"
    r"|who is in (?:it|them))(?!\w)",
    re.IGNORECASE,
)
LONGEST = 30  # words of a sentence
# not behind an abbreviation, and only where the next one can begin
_SENTENCE_ENDS = re.compile(
    r"(?<!\be\.g)(?<!\bi\.e)(?<!\bet "
    r"al)(?<!\bcf)(?<!\bvs)(?<!\b[Ee]q)(?<!\bFig)(?<!\bSec)"
    r"[.!?][*\")\]]*\s+(?=[*\"(\[]*[A-Z0-9])"
)


def _prose(text: str) -> Iterator[str]:
    """Yield a page's paragraphs, headings, items of lists and cells of tables, without code.

    Left out: fenced and indented code, comments, block quotes (which are of papers),
    definitions of links, and options of directives.
    """
    text = re.sub(
        r"^( *)(```+).*?^\1\2$|<!--.*?-->", "\n", text, flags=re.DOTALL | re.MULTILINE
    )
    text = re.sub(r"^(\[[^\]]+\]: |:\w[\w-]*:|:::).*$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"(?<=\n\n)(    .*\n+)+", "\n", text)
    text = re.sub(r"^#.*$", r"\n\g<0>\n", text, flags=re.MULTILINE)
    for block in re.split(r"\n[ \t]*\n|\n(?=\|| *(?:[-*+]|\d+\.) )", "\n" + text):
        if not block.lstrip().startswith(">"):
            yield from block.split("|") if block.lstrip().startswith("|") else [block]


def sentences(text: str) -> Iterator[str]:
    """Yield a page's sentences.

    A name in code, a run of such names or a formula is one word.
    """
    for block in _prose(text):
        plain = re.sub(r"`+[^`]+`+|\$+[^$]+\$+", "CODE", block)
        plain = re.sub(r"\bCODE(,? (and |or )?CODE)+\b", "CODE", plain)
        plain = re.sub(r"!?\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])?", r"\1", plain)
        yield from _SENTENCE_ENDS.split(" ".join(plain.split()))


def too_long(text: str) -> list[str]:
    """Return the sentences with more words than a reader keeps in mind."""
    words = {
        one: sum(bool(re.search(r"\w", word)) for word in one.split())
        for one in sentences(text)
    }
    return [f"{count} words: {one}" for one, count in words.items() if count > LONGEST]


@pytest.mark.parametrize("name", PAGES)
def test_sentences_are_short(name: str) -> None:
    assert not too_long(PAGES[name])


def test_a_long_sentence_is_found_wherever_it_stands() -> None:
    words = " ".join(["word"] * 15)
    long, short = f"A {words}, {words}.", f"A {words}."
    for page in (
        long,
        f"# {long}",
        f"Short. {long}",
        f"- item\n- {long}",
        f"| a | {long} |",
        f"1. {long}",
        f"A {words},\n{words}.",
        f"**Bold.** {long}",
        f"See [this {words}](x.md), {words}.",
        f"A {words}; {words}.",
        f"A {words}: {words}.",
        f"({long})",
        f"A {words}, e.g. {words}.",
        f"So et al. (2023) {words} {words}.",
        f":::{{card}} A\n:link: x\n{long}\n:::",
    ):
        assert too_long(page), page
    for page in (
        f"{short} {short}",
        f"- {short}\n- {short}",
        f"| {short} | {short} |",
        f"```text\n{long}\n```",
        f"<!-- {long} -->",
        f"> {long}",
        f"`{long}`",
        f"{short}\n\n    {long}\n\n{short}",
        f"A {words} $a + {words}$.",
        f"# {words}\n{short}",
        ", ".join(["`name`"] * 40),
        f"Hidden among T. {short} {short}",
        f"({short}) {short}",
        f'"{short}" {short}',
        f"**{short}** {short}",
        f"[a]: https://a.b '{long}'",
    ):
        assert not too_long(page), page


def test_pages_are_in_english_that_people_speak() -> None:
    """Outside what is typed or printed."""
    for name, text in PAGES.items():
        prose = re.sub(
            r"^```.*?^```$|`[^`]*`|<!--.*?-->", "", text, flags=re.DOTALL | re.MULTILINE
        )
        assert not _RATE.search(prose), f"{name}: {_RATE.search(prose)}"
        assert not _NOBODY_SPEAKS_SO.search(prose), (
            f"{name}: {_NOBODY_SPEAKS_SO.search(prose)}"
        )


def _strings(code: str) -> Iterator[str]:
    """Yield the docstrings, messages and other texts of a module, without the values in them."""
    inside: set[ast.AST] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.JoinedStr):
            parts = [part for part in node.values if isinstance(part, ast.Constant)]
            inside.update(parts)
            yield "".join(str(p.value) if p in parts else "{}" for p in node.values)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node not in inside
        ):
            yield node.value


def _comments(code: str) -> Iterator[str]:
    """Yield the comments of a module; one that goes over several lines is one."""
    text, last = "", 0
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type != tokenize.COMMENT:
            continue
        words, is_alone = token.string.lstrip("# "), token.line.lstrip().startswith("#")
        if is_alone and last == token.start[0] - 1:
            text += f" {words}"
        else:
            yield text
            text = words
        last = token.start[0] if is_alone else 0
    yield text


@pytest.mark.parametrize(
    "family",
    [
        "watch/mrsa_watch",
        *sorted(
            f"mrsa_jax/{one.name}"
            for one in (ROOT / "mrsa_jax").iterdir()
            if one.is_dir()
        ),
    ],
)
def test_modules_are_in_english_that_people_speak(family: str) -> None:
    """Docstrings, private ones too, messages, help and comments, outside code that they quote."""
    for path in [*(ROOT / family).rglob("*.py"), *(ROOT / family).rglob("*.toml")]:
        code = path.read_text(encoding="utf-8")
        texts = (
            [code] if path.suffix == ".toml" else [*_strings(code), *_comments(code)]
        )
        for text in texts:
            prose = re.sub(
                r"^ *(>>>|\.\.\. |beside(:| =)).*$|`[^`]*`",
                "",
                text,
                flags=re.MULTILINE,
            )
            prose = " ".join(prose.split())
            found = _RATE.search(prose) or _NOBODY_SPEAKS_SO.search(prose)
            found = None if " " not in prose else found  # a key
            assert not found, f"{path.relative_to(ROOT)}: {found} in {prose[:200]}"


def test_a_comment_is_read_over_its_lines() -> None:
    code = "x = 1  # of its\n# own\ny = '# no'  # z\n# where none\n# of them is\n# beside it\n"
    assert [*_comments(code)] == [
        "",
        "of its",
        "own",
        "z",
        "where none of them is beside it",
    ]
