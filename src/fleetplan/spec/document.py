"""A YAML file read with the place of every key and value, scalars by the core schema of YAML 1.2."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetplan.errors import InputError

Loc = tuple[str | int, ...]
Place = tuple[int, int]

MOST_NODES = 100_000
MOST_DEPTH = 60
MOST_BYTES = 10_000_000

_SIMPLE = re.compile(r"[\w.%@+-]+")
_NULL = re.compile(r"null|Null|NULL|~|")
_TRUE = re.compile(r"true|True|TRUE")
_FALSE = re.compile(r"false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o([0-7]+)|0x([0-9a-fA-F]+)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)")
_NAN = re.compile(r"\.(nan|NaN|NAN)")


@dataclass
class Document:
    """One YAML document: plain Python values, and where each stands."""

    file: str
    """The file's name as errors print it."""
    value: Any = None
    """None, bool, int, float, str, list or dict with text keys."""
    values: dict[Loc, Place] = field(default_factory=dict)
    """Line and column (from 1) of each value, by path."""
    keys: dict[Loc, Place] = field(default_factory=dict)
    """Line and column of the key of each mapping entry, by path."""
    faults: list[tuple[Place, Loc, str]] = field(default_factory=list)
    """What is wrong in the YAML itself though it parses: duplicate keys, empty values."""

    def place(self, loc: Loc, key: bool = False) -> Place:
        """Where this path stands; of its key on request; where it is absent, the nearest that is there above it."""
        for end in range(len(loc), -1, -1):
            part = loc[:end]
            if (key or part not in self.values) and part in self.keys:
                return self.keys[part]
            if part in self.values:
                # what is absent is told at the key of the section it belongs to
                return self.keys.get(part, self.values[part]) if end < len(loc) else self.values[part]
        return (1, 1)

    def line(self, place: Place, loc: Loc, sentence: str) -> str:
        """`file:line:column: dotted.path: sentence`."""
        path = dotted(loc)
        said = "".join(c if c.isprintable() else repr(c)[1:-1] for c in sentence)
        return f"{self.file}:{place[0]}:{place[1]}: {path + ': ' if path else ''}{said}"


def dotted(loc: Loc) -> str:
    """A path as errors print it.

    >>> dotted(("workload", "classes", 0, "slo"))
    'workload.classes[0].slo'
    """
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if _SIMPLE.fullmatch(part) else repr(part)
            text += f".{name}" if text else name
    return text


def read(path: Path) -> Document:
    """The one document of a file. Raises InputError where it cannot be read, or is no YAML."""
    name = str(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{name}: no such file, give the path of a YAML file") from None
    except IsADirectoryError:
        raise InputError(f"{name}: is a folder, give the path of a YAML file") from None
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror})") from None
    return parse(data, name)


def parse(data: bytes, file: str) -> Document:
    """The one document of these bytes. Raises InputError; faults that leave the rest readable are in `.faults`."""
    if len(data) > MOST_BYTES:
        raise InputError(
            f"{file}:1:1: is too long for a spec (got {len(data)} bytes), at most {MOST_BYTES} are taken"
        )
    return _Reader(_text(data, file), file).document


def _text(data: bytes, file: str) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{file}:1:1: is not UTF-8 (got a UTF-16 byte order mark), save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before.rsplit(b"\n", 1)[-1].decode("utf-8", "replace")) + 1
        got = f"byte 0x{data[error.start]:02x}"
        raise InputError(f"{file}:{line}:{column}: is not UTF-8 (got {got}), save it as UTF-8") from None


