"""What a scenario refers to: models, GPUs, precisions, price lists, traffic tables and files must be there and fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fleetplan.errors import InputError, unknown_name
from fleetplan.spec.arrivals import ClosedLoop
from fleetplan.spec.base import written_key
from fleetplan.spec.document import Loc
from fleetplan.spec.endpoint import EndpointScenario
from fleetplan.spec.scenario import Asked, Scenario
from fleetplan.spec.workload import ClassesWorkload, EmpiricalWorkload, TraceWorkload

Fault = tuple[Loc, str]


def faults(scenario: Asked, whole: bool = True) -> list[Fault]:
    """Path and sentence of every reference of a scenario that does not hold; a section that is None is passed over.

    `whole`: False where faulty entries were left out, so that what one section misses in another may be among them.
    """
    # The catalogue reads spec files of its own and stands above this room: imported only here, when a scenario is checked.
    from fleetplan import catalog

    found: list[Fault] = []

    def look_up(loc: Loc, find: Callable[[], Any]) -> Any:
        try:
            return find()
        except InputError as error:
            kind = next((part for part in reversed(loc) if isinstance(part, str)), "")
            found.extend((loc, line.removeprefix(f"{kind}: ")) for line in error.lines)
            return None

    if isinstance(scenario, EndpointScenario):
        found += _gpus([(("endpoint", i, "gpu"), gpu) for i, gpu in enumerate(scenario.gpus())], look_up)
        found += _prices(scenario, catalog.data_dir())
        found += _bought(scenario, look_up)
        found += _without_tokens(scenario)
        return found
    assert isinstance(scenario, Scenario)
    model = None
    if scenario.model is not None:
        name = str(scenario.files().get("model", scenario.model))
        model = look_up(("model",), lambda: catalog.model(name))
    if scenario.candidates is not None:
        found += _gpus(
            [(("candidates", "gpu", i), gpu) for i, gpu in enumerate(scenario.candidates.gpu)], look_up
        )
        _pools(scenario, look_up)
        found += _drafts(scenario, look_up, model)
        found += _held(scenario, look_up)
        found += _engines(scenario, look_up)
        found += _precisions(scenario, look_up, None if model is None else model.architecture)
    if scenario.candidates is not None and scenario.workload is not None:
        found += _weights(scenario)
        if whole:
            found += _residents(scenario)
            found += _patience(scenario)
    found += _adapters(scenario, None if model is None else model.architecture)
    found += _waiting(scenario)
    if scenario.policy is not None:
        found += _prices(scenario, catalog.data_dir())
        found += _bought(scenario, look_up)
    found += _traffic(scenario, catalog.data_dir())
    found += _solvable(scenario)
    if model is not None and model.architecture.max_context_tokens:
        found += _context(scenario, model.architecture.max_context_tokens)
    return found


def _gpus(named: list[tuple[Loc, str]], look_up: Callable[[Loc, Callable[[], Any]], Any]) -> Iterator[Fault]:
    """GPUs, each named once."""
    from fleetplan import catalog

    seen: dict[str, str] = {}
    for loc, written in named:
        gpu = look_up(loc, lambda written=written: catalog.gpu(written))  # type: ignore[misc]
        if gpu is None:
            continue
        if gpu.name in seen:
            yield (
                loc,
                f"is the same GPU as {seen[gpu.name]!r} (got {written!r}, both are {gpu.name}), keep one",
            )
        seen[gpu.name] = written


def _pools(scenario: Scenario, look_up: Callable[[Loc, Callable[[], Any]], Any]) -> None:
    """GPUs of prefill and decode pools, which may be named as often as one likes."""
    from fleetplan import catalog

    for i, choice in enumerate(scenario.candidates.disaggregated):
        for side in ("prefill", "decode") if not isinstance(choice, str) else ():
            written = getattr(choice, side).gpu
            if written is not None:
                loc = ("candidates", "disaggregated", i, side, "gpu")
                look_up(loc, lambda written=written: catalog.gpu(written))  # type: ignore[misc]


def _drafts(
    scenario: Scenario, look_up: Callable[[Loc, Callable[[], Any]], Any], model: Any
) -> Iterator[Fault]:
    """Who drafts is a method or a catalogue model, the model has the layers that it takes, and a row of measured acceptance is there and long enough."""
    from fleetplan import catalog
    from fleetplan.speculation.measured import measured, method, methods

    def drafter(name: str) -> Any:
        try:
            return method(name)
        except InputError:
            pass
        try:
            return catalog.model(name)
        except InputError:
            known = (*methods(), *(each.name for each in catalog.models()))
            raise InputError(unknown_name("draft", name, known)) from None

    for i, choice in enumerate(scenario.candidates.speculation):
        if isinstance(choice, str):
            continue
        loc: Loc = ("candidates", "speculation", i)
        found = look_up((*loc, "draft"), lambda name=choice.draft: drafter(name))  # type: ignore[misc]
        if getattr(found, "name", None) == "mtp" and model is not None and not model.architecture.mtp:
            yield (
                (*loc, "draft"),
                f"drafts by multi-token prediction (got {choice.draft}), and {model.name} has no such layers; take another draft, like eagle3",
            )
        if choice.acceptance_from is not None:
            look_up(
                (*loc, "acceptance_from"),
                lambda row=choice.acceptance_from, drafts=choice.tokens: measured(row).by_position(drafts),  # type: ignore[misc]
            )


def _by_class(scenario: Scenario, name: str) -> list[tuple[Loc, Any]]:
    """Path and value of one key of every class, or of the workload where it has none; what is left out is None."""
    workload = scenario.workload
    if isinstance(workload, ClassesWorkload):
        return [
            (("workload", "classes", i, written_key(name)), getattr(c, name))
            for i, c in enumerate(workload.classes)
        ]
    return [] if workload is None else [(("workload", written_key(name)), getattr(workload, name))]


def _weights(scenario: Scenario) -> Iterator[Fault]:
    """Every priority of the traffic has a weight where they are weighted."""
    least = max((value or 0 for _, value in _by_class(scenario, "priority")), default=0)
    for i, each in enumerate(scenario.candidates.scheduler):
        weights = each.priority_weights
        if weights is not None and len(weights) <= least:
            yield (
                ("candidates", "scheduler", i, "priority_weights"),
                f"has too few weights (got {len(weights)}), and a class has priority {least}; give {least + 1}, for the priorities 0 to {least}",
            )


def _residents(scenario: Scenario) -> Iterator[Fault]:
    """Adapters of the traffic are held by a scheduler, and what a scheduler holds is used."""
    named = [loc for loc, value in _by_class(scenario, "adapters") if value is not None]
    held = [i for i, each in enumerate(scenario.candidates.scheduler) if each.max_adapters is not None]
    if named and not held:
        yield (
            named[0],
            "needs adapters resident (got no max_adapters in candidates.scheduler), say how many, like "
            "{policy: chunked, max_adapters: 16, adapter_load: 30 ms}",
        )
    if not named:
        for i in held:
            loc = ("candidates", "scheduler", i, "max_adapters")
            got = scenario.candidates.scheduler[i].max_adapters
            yield loc, f"holds adapters that no class uses (got {got}), give a class adapters, or drop it"


def _patience(scenario: Scenario) -> Iterator[Fault]:
    """Clients that send again have something to send again for."""
    if getattr(scenario.workload, "clients", None) is None:
        return
    patient = all(value is None for _, value in _by_class(scenario, "timeout_s"))
    limits = ("max_queued_requests", "max_queued_tokens")
    if patient and all(
        getattr(each, name) is None for each in scenario.candidates.scheduler for name in limits
    ):
        yield (
            ("workload", "clients"),
            "send again what is refused or times out, and nothing is (got no timeout of a class and no max_queued_requests or "
            "max_queued_tokens of a scheduler); give one, or drop clients",
        )


def _adapters(scenario: Scenario, architecture: Any) -> Iterator[Fault]:
    """Matrices that adapters change are the model's."""
    if architecture is None:
        return
    known = list(dict.fromkeys(x.name for x in architecture.tensors() if len(x.shape) == 2))
    for loc, value in _by_class(scenario, "adapters"):
        for i, name in enumerate(value.targets or () if value is not None else ()):
            if name not in known:
                yield (*loc, "targets", i), unknown_name("matrix", name, known)


