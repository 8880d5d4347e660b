"""Where a result came from: digests of what was asked, fingerprints of the code that answered."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PACKAGE = "fleetplan"
ROOT = Path(__file__).resolve().parent


def digest(meaning: Any) -> str:
    """SHA-256 of a value as canonical JSON: neither the order of keys nor the way a number was written counts.

    >>> digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    True
    """
    text = json.dumps(meaning, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes. Raises OSError."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


@functools.cache
def fingerprint(module: str, but: tuple[str, ...] = ()) -> str:
    """SHA-256 of the code that a module of the package needs: its own and that of all it imports, however lazily.

    Comments, blank lines and docstrings do not count; the versions of the libraries imported do. Modules of `but` and
    those below them are left out.
    """
    graph = imports(module, but)
    _keep()
    code = {name: _source(name)[0] for name in graph}
    libraries = sorted({library for name in graph for library in _source(name)[2]})
    return digest({"code": code, "libraries": {name: _version(name) for name in libraries}})


@functools.cache
def imports(module: str, but: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The modules of the package that `module` imports, itself included, directly or not, by name."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in found or any(name == left or name.startswith(left + ".") for left in but):
            continue
        found.add(name)
        waiting += _source(name)[1]
    return tuple(sorted(found))


@functools.cache
def _path(module: str) -> Path | None:
    """The file of a module of the package; None if there is none of that name."""
    base = ROOT.joinpath(*module.split(".")[1:])
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.is_file():
            return path
    return None


@functools.cache
def _source(module: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The digest of a module's code, the modules of the package that it imports, and the libraries that it imports."""
    path = _path(module)
    if path is None:
        raise ModuleNotFoundError(f"{PACKAGE} has no module {module}")
    code, imported = _read(module, path)
    own: set[str] = set()
    libraries: set[str] = set()
    for name in imported:
        top = name.split(".", 1)[0]
        if top != PACKAGE:
            libraries.add(top)
        elif (known := _known(name)) and known not in (PACKAGE, module):
            own.add(known)
    own |= {parent for parent in _parents(module) if _path(parent)}
    return code, tuple(sorted(own)), tuple(sorted(libraries))


def _read(module: str, path: Path) -> tuple[str, list[str]]:
    """The digest of a file's code and the dotted names that it imports, remembered from one process to the next.

    What is remembered holds as long as the file's time and size do, which is what Python asks of its own compiled files.
    """
    stat = path.stat()
    stamp = [stat.st_mtime_ns, stat.st_size]
    remembered = _remembered(ROOT)
    known = remembered.get(module)
    if known is None or known[:2] != stamp:
        tree = ast.parse(path.read_bytes(), filename=str(path))
        names = sorted(set(_imported(tree, module, path.name == "__init__.py")))
        code = hashlib.sha256(ast.dump(_without_docstrings(tree)).encode()).hexdigest()
        known = remembered[module] = [*stamp, code, names]
        remembered[""] = [True]
    return known[2], known[3]


@functools.cache
def _remembered(root: Path) -> dict[str, list[Any]]:
    """By module: time [ns], size, digest and imports of its file; the empty name is there once something is new."""
    try:
        found = json.loads(_memory(root).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _memory(root: Path) -> Path:
    # Another Python writes another syntax tree; another version of this module may read it otherwise.
    rules = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    return root / "__pycache__" / f"sources.{sys.implementation.cache_tag}.{rules}.json"


def _keep() -> None:
    """Write down what is new; where that cannot be, each process reads the sources anew."""
    remembered = _remembered(ROOT)
    if remembered.pop("", None) is None:
        return
    path = _memory(ROOT)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(exist_ok=True)
        new.write_text(json.dumps(remembered))
        os.replace(new, path)
    except OSError:
        new.unlink(missing_ok=True)


def _imported(tree: ast.Module, module: str, package: bool) -> Iterable[str]:
    """Dotted names in import statements; `from a import b` gives a.b, which may be a module or a name in a."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = module.split(".") if package else module.split(".")[:-1]
                above = here[: len(here) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _known(name: str) -> str | None:
    """The longest beginning of a dotted name that is a module of the package."""
    while name and _path(name) is None:
        name = name.rpartition(".")[0]
    return name or None


def _parents(module: str) -> list[str]:
    """The packages that importing a module runs first; the two outermost only hold a version and dispatch verbs."""
    parts = module.split(".")
    above = [".".join(parts[:length]) for length in range(2, len(parts))]
    return [name for name in above if name != f"{PACKAGE}.cli"]


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            node.body = [line for line in node.body if not _is_text(line)] or [ast.Pass()]
    return tree


def _is_text(line: ast.stmt) -> bool:
    """A string that stands alone: the docstring of a module, class or function, or of the attribute above it."""
    return (
        isinstance(line, ast.Expr)
        and isinstance(line.value, ast.Constant)
        and isinstance(line.value.value, str)
    )


@functools.cache
def _version(library: str) -> str:
    for name in (library, library.replace("_", "-"), f"{library.replace('_', '-')}-python"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""