class _Reader:
    """Builds the values from YAML events, so that scalars, tags, anchors and places are ours to judge."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self.document = Document(file)
        self.nodes = 0
        self.anchors: dict[str, Any] = {}
        root = self._tree(text)
        if root is None:
            raise InputError(f"{file}:1:1: is empty (got no YAML), write a mapping of keys")
        self.document.value = self._build(root, (), set())

    def _fail(self, mark: Any, sentence: str) -> InputError:
        return InputError(f"{self.file}:{mark.line + 1}:{mark.column + 1}: {sentence}")

    def _tree(self, text: str) -> Any:
        """Nested tuples (kind, mark, content, tag, quoted) of the file's only document."""
        from ruamel.yaml import YAML
        from ruamel.yaml import events as ev
        from ruamel.yaml.error import MarkedYAMLError, YAMLError
        from ruamel.yaml.reader import ReaderError

        stack: list[tuple[str, Any, list[Any], Any, bool]] = []
        root: Any = None
        documents = 0
        try:
            for event in YAML(typ="safe", pure=True).parse(text):
                node: Any = None
                if isinstance(event, ev.DocumentStartEvent):
                    documents += 1
                    if documents > 1:
                        raise self._fail(
                            event.start_mark, "begins a second document (got ---), one file holds one"
                        )
                    continue
                if isinstance(event, ev.AliasEvent):
                    if event.anchor not in self.anchors:
                        raise self._fail(
                            event.start_mark, f"refers to an unknown anchor (got *{event.anchor})"
                        )
                    node = self.anchors[event.anchor]
                elif isinstance(event, ev.ScalarEvent):
                    value = self._whole(event.value, event.start_mark)
                    node = ("scalar", event.start_mark, value, event.tag, event.style not in (None, ""))
                elif isinstance(event, ev.MappingStartEvent):
                    node = ("map", event.start_mark, [], event.tag, False)
                elif isinstance(event, ev.SequenceStartEvent):
                    node = ("list", event.start_mark, [], event.tag, False)
                elif isinstance(event, (ev.MappingEndEvent, ev.SequenceEndEvent)):
                    stack.pop()
                    continue
                else:
                    continue
                if not isinstance(event, ev.AliasEvent):
                    if event.anchor:
                        self.anchors[event.anchor] = node
                    if node[3] is not None and str(node[3]) not in ("!", "tag:yaml.org,2002:str"):
                        raise self._fail(
                            event.start_mark, f"has a tag (got {event.tag}), write the plain value"
                        )
                if stack:
                    stack[-1][2].append(node)
                else:
                    root = node
                if not isinstance(event, ev.AliasEvent) and node[0] != "scalar":
                    stack.append(node)
                    if len(stack) > MOST_DEPTH:
                        raise self._fail(event.start_mark, f"is nested deeper than {MOST_DEPTH} levels")
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise (
                self._fail(mark, _plain(error)) if mark else InputError(f"{self.file}:1:1: {_plain(error)}")
            ) from None
        except ReaderError as error:
            before = text[: error.position]
            line, column = before.count("\n") + 1, len(before.rsplit("\n", 1)[-1]) + 1
            got = f"U+{error.character:04X}" if isinstance(error.character, int) else repr(error.character)
            raise InputError(
                f"{self.file}:{line}:{column}: has a control character (got {got}), delete it"
            ) from None
        except (YAMLError, ValueError, RecursionError) as error:
            raise InputError(f"{self.file}:1:1: is no YAML ({str(error).splitlines()[0]})") from None
        return root

    def _whole(self, value: str, mark: Any) -> str:
        """Text without halves of characters: escapes like "\\ud83d\\ude00" are joined, a lone half is refused."""
        if not any("\ud800" <= c <= "\udfff" for c in value):
            return value
        try:
            return value.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise self._fail(
                mark, "has half a character (got a lone surrogate escape), write it whole"
            ) from None

    def _build(self, node: Any, loc: Loc, above: set[int]) -> Any:
        kind, mark, content, tag, quoted = node
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise self._fail(mark, f"grows beyond {MOST_NODES} values, through anchors or by itself")
        place = (mark.line + 1, mark.column + 1)
        self.document.values[loc] = place
        if kind == "scalar":
            return self._scalar(content, tag, quoted, loc, place)
        if id(content) in above:
            raise self._fail(mark, "contains itself through an anchor, write it out")
        above = above | {id(content)}
        if kind == "list":
            return [self._build(item, (*loc, i), above) for i, item in enumerate(content)]
        result: dict[str, Any] = {}
        for key_node, value_node in zip(content[::2], content[1::2], strict=True):
            key_mark = key_node[1]
            if key_node[0] != "scalar":
                raise self._fail(
                    key_mark, "has a key that is not text (got a list or mapping), write a plain key"
                )
            key = str(key_node[2])
            here = (*loc, key)
            key_place = (key_mark.line + 1, key_mark.column + 1)
            if key in result:
                first = self.document.keys[here]
                self.document.faults.append(
                    (key_place, here, f"is here twice (got it first in line {first[0]}), keep one")
                )
                continue
            self.document.keys[here] = key_place
            result[key] = self._build(value_node, here, above)
        return result

    def _scalar(self, text: str, tag: Any, quoted: bool, loc: Loc, place: Place) -> Any:
        if quoted or tag is not None:
            return text
        if _NULL.fullmatch(text):
            got = f"got {text}" if text else "got nothing"
            spot = self.document.keys.get(loc, place)
            self.document.faults.append(
                (spot, loc, f"is empty ({got}), give it a value or leave the key out")
            )
            return None
        if _TRUE.fullmatch(text):
            return True
        if _FALSE.fullmatch(text):
            return False
        try:
            if _INT.fullmatch(text):
                return int(text)
            if based := _BASED.fullmatch(text):
                return int(based[1], 8) if based[1] else int(based[2], 16)
        except ValueError:  # more digits than Python converts
            return float("inf")
        if _FLOAT.fullmatch(text):
            return float(text)
        if _INFINITE.fullmatch(text):
            return float("-inf") if text.startswith("-") else float("inf")
        if _NAN.fullmatch(text):
            return float("nan")
        return text


def _plain(error: Any) -> str:
    """A sentence for a person from the parser's problem."""
    problem = str(error.problem or error.context or "is no YAML")
    if "'\\t'" in problem or "\\t" in problem or "tab" in problem.lower():
        return "has a tab where YAML takes spaces only (got a tab), indent with spaces"
    if "mapping values are not allowed" in problem:
        return "has a second ': ' in one line (got a nested value), quote the text or start a new line"
    if "found character" in problem and "cannot start any token" in problem:
        got = problem.split("found character", 1)[1].split("that", 1)[0].strip()
        return f"has a character that no value can begin with (got {got}), put the text in quotes"
    if "could not find expected ':'" in problem:
        return "has a line that is no 'key: value' (got no colon), add the colon or indent it"
    context = f", {error.context}" if error.context and error.context != problem else ""
    if context and error.context_mark is not None:
        context += f" that begins in line {error.context_mark.line + 1}"
    return f"is no YAML ({problem}{context}), check indentation, brackets and quotes"
