"""What each stage's result depends on: the part of a spec's meaning that it reads, the data it looks up, its code."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from fleetplan import catalog, provenance
from fleetplan.errors import InputError
from fleetplan.spec.fleet import SharedFleet
from fleetplan.spec.scenario import Asked, Scenario
from fleetplan.store.tables import OF_FLEETS, stage_tables

# What is only about buying and keeping a fleet: one replica on its own does not depend on it.
BOUGHT = tuple(
    f"policy.{key}"
    for key in (
        "prices", "spare_replicas", "uncertainty", "buy_unit", "instances", "stock", "availability", "outages", "autoscaling",
        "commitments", "growth", "power", "ownership", "api",
    )
)  # fmt: skip
# Of it what says how a given number of GPUs is used.
PACKED = ("policy.spare_replicas", "policy.buy_unit", "policy.instances", "policy.availability")
# What a stage does not read, as dotted paths of the meaning; `slo` alone is any promise, wherever in the workload. Whatever
# is not named here counts, so that a new field of the spec reruns too much rather than too little.
IGNORED: dict[str, tuple[str, ...]] = {
    "candidates": ("slo", "policy", "simulation", "seed", "capacity"),
    "roofline": ("slo", "policy", "simulation", "seed", "capacity"),
    "batching": (*BOUGHT, "capacity"),
    "speculation": ("slo", "policy", "simulation", "seed", "capacity"),
    "sizing": (),
    "capacity": tuple(path for path in BOUGHT if path not in PACKED),
    "queueing": (),
}

LAYOUTS = "fleetplan.store.tables"


def stage_meaning(scenario: Asked, stage: str) -> dict[str, Any]:
    """All that can change what a stage makes of this scenario, as strict JSON: the spec's part and the data it names."""
    ignored = IGNORED[stage]
    spec = scenario.meaning()
    for path in ignored:
        *above, last = path.split(".")
        section: Any = spec
        for name in above:
            section = section.get(name, {})
        section.pop(last, None)
    if "slo" in ignored:
        spec["workload"] = _without(spec["workload"], "slo")
    gpus = set(scenario.gpus())
    if stage == "sizing" and isinstance(scenario, Scenario):
        gpus |= {gpu.name for gpu in catalog.gpus()}  # its levers plan every GPU that has a price
    data = _data(scenario, gpus, "prices" in spec.get("policy", {}))
    if isinstance(scenario, Scenario) and (
        stage == "speculation" or any(each != "none" for each in scenario.candidates.speculation)
    ):
        folder = catalog.data_dir()
        data["drafting"] = [_digest_of(folder / "acceptance.csv"), _yaml_digest(folder / "speculation.yaml")]
    return {"spec": spec, "data": data}


def stage_digest(scenario: Asked, stage: str) -> str:
    """SHA-256 of `stage_meaning`. Raises InputError when data that the scenario names is not there."""
    return provenance.digest(stage_meaning(scenario, stage))


@functools.cache
def code_fingerprint(verb: str) -> str:
    """SHA-256 of the code that a verb runs; of the data dictionary only the tables that its stage fills count."""
    from fleetplan.cli import VERBS

    module = f"fleetplan.cli.{VERBS[verb][0]}"
    if verb not in (*IGNORED, *OF_FLEETS):
        return provenance.fingerprint(module)
    layouts = [
        [table.name, table.key, [[column.name, column.type, column.nullable] for column in table.columns]]
        for table in stage_tables(verb)
    ]
    return provenance.digest([provenance.fingerprint(module, (LAYOUTS,)), layouts])


def part_meta(scenario: Asked, stage: str) -> dict[str, str | int]:
    """The metadata that every part of a stage carries: spec digest, code fingerprint, seed (0: the stage does not read it)."""
    return {
        "spec_digest": stage_digest(scenario, stage),
        "code_fingerprint": code_fingerprint(stage),
        "seed": 0 if "seed" in IGNORED[stage] else scenario.seed,
    }


