#!/usr/bin/env python3
"""Check a certificate of `mrsa-jax audit` against a participation log, and trust nobody.

P has a row for each sum that the server learnt and a column for each client; what the server can
solve for are the combinations z P. Clients with equal columns are a *class*: z P is the same on all
of them, so that M, with one column a class, says all. Each claim has a proof in integers:
- "exposed", "weak T at most", "plain sum": z itself, and z M is computed.
- "not exposed": u with M u = 0: then (z M) . u = 0, and a z M on class k alone has u_k = 0.
- "weak T at least" w: no class is smaller; or, with vectors u as the columns of U: the classes of a
  combination have dependent rows of U, but all sets of classes with fewer than w clients are looked
  through, and their rows are independent modulo a prime, hence over the rationals.
- "hidden among at least": by Cauchy and Schwarz no y = z M has a larger share y_i^2 / |y|^2 than a
  vector u with M u = 0 leaves. Shares add up to 1: one more way to "weak T at least".
- "rank": a minor that is a unit modulo some number is not zero; and there are no more rows, or
  classes, or classes less independent u.
Exit status: 0 if all that has a proof is "checked", and the matrix is the log's; 1 if something is
"REFUSED"; 3 if something was left out (too many steps, a log that cannot be read here); 2: misuse.
"""

from __future__ import annotations

import argparse
import collections
import csv
import functools
import gzip
import hashlib
import io
import json
import math
import pathlib
import re
import sys
from fractions import Fraction
from typing import Any

FORMAT, VERSION = "mrsa-jax certificate", 1
MOST_BYTES = 2**28  # of a certificate, and of a log as text
MOST_DIGITS = 4300  # of an integer: what Python itself allows
MOST_STEPS = 250_000_000  # small multiplications: about a minute
Unchecked = TimeoutError  # something may be true, and was not looked at
INTEGER = re.compile(r"-?[0-9]+")
NUMBER = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?|[0-9]+/[1-9][0-9]*")


class Refused(Exception):
    """Something is false, or is not what a certificate may hold."""


def need(condition: object, why: str) -> None:
    """Refuse unless something holds."""
    if not condition:
        raise Refused(why)


def integer(value: Any, least: int | None = None) -> int:
    """Return an integer, which may be written as text."""
    if type(value) is str and len(value) <= MOST_DIGITS and INTEGER.fullmatch(value):
        value = int(value)
    need(type(value) is int and (least is None or value >= least), f"no integer: {value!a:.40}")
    return int(value)


def places(value: Any, below: int) -> list[int]:
    """Return a list of different places, from 0 on."""
    found = [integer(item, 0) for item in value]
    need(len(set(found)) == len(found) and max(found, default=0) < below, "wrong places in a list")
    return found


@functools.cache
def number(text: str) -> Fraction:
    """Return a number of 0 or more exactly as it is written."""
    text = {"true": "1", "false": "0"}.get(text.lower(), text)
    need(len(text) <= 300 and NUMBER.fullmatch(text), f"no number: {text[:40]!a}")
    return Fraction(text)


def read_log(data: bytes, reading: dict[str, Any]) -> dict[Any, Fraction]:
    """Return the weights of (round, client), where not zero, of a log in text, packed or not."""
    if data[:2] == b"\x1f\x8b":
        data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MOST_BYTES + 1)
    need(len(data) <= MOST_BYTES, f"a log of more than {MOST_BYTES} bytes")
    text = data.decode("utf-8-sig")
    if reading["layout"] == "lines":
        return read_lines(text)
    lines, delimiter = io.StringIO(text, newline=None), reading["delimiter"]
    rows: Any = map(str.split, lines) if delimiter is None else csv.reader(
        lines, delimiter=delimiter, strict=True)  # fmt: skip
    table = [[word.strip() for word in row] for row in rows if any(map(str.strip, row))]
    names = table.pop(0) if reading["header"] else [str(k) for k in range(len(table[0]))]
    need(all(len(row) == len(set(names)) for row in [names, *table]), "no table in the log")
    if reading["layout"] == "matrix":
        kept = [k for k, name in enumerate(names) if name not in reading["left_out"]]
        told: list[Any] = [(str(j), names[k], row[k]) for j, row in enumerate(table) for k in kept]
    else:
        chosen = [None if name is None else names.index(name) for name in reading["columns"]]
        rules = [(names.index(name), list(texts)) for name, texts in reading["where"]]
        table = [row for row in table if all(row[k] in texts for k, texts in rules)]
        told = [tuple("1" if k is None else row[k] for k in chosen) for row in table]
    need(len({key[:2] for key in told}) == len(told), "a client twice in one sum of the log")
    return {(j, i): number(weight) for j, i, weight in told if number(weight)}


