"""Launch targets: a module for each tool that starts plans, or for several similar tools."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from planner.errors import LaunchError, did_you_mean
from planner.launch import READ_ONLY_TOOLS, TARGETS
from planner.launch.read.removed import refuse_removed_name
from planner.launch.target import LaunchTarget
from planner.launch.target_plugins import target_plugins, warn_of_plugin

_SHARED_MODULES = {**dict.fromkeys(("transformers", "deepspeed", "accelerate"), "hf_trainer")}
"""Modules shared by several tools."""


@cache
def targets() -> dict[str, LaunchTarget]:
    """Return the tools that launch files can be written for, by name; those of others last."""
    all_targets = {name: _load_target(name) for name in TARGETS}
    # Some programs have read-only updates, but their whole steps can be written.
    steps = {name: all_targets[name].step for name in TARGETS if name in READ_ONLY_TOOLS}
    shipped = {name: steps.get(name) or all_targets[name] for name in TARGETS}
    return {
        **shipped,
        **{name: target for name, target in _plugin_targets().items() if target.can_write},
    }


@cache
def readers() -> dict[str, LaunchTarget]:
    """All programs by name whose files can be read: targets and read-only tools."""
    shipped = {**targets(), **{name: _load_target(name) for name in READ_ONLY_TOOLS}}
    plugins = _plugin_targets()
    # The programs that are shipped recognise their commands first.
    return {**{name: target for name, target in shipped.items() if name not in plugins}, **plugins}


def _load_target(name: str) -> LaunchTarget:
    module = import_module(f"{__name__}.{_SHARED_MODULES.get(name, name).replace('-', '_')}")
    module_targets: tuple[LaunchTarget, ...] = getattr(module, "TARGETS", None) or (module.TARGET,)
    return next(target for target in module_targets if target.name == name)


@cache
def _plugin_targets() -> dict[str, LaunchTarget]:
    """Return the launch targets of other packages; warn about each that cannot be used.

    A module without ``TARGET`` gets a serving engine, made of its two tables.
    """
    plugins: dict[str, LaunchTarget] = {}
    for name, plugin in target_plugins().items():
        try:
            target = getattr(plugin.entry.load(), "TARGET", None)
            if target is None:
                engine = import_module(f"{__name__}.engine")
                target = engine.make_engine_target(name)
            if not isinstance(target, LaunchTarget) or target.name != name:
                raise LaunchError(
                    f"TARGET of its module is not a LaunchTarget with the name {name}."
                )
            _ = target.options
            plugins[name] = target
        except Exception as error:  # whatever a package of others raises
            warn_of_plugin(name, error)
    return plugins


def target_of(name: str) -> LaunchTarget:
    """Return the launch target with this name or alias.

    Raises LaunchError if the name is unknown or was removed.
    """
    key = name.strip().lower().replace("_", "-").replace(" ", "-")
    for target in targets().values():
        if key == target.name or key in target.aliases:
            return target
    names = list(targets())
    refuse_removed_name(key, name, f"Choose one of: {', '.join(names)}.")
    raise LaunchError(
        f"{name} is not a launch target.{did_you_mean(key, names)} There are: {', '.join(names)}."
    )
