"""An app by its name: `module:app`, as a user writes it.

The module is looked for in the current directory first. What its own code raises is told with its own lines, and none
of ours.
"""

import importlib
import os
import sys
import traceback
from typing import Any

from msgspec.structs import replace

from perdure.app import App
from perdure.cli.exits import CodeFailed, NoApp
from perdure.cli.places import Place
from perdure.model.limits import check_name


def load_app(target: str) -> App:
    """The App that `module:name` names; without a name it is `app`."""
    module_name, _, name = target.partition(":")
    if not module_name or module_name.endswith(".py") or "/" in module_name:
        raise NoApp("app", target, "names no module: it is `shop:app` for `app` in shop.py")
    found: Any = _imported(module_name, target)
    for part in (name or "app").split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise NoApp(
                "app", target, f"is not there: module {module_name} has no {part!r}"
            ) from None
    if not isinstance(found, App):
        raise NoApp("app", target, f"is of type {type(found).__name__}, not an App")
    return found


def _imported(module_name: str, target: str) -> Any:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and module_name.split(".")[0] == error.name.split(".")[0]:
            raise NoApp(
                "app", target, f"is not there: no module {error.name!r} in {here}, nor on sys.path"
            ) from None
        raise CodeFailed("app", target, _told(error)) from error
    except (Exception, SystemExit) as error:  # a script that ends by itself, for instance
        raise CodeFailed("app", target, _told(error)) from error


def _told(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if "importlib" not in one.filename and one.filename != __file__]
    lines = [*traceback.format_list(own), *traceback.format_exception_only(error)]
    return "could not be imported:\n" + "".join(lines).rstrip()


def placed(app: App, place: Place, *, worker: bool, grace: str | None = None) -> App:
    """The same app, elsewhere or with another grace if it was said so.

    Not a copy: code of the user may use the one that it knows.
    """
    if place.url is not None:
        app.url = place.url
    if place.namespace is not None:
        app.namespace = check_name("namespace", place.namespace)
    given = app._settings.grace if grace is None else grace
    app._settings = replace(app._settings, worker=worker, grace=given)
    return app
