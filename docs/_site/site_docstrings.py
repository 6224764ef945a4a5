"""Docstrings as they are written here, plain text with code in backticks, as reStructuredText."""

from __future__ import annotations

import re

_ONE_LINE = re.compile(r"^( *)(Source|Cost): (.+)$")
_CODE = re.compile(r"(``.+?``|`[^`\n]+`)")
_PAGE = re.compile(r"\bdocs/(\w+)\.md")
_RESULT = re.compile(r"^ *(Returns|Yields):$")
_MARKUP = re.compile(
    r"(?<!\S)(\*\*[A-Z][^*`]*\*\*)(?!\S)|(?<=\w)_(?!\w)|[*|`]"
)  # but for bold words
# which would begin a list, as in "size: N."
_LETTER = re.compile(r"^( *\w+: )(\w{1,3}\.)(?=\s|$)")
_LIST = re.compile(r"^ *(-|\d+\.) ")


def to_rst(text: str) -> list[str]:
    """Return the lines of a docstring as reStructuredText, which napoleon reads next.

    Outside sessions nothing but backticks is markup: asterisks, bars and underscores
    are text.
    """
    lines: list[str] = []
    session = False
    for line in _with_commands(_with_sections(text.expandtabs().splitlines())):
        session = line.lstrip().startswith(">>>") or (session and bool(line.strip()))
        if session or line.startswith("  mrsa-jax "):
            lines.append(line)
            continue
        if _LIST.match(line) and lines and _begins_a_list(lines[-1], line):
            lines.append("")
        lines.append(_escaped(line))
        # or napoleon takes what stands before a colon for a type
        if _RESULT.match(line):
            lines.append(" " * (len(line) - len(line.lstrip()) + 4) + "\\")
    return lines


def _begins_a_list(before: str, line: str) -> bool:
    # of an item above
    inside = before.startswith(" " * (len(line) - len(line.lstrip()) + 1))
    return bool(before.strip()) and not _LIST.match(before) and not inside


def _with_sections(lines: list[str]) -> list[str]:
    """Give `Source: text`, whose text may go on below, a line of its own as other sections have."""
    found: list[str] = []
    inside: int | None = None  # the indentation of the section's name
    for line in lines:
        head = _ONE_LINE.match(line)
        if head:
            inside = len(head[1])
            if found and found[-1].strip():
                found.append("")
            found += [f"{head[1]}{head[2]}:", f"{head[1]}    {head[3]}"]
        elif inside is not None and line.strip():
            found.append(f"{' ' * inside}    {line.strip()}")
        else:
            inside = None
            found.append(line)
    return found


def _with_commands(lines: list[str]) -> list[str]:
    """Give commands, which stand indented below a text, a block of their own."""
    found: list[str] = []
    inside = False
    for line in lines:
        is_command = line.startswith("  mrsa-jax ")
        if is_command != inside:
            found += ["", ".. code-block:: bash", ""] if is_command else [""]
        inside = is_command
        found.append(line)
    return found


def _escaped(line: str) -> str:
    """Escape what reStructuredText would take for markup; code becomes the role `name`."""
    parts = _CODE.split(line)
    for place, part in enumerate(parts):
        if place % 2 == 0:
            plain = _MARKUP.sub(lambda found: found[1] or "\\" + found[0], part)
            plain = _LETTER.sub(r"\1\\\2", plain)
            parts[place] = _PAGE.sub(r":doc:`/docs/\1`", plain)
        elif not part.startswith("``"):
            code = part[1:-1]
            plain = re.fullmatch(r"[\w.]+(\(\))?", code)
            parts[place] = f":name:`{code}`" if plain else f"``{code}``"
    text = ""
    # markup needs white space or punctuation around it
    for place, part in enumerate(parts):
        if place % 2 and text[-1:].isalnum():
            text += "\\ "
        if place % 2 == 0 and part[:1].isalnum() and place:
            text += "\\ "
        text += part
    return text