def _waiting(scenario: Scenario) -> Iterator[Fault]:
    """What is about arrivals that come whatever becomes of those before: users who wait have none."""
    workload = scenario.workload
    if not isinstance(workload, ClassesWorkload):
        return
    for i, c in enumerate(workload.classes):
        if not isinstance(c.arrivals or getattr(workload, "arrivals", None), ClosedLoop):
            continue
        why = {
            "sessions": "has turns of sessions (got users who wait, each of whom is a session), drop it",
            "semantic_cache": "answers before the model (got users who wait, who then ask again at once, which is not simulated), drop it; "
            "concurrency and think_time may be those of what reaches the model",
            "retries": "sends again as extra arrivals (got users who wait, who send one request at a time), drop it, or take workload.clients",
        }
        for key, sentence in why.items():
            if getattr(c, key) is not None:
                yield ("workload", "classes", i, key), sentence


def _held(scenario: Scenario, look_up: Callable[[Loc, Callable[[], Any]], Any]) -> Iterator[Fault]:
    """GPUs of a fleet that there is: each named once, and one that a candidate runs on."""
    from fleetplan import catalog

    named: list[tuple[Loc, str]] = [(("capacity", gpu), gpu) for gpu in scenario.capacity or {}]
    yield from _gpus(named, look_up)
    try:
        grid = {catalog.gpu(gpu).name for gpu in scenario.gpus()}
        unused = [(loc, gpu) for loc, gpu in named if catalog.gpu(gpu).name not in grid]
    except InputError:
        return  # an unknown GPU is told already
    for loc, gpu in unused:
        yield loc, f"is a GPU that no candidate runs on (got {gpu}), add it to candidates.gpu or leave it out"