def read_lines(text: str) -> dict[Any, Fraction]:
    """Read a participation log of mrsa-jax: JSON Lines, a sum a line, headers in between."""
    run, sums = 0, dict[Any, Any]()
    lines = text.split("\n")[:-1]  # a last one without its end is not there yet
    for line in (line for line in lines if not line.rstrip("\r").endswith("#torn")):
        own = json.loads(line, parse_float=str, parse_int=str)
        if "format" in own:
            run = integer(own["run"], 0)
        elif own.get("status", "learnt") == "learnt":
            names, weights = own["clients"], own.get("weights", [1] * len(own["clients"]))
            need(len(set(names)) == len(names) == len(weights), "a client twice in one sum")
            key = (run, integer(own["round"], 0), integer(own.get("sum", 0), 0))
            told = {str(i): number(str(weight)) for i, weight in zip(names, weights)}
            need(sums.setdefault(key, told) == told, "a sum of the log that is told in two ways")
    many, parts = any(key[0] for key in sums), any(key[2] for key in sums)
    named = {f"{r}:" * many + str(j) + f"/{k}" * parts: told for (r, j, k), told in sums.items()}
    return {(j, i): weight for j, told in named.items() for i, weight in told.items() if weight}


def are_independent(vectors: list[list[int]], modulus: int) -> bool:
    """Return whether elimination modulo any number has units as pivots: a minor is not zero."""
    echelon: list[tuple[int, list[int]]] = []
    for vector in vectors:
        own = [value % modulus for value in vector]
        for pivot, other in echelon:
            if factor := own[pivot]:
                own = [(x - factor * y) % modulus for x, y in zip(own, other)]
        pivot = next((k for k, value in enumerate(own) if math.gcd(value, modulus) == 1), -1)
        if pivot < 0:
            return False
        scale = pow(own[pivot], -1, modulus)
        echelon.append((pivot, [value * scale % modulus for value in own]))
    return True