def fleet_digest(fleet: SharedFleet) -> str:
    """SHA-256 of what a fleet's assignment depends on: its stock and budget, and all that its scenarios' decisions do."""
    own = fleet.model_dump(mode="json", exclude={"title", "scenarios"})
    return provenance.digest([own, [stage_meaning(scenario, "sizing") for scenario in fleet.loaded]])


def fleet_meta(fleet: SharedFleet) -> dict[str, str | int]:
    """The metadata that every part of a fleet carries; its scenarios have seeds of their own."""
    return {"spec_digest": fleet_digest(fleet), "code_fingerprint": code_fingerprint("fleet"), "seed": 0}


def _without(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name: _without(item, key) for name, item in value.items() if name != key}
    if isinstance(value, list):
        return [_without(item, key) for item in value]
    return value


def _data(scenario: Asked, gpus: set[str], with_prices: bool) -> dict[str, Any]:
    folder = catalog.data_dir()
    files = scenario.files()
    own_model = files.pop("model", None)
    found: dict[str, Any] = {
        "gpus": {
            name: catalog.gpu(name).model_dump(mode="json", exclude={"title", "source", "notes", "aliases"})
            for name in sorted(gpus)
        },
        "files": {name: provenance.file_digest(path) for name, path in sorted(files.items())},
        "tables": {
            name: _digest_of(folder / "workloads" / f"{name}.parquet") for name in _empirical(scenario)
        },
        "engines": _yaml_digest(folder / "engines.yaml"),
    }
    if isinstance(scenario, Scenario):
        found["model"] = repr(catalog.model(str(own_model) if own_model else scenario.model).architecture)
    if isinstance(scenario, Scenario) and scenario.step_time == "calibrated":
        found["calibration"] = {
            path.name: _yaml_digest(path) for path in sorted((folder / "calibration").glob("*.yaml"))
        }
    if with_prices:
        lists = scenario.policy.price_lists().values()
        found["prices"] = [_prices(scenario, folder, gpus, each) for each in lists]
    return found


def _prices(scenario: Asked, folder: Path, gpus: set[str], reference: str) -> Any:
    """A price list that a scenario names: of it what concerns these GPUs, without its words."""
    file, has_file, name = reference.rpartition("#")
    content = _yaml(scenario.folder / file if has_file else folder / "prices.yaml") or {}
    prices = content.get(name)
    if not isinstance(prices, dict):
        return None
    named = {catalog.gpu(gpu).name for gpu in gpus}
    return {
        key: {gpu: price for gpu, price in value.items() if _catalogued(gpu) in named}
        if key == "gpu_usd_per_hour" and isinstance(value, dict)
        else value
        for key, value in prices.items()
        if key not in ("title", "source")
    }


def _catalogued(gpu: str) -> str | None:
    """The catalogue's name of a GPU that a price list may call otherwise; None: the catalogue has none."""
    try:
        return catalog.gpu(gpu).name
    except InputError:
        return None


def _empirical(scenario: Asked) -> list[str]:
    """The shipped tables of traffic that a scenario names, anywhere in its workload."""

    def walk(value: Any) -> set[str]:
        if isinstance(value, dict):
            own = {value["empirical"]} if isinstance(value.get("empirical"), str) else set()
            return own.union(*(walk(item) for item in value.values()))
        return set().union(*(walk(item) for item in value)) if isinstance(value, list) else set()

    return sorted(walk(scenario.meaning()["workload"]))


def _digest_of(path: Path) -> str | None:
    return provenance.file_digest(path) if path.is_file() else None


def _yaml_digest(path: Path) -> str | None:
    content = _yaml(path)
    return None if content is None else provenance.digest(content)


@functools.cache
def _yaml(path: Path) -> Any:
    """A data file's content; None when it is not there: the stage that needs it says so."""
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).load(path) if path.is_file() else None