def _engines(scenario: Scenario, look_up: Callable[[Loc, Callable[[], Any]], Any]) -> list[Fault]:
    """Engines of the table, and calibrations that are of one engine; a file that is not there is told with the other files."""
    from fleetplan import engines
    from fleetplan.physics import constants

    for i, each in enumerate(scenario.candidates.engine):
        loc: Loc = ("candidates", "engine", i)
        if each.file is None:
            look_up(loc, lambda name=each.name: engines.engine(name))  # type: ignore[misc]
        elif (scenario.folder / each.file).expanduser().is_file():
            look_up(loc, lambda path=scenario.folder / each.file: constants.engine_of(path))  # type: ignore[misc]
    return []


def _precisions(
    scenario: Scenario, look_up: Callable[[Loc, Callable[[], Any]], Any], architecture: Any
) -> list[Fault]:
    from fleetplan.physics import precision

    for i, name in enumerate(scenario.candidates.weights):
        if architecture is None and precision.ALIASES.get(name.lower(), name.lower()) == precision.STORED:
            continue  # what the checkpoint is stored in cannot be told without the model, whose fault is told
        look_up(("candidates", "weights", i), lambda name=name: precision.scheme(name, architecture))  # type: ignore[misc]
    for i, name in enumerate(scenario.candidates.kv_cache):
        look_up(("candidates", "kv_cache", i), lambda name=name: precision.kv_dtype_bytes(name))  # type: ignore[misc]
    return []


def _prices(scenario: Asked, data: Path) -> Iterator[Fault]:
    for loc, written in scenario.policy.price_lists().items():
        file, _, name = written.rpartition("#")
        path = scenario.folder / file if file else data / "prices.yaml"
        if not path.is_file():
            if file:
                yield loc, f"names a file that is not there (got {path}), give file.yaml#list"
            continue
        known = _top_keys(path)
        if name not in known:
            yield loc, unknown_name("price list", name, known)


def _bought(scenario: Asked, look_up: Callable[[Loc, Callable[[], Any]], Any]) -> Iterator[Fault]:
    """GPUs of stock, instances and ownership, each named once."""

    policy = scenario.policy
    named: dict[str, list[tuple[Loc, str]]] = {
        "stock": [(("policy", "stock", gpu), gpu) for gpu in policy.stock or {}],
        "instances": [
            (("policy", "instances", i, "gpu"), each.gpu) for i, each in enumerate(policy.instances)
        ],
    }
    if policy.ownership is not None and isinstance(policy.ownership.gpu_usd, dict):
        named["ownership"] = [(("policy", "ownership", "gpu", gpu), gpu) for gpu in policy.ownership.gpu_usd]
    for entries in named.values():
        yield from _gpus(entries, look_up)
    yield from _priced(scenario, named.get("ownership"))


def _priced(scenario: Asked, owned: list[tuple[Loc, str]] | None) -> Iterator[Fault]:
    """Where GPUs are bought at a price by kind, every kind that a candidate runs on has one."""
    from fleetplan import catalog

    if owned is None or (isinstance(scenario, Scenario) and scenario.candidates is None):
        return
    try:
        known = {catalog.gpu(name).name for _, name in owned}
        without = [gpu for gpu in scenario.gpus() if catalog.gpu(gpu).name not in known]
    except InputError:
        return  # an unknown GPU is told already
    if without:
        yield (
            ("policy", "ownership", "gpu"),
            f"has no price of {', '.join(without)}, on which candidates run (got {', '.join(name for _, name in owned)}), add it",
        )


def _without_tokens(scenario: EndpointScenario) -> Iterator[Fault]:
    """Parts of a policy that are about tokens, which an endpoint has none of."""
    policy = scenario.policy
    if policy.api is not None:
        yield ("policy", "api"), "prices tokens (got an endpoint, which has none), drop it"
    if policy.throughput_tokens_per_s is not None:
        yield ("policy", "throughput"), "promises tokens (got an endpoint, which has none), drop it"
    if policy.uncertainty.output_length_cv:
        yield (
            ("policy", "uncertainty", "output_length_cv"),
            f"is about output tokens (got {policy.uncertainty.output_length_cv:g}, and an endpoint has none), give step_time_cv for the service time",
        )
    if policy.uncertainty.prompt_length_cv:
        yield (
            ("policy", "uncertainty", "prompt_length_cv"),
            f"is about prompt tokens (got {policy.uncertainty.prompt_length_cv:g}, and an endpoint has none), give step_time_cv for the service time",
        )