class Checker:
    """The certificate's matrix, and what of it has been checked so far."""

    left = MOST_STEPS

    def spend(self, steps: int, bits: int = 0) -> None:
        """Give up before a step too many; products of long integers count as more."""
        steps *= 1 + (bits * self.bits >> 16) if bits else 1
        if steps > self.left:
            raise Unchecked(f"it takes {steps} steps, and {self.left} are left (--steps)")
        self.left -= steps

    def read(self, data: bytes) -> str:
        """Read the matrix, fractions made integers row by row, and the vectors u."""
        need(len(data) <= MOST_BYTES, f"more than {MOST_BYTES} bytes")

        def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            need(len(dict(pairs)) == len(pairs), "a key twice in one object")
            return dict(pairs)

        numbers: Any = dict.fromkeys(("parse_int", "parse_float", "parse_constant"), integer)
        content = self.content = json.loads(data.decode(), object_pairs_hook=once, **numbers)
        need((content["format"], content["version"]) == (FORMAT, VERSION), "another format")
        self.clients, rounds, sums = content["clients"], content["rounds"], content["sums"]
        self.claims, self.unproven = list(content["claims"]), list(content["no short proof"])
        for names in (self.clients, rounds, self.unproven):
            need(all(type(name) is str for name in names), "a name that is no text")
            need(len(set(names)) == len(names), "a name twice")
        self.known = dict.fromkeys(places(content["coalition"], len(self.clients)))
        self.entries: dict[Any, Fraction] = {}
        columns: list[list[tuple[int, int]]] = [[] for _ in self.clients]
        for j, terms in enumerate(sums):
            weights, scale = [number(str(weight)) for _, weight in terms], 1
            for weight in weights:
                scale = math.lcm(scale, weight.denominator)
                need(weight and scale.bit_length() <= MOST_DIGITS, "a weight of 0, or odd ones")
            for i, weight in zip(places([i for i, _ in terms], len(self.clients)), weights):
                self.entries[rounds[j], self.clients[i]] = weight
                if i not in self.known:  # their updates are known
                    columns[i].append((j, int(weight * scale)))
        classes: dict[tuple[tuple[int, int], ...], int] = {}
        self.class_of = [classes.setdefault(tuple(column), len(classes)) if column else -1
                         for column in columns]  # fmt: skip
        counts = collections.Counter(self.class_of)
        self.sizes = [counts[k] for k in range(len(classes))]
        self.rows: list[list[tuple[int, int]]] = [[] for _ in rounds]
        for k, column in enumerate(classes):
            for j, value in column:
                self.rows[j].append((k, value))
        self.bits = max((value.bit_length() for row in self.rows for _, value in row), default=1)
        self.shares = [Fraction(1, size) for size in self.sizes]  # of a client, at most
        self.kernel = [self.in_kernel(vector) for vector in content["kernel"]]
        self.names = [ascii(name) for name in self.clients]
        told = ", ".join(self.names[i] for i in self.known) or "nobody"
        return f"{len(rounds)} sums, {len(classes)} classes of clients; the server knows {told}"

    def run(self, claim: Any) -> str:
        """Check a claim of any kind."""
        self.spend(len(self.clients))
        work = getattr(self, "check_" + claim["claim"].replace(" ", "_"), None)
        if work is None:
            raise Unchecked(f"{claim['claim']!a:.40} is not known here")
        return str(work(claim))

    def is_matrix(self, log: bytes) -> str:
        """Check that the log is the certificate's, and gives its matrix when it is read again."""
        digest, reading = hashlib.sha256(log).hexdigest(), self.content["reading"]
        need(self.content["log"]["sha256"] == digest, f"the certificate is not of SHA-256 {digest}")
        if reading is None:
            raise Unchecked(f"SHA-256 {digest}, but its matrix cannot be read here")
        need(read_log(log, reading) == self.entries, "it has another matrix")
        return f"SHA-256 {digest}, with this matrix if read as {json.dumps(reading)[:400]}"

    def in_kernel(self, vector: Any) -> list[int]:
        """Return integers u with M u = 0."""
        u = [integer(value) for value in vector]
        need(len(u) == len(self.sizes), "a vector of a wrong length")
        longest = max((value.bit_length() for value in u), default=0)
        self.spend(sum(map(len, self.rows)) + len(self.rows), longest)
        zero = all(sum(value * u[k] for k, value in row) == 0 for row in self.rows)
        need(zero, "a vector u with M u that is not zero")
        return u

    def combination(self, terms: Any) -> dict[int, int]:
        """Return z M where it is not zero; z is given by pairs of a sum and an integer."""
        total: dict[int, int] = collections.defaultdict(int)
        for j, text in zip(places([j for j, _ in terms], len(self.rows)), [z for _, z in terms]):
            z = integer(text)
            self.spend(len(self.rows[j]) + 1, z.bit_length())
            for k, value in self.rows[j]:
                total[k] += z * value
        return {k: value for k, value in total.items() if value}

    def check_exposed(self, claim: Any) -> str:
        """Check that a combination has one client, and others only who join the server."""
        (i,), others = (places(claim[key], len(self.clients)) for key in ("clients", "others"))
        found = self.combination(claim["combination"])
        inside = collections.Counter(self.class_of[i] for i in {i, *others})
        need(self.class_of[i] in found, "the client is not in the combination")
        need(all(inside[k] == self.sizes[k] for k in found), "others are in the combination")
        joined = " if these join: " * bool(others) + ", ".join(self.names[j] for j in others)
        return f"client {self.names[i]} is exposed{joined}"

    def check_not_exposed(self, claim: Any) -> str:
        """Check that each client moves with another, or is not zero in some vector u."""
        clients = places(claim["clients"], len(self.clients))
        need(self.known.keys().isdisjoint(clients), "the server knows some of their updates")
        classes = {self.class_of[i] for i in clients} - {-1}
        self.spend(len(classes) * len(self.kernel))
        bare = [k for k in classes if self.sizes[k] == 1 and not any(u[k] for u in self.kernel)]
        need(not bare, f"{len(bare)} clients without a vector")
        return f"{len(clients)} clients are not exposed"

    def check_strong_T(self, claim: Any) -> str:
        """Check the size of the smallest class."""
        least = min(self.sizes, default=None)
        need(claim["value"] == least, f"it is {least}")
        return f"strong T is {least or 'undefined: nobody took part'}"

    def check_rank(self, claim: Any) -> str:
        """Check a minor, and that there is no room for a larger one."""
        rank, modulus = integer(claim["value"], 1), integer(claim["modulus"], 2)
        rows, columns = places(claim["rows"], len(self.rows)), places(claim["columns"], 2**62)
        need(len(rows) == len(columns) == rank and modulus < 2**64, "no minor of that size")
        self.spend(rank**3 // 2 + len(self.kernel) ** 2 * len(self.sizes) // 2)
        minor = [[row.get(k, 0) for k in columns] for row in (dict(self.rows[j]) for j in rows)]
        need(are_independent(minor, modulus), "a minor that may be zero")
        most = min(len(self.sizes), len({tuple(row) for row in self.rows if row}))
        if rank == len(self.sizes) - len(self.kernel) and are_independent(self.kernel, modulus):
            most = rank
        need(rank == most, f"it may be {most}")
        return f"the rank is {rank}"

    def check_plain_sum(self, claim: Any) -> str:
        """Count the clients in a combination; in a plain sum all have the same coefficient."""
        found = self.combination(claim["combination"])
        clients = sum(self.sizes[k] for k in found)
        need(0 < clients == claim["value"], f"the combination has {clients} clients")
        if claim["claim"] == "weak T at most":
            return f"weak T is at most {clients}"
        need(len(set(found.values())) == 1, "different coefficients")
        return f"a plain sum of {clients} clients follows"

    check_weak_T_at_most = check_plain_sum

    def check_weak_T_at_least(self, claim: Any) -> str:
        """Check by classes, by all small sets of classes, or by shares that add up to 1."""
        value, by, most = integer(claim["value"], 1), claim["by"], min(self.sizes, default=0)
        if by == "kernel":
            self.spend(0 if claim["steps"] <= self.left else claim["steps"])  # before they are gone
            prime, limit = integer(claim["modulus"], 3), value - 1
            need(limit < sum(self.sizes) and prime < 2**20, "too large a number")
            self.spend(8 * prime)
            need(all(prime % d for d in range(2, math.isqrt(prime) + 1)), "no prime as modulus")
            self.prime, self.inverse = prime, [0, 1]
            for x in range(2, prime):
                self.inverse.append((prime - prime // x) * self.inverse[prime % x] % prime)
            own = self.kernel[: claim["vectors"]]
            rows = [tuple(u[k] % prime for u in own) for k in range(len(self.sizes))]
            points = sorted(zip(self.sizes, rows), key=lambda point: point[0])
            need(self.all_independent(points, limit), f"rows of U are dependent modulo {prime}")
            most = value
        elif by == "hidden":
            self.spend(100 * len(self.sizes))
            most, left = 0, Fraction(1)
            for share, size in sorted(zip(self.shares, self.sizes), reverse=True):
                some = min(size, math.ceil(left / share))
                most, left = most + some, max(left - some * share, Fraction(0))
        need(value <= most, f"this shows {most} only")
        return f"weak T is at least {value}, by {by}"

    def all_independent(self, points: list[Any], limit: int) -> bool:
        """Return whether sets of points (clients, row of U) with few clients are independent."""
        points, prime, inverse = [p for p in points if p[0] <= limit], self.prime, self.inverse
        if not all(any(vector) for _, vector in points):
            return False
        few = sum(sum(p[0] for p in points[: k + 1]) <= limit for k in range(len(points[:4])))
        is_plane = few == 3 and all(vector[0] for _, vector in points)
        plane = [tuple(x * inverse[v[0]] % prime for x in v[1:3]) for _, v in points * is_plane]
        is_plane = is_plane and len(set(plane)) == len(plane)
        # a set's later points are projected along its first, and must not become dependent; three
        # points of a plane have not, where all slopes from the first are different
        for place, (size, vector) in enumerate(points if few > 1 else []):
            self.spend(len(points) - place)
            if is_plane:
                (a, b), later = plane[place], plane[place + 1 :]
                if len({(x - a) * inverse[y - b] % prime for x, y in later}) == len(later):
                    continue
            pivot = next(k for k, value in enumerate(vector) if value)
            unit = [value * inverse[vector[pivot]] % prime for value in vector]
            del unit[pivot]
            rest = [
                (w, tuple([(x - own[pivot] * y) % prime
                           for x, y in zip(own[:pivot] + own[pivot + 1 :], unit)]))
                for w, own in points[place + 1 :] if size + w <= limit
            ]  # fmt: skip
            if not self.all_independent(rest, limit - size):
                return False
        return True

    def check_hidden_among_at_least(self, claim: Any) -> str:
        """Check that no y = z M has y_i^2 / |y|^2 above 1 / value, by the class or a vector u."""
        clients, value = places(claim["clients"], len(self.clients)), number(claim["value"])
        (k,) = {self.class_of[i] for i in clients}
        need(k >= 0 and len(claim["value"]) < 50, "clients in no sum, or a long number")
        among = Fraction(self.sizes[k])
        if (vector := claim["vector"]) is not None:
            squares = [Fraction(x * x, m) for x, m in zip(self.in_kernel(vector), self.sizes)]
            among += squares[k] * self.sizes[k] / (sum(squares) - squares[k])
        need(0 < value <= among, f"no more than {float(among):.9g} is shown")
        self.shares[k] = min(1 / value, self.shares[k])
        return f"hidden among at least {value}: {', '.join(self.names[i] for i in clients)}"


def check(certificate: bytes, log: bytes, steps: int = MOST_STEPS) -> list[tuple[str, str]]:
    """Return a status and words for the certificate, the log and each claim."""
    found: list[tuple[str, str]] = []

    def attempt(label: str, work: Any, argument: Any) -> None:
        try:
            status, text = "checked", work(argument)
        except Unchecked as why:
            status, text = "not checked", str(why)
        except Exception as why:
            told = isinstance(why, Refused)
            status, text = "REFUSED", str(why) if told else f"malformed ({type(why).__name__})"
        found.append((status, f"{label}: {text}"))

    checker = Checker()
    checker.left = steps
    for label, work, data in (("certificate", checker.read, certificate),
                              ("log", checker.is_matrix, log)):  # fmt: skip
        attempt(label, work, data)
        if found[-1][0] == "REFUSED" or (found[-1][0] != "checked" and label == "certificate"):
            return found
    for place, claim in enumerate(checker.claims, start=1):
        attempt(f"claim {place}", checker.run, claim)
    return found + [("not checked, no short proof", ascii(text[:400])) for text in checker.unproven]


def main(words: list[str] | None = None) -> int:
    """Check the files that are named on the command line, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name in ("certificate", "log"):
        parser.add_argument(name)
    parser.add_argument("--steps", type=int, default=MOST_STEPS, help="most steps (%(default)s)")
    chosen = parser.parse_args(words)
    try:
        data = [pathlib.Path(path).read_bytes() for path in (chosen.certificate, chosen.log)]
    except OSError as error:
        parser.error(str(error))
    found = check(data[0], data[1], chosen.steps)
    for status, text in found:
        print(f"{status}: {text}")
    statuses = [status for status, _ in found]
    return 1 if "REFUSED" in statuses else 3 if "not checked" in statuses else 0


if __name__ == "__main__":
    sys.exit(main())
