"""A test function run statement by statement: what comes after one that failed is run, too."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

#: What is run as one statement: its body is about the error that it expects.
_EXPECTING = ("raises", "assert_raises", "warns", "deprecated_call")
_NOTED, _LOST = "_noted", "_lost"
_SIMPLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Assert, ast.Delete)
_COMPOUND = (ast.For, ast.While, ast.If, ast.With)


def run(
    test: Callable, self: Any, arguments: dict[str, Any]
) -> Iterator[tuple[int, BaseException | None]]:
    """Run a method's statements; yield each one's line with its error, as often as it was run.

    A name that a failed statement would have bound is unbound after it, and a statement that fails
    for want of such a name is not yielded. What skips a test, and what it raises itself, ends it.
    """
    found: list[tuple[int, BaseException | None]] = []
    lost: set[str] = set()

    def noted(line: int, error: BaseException | None = None) -> None:
        if isinstance(error, (pytest.skip.Exception, KeyboardInterrupt)):
            raise error
        if isinstance(error, NameError) and lost & set(re.findall(r"'(\w+)'", str(error))):
            return
        found.append((line, error))

    try:
        written(test, {_NOTED: noted, _LOST: lost.update})(self, **arguments)
    except (Exception, pytest.skip.Exception) as error:
        found.append((0, error))
    yield from found


def written(test: Callable, helpers: dict[str, Any]) -> Callable:
    """Return a function with every statement in a ``try`` of its own."""
    test = inspect.unwrap(test)
    tree = ast.parse(textwrap.dedent(inspect.getsource(test)))
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.decorator_list = []
    function.body = _each(function.body)
    _mangle(function, test.__qualname__.split(".")[-2].lstrip("_"))
    cells = zip(test.__code__.co_freevars, test.__closure__ or (), strict=True)
    free = {name: cell.cell_contents for name, cell in cells} | helpers
    # Within a function: what the test is closed over, `super()`'s __class__ too, are its arguments.
    outer = ast.parse(f"def outer({', '.join(free)}): pass").body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.body = [function, *ast.parse(f"return {function.name}").body]
    outer.body[-1] = ast.Return(ast.Name(function.name, ast.Load()))
    made: dict[str, Any] = {}
    module = ast.fix_missing_locations(ast.Module([outer], []))
    exec(compile(module, f"<{test.__qualname__}>", "exec"), test.__globals__, made)
    return made["outer"](**free)


def _each(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return statements with each in a ``try`` that notes its error, those within others too."""
    return [_alone(statement) for statement in body]


def _alone(statement: ast.stmt) -> ast.stmt:
    if isinstance(statement, ast.FunctionDef):
        statement.body = _each(statement.body)
        return statement
    if not isinstance(statement, (*_SIMPLE, *_COMPOUND)):
        return statement  # return and what a loop needs act; imports do not fail
    line = statement.lineno
    bound = sorted({n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and _binds(n)})
    done: list[ast.stmt] = []
    if isinstance(statement, _COMPOUND) and not _expects(statement):
        statement.body = _each(statement.body)
        if not isinstance(statement, ast.With):
            statement.orelse = _each(statement.orelse)
    else:
        done = ast.parse(f"{_NOTED}({line})").body
    unbound = [f"{_LOST}({bound!r})"] + [
        f"try: del {name}\n except NameError: pass" for name in bound
    ]
    caught = "\n ".join([f"{_NOTED}({line}, _error)", *unbound])
    attempt = ast.parse(f"try: pass\nexcept BaseException as _error:\n {caught}").body[0]
    assert isinstance(attempt, ast.Try)
    attempt.body, attempt.orelse = [statement], done
    return attempt


def _mangle(function: ast.FunctionDef, of_class: str) -> None:
    """Give private names the name of the class, as within its body."""
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Attribute)
            and node.attr.startswith("__")
            and node.attr[-2:] != "__"
        ):
            node.attr = f"_{of_class}{node.attr}"


def _binds(name: ast.Name) -> bool:
    return isinstance(name.ctx, (ast.Store, ast.Del))


def _expects(statement: ast.stmt) -> bool:
    """Return whether a statement is a ``with`` of an expected error."""
    if not isinstance(statement, ast.With):
        return False
    calls = [item.context_expr for item in statement.items]
    names = (ast.unparse(call.func) for call in calls if isinstance(call, ast.Call))
    return any(name.rpartition(".")[2] in _EXPECTING for name in names)