def _top_keys(path: Path) -> list[str]:
    """Keys at the left margin of a YAML file, without reading all of it as YAML."""
    keys = []
    for line in path.read_text(encoding="utf-8").splitlines():
        key, colon, _ = line.partition(":")
        if colon and key and not key[0].isspace() and key[0] not in "#-":
            keys.append(key.strip("'\""))
    return keys


def _traffic(scenario: Scenario, data: Path) -> Iterator[Fault]:
    tables = sorted(path.stem for path in (data / "workloads").glob("*.parquet"))
    named: list[tuple[Loc, str]] = []
    workload = scenario.workload
    if isinstance(workload, EmpiricalWorkload):
        named.append((("workload", "empirical"), workload.empirical))
    elif isinstance(workload, ClassesWorkload):
        named += [
            (("workload", "classes", i, "empirical"), c.empirical)
            for i, c in enumerate(workload.classes)
            if c.empirical is not None
        ]
    for loc, name in named:
        if name.endswith(".parquet"):
            if not (scenario.folder / name).is_file():
                yield (
                    loc,
                    f"names a file that is not there (got {scenario.folder / name}), give a table of facts",
                )
        elif name not in tables:
            yield loc, unknown_name("empirical workload", name, tables)
    for dotted, path in scenario.files().items():
        if dotted != "model" and not path.expanduser().is_file():
            yield (
                tuple(int(part) if part.isdigit() else part for part in dotted.split(".")),
                f"names a file that is not there (got {path}), give a path from the spec's folder",
            )
    if isinstance(workload, TraceWorkload) and workload.format is not None:
        from fleetplan.traffic.traces import FORMATS

        if workload.format not in FORMATS:
            yield ("workload", "format"), unknown_name("trace format", workload.format, FORMATS)


def _context(scenario: Scenario, most: int) -> Iterator[Fault]:
    """Lengths that no draw, or not even the mean draw, can have within the model's context."""
    if not isinstance(scenario.workload, ClassesWorkload):
        return
    for i, c in enumerate(scenario.workload.classes):
        loc: Loc = ("workload", "classes", i)
        typical = {
            key: _typical(getattr(c, key)) for key in ("prompt_tokens", "output_tokens", "reasoning_tokens")
        }
        alone = [key for key, tokens in typical.items() if tokens is not None and tokens > most]
        for key in alone:
            kind = "a prompt" if key == "prompt_tokens" else "an output"
            yield (
                (*loc, key),
                f"is {kind} longer than the model's context (got {typical[key]:g} tokens), at most {most} fit",
            )
        total = sum(tokens or 0 for tokens in typical.values())
        if not alone and total > most:
            yield (
                (*loc, "prompt_tokens" if c.prompt_tokens is not None else "name"),
                f"plus output is longer than the model's context (got {total:g} tokens in all), at most {most} fit",
            )
        if c.shared_prefix is not None and (tokens := _typical(c.shared_prefix.tokens) or 0) > most:
            yield (
                (*loc, "shared_prefix", "tokens"),
                f"is a prefix longer than the model's context (got {tokens:g} tokens), at most {most} fit",
            )


def _solvable(scenario: Scenario) -> Iterator[Fault]:
    """Distributions that what is given of them does not fix."""
    from fleetplan.traffic.from_spec import length_of

    def unsolved(loc: Loc, length: Any) -> Iterator[Fault]:
        if length is None or isinstance(length, (int, float)):
            return
        try:
            length_of(length)
        except InputError as error:
            for line in error.lines:
                given, _, why = line.partition(": ")
                yield loc, f"cannot be (got a {given}), {why}"

    workload = scenario.workload
    for i, c in enumerate(workload.classes if isinstance(workload, ClassesWorkload) else ()):
        loc: Loc = ("workload", "classes", i)
        for key in ("prompt_tokens", "output_tokens", "reasoning_tokens"):
            yield from unsolved((*loc, key), getattr(c, key))
        for key, inner in (("shared_prefix", "tokens"), ("sessions", "turns")):
            if (part := getattr(c, key)) is not None:
                yield from unsolved((*loc, key, inner), getattr(part, inner))


def _typical(length: Any) -> float | None:
    """A length that the distribution surely has in its middle: the number, the mean or median; else its least."""
    if length is None or isinstance(length, (int, float)):
        return None if length is None else float(length)
    given = getattr(length, type(length).__name__.lower())
    if isinstance(given, dict):
        return float(given["p50"] if "p50" in given else given["p0"])
    for name in ("mean", "p50", "min"):
        value = getattr(given, name, None)
        if value is not None:
            cap = getattr(given, "max", None)
            return float(min(value, cap) if cap is not None else value)
    return None
